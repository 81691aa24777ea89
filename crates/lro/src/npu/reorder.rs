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

    /// Returns the number of segments.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
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

#[cfg(test)]
mod tests {
    use nichrome_wire::TcpFrame;

    use super::*;
    use crate::parse::{Parsed, parse};
    use crate::segment::Medium;

    /// Longest stream in bytes; its sequence numbers wrap at the fourth.
    const BYTES: u32 = 6;
    /// Number of insertions in a row.
    const DEPTH: u32 = 4;

    /// A segment of the stream.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Part {
        at: u32,
        len: u32,
    }

    impl Part {
        fn all() -> impl Iterator<Item = Self> {
            (0..BYTES).flat_map(|at| (1..=3.min(BYTES - at)).map(move |len| Self { at, len }))
        }

        fn overlaps(self, other: Self) -> bool {
            self.at < other.at + other.len && other.at < self.at + self.len
        }

        fn seq(self) -> SeqNumber {
            SeqNumber(u32::MAX - 2) + self.at
        }
    }

    /// Returns the expected result of inserting a part into a list that holds the `waiting` parts.
    fn expected(waiting: &[Part], part: Part, room: usize) -> &'static str {
        match waiting.iter().find(|other| other.overlaps(part)) {
            Some(_) if waiting.contains(&part) => "duplicate",
            Some(_) => "overlap",
            None if waiting.len() == room => "full",
            None => "waits",
        }
    }

    fn name(insertion: &Insertion<Vec<u8>>) -> &'static str {
        match insertion {
            Insertion::Waits => "waits",
            Insertion::Duplicate(_) => "duplicate",
            Insertion::Overlap(_) => "overlap",
            Insertion::Full(_) => "full",
        }
    }

    /// Inserts the parts in this order. Compares each result, and the segments taken at the end, with a
    /// sorted list.
    fn check(parts: &[Part], room: usize, sample: &Segment) {
        let mut list = ReorderList::new(room);
        let mut waiting: Vec<Part> = Vec::new();
        for part in parts {
            let segment = Segment { seq: part.seq(), payload_len: part.len, ..*sample };
            let result = list.insert(Frame::new(Vec::new()), segment);
            assert_eq!(name(&result), expected(&waiting, *part, room), "{parts:?}, room for {room}");
            if matches!(result, Insertion::Waits) {
                waiting.push(*part);
                waiting.sort_unstable_by_key(|part| part.at);
            }
        }
        while let Some(seq) = list.first_seq() {
            let before = waiting.len();
            let mut end = seq;
            for taken in list.take_consecutive(seq) {
                let part = waiting.remove(0);
                assert_eq!((taken.segment.seq, part.seq()), (end, end), "{parts:?}, room for {room}");
                end = taken.segment.end();
            }
            assert!(
                waiting.len() < before && waiting.first().is_none_or(|part| part.seq() != end),
                "{parts:?}"
            );
        }
        assert!(waiting.is_empty(), "{parts:?}, room for {room}");
    }

    #[test]
    fn every_sequence_of_insertions_agrees_with_a_sorted_list() {
        let frame = TcpFrame { payload: vec![0], ..TcpFrame::default() }.build();
        let Parsed::Tcp(sample) = parse(&frame, Medium::Ethernet) else { panic!("no segment") };
        let all: Vec<Part> = Part::all().collect();
        for code in 0..all.len().pow(DEPTH) {
            let parts: Vec<Part> = (0..DEPTH).map(|nth| all[code / all.len().pow(nth) % all.len()]).collect();
            (1..=3).for_each(|room| check(&parts, room, &sample));
        }
    }
}
