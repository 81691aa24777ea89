//! DDP segments and the RDMAP control byte (RFC 5041 section 4, RFC 5040 section 4).

use super::error::SegmentError;
use crate::bytes::{array, be32, put};

/// A steering tag: names registered memory, as an rkey does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct STag(pub u32);

/// A message sequence number: counts the messages of an untagged queue from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MessageNumber(pub u32);

impl MessageNumber {
    /// The number of a queue's first message.
    pub const FIRST: Self = Self(1);

    /// Returns the next number.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// The queues of untagged messages (RFC 5040 section 5, RFC 7306 section 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Queue {
    /// SENDs and immediate data.
    Send = 0,
    /// READ and atomic requests.
    Request = 1,
    /// TERMINATE.
    Terminate = 2,
    /// Atomic responses.
    AtomicResponse = 3,
}

/// Operations of RDMAP (RFC 5040 figure 4, RFC 7306 figure 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// A message into memory that the sender names.
    Write = 0,
    /// A request for memory that the requester names.
    ReadRequest = 1,
    /// The answer to a READ request.
    ReadResponse = 2,
    /// A message into a receive.
    Send = 3,
    /// A SEND that invalidates an STag of the receiver.
    SendInvalidate = 4,
    /// A SEND that requests a solicited event.
    SendSolicited = 5,
    /// A SEND that does both.
    SendSolicitedInvalidate = 6,
    /// The end of the connection by an error.
    Terminate = 7,
    /// 8 bytes of immediate data into a receive.
    Immediate = 8,
    /// Immediate data that requests a solicited event.
    ImmediateSolicited = 9,
    /// A request for an atomic operation.
    AtomicRequest = 10,
    /// The answer to an atomic request.
    AtomicResponse = 11,
}

impl Opcode {
    /// Every opcode, in the order of the codes.
    pub const ALL: [Self; 12] = [
        Self::Write,
        Self::ReadRequest,
        Self::ReadResponse,
        Self::Send,
        Self::SendInvalidate,
        Self::SendSolicited,
        Self::SendSolicitedInvalidate,
        Self::Terminate,
        Self::Immediate,
        Self::ImmediateSolicited,
        Self::AtomicRequest,
        Self::AtomicResponse,
    ];

    /// The queue of its messages; `None` if they are tagged.
    #[inline]
    pub const fn queue(self) -> Option<Queue> {
        match self {
            Self::Write | Self::ReadResponse => None,
            Self::ReadRequest | Self::AtomicRequest => Some(Queue::Request),
            Self::Terminate => Some(Queue::Terminate),
            Self::AtomicResponse => Some(Queue::AtomicResponse),
            _ => Some(Queue::Send),
        }
    }

    /// Returns true if the message requests a solicited event.
    #[inline]
    pub const fn is_solicited(self) -> bool {
        matches!(self, Self::SendSolicited | Self::SendSolicitedInvalidate | Self::ImmediateSolicited)
    }
}

/// The destination of a segment's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SegmentDestination {
    /// Memory that the STag names (tagged).
    Tagged {
        /// The memory.
        stag: STag,
        /// The tagged offset of the payload.
        offset: u64,
    },
    /// The message with this number in the opcode's queue (untagged).
    Untagged {
        /// The message.
        message: MessageNumber,
        /// Offset of the payload in the message.
        offset: u32,
        /// The STag to invalidate, in SENDs that do; else 0.
        invalidate: STag,
    },
}

/// The header of a DDP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// L: the last segment of its message.
    pub is_last: bool,
    /// The operation of the message that it is part of.
    pub opcode: Opcode,
    /// The destination of its payload.
    pub destination: SegmentDestination,
}

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const DDP_VERSION: u8 = 1;
const DDP_VERSION_MASK: u8 = 0x03;
/// RDMAP's version is in the top two bits of its byte, the opcode in the low four.
const RDMAP_VERSION: u8 = 1;

impl Segment {
    /// Bytes of the header of a tagged segment.
    pub const TAGGED_LEN: usize = 14;
    /// Bytes of the header of an untagged segment.
    pub const UNTAGGED_LEN: usize = 18;

    /// Bytes of the header.
    #[inline]
    pub const fn header_len(&self) -> usize {
        match self.destination {
            SegmentDestination::Tagged { .. } => Self::TAGGED_LEN,
            SegmentDestination::Untagged { .. } => Self::UNTAGGED_LEN,
        }
    }

