//! The bytes of one stream that were received and have not come out.

use std::collections::BTreeMap;
use std::ops::Range;

use nichrome_wire::{SeqNumber, TcpFlags};

use super::Difference;
use super::ranges::{Place, Ranges};

/// The header fields of a segment with which its bytes must come out.
#[derive(Clone, Copy)]
pub(super) struct Fields {
    /// The frame, counted from 1.
    pub(super) frame: u64,
    pub(super) class: u8,
    pub(super) flags: TcpFlags,
    pub(super) ack: SeqNumber,
}

/// A part of the delivered bytes that one segment contained.
#[derive(Clone, Copy)]
pub(super) struct DeliveredPart {
    /// Its start, from the first delivered byte.
    pub(super) at: usize,
    pub(super) len: usize,
    pub(super) fields: Fields,
}

/// What a received segment adds to the stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NewData {
    /// No new byte.
    Nothing,
    /// Bytes that unparsed segments may have contained.
    SeenOpaque,
    /// New bytes.
    Bytes,
}

/// Received bytes that have not come out.
struct Piece {
    bytes: Vec<u8>,
    fields: Fields,
}

/// One byte stream, of which the first copy of each byte counts.
#[derive(Default)]
pub(super) struct Stream {
    /// The first byte's place, known from the SYN; receivers ignore bytes before it.
    first: Option<Place>,
    /// Place of the last segment: the next sequence numbers are unwrapped to places near it.
    latest: Option<Place>,
    /// All received bytes, also those before the stream.
    received: Ranges,
    /// Bytes that unparsed segments may have contained.
    opaque: Ranges,
    pending: BTreeMap<Place, Piece>,
    compared: u64,
}

impl Stream {
    /// Creates a stream whose first byte has this sequence number.
    pub(super) fn beginning_at(seq: SeqNumber) -> Self {
        Self { first: Some(i64::from(seq.0)), latest: Some(i64::from(seq.0)), ..Self::default() }
    }

    /// Returns the part of a range that is in the stream.
    fn within(&self, range: &Range<Place>) -> Range<Place> {
        self.first.map_or(range.start, |first| range.start.max(first).min(range.end))..range.end
    }

    /// Returns the place of a sequence number: the nearest to the last segment's.
    fn place(&self, seq: SeqNumber) -> Place {
        let latest = self.latest.unwrap_or_else(|| i64::from(seq.0));
        latest + i64::from(seq.since(SeqNumber(latest as u32)))
    }

    /// Records the place of a segment. A place further from the last one than any window (RFC 7323 section
    /// 2.3) belongs to another connection, or is forged: it would unwrap the next sequence numbers wrongly.
    fn move_on(&mut self, start: Place) {
        const REACH: u64 = 1 << 29;
        if self.latest.is_none_or(|latest| latest.abs_diff(start) < REACH) {
            self.latest = Some(start);
        }
    }

    /// Records a segment.
    pub(super) fn receive(&mut self, seq: SeqNumber, bytes: &[u8], fields: Fields) -> NewData {
        if bytes.is_empty() {
            return NewData::Nothing;
        }
        let start = self.place(seq);
        self.move_on(start);
        let mut new_data = NewData::Nothing;
        for range in self.received.cover(start..start + bytes.len() as Place) {
            let range = self.within(&range);
            if range.is_empty() {
                continue;
            }
            new_data =
                new_data.max(if self.opaque.covers(&range) { NewData::SeenOpaque } else { NewData::Bytes });
            let bytes = bytes[(range.start - start) as usize..(range.end - start) as usize].to_vec();
            self.pending.insert(range.start, Piece { bytes, fields });
        }
        new_data
    }

    /// Records a segment that is not parsed.
    pub(super) fn receive_opaque(&mut self, seq: SeqNumber, len: usize) {
        let start = self.place(seq);
        self.opaque.cover(start..start + len as Place);
    }

    /// Forgets the bytes of a dropped segment.
    pub(super) fn forget_frame(&mut self, frame: u64) {
        self.pending.retain(|_, piece| piece.fields.frame != frame);
    }

    /// Returns the starts of the pieces that overlap a range.
    fn overlapping(&self, range: &Range<Place>) -> impl Iterator<Item = (Place, &Piece)> {
        let (start, end) = (range.start, range.end);
        let before = self.pending.range(..start).next_back();
        let within = self.pending.range(start..end);
        let ends_after = move |(at, piece): &(&Place, &Piece)| **at + piece.bytes.len() as Place > start;
        before.into_iter().chain(within).filter(ends_after).map(|(at, piece)| (*at, piece))
    }

