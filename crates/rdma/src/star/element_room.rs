//! The size of an element: its payload and segments must fit one packet.

use nichrome_wire::star::{PacketType, Segment};

use crate::core::error::PostError;
use crate::core::queue_pair::QueuePair;

/// Returns the maximum payload of a WQEP in bytes.
pub(super) fn element_room(qp: &QueuePair) -> usize {
    PacketType::Rdp.datagram_len(qp.mtu()) - PacketType::Wqep.datagram_len(0)
}

/// Checks that a WQEP has room for this many segments.
pub(super) fn check_buffers(qp: &QueuePair, count: usize) -> Result<(), PostError> {
    let max = element_room(qp) / Segment::LEN;
    if count > max { Err(PostError::Buffers { count, max }) } else { Ok(()) }
}