    /// Reads the header at the front of a ULPDU; returns it and the payload.
    ///
    /// # Errors
    /// [`SegmentError`].
    #[inline]
    pub fn parse(ulpdu: &[u8]) -> Result<(Self, &[u8]), SegmentError> {
        let short = SegmentError::Short(ulpdu.len());
        let [ddp, rdmap] = *ulpdu.first_chunk().ok_or(short)?;
        if ddp & DDP_VERSION_MASK != DDP_VERSION {
            return Err(SegmentError::DdpVersion(ddp & DDP_VERSION_MASK));
        }
        if rdmap >> 6 != RDMAP_VERSION {
            return Err(SegmentError::RdmapVersion(rdmap >> 6));
        }
        let code = rdmap & 0x0F;
        let opcode = *Opcode::ALL.get(usize::from(code)).ok_or(SegmentError::Opcode(code))?;
        let is_tagged = ddp & TAGGED != 0;
        if is_tagged != opcode.queue().is_none() {
            return Err(SegmentError::Tagged(code));
        }
        let (destination, payload) = match opcode.queue() {
            None => {
                let (header, payload) = ulpdu.split_first_chunk::<{ Self::TAGGED_LEN }>().ok_or(short)?;
                let (stag, offset) = (STag(be32(header, 2)), u64::from_be_bytes(array(header, 6)));
                (SegmentDestination::Tagged { stag, offset }, payload)
            }
            Some(queue) => {
                let (header, payload) = ulpdu.split_first_chunk::<{ Self::UNTAGGED_LEN }>().ok_or(short)?;
                if be32(header, 6) != queue as u32 {
                    return Err(SegmentError::Queue(be32(header, 6)));
                }
                let (message, offset) = (MessageNumber(be32(header, 10)), be32(header, 14));
                (SegmentDestination::Untagged { message, offset, invalidate: STag(be32(header, 2)) }, payload)
            }
        };
        Ok((Self { is_last: ddp & LAST != 0, opcode, destination }, payload))
    }

    /// Writes the header to the front of `ulpdu` and returns the rest; `None` if `ulpdu` is too short, or if
    /// the opcode requires the other kind of [`SegmentDestination`].
    #[inline]
    pub fn write<'b>(&self, ulpdu: &'b mut [u8]) -> Option<&'b mut [u8]> {
        let last = if self.is_last { LAST } else { 0 };
        let rdmap = RDMAP_VERSION << 6 | self.opcode as u8;
        match (self.destination, self.opcode.queue()) {
            (SegmentDestination::Tagged { stag, offset }, None) => {
                let (header, rest) = ulpdu.split_first_chunk_mut::<{ Self::TAGGED_LEN }>()?;
                put(header, 0, [TAGGED | last | DDP_VERSION, rdmap]);
                put(header, 2, stag.0.to_be_bytes());
                put(header, 6, offset.to_be_bytes());
                Some(rest)
            }
            (SegmentDestination::Untagged { message, offset, invalidate }, Some(queue)) => {
                let (header, rest) = ulpdu.split_first_chunk_mut::<{ Self::UNTAGGED_LEN }>()?;
                put(header, 0, [last | DDP_VERSION, rdmap]);
                put(header, 2, invalidate.0.to_be_bytes());
                put(header, 6, (queue as u32).to_be_bytes());
                put(header, 10, message.0.to_be_bytes());
                put(header, 14, offset.to_be_bytes());
                Some(rest)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_beyond_the_wrap() {
        assert_eq!(MessageNumber::FIRST.next(), MessageNumber(2));
        assert_eq!(MessageNumber(u32::MAX).next(), MessageNumber(0));
    }

    /// The columns of RFC 5040 figure 4 and RFC 7306 figure 3: opcode, queue number (`None`: tagged),
    /// solicited event.
    #[test]
    fn each_opcode_has_the_queue_and_the_event_of_the_rfcs() {
        let table = [
            (0, None, false),
            (1, Some(1), false),
            (2, None, false),
            (3, Some(0), false),
            (4, Some(0), false),
            (5, Some(0), true),
            (6, Some(0), true),
            (7, Some(2), false),
            (8, Some(0), false),
            (9, Some(0), true),
            (10, Some(1), false),
            (11, Some(3), false),
        ];
        let read = Opcode::ALL
            .map(|opcode| (opcode as u8, opcode.queue().map(|queue| queue as u32), opcode.is_solicited()));
        assert_eq!(read, table);
    }

    #[test]
    fn another_version_is_named() {
        let mut ulpdu = [0; 18];
        for version in [0, 2, 3] {
            ulpdu[..2].copy_from_slice(&[LAST | version, 0x43]);
            assert_eq!(Segment::parse(&ulpdu), Err(SegmentError::DdpVersion(version)));
            ulpdu[..2].copy_from_slice(&[LAST | 1, version << 6 | 3]);
            assert_eq!(Segment::parse(&ulpdu), Err(SegmentError::RdmapVersion(version)));
        }
    }
}
