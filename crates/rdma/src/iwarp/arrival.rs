//! Places the payload of a segment while it arrives, so that the driver keeps little of a stream between its
//! reads.
//!
//! Only for FPDUs without CRC and markers: with either, the whole FPDU is verified first. The access of the
//! whole segment is checked before its first part is placed, and the access of the rest again with each
//! further part. A message completes when its last segment is complete.

use nichrome_wire::iwarp::{Opcode, Segment, SegmentDestination, fpdu_len};

/// Minimum bytes of a part: for fewer bytes, keeping them until the rest arrives costs less than placing
/// them.
const SHORTEST_PART: usize = 4096;

/// Parts end at multiples of this number of bytes in the tagged offset or the message, so that no aligned
/// word is written in two steps.
const LINE: u64 = 64;

/// Bytes of the length field of an FPDU.
const LENGTH_LEN: usize = 2;

/// Bytes of a segment's payload that have arrived.
#[derive(Clone, Copy)]
pub(super) struct Arrived<'a> {
    pub(super) bytes: &'a [u8],
    /// Bytes of the payload behind them.
    pub(super) following: usize,
}

impl<'a> Arrived<'a> {
    /// Wraps the whole payload, or its last bytes.
    #[inline]
    pub(super) fn last(bytes: &'a [u8]) -> Self {
        Self { bytes, following: 0 }
    }

    /// Returns the number of bytes from the first of `bytes` to the payload's end.
    #[inline]
    pub(super) fn left(&self) -> usize {
        self.bytes.len() + self.following
    }

    /// Returns true if the segment ends with these bytes.
    #[inline]
    pub(super) fn ends(&self) -> bool {
        self.following == 0
    }
}

/// A segment that has begun to arrive.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    header: [u8; Segment::UNTAGGED_LEN],
    /// Bytes of the segment.
    len: u16,
    /// Bytes of its payload that have been placed.
    placed: u16,
}

/// The next part of a segment.
pub(super) struct Part<'a> {
    /// The segment's header, with the offset of this part.
    pub(super) segment: Segment,
    pub(super) payload: Arrived<'a>,
    /// Bytes of the stream that the part takes.
    pub(super) len: usize,
    /// The segment after this part; `None` if it is complete.
    pub(super) next: Option<Begun>,
}

impl Begun {
    /// Returns the segment in the FPDU at the front of `stream`, and the bytes behind its header; `None` if
    /// the segment is not of a SEND, WRITE or READ response, or its first part has not arrived.
    pub(super) fn first(stream: &[u8]) -> Option<(Self, &[u8])> {
        let (length, ulpdu) = stream.split_first_chunk::<LENGTH_LEN>()?;
        let (segment, payload) = Segment::parse(ulpdu).ok()?;
        if payload.len() < SHORTEST_PART || !carries_data(segment.opcode) {
            return None;
        }
        Some((Self { header: *ulpdu.first_chunk()?, len: u16::from_be_bytes(*length), placed: 0 }, payload))
    }

    /// Returns the header, and the length of the segment in bytes: a TERMINATE carries both.
    pub(super) fn header(&self) -> (&[u8], usize) {
        (&self.header, self.len.into())
    }

    /// Returns the next part, which begins at the front of `stream`; `None` before enough bytes have arrived.
    pub(super) fn part<'a>(&self, stream: &'a [u8]) -> Option<Part<'a>> {
        let (mut segment, _) = Segment::parse(&self.header).ok()?;
        let (len, placed) = (usize::from(self.len), self.placed);
        let left = len.checked_sub(segment.header_len() + usize::from(placed))?;
        let start = match &mut segment.destination {
            SegmentDestination::Tagged { offset, .. } => {
                *offset = offset.wrapping_add(placed.into());
                *offset
            }
            SegmentDestination::Untagged { offset, .. } => {
                *offset = offset.wrapping_add(placed.into());
                u64::from(*offset)
            }
        };
        let behind = fpdu_len(len) - LENGTH_LEN - len;
        if stream.len() >= left + behind {
            let payload = Arrived::last(&stream[..left]);
            return Some(Part { segment, payload, len: left + behind, next: None });
        }
        // The last bytes are placed when the FPDU is whole.
        let most = left.saturating_sub(1).min(stream.len());
        let end = start.checked_add(most as u64)? & !(LINE - 1);
        let len = end.saturating_sub(start) as usize;
        if len < SHORTEST_PART {
            return None;
        }
        let payload = Arrived { bytes: &stream[..len], following: left - len };
        let next = Some(Self { placed: placed + len as u16, ..*self });
        Some(Part { segment, payload, len, next })
    }
}

/// Returns true if messages of this opcode can have any length.
const fn carries_data(opcode: Opcode) -> bool {
    use Opcode as O;
    matches!(
        opcode,
        O::Write
            | O::ReadResponse
            | O::Send
            | O::SendInvalidate
            | O::SendSolicited
            | O::SendSolicitedInvalidate
    )
}
