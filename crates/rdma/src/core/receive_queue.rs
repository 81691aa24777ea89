//! Receive queues: of one queue pair, or shared by several.

use std::collections::VecDeque;

use super::slab::Handle;
use super::work::Sge;
use crate::core::kind;

/// A receive that a message has taken from the queue. Its slot is in use until it completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceiveSlot(u32);

struct Receive {
    wr_id: u64,
    sges: u32,
    len: u32,
}

/// A FIFO of receives. Its memory grows to the highest use.
pub(crate) struct ReceiveQueue {
    slots: Vec<Receive>,
    /// `max_sge` entries per slot.
    sges: Vec<Sge>,
    posted: VecDeque<u32>,
    free: Vec<u32>,
    pub(crate) max_wr: usize,
    pub(crate) max_sge: usize,
}

impl ReceiveQueue {
    pub(crate) fn new(max_wr: usize, max_sge: usize) -> Self {
        let (slots, sges, posted, free) = Default::default();
        Self { slots, sges, posted, free, max_wr, max_sge }
    }

    /// Returns the number of posted receives.
    pub(crate) fn len(&self) -> usize {
        self.posted.len()
    }

    /// Returns the number of receives that are posted or taken and not complete.
    pub(crate) fn in_use(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.in_use() >= self.max_wr
    }

    /// Adds a receive. The caller has checked the number and total length of its buffers.
    pub(crate) fn post(&mut self, wr_id: u64, sges: &[Sge], len: u32) {
        let receive = Receive { wr_id, sges: sges.len() as u32, len };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = receive;
                slot
            }
            None => {
                self.slots.push(receive);
                self.sges.resize(self.slots.len() * self.max_sge, Sge::default());
                self.slots.len() as u32 - 1
            }
        };
        let start = slot as usize * self.max_sge;
        self.sges[start..start + sges.len()].copy_from_slice(sges);
        self.posted.push_back(slot);
    }

    /// Takes the oldest receive for a message.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<ReceiveSlot> {
        self.posted.pop_front().map(ReceiveSlot)
    }

    /// Returns the posted receive at position `index`; 0 is the oldest.
    pub(crate) fn waiting(&self, index: usize) -> Option<ReceiveSlot> {
        self.posted.get(index).map(|slot| ReceiveSlot(*slot))
    }

    /// Returns the receive that was taken last to the front of the queue.
    pub(crate) fn put_back(&mut self, slot: ReceiveSlot) {
        self.posted.push_front(slot.0);
    }

    /// Returns the buffers of a receive.
    #[inline]
    pub(crate) fn buffers(&self, slot: ReceiveSlot) -> &[Sge] {
        let start = slot.0 as usize * self.max_sge;
        &self.sges[start..start + self.slots[slot.0 as usize].sges as usize]
    }

    /// Returns the total length of a receive's buffers in bytes.
    #[inline]
    pub(crate) fn room(&self, slot: ReceiveSlot) -> u32 {
        self.slots[slot.0 as usize].len
    }

    /// Frees a receive that was taken; returns its `wr_id`.
    #[inline]
    pub(crate) fn release(&mut self, slot: ReceiveSlot) -> u64 {
        self.free.push(slot.0);
        self.slots[slot.0 as usize].wr_id
    }

    /// Drops all posted receives.
    pub(crate) fn clear(&mut self) {
        self.free.extend(self.posted.drain(..));
    }
}

/// A receive queue that several queue pairs take from.
pub(crate) struct SharedReceiveQueue {
    pub(crate) domain: Handle<kind::Domain>,
    pub(crate) queue: ReceiveQueue,
    /// An event is raised once when fewer receives than this are posted; 0 disables it.
    pub(crate) limit: usize,
    /// Queue pairs that wait for a receive, in the order of their turns.
    pub(crate) waiters: VecDeque<Handle<kind::Qp>>,
    /// Number of queue pairs that take from the queue.
    pub(crate) users: u32,
    /// `Some` for a queue of an XRC domain.
    pub(crate) xrc: Option<XrcQueue>,
}

/// The XRC domain and the completion queue of a shared receive queue, which requests use in place of the
/// target's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct XrcQueue {
    pub(crate) domain: Handle<kind::Xrc>,
    /// Completion queue of its receives.
    pub(crate) cq: Handle<kind::Cq>,
}

impl SharedReceiveQueue {
    /// Returns true if fewer receives than the limit are posted, and disarms the limit (IBA 10.2.9.5).
    pub(crate) fn passed_limit(&mut self) -> bool {
        let passed = self.queue.len() < self.limit;
        if passed {
            self.limit = 0;
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LKey;

    fn sge(address: u64) -> Sge {
        Sge { address, len: 10, lkey: LKey(1) }
    }

    #[test]
    fn receives_keep_their_buffers_until_they_are_released() {
        let mut queue = ReceiveQueue::new(2, 2);
        queue.post(1, &[sge(10), sge(20)], 20);
        queue.post(2, &[sge(30)], 10);
        assert!(queue.is_full());
        let (first, second) = (queue.take().unwrap(), queue.take().unwrap());
        queue.post(3, &[sge(40)], 10);
        assert_eq!(queue.buffers(first), [sge(10), sge(20)]);
        assert_eq!((queue.buffers(second), queue.room(first)), (&[sge(30)][..], 20));
        assert_eq!((queue.release(second), queue.release(first)), (2, 1));
        queue.post(4, &[sge(50)], 10);
        assert_eq!(queue.slots.len(), 3, "places are used again");
        let third = queue.take().unwrap();
        queue.put_back(third);
        assert_eq!(queue.take(), Some(third));
    }

    #[test]
    fn a_cleared_queue_has_room_for_as_many_receives_as_before() {
        let mut queue = ReceiveQueue::new(2, 1);
        queue.post(1, &[sge(10)], 10);
        queue.post(2, &[sge(20)], 10);
        let taken = queue.take().unwrap();
        queue.clear();
        assert_eq!((queue.len(), queue.in_use(), queue.take()), (0, 1, None));
        assert_eq!((queue.release(taken), queue.in_use()), (1, 0));
    }
}
