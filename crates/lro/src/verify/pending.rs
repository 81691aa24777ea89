//! The bytes of one stream: which were received, and those that have not come out yet.

use std::collections::BTreeMap;
use std::ops::Range;

use nichrome_wire::{SeqNumber, TcpFlags};

use super::Difference;

/// A place in a stream: sequence numbers unwrapped, so that they do not repeat.
type Place = i64;

/// The header fields of a segment that its bytes must come out with.
#[derive(Clone, Copy)]
pub(super) struct Fields {
    /// The frame, counted from 1.
    pub(super) frame: u64,
    pub(super) class: u8,
    pub(super) flags: TcpFlags,
    pub(super) ack: SeqNumber,
}

/// The part of what came out that one segment had brought.
#[derive(Clone, Copy)]
pub(super) struct Brought {
    /// Where it starts, from the first byte that came out.
    pub(super) at: usize,
    pub(super) len: usize,
    pub(super) fields: Fields,
}

/// Bytes that were received and have not come out.
struct Piece {
    bytes: Vec<u8>,
    fields: Fields,
}

/// One stream of bytes, of which the first copy counts.
#[derive(Default)]
pub(super) struct Stream {
    /// The first place, where a SYN said so; what is before it, no receiver takes.
    first: Option<Place>,
    /// Where the last segment was.
    latest: Option<Place>,
    /// Start and end of what was received: nothing overlaps or touches.
    received: BTreeMap<Place, Place>,
    pending: BTreeMap<Place, Piece>,
    compared: u64,
}

impl Stream {
    /// A stream whose first byte has this sequence number.
    pub(super) fn beginning_at(seq: SeqNumber) -> Self {
        Self { first: Some(i64::from(seq.0)), latest: Some(i64::from(seq.0)), ..Self::default() }
    }

    /// The range of `len` bytes from `start` on, without what is before the stream.
    fn range(&self, start: Place, len: usize) -> Range<Place> {
        let end = start + len as Place;
        self.first.map_or(start, |first| start.max(first).min(end))..end
    }

    /// The place of a sequence number: the one that is nearest to that of the last segment.
    fn place(&self, seq: SeqNumber) -> Place {
        let latest = self.latest.unwrap_or_else(|| i64::from(seq.0));
        latest + i64::from(seq.since(SeqNumber(latest as u32)))
    }

    /// Notes a segment; says whether any of its bytes is new.
    pub(super) fn receive(&mut self, seq: SeqNumber, bytes: &[u8], fields: Fields) -> bool {
        if bytes.is_empty() {
            return false;
        }
        let start = self.place(seq);
        self.latest = Some(start);
        let new = self.cover(self.range(start, bytes.len()));
        for range in &new {
            let bytes = bytes[(range.start - start) as usize..(range.end - start) as usize].to_vec();
            self.pending.insert(range.start, Piece { bytes, fields });
        }
        !new.is_empty()
    }

    /// Adds a range to what was received; returns the parts that were not there before.
    fn cover(&mut self, range: Range<Place>) -> Vec<Range<Place>> {
        let mut new = Vec::new();
        let (mut start, mut end, mut at) = (range.start, range.end, range.start);
        if range.is_empty() {
            return new;
        }
        let before = self.received.range(..range.start).next_back().map(|(start, end)| (*start, *end));
        let within = self.received.range(range.start..=range.end).map(|(start, end)| (*start, *end));
        let touching: Vec<_> =
            before.into_iter().chain(within).filter(|(_, end)| *end >= range.start).collect();
        for (from, to) in touching {
            if from > at {
                new.push(at..from);
            }
            at = at.max(to);
            (start, end) = (start.min(from), end.max(to));
            self.received.remove(&from);
        }
        if at < range.end {
            new.push(at..range.end);
        }
        self.received.insert(start, end);
        new
    }

    /// Whether all of a range was received.
    fn covers(&self, range: &Range<Place>) -> bool {
        let before = self.received.range(..=range.start).next_back();
        range.is_empty() || before.is_some_and(|(_, end)| *end >= range.end)
    }

