//! Atomic operations (RFC 7306 section 5).

use super::error::SegmentError;
use super::segment::STag;
use crate::bytes::{array, be32, put};

/// An operation on 8 bytes. A mask of ones is for all bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicOperation {
    /// Adds; a bit in the mask ends a carry chain.
    FetchAdd {
        /// The value to add.
        add: u64,
        /// The boundaries of the carry chains.
        mask: u64,
    },
    /// Swaps the bits of the mask.
    Swap {
        /// The new value.
        swap: u64,
        /// The bits that change.
        mask: u64,
    },
    /// Swaps the bits of the swap mask if the bits of the compare mask are as expected.
    CompareSwap {
        /// The new value.
        swap: u64,
        /// The bits that change.
        swap_mask: u64,
        /// The expected value.
        compare: u64,
        /// The bits that are compared.
        compare_mask: u64,
    },
}

/// The header of an atomic request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AtomicRequest {
    /// The requester's identifier of the request, repeated in the response.
    pub id: u32,
    /// The STag of the responder's memory.
    pub stag: STag,
    /// The tagged offset of the 8 bytes.
    pub offset: u64,
    /// The operation.
    pub operation: AtomicOperation,
}

impl AtomicRequest {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 52;

    /// Reads the header. Reserved bits are ignored.
    ///
    /// # Errors
    /// [`SegmentError::Atomic`].
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Result<Self, SegmentError> {
        let word = |nth: usize| -> u64 {
            let all: [u8; 32] = array(bytes, 20);
            all.as_chunks::<8>().0.get(nth).map_or(0, |word| u64::from_be_bytes(*word))
        };
        let [value, mask, compare, compare_mask] = [0, 1, 2, 3].map(word);
        let operation = match bytes[3] & 0x0F {
            0 => AtomicOperation::FetchAdd { add: value, mask },
            1 => AtomicOperation::Swap { swap: value, mask },
            2 => AtomicOperation::CompareSwap { swap: value, swap_mask: mask, compare, compare_mask },
            other => return Err(SegmentError::Atomic(other)),
        };
        Ok(Self {
            id: be32(bytes, 4),
            stag: STag(be32(bytes, 8)),
            offset: u64::from_be_bytes(array(bytes, 12)),
            operation,
        })
    }

    /// Encodes the header.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let (code, words) = match self.operation {
            AtomicOperation::FetchAdd { add, mask } => (0u32, [add, mask, 0, 0]),
            AtomicOperation::Swap { swap, mask } => (1, [swap, mask, 0, 0]),
            AtomicOperation::CompareSwap { swap, swap_mask, compare, compare_mask } => {
                (2, [swap, swap_mask, compare, compare_mask])
            }
        };
        let mut bytes = [0; Self::LEN];
        put(&mut bytes, 0, code.to_be_bytes());
        put(&mut bytes, 4, self.id.to_be_bytes());
        put(&mut bytes, 8, self.stag.0.to_be_bytes());
        put(&mut bytes, 12, self.offset.to_be_bytes());
        for (destination, word) in bytes[20..].chunks_exact_mut(8).zip(words) {
            destination.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }
}

/// The header of an atomic response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AtomicResponse {
    /// The request's identifier.
    pub id: u32,
    /// The value before the operation.
    pub original_value: u64,
}

impl AtomicResponse {
    /// Bytes on the wire.
    pub const LEN: usize = 12;

    /// Reads the header.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        Self { id: be32(bytes, 0), original_value: u64::from_be_bytes(array(bytes, 4)) }
    }

    /// Encodes the header.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        put(&mut bytes, 0, self.id.to_be_bytes());
        put(&mut bytes, 4, self.original_value.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7306 section 5.2.2: the identifier of the request, then the value before the operation.
    #[test]
    fn a_response_has_the_bytes_of_rfc_7306() {
        let response = AtomicResponse { id: 0x0102_0304, original_value: 0x0506_0708_090A_0B0C };
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        assert_eq!((response.to_bytes(), AtomicResponse::from_bytes(&bytes)), (bytes, response));
    }
}
