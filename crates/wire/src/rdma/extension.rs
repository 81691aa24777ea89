//! The extension headers that carry several fields (IBA 9.3). The acknowledgement has a file of its own.

use crate::bytes::{array, be32, put};

use super::number::{QKey, QpNumber, RKey};

/// A datagram extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Deth {
    /// The key of the receiving queue pair.
    pub qkey: QKey,
    /// The sending queue pair.
    pub src_qp: QpNumber,
}

impl Deth {
    /// Bytes of the header.
    pub const LEN: usize = 8;

    #[inline]
    pub(super) fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self { qkey: QKey(be32(&bytes, 0)), src_qp: QpNumber::from_low_bits(be32(&bytes, 4)) }
    }

    #[inline]
    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        put(&mut bytes, 0, self.qkey.0.to_be_bytes());
        put(&mut bytes, 4, self.src_qp.value().to_be_bytes());
        bytes
    }
}

/// An RDMA extended transport header: memory at the responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reth {
    /// The virtual address.
    pub va: u64,
    /// The key of the memory region.
    pub rkey: RKey,
    /// Length of the whole message, in bytes.
    pub len: u32,
}

impl Reth {
    /// Bytes of the header.
    pub const LEN: usize = 16;

    #[inline]
    pub(super) fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self { va: u64::from_be_bytes(array(&bytes, 0)), rkey: RKey(be32(&bytes, 8)), len: be32(&bytes, 12) }
    }

    #[inline]
    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        put(&mut bytes, 0, self.va.to_be_bytes());
        put(&mut bytes, 8, self.rkey.0.to_be_bytes());
        put(&mut bytes, 12, self.len.to_be_bytes());
        bytes
    }
}

/// An atomic extended transport header: an operation on 8 bytes at the responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AtomicEth {
    /// The virtual address.
    pub va: u64,
    /// The key of the memory region.
    pub rkey: RKey,
    /// The value to swap in or add.
    pub swap_or_add: u64,
    /// The expected value of a compare and swap; unused by a fetch and add.
    pub compare: u64,
}

impl AtomicEth {
    /// Bytes of the header.
    pub const LEN: usize = 28;

    #[inline]
    pub(super) fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self {
            va: u64::from_be_bytes(array(&bytes, 0)),
            rkey: RKey(be32(&bytes, 8)),
            swap_or_add: u64::from_be_bytes(array(&bytes, 12)),
            compare: u64::from_be_bytes(array(&bytes, 20)),
        }
    }

    #[inline]
    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        put(&mut bytes, 0, self.va.to_be_bytes());
        put(&mut bytes, 8, self.rkey.0.to_be_bytes());
        put(&mut bytes, 12, self.swap_or_add.to_be_bytes());
        put(&mut bytes, 20, self.compare.to_be_bytes());
        bytes
    }
}
