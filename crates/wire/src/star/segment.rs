//! The buffers of a work queue element.

use crate::bytes::{array, be32, put};

use super::capability::GrantCode;

/// A piece of the server's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Segment {
    /// The address in the region.
    pub address: u64,
    /// Length in bytes.
    pub len: u32,
    /// The local key of the region.
    pub lkey: u32,
    /// The grant code of the segment; 0 without tags.
    pub code: GrantCode,
}

impl Segment {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 24;

    fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        Self {
            address: u64::from_be_bytes(array(bytes, 0)),
            len: be32(bytes, 8),
            lkey: be32(bytes, 12),
            code: GrantCode(u64::from_be_bytes(array(bytes, 16))),
        }
    }

    /// Encodes the segment.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        put(&mut bytes, 0, self.address.to_be_bytes());
        put(&mut bytes, 8, self.len.to_be_bytes());
        put(&mut bytes, 12, self.lkey.to_be_bytes());
        put(&mut bytes, 16, self.code.0.to_be_bytes());
        bytes
    }
}

/// Iterates over the segments in the payload of a WQEP with [`Data::Segments`](super::Data::Segments).
pub fn segments(payload: &[u8]) -> impl ExactSizeIterator<Item = Segment> {
    payload.as_chunks().0.iter().map(Segment::from_bytes)
}