    /// Where the pieces start that share bytes with a range.
    fn overlapping(&self, range: &Range<Place>) -> impl Iterator<Item = (Place, &Piece)> {
        let (start, end) = (range.start, range.end);
        let before = self.pending.range(..start).next_back();
        let within = self.pending.range(start..end);
        let ends_after = move |(at, piece): &(&Place, &Piece)| **at + piece.bytes.len() as Place > start;
        before.into_iter().chain(within).filter(ends_after).map(|(at, piece)| (*at, piece))
    }

    /// Checks bytes that came out against the first copy of each; returns which segments had brought those that had
    /// not come out before.
    pub(super) fn deliver(&mut self, seq: SeqNumber, bytes: &[u8]) -> Result<Vec<Brought>, Difference> {
        const TURN: Place = 1 << 32;
        let nearest = self.place(seq);
        // A segment that was held long may be of another turn of the sequence numbers than the last one received.
        let turns = [nearest - TURN, nearest + TURN].map(|start| self.range(start, bytes.len()));
        let range = std::iter::once(self.range(nearest, bytes.len()))
            .chain(turns.into_iter().filter(|range| !range.is_empty()))
            .filter(|range| self.covers(range))
            .min_by_key(|range| {
                self.overlapping(range).map(|(_, piece)| piece.fields.frame).min().unwrap_or(u64::MAX)
            })
            .ok_or(Difference::NotReceived { seq, len: bytes.len() })?;
        let before = bytes.len() - (range.end - range.start) as usize;
        let bytes = &bytes[before..];
        let starts: Vec<Place> = self.overlapping(&range).map(|(start, _)| start).collect();
        let mut brought = Vec::with_capacity(starts.len());
        for start in starts {
            if let Some(piece) = self.pending.remove(&start) {
                let fields = piece.fields;
                let common = self.compare(start, piece, &range, bytes)?;
                let at = before + (common.start - range.start) as usize;
                brought.push(Brought { at, len: (common.end - common.start) as usize, fields });
            }
        }
        self.check_order(&range, &brought)?;
        Ok(brought)
    }

    /// Checks that nothing is left that was received before these segments and comes before them in the stream.
    fn check_order(&self, range: &Range<Place>, brought: &[Brought]) -> Result<(), Difference> {
        let Some(frame) = brought.iter().map(|part| part.fields.frame).min() else { return Ok(()) };
        let left = self.pending.range(..range.start).map(|(_, piece)| piece.fields.frame);
        match left.filter(|left| *left < frame).min() {
            Some(overtaken) => Err(Difference::Overtook { frame, overtaken }),
            None => Ok(()),
        }
    }

    /// Compares the part of a piece that is within `range`, and keeps the rest. Returns where that part is.
    fn compare(
        &mut self,
        start: Place,
        piece: Piece,
        range: &Range<Place>,
        bytes: &[u8],
    ) -> Result<Range<Place>, Difference> {
        let Piece { bytes: received, fields } = piece;
        let end = start + received.len() as Place;
        let common = start.max(range.start)..end.min(range.end);
        let of_piece = &received[(common.start - start) as usize..(common.end - start) as usize];
        let of_range = &bytes[(common.start - range.start) as usize..(common.end - range.start) as usize];
        if of_piece != of_range
            && let Some(at) =
                of_piece.iter().zip(of_range).position(|(received, delivered)| received != delivered)
        {
            let seq = SeqNumber((common.start + at as Place) as u32);
            let (received, delivered) = (of_piece[at], of_range[at]);
            return Err(Difference::Changed { seq, frame: fields.frame, received, delivered });
        }
        self.compared += of_piece.len() as u64;
        if start < common.start {
            let bytes = received[..(common.start - start) as usize].to_vec();
            self.pending.insert(start, Piece { bytes, fields });
        }
        if common.end < end {
            let bytes = received[(common.end - start) as usize..].to_vec();
            self.pending.insert(common.end, Piece { bytes, fields });
        }
        Ok(common)
    }

    /// The first frame that brought bytes which have not come out.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.pending.values().map(|piece| piece.fields.frame).min()
    }

    /// Checks that all bytes came out; how many were compared.
    pub(super) fn finish(&self) -> Result<u64, Difference> {
        match self.pending.iter().next() {
            Some((start, Piece { bytes, fields })) => {
                let (seq, len) = (SeqNumber(*start as u32), bytes.len());
                Err(Difference::MissingBytes { seq, len, frame: fields.frame })
            }
            None => Ok(self.compared),
        }
    }
}
