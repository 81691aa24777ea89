//! READ requests (RFC 5040 section 4.4).

use super::segment::STag;
use crate::bytes::{array, be32, put};

/// The header of a READ request, the payload of its segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReadRequest {
    /// The STag of the requester's memory for the response.
    pub sink: STag,
    /// The tagged offset there.
    pub sink_offset: u64,
    /// Bytes to read.
    pub len: u32,
    /// The STag of the responder's memory.
    pub source: STag,
    /// The tagged offset there.
    pub source_offset: u64,
}

impl ReadRequest {
    /// Bytes on the wire.
    pub const LEN: usize = 28;

    /// Reads the header.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        Self {
            sink: STag(be32(bytes, 0)),
            sink_offset: u64::from_be_bytes(array(bytes, 4)),
            len: be32(bytes, 12),
            source: STag(be32(bytes, 16)),
            source_offset: u64::from_be_bytes(array(bytes, 20)),
        }
    }

    /// The header's bytes on the wire.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        put(&mut bytes, 0, self.sink.0.to_be_bytes());
        put(&mut bytes, 4, self.sink_offset.to_be_bytes());
        put(&mut bytes, 12, self.len.to_be_bytes());
        put(&mut bytes, 16, self.source.0.to_be_bytes());
        put(&mut bytes, 20, self.source_offset.to_be_bytes());
        bytes
    }
}
