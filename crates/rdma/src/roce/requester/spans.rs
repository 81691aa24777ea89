//! Packet numbers of the sends in the queue.

use std::collections::VecDeque;

use nichrome_wire::rdma::Psn;

/// Packet numbers of one send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// The first, once the send has begun.
    pub(super) first: Psn,
    /// How many there are.
    pub(super) packets: u32,
}

impl Span {
    /// The last, once the send has begun.
    #[inline]
    pub(super) fn last(&self) -> Psn {
        self.first + (self.packets - 1)
    }

    /// The place of a packet number within the send; 0 for one before it.
    #[inline]
    pub(super) fn place_of(&self, psn: Psn) -> u32 {
        psn.since(self.first).max(0).unsigned_abs()
    }
}

/// One span for each send in the queue, in the same order.
#[derive(Debug, Default)]
pub(super) struct Spans(VecDeque<Span>);

impl Spans {
    /// Adds a send that has not begun and takes `packets` numbers.
    #[inline]
    pub(super) fn push(&mut self, packets: u32) {
        self.0.push_back(Span { first: Psn::new(0), packets });
    }

    /// Gives the send at `index` its packet numbers.
    #[inline]
    pub(super) fn begin(&mut self, index: usize, first: Psn) {
        if let Some(span) = self.0.get_mut(index) {
            span.first = first;
        }
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<Span> {
        self.0.get(index).copied()
    }

    /// Takes the oldest out.
    #[inline]
    pub(super) fn pop(&mut self) {
        self.0.pop_front();
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
