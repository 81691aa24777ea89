//! The next segment to send.

use nichrome_wire::iwarp::{
    AtomicRequest, AtomicResponse, IMMEDIATE_LEN, MessageNumber, Opcode, ReadRequest, STag, Segment,
    SegmentDestination,
};
use nichrome_wire::rdma::{ImmediateData, RKey};

use crate::core::send_queue::Source;

/// The segment that leaves next.
pub(super) enum Outgoing {
    /// The next segment of a message of any length.
    Data(Data),
    /// A message of one segment.
    Whole(Segment, Body),
}

/// The rest of a message.
pub(super) struct Data {
    pub(super) opcode: Opcode,
    /// The destination of the next segment's payload.
    pub(super) destination: SegmentDestination,
    pub(super) origin: Origin,
    /// Bytes of the message that have not left.
    pub(super) left: u32,
}

/// Where the payload of the next segment comes from.
pub(super) enum Origin {
    /// A request's local data, from byte `offset` on.
    Send { source: Source, offset: u32 },
    /// Memory that a READ request names.
    Remote { rkey: RKey, address: u64 },
}

/// The payload of a message of one segment.
pub(super) enum Body {
    Empty,
    ReadRequest([u8; ReadRequest::LEN]),
    AtomicRequest([u8; AtomicRequest::LEN]),
    AtomicResponse([u8; AtomicResponse::LEN]),
    Immediate([u8; IMMEDIATE_LEN]),
    Terminate(Vec<u8>),
}

impl Data {
    /// Returns the header of the next segment if it carries `len` bytes.
    #[inline]
    pub(super) fn segment(&self, len: usize) -> Segment {
        Segment { is_last: len == self.left as usize, opcode: self.opcode, destination: self.destination }
    }
}

impl Body {
    /// The immediate data is in the first four of eight bytes.
    pub(super) fn immediate(data: ImmediateData) -> Self {
        let mut bytes = [0; IMMEDIATE_LEN];
        bytes[..4].copy_from_slice(&data.0);
        Self::Immediate(bytes)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Empty => &[],
            Self::ReadRequest(bytes) => bytes,
            Self::AtomicRequest(bytes) => bytes,
            Self::AtomicResponse(bytes) => bytes,
            Self::Immediate(bytes) => bytes,
            Self::Terminate(bytes) => bytes,
        }
    }
}

/// Returns the destination of a message of one segment.
pub(super) fn untagged(message: MessageNumber) -> SegmentDestination {
    SegmentDestination::Untagged { message, offset: 0, invalidate: STag(0) }
}
