//! The list of segments behind a gap, sorted by sequence number (Algorithms 1 and 2 of lro-npu).

use nichrome_wire::{Instant, SeqNumber};

use crate::frame::Frame;
use crate::recycle::Recycle;
use crate::segment::Segment;

/// A segment behind a gap.
pub(crate) struct Waiting<B> {
    pub(crate) frame: Frame<B>,
    pub(crate) segment: Segment,
}

/// The out-of-order part of a descriptor's packet list: in order of sequence, without overlaps.
pub(crate) struct ReorderList<B> {
    waiting: Vec<Waiting<B>>,
    /// Arrival of the first segment.
    pub(crate) since: Instant,
}

/// The result of an insertion.
pub(crate) enum Insertion<B> {
    /// The segment waits.
    Waits,
    /// A segment with the same bytes waits already.
    Duplicate(Frame<B>),
    /// Some of the bytes wait already.
    Overlap(Frame<B>),
    /// The list is full.
    Full(Frame<B>),
}

impl<B> Recycle for ReorderList<B> {
    fn clear(&mut self) {
        self.waiting.clear();
    }
}

impl<B> ReorderList<B> {
    /// Creates a list for up to `room` segments.
    pub(crate) fn new(room: usize) -> Self {
        Self { waiting: Vec::with_capacity(room), since: Instant::ZERO }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the sequence number of the first segment.
    pub(crate) fn first_seq(&self) -> Option<SeqNumber> {
        self.waiting.first().map(|waiting| waiting.segment.seq)
    }

    /// Insert of Algorithm 2, searched from the end, where most segments belong. As printed, the algorithm
    /// compares from the front and never appends; appending must be meant.
    pub(crate) fn insert(&mut self, frame: Frame<B>, segment: Segment) -> Insertion<B> {
        let after = self.waiting.iter().rposition(|waiting| !waiting.segment.seq.after(segment.seq));
        let place = after.map_or(0, |at| at + 1);
        if let Some(before) = after.map(|at| &self.waiting[at].segment)
            && before.end().after(segment.seq)
        {
            let same = before.seq == segment.seq && before.payload_len == segment.payload_len;
            return if same { Insertion::Duplicate(frame) } else { Insertion::Overlap(frame) };
        }
        if self.waiting.get(place).is_some_and(|next| segment.end().after(next.segment.seq)) {
            return Insertion::Overlap(frame);
        }
        if self.waiting.len() == self.waiting.capacity() {
            return Insertion::Full(frame);
        }
        self.waiting.insert(place, Waiting { frame, segment });
        Insertion::Waits
    }

    /// Removes the segments at the front that are consecutive from `seq` on.
    pub(crate) fn take_consecutive(&mut self, seq: SeqNumber) -> impl Iterator<Item = Waiting<B>> {
        let mut next = seq;
        let count = self
            .waiting
            .iter()
            .take_while(|waiting| {
                let follows = waiting.segment.seq == next;
                next = waiting.segment.end();
                follows
            })
            .count();
        self.waiting.drain(..count)
    }
}
