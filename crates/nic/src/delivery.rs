//! Several workers' packets, one host queue: the DMA load balance of lro-npu, section V.B.
//!
//! Each worker has a delivery queue of its own; one packet is taken from each in turn, so that a worker with much to
//! deliver does not hold up another's.

use rtrb::{Consumer, Producer, RingBuffer};

/// A worker's end of its delivery queue.
pub type Deliverer<T> = Producer<T>;

/// Takes from delivery queues in turn.
pub struct RoundRobin<T> {
    queues: Vec<Consumer<T>>,
    next: usize,
}

/// So many delivery queues with room for `room` packets each, and what takes from them.
pub fn queues<T>(count: usize, room: usize) -> (Vec<Deliverer<T>>, RoundRobin<T>) {
    let (deliverers, queues) = (0..count).map(|_| RingBuffer::new(room)).unzip();
    (deliverers, RoundRobin { queues, next: 0 })
}

impl<T> RoundRobin<T> {
    /// The next packet: of the first queue with one, beginning behind the queue that the last one came from.
    pub fn take(&mut self) -> Option<T> {
        for _ in 0..self.queues.len() {
            let at = self.next;
            self.next = (at + 1) % self.queues.len();
            if let Ok(packet) = self.queues[at].pop() {
                return Some(packet);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_worker_does_not_hold_up_anothers_syn() {
        let (mut deliverers, mut turn) = queues(3, 1000);
        for nth in 0..1000 {
            deliverers[0].push(("data", nth)).unwrap();
        }
        assert_eq!(turn.take(), Some(("data", 0)));
        deliverers[2].push(("syn", 0)).unwrap();
        assert_eq!(turn.take(), Some(("syn", 0)), "999 packets of another worker wait");
        assert_eq!(turn.take(), Some(("data", 1)));
    }

    #[test]
    fn the_order_within_a_queue_is_kept_and_nothing_is_lost() {
        let (mut deliverers, mut turn) = queues(2, 10);
        for nth in 0..5 {
            deliverers[0].push((0, nth)).unwrap();
            deliverers[1].push((1, nth)).unwrap();
        }
        let taken: Vec<_> = std::iter::from_fn(|| turn.take()).collect();
        assert_eq!(taken.len(), 10);
        for queue in 0..2 {
            assert!(taken.iter().filter(|(of, _)| *of == queue).map(|(_, nth)| *nth).eq(0..5));
        }
        assert!(deliverers.iter().all(|deliverer| deliverer.slots() == 10));
    }
}
