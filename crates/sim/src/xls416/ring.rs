//! Rings: of messages between threads (the Fast Messaging Network, lro-npu VI) and of packet descriptors
//! (V.A, Figure 8).

use std::collections::VecDeque;

/// A bounded queue of messages to a thread.
#[derive(Clone, Debug)]
pub(super) struct MessageRing<T> {
    messages: VecDeque<T>,
    capacity: usize,
}

impl<T> MessageRing<T> {
    /// Creates an empty ring of this capacity.
    pub(super) fn new(capacity: usize) -> Self {
        Self { messages: VecDeque::new(), capacity }
    }

    /// Appends a message.
    ///
    /// # Errors
    /// The ring is full: returns the message.
    pub(super) fn send(&mut self, message: T) -> Result<(), T> {
        if self.messages.len() >= self.capacity {
            return Err(message);
        }
        self.messages.push_back(message);
        Ok(())
    }

    /// Removes the first message.
    pub(super) fn receive(&mut self) -> Option<T> {
        self.messages.pop_front()
    }

    /// Returns the number of messages.
    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }
}

/// The packet descriptors of a thread in PCIe shared memory (Figure 8). Each refers to host pages for one
/// packet and so limits the packets between thread and host.
#[derive(Clone, Debug)]
pub(super) struct DescriptorRing {
    descriptors: u64,
    in_use: u64,
}

impl DescriptorRing {
    /// Creates a ring of free descriptors, at least 1.
    pub(super) fn new(descriptors: u64) -> Self {
        Self { descriptors: descriptors.max(1), in_use: 0 }
    }

    /// Returns true if a descriptor is free.
    pub(super) fn has_one(&self) -> bool {
        self.in_use < self.descriptors
    }

    /// Returns the number of used descriptors.
    pub(super) fn in_use(&self) -> u64 {
        self.in_use
    }

    /// Takes a descriptor; returns false if none is free.
    #[must_use]
    pub(super) fn take(&mut self) -> bool {
        let is_free = self.has_one();
        self.in_use += u64::from(is_free);
        is_free
    }

    /// Returns a descriptor.
    pub(super) fn release(&mut self) {
        self.in_use = self.in_use.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_order_and_a_full_ring_hands_back() {
        let mut ring = MessageRing::new(2);
        assert_eq!([ring.send('a'), ring.send('b'), ring.send('c')], [Ok(()), Ok(()), Err('c')]);
        assert_eq!([ring.receive(), ring.receive(), ring.receive()], [Some('a'), Some('b'), None]);
    }

    #[test]
    fn a_ring_hands_out_the_descriptors_that_it_has() {
        let mut ring = DescriptorRing::new(2);
        assert_eq!([ring.take(), ring.take(), ring.take()], [true, true, false]);
        ring.release();
        assert_eq!([ring.take(), ring.take()], [true, false]);
    }
}
