//! Packet numbers of the sends in the queue.

use std::collections::VecDeque;

use nichrome_wire::rdma::Psn;

/// Packet numbers of one send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// The first PSN, once the send has begun.
    pub(super) first: Psn,
    /// Number of PSNs.
    pub(super) packets: u32,
}

impl Span {
    /// Returns the last PSN, once the send has begun.
    #[inline]
    pub(super) fn last(&self) -> Psn {
        self.first + (self.packets - 1)
    }

    /// Returns the index of a PSN within the send; 0 for an earlier PSN.
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

    /// Removes the oldest.
    #[inline]
    pub(super) fn pop(&mut self) {
        self.0.pop_front();
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