    /// Compares delivered bytes with the first copy of each. Returns the segments that contained those not
    /// delivered before.
    pub(super) fn deliver(&mut self, seq: SeqNumber, bytes: &[u8]) -> Result<Vec<DeliveredPart>, Difference> {
        const TURN: Place = 1 << 32;
        let nearest = self.place(seq);
        // The sequence numbers may have wrapped since a segment that was held long was received.
        let range = [nearest, nearest - TURN, nearest + TURN]
            .map(|start| start..start + bytes.len() as Place)
            .into_iter()
            .filter(|range| self.received.covers(range))
            .map(|range| self.within(&range))
            .min_by_key(|range| {
                self.overlapping(range).map(|(_, piece)| piece.fields.frame).min().unwrap_or(u64::MAX)
            })
            .ok_or(Difference::NotReceived { seq, len: bytes.len() })?;
        let before = bytes.len() - (range.end - range.start) as usize;
        let bytes = &bytes[before..];
        let starts: Vec<Place> = self.overlapping(&range).map(|(start, _)| start).collect();
        let mut parts = Vec::with_capacity(starts.len());
        for start in starts {
            if let Some(piece) = self.pending.remove(&start) {
                let fields = piece.fields;
                let common = self.compare(start, piece, &range, bytes)?;
                let at = before + (common.start - range.start) as usize;
                parts.push(DeliveredPart { at, len: (common.end - common.start) as usize, fields });
            }
        }
        self.check_order(&range, &parts)?;
        Ok(parts)
    }

    /// Checks that no bytes are outstanding that were received before these segments and precede them in the
    /// stream.
    fn check_order(&self, range: &Range<Place>, parts: &[DeliveredPart]) -> Result<(), Difference> {
        let Some(frame) = parts.iter().map(|part| part.fields.frame).min() else { return Ok(()) };
        let left = self.pending.range(..range.start).map(|(_, piece)| piece.fields.frame);
        match left.filter(|left| *left < frame).min() {
            Some(overtaken) => Err(Difference::Overtook { frame, overtaken }),
            None => Ok(()),
        }
    }

    /// Compares the part of a piece that is within `range`, and keeps the rest. Returns the range of that
    /// part.
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

