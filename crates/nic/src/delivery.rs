//! Delivery of several workers' packets to one host queue: the DMA load balance of lro-npu, section V.B.
//!
//! Each worker has its own delivery queue, and one packet is taken from each in turn, so that a busy worker
//! does not delay another's packets.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use rtrb::{Consumer, Producer, PushError, RingBuffer};

/// Sleep between two attempts to push to a full delivery queue.
const RETRY_DELAY: Duration = Duration::from_micros(20);

/// A worker's sending end of its delivery queue.
pub struct Deliverer<T>(Producer<T>);

impl<T> fmt::Debug for Deliverer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deliverer").finish_non_exhaustive()
    }
}

/// The result of pushing to a delivery queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// Queued at once.
    AtOnce,
    /// Queued after waiting for room.
    AfterWaiting,
    /// Dropped: no room in time.
    Dropped,
}

impl<T> Deliverer<T> {
    /// Queues a packet. If the queue is full, calls `wake` and waits for room, for at most `max_wait`, from
    /// which it subtracts the wait. Meanwhile the worker leaves received frames in the wire's ring.
    pub fn push(&mut self, packet: T, max_wait: &mut Duration, wake: impl FnOnce()) -> Pushed {
        let Err(PushError::Full(packet)) = self.0.push(packet) else { return Pushed::AtOnce };
        wake();
        let begun = Instant::now();
        while self.0.is_full() && begun.elapsed() < *max_wait {
            thread::sleep(RETRY_DELAY);
        }
        *max_wait = max_wait.saturating_sub(begun.elapsed());
        match self.0.push(packet) {
            Ok(()) => Pushed::AfterWaiting,
            Err(PushError::Full(_)) => Pushed::Dropped,
        }
    }
}

/// Takes packets from delivery queues in turn.
pub struct RoundRobin<T> {
    queues: Vec<Consumer<T>>,
    next: usize,
}

impl<T> fmt::Debug for RoundRobin<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoundRobin").field("next", &self.next).finish_non_exhaustive()
    }
}

/// Creates `count` delivery queues with room for `room` packets each, and their common receiving end.
pub fn queues<T>(count: usize, room: usize) -> (Vec<Deliverer<T>>, RoundRobin<T>) {
    let (producers, queues): (Vec<_>, _) = (0..count).map(|_| RingBuffer::new(room)).unzip();
    (producers.into_iter().map(Deliverer).collect(), RoundRobin { queues, next: 0 })
}

impl<T> RoundRobin<T> {
    /// Returns the next packet and the number of its queue: the first non-empty queue after that of the
    /// previous packet.
    pub fn take(&mut self) -> Option<(usize, T)> {
        for _ in 0..self.queues.len() {
            let at = self.next;
            self.next = (at + 1) % self.queues.len();
            if let Ok(packet) = self.queues[at].pop() {
                return Some((at, packet));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Queues a packet; the queue must have room.
    fn push<T>(deliverer: &mut Deliverer<T>, packet: T) {
        let mut max_wait = Duration::ZERO;
        assert_eq!(deliverer.push(packet, &mut max_wait, || {}), Pushed::AtOnce);
    }

    #[test]
    fn a_worker_waits_for_room_before_it_drops() {
        let (mut deliverers, mut turn) = queues(1, 1);
        let (deliverer, mut max_wait) = (&mut deliverers[0], Duration::from_secs(10));
        push(deliverer, 1);
        let taker = &mut turn;
        thread::scope(|scope| {
            let pushed = deliverer.push(2, &mut max_wait, || {
                scope.spawn(move || taker.take());
            });
            assert_eq!(pushed, Pushed::AfterWaiting);
        });
        assert!(max_wait < Duration::from_secs(10));
        assert_eq!(turn.take(), Some((0, 2)));
    }

    #[test]
    fn patience_is_for_all_packets_of_a_batch_together() {
        let (mut deliverers, _turn) = queues(1, 1);
        let (deliverer, mut max_wait, woken) = (&mut deliverers[0], Duration::from_millis(2), Cell::new(0));
        push(deliverer, 1);
        let begun = Instant::now();
        for _ in 0..100 {
            let pushed = deliverer.push(2, &mut max_wait, || woken.set(woken.get() + 1));
            assert_eq!(pushed, Pushed::Dropped);
        }
        assert_eq!((max_wait, woken.get()), (Duration::ZERO, 100));
        assert!(begun.elapsed() >= Duration::from_millis(2));
    }

    #[test]
    fn a_busy_worker_does_not_hold_up_anothers_syn() {
        let (mut deliverers, mut turn) = queues(3, 1000);
        for nth in 0..1000 {
            push(&mut deliverers[0], ("data", nth));
        }
        assert_eq!(turn.take(), Some((0, ("data", 0))));
        push(&mut deliverers[2], ("syn", 0));
        assert_eq!(turn.take(), Some((2, ("syn", 0))), "999 packets of another worker wait");
        assert_eq!(turn.take(), Some((0, ("data", 1))));
    }

    #[test]
    fn the_order_within_a_queue_is_kept_and_nothing_is_lost() {
        let (mut deliverers, mut turn) = queues(2, 10);
        for nth in 0..5 {
            push(&mut deliverers[0], (0, nth));
            push(&mut deliverers[1], (1, nth));
        }
        let taken: Vec<_> = std::iter::from_fn(|| turn.take()).collect();
        assert_eq!(taken.len(), 10);
        for queue in 0..2 {
            let of_queue = taken.iter().filter(|(from, _)| *from == queue).map(|(_, packet)| *packet);
            assert!(of_queue.eq((0..5).map(|nth| (queue, nth))));
        }
        assert!(deliverers.iter().all(|deliverer| deliverer.0.slots() == 10));
    }
}
