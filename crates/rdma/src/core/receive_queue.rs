//! Posted receives: of one queue pair, or shared by several.

use std::collections::VecDeque;

use super::work::Sge;

/// A receive that has been taken from its queue by a message, and whose place is kept until it completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceiveSlot(u32);

struct Receive {
    wr_id: u64,
    sges: u32,
    len: u32,
}

/// Receives in the order they were posted. Memory grows to what was in use at the same time and is used again.
pub(crate) struct ReceiveQueue {
    slots: Vec<Receive>,
    /// `max_sge` for each slot.
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

    /// Receives that wait for a message.
    pub(crate) fn len(&self) -> usize {
        self.posted.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.posted.len() >= self.max_wr
    }

    /// Adds a receive whose buffers have been checked in number and length.
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

    /// The receive that waits behind `index` others.
    pub(crate) fn waiting(&self, index: usize) -> Option<ReceiveSlot> {
        self.posted.get(index).map(|slot| ReceiveSlot(*slot))
    }

    /// Puts a receive that was taken last back where it was.
    pub(crate) fn put_back(&mut self, slot: ReceiveSlot) {
        self.posted.push_front(slot.0);
    }

    /// The buffers of a receive.
    #[inline]
    pub(crate) fn buffers(&self, slot: ReceiveSlot) -> &[Sge] {
        let start = slot.0 as usize * self.max_sge;
        &self.sges[start..start + self.slots[slot.0 as usize].sges as usize]
    }

    /// Bytes that fit into the buffers of a receive.
    #[inline]
    pub(crate) fn room(&self, slot: ReceiveSlot) -> u32 {
        self.slots[slot.0 as usize].len
    }

    /// Gives up a receive that was taken: what the program called it.
    #[inline]
    pub(crate) fn release(&mut self, slot: ReceiveSlot) -> u64 {
        self.free.push(slot.0);
        self.slots[slot.0 as usize].wr_id
    }

    /// Forgets every receive that waits.
    pub(crate) fn clear(&mut self) {
        self.free.extend(self.posted.drain(..));
    }
}

/// A receive queue that several queue pairs take from.
pub(crate) struct SharedReceiveQueue {
    pub(crate) domain: super::slab::Handle<crate::core::kind::Domain>,
    pub(crate) queue: ReceiveQueue,
    /// Fewer receives than this make one event; 0 for none.
    pub(crate) limit: usize,
    /// Queue pairs that take from it.
    pub(crate) users: u32,
}

impl SharedReceiveQueue {
    /// Whether the limit was just passed: then it is armed no more (IBA 10.2.9.5).
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
}