    /// Returns the first frame with outstanding bytes.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.pending.values().map(|piece| piece.fields.frame).min()
    }

    /// Checks that all bytes came out; returns how many were compared.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The stream's first byte: its sequence numbers wrap.
    const FIRST: u32 = u32::MAX - 30;
    /// Bytes before the stream that segments may contain.
    const BEFORE: usize = 8;

    /// The expected state of one byte of a stream.
    #[derive(Clone, Copy, Default)]
    struct Byte {
        /// The first frame that contained it.
        frame: Option<u64>,
        is_out: bool,
    }

    /// Receives 10 bytes of frame `nth`, whose sequence number is a sixteenth of the sequence space after the
    /// previous frame's.
    fn receive(stream: &mut Stream, nth: u32) -> NewData {
        let fields = Fields { frame: nth.into(), class: 0, flags: TcpFlags::NONE, ack: SeqNumber(0) };
        stream.receive(SeqNumber(nth << 28), &[nth as u8; 10], fields)
    }

    /// Returns the frame that contained the bytes of frame `nth`.
    fn deliver(stream: &mut Stream, nth: u32) -> u64 {
        stream.deliver(SeqNumber(nth << 28), &[nth as u8; 10]).unwrap()[0].fields.frame
    }

    /// Receives a byte.
    fn receive_byte(stream: &mut Stream, seq: u32) -> NewData {
        let fields = Fields { frame: 1, class: 0, flags: TcpFlags::NONE, ack: SeqNumber(0) };
        stream.receive(SeqNumber(seq), &[7], fields)
    }

    #[test]
    fn segments_within_reach_carry_the_stream_on_and_forged_ones_do_not() {
        let mut stream = Stream::default();
        for nth in 0..=32_u32 {
            // The sequence numbers wrap three times.
            assert!(receive_byte(&mut stream, nth.wrapping_mul(3 << 27)) == NewData::Bytes, "segment {nth}");
        }
        let mut stream = Stream::default();
        for seq in [0, 0x7800_0000, 0xF000_0000] {
            assert!(receive_byte(&mut stream, seq) == NewData::Bytes);
        }
        assert!(receive_byte(&mut stream, 0) == NewData::Nothing, "it is of the same turn");
    }

    #[test]
    fn bytes_held_long_are_of_the_turn_in_which_they_came() {
        let mut stream = Stream::default();
        for nth in 0..=20 {
            assert!(receive(&mut stream, nth) == NewData::Bytes, "frame {nth}");
        }
        for nth in 0..=20 {
            assert_eq!(deliver(&mut stream, nth), nth.into());
        }
        assert_eq!(stream.finish(), Ok(210));
        // The last segments received may be old ones.
        let mut stream = Stream::default();
        for nth in 0..=10 {
            assert!(receive(&mut stream, nth) == NewData::Bytes, "frame {nth}");
        }
        for nth in (0..10).rev() {
            assert!(receive(&mut stream, nth) == NewData::Nothing, "frame {nth}");
        }
        for nth in 0..=10 {
            assert_eq!(deliver(&mut stream, nth), nth.into());
        }
    }

    proptest! {
        /// Byte 0 is [`BEFORE`] bytes before the stream's first byte.
        #[test]
        fn a_stream_is_compared_byte_by_byte(
            steps in proptest::collection::vec((any::<bool>(), 0..70usize, 1..20usize, 0..300usize), 1..60),
        ) {
            let mut stream = Stream::beginning_at(SeqNumber(FIRST));
            let mut account = [Byte::default(); 90];
            let mut content: Vec<u8> = (0..300u16).map(|n| (n * 2) as u8).collect();
            for (frame, (is_received, start, len, changed)) in (1..).zip(steps) {
                let seq = SeqNumber(FIRST.wrapping_sub(BEFORE as u32)) + start as u32;
                let range = start..start + len;
                if is_received {
                    let fields = Fields { frame, class: 0, flags: TcpFlags::NONE, ack: SeqNumber(0) };
                    let new_data = stream.receive(seq, &content[range.clone()], fields);
                    let mut is_new = false;
                    for nth in range {
                        is_new |= nth >= BEFORE && account[nth].frame.is_none();
                        account[nth].frame.get_or_insert(frame);
                        account[nth].is_out |= nth < BEFORE;
                    }
                    prop_assert_eq!(new_data == NewData::Bytes, is_new);
                    continue;
                }
                let is_due = |nth: &usize| account[*nth].frame.is_some() && !account[*nth].is_out;
                let due: Vec<usize> = range.clone().filter(is_due).collect();
                content[changed] ^= 1;
                let delivered = stream.deliver(seq, &content[range.clone()]);
                content[changed] ^= 1;
                if range.clone().any(|nth| account[nth].frame.is_none()) {
                    let is_refused = matches!(delivered, Err(Difference::NotReceived { .. }));
                    prop_assert!(is_refused);
                    continue;
                }
                if due.contains(&changed) {
                    let is_refused = matches!(delivered, Err(Difference::Changed { .. }));
                    prop_assert!(is_refused);
                    return Ok(());
                }
                let oldest = due.iter().filter_map(|nth| account[*nth].frame).min();
                let overtaken = (0..start).filter(is_due).filter_map(|nth| account[nth].frame).min();
                if let (Some(frame), Some(overtaken)) = (oldest, overtaken) && overtaken < frame {
                    prop_assert_eq!(delivered.err(), Some(Difference::Overtook { frame, overtaken }));
                    return Ok(());
                }
                let mut parts = Vec::new();
                for part in delivered.map_err(|error| TestCaseError::fail(error.to_string()))? {
                    let places = start + part.at..start + part.at + part.len;
                    let is_of = |byte: &Byte| byte.frame == Some(part.fields.frame);
                    prop_assert!(account[places.clone()].iter().all(is_of));
                    parts.extend(places);
                }
                prop_assert_eq!(&parts, &due);
                due.iter().for_each(|nth| account[*nth].is_out = true);
            }
            let left = (0..90).find(|nth| account[*nth].frame.is_some() && !account[*nth].is_out);
            let outstanding = account.iter().filter(|byte| !byte.is_out).filter_map(|byte| byte.frame);
            prop_assert_eq!(stream.oldest(), outstanding.min());
            match (stream.finish(), left) {
                (Ok(compared), None) => {
                    let out = account[BEFORE..].iter().filter(|byte| byte.is_out).count();
                    prop_assert_eq!(compared, out as u64);
                }
                (Err(Difference::MissingBytes { seq, frame, .. }), Some(left)) => {
                    prop_assert_eq!(seq, SeqNumber(FIRST.wrapping_sub(BEFORE as u32)) + left as u32);
                    prop_assert_eq!(Some(frame), account[left].frame);
                }
                (end, left) => prop_assert!(false, "{end:?}, {left:?}"),
            }
        }
    }
}
