//! Capabilities: the parts of the server's memory that a client may access, as granted by the server's driver
//! in the fields of an RDP, GD or AOP.

use std::ops::BitOr;

use crate::bytes::{array, be32, put};
use crate::rdma::QpNumber;

use super::error::StarError;

/// The rights of a capability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights(u8);

impl Rights {
    /// No right.
    pub const NONE: Self = Self(0);
    /// RDPs may store to the memory.
    pub const STORE: Self = Self(0x01);
    /// GDs may fetch from the memory.
    pub const FETCH: Self = Self(0x02);
    /// The memory is a segment of an element: local access rights apply, not remote ones.
    pub const ELEMENT: Self = Self(0x04);

    /// AOPs may carry out atomic operations on the memory.
    pub const ATOMIC: Self = Self(0x08);

    const ALL: u8 = 0x0F;

    /// Creates rights from bits; `None` if one is unknown.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits & !Self::ALL == 0 { Some(Self(bits)) } else { None }
    }

    /// The rights as bits.
    #[inline]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns true if all of `other` are granted.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Rights {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The end of a connection's lease, in seconds of the server's lease clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease(pub u32);

/// Memory that a packet may access, and the connection that it may do so for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Capability {
    /// The first byte's address in the region.
    pub base: u64,
    /// Length in bytes.
    pub len: u64,
    /// The access rights.
    pub rights: Rights,
    /// The server's number of the connection.
    pub server: QpNumber,
    /// The lease whose key authenticates the packet; 0 without tags.
    pub lease: Lease,
}

impl Capability {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 24;

    /// Returns true if the `len` bytes from `address` on are within.
    #[inline]
    pub fn covers(&self, address: u64, len: u16) -> bool {
        let offset = address.wrapping_sub(self.base);
        offset <= self.len && u64::from(len) <= self.len - offset
    }

    #[inline]
    pub(super) fn from_bytes(bytes: &[u8; Self::LEN]) -> Result<Self, StarError> {
        let place = be32(bytes, 16);
        let rights = (place >> 24) as u8;
        Ok(Self {
            base: u64::from_be_bytes(array(bytes, 0)),
            len: u64::from_be_bytes(array(bytes, 8)),
            rights: Rights::from_bits(rights).ok_or(StarError::Rights(rights))?,
            server: QpNumber::new(place & 0xFF_FFFF).ok_or(StarError::Connection(place))?,
            lease: Lease(be32(bytes, 20)),
        })
    }

    #[inline]
    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        put(&mut bytes, 0, self.base.to_be_bytes());
        put(&mut bytes, 8, self.len.to_be_bytes());
        put(&mut bytes, 16, (u32::from(self.rights.0) << 24 | self.server.value()).to_be_bytes());
        put(&mut bytes, 20, self.lease.0.to_be_bytes());
        bytes
    }
}

/// A code that proves to the server's card that its driver granted a range. Not part of RDPs, GDs and AOPs:
/// their tags cover it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GrantCode(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_covers_ranges_within_it() {
        let (server, lease, rights) = (QpNumber::new(7).unwrap(), Lease(0), Rights::STORE);
        let whole = Capability { base: 100, len: 50, rights, server, lease };
        for (address, len, within) in [
            (100, 50, true),
            (149, 1, true),
            (150, 0, true),
            (99, 1, false),
            (149, 2, false),
            (u64::MAX, 2, false),
        ] {
            assert_eq!(whole.covers(address, len), within, "{address} {len}");
        }
        let all = Capability { base: 0, len: u64::MAX, ..whole };
        assert!(all.covers(u64::MAX, 0) && !all.covers(u64::MAX, 1));
    }

    #[test]
    fn rights_are_sets() {
        let all = || (0..16).filter_map(Rights::from_bits);
        for (one, other) in all().flat_map(|one| all().map(move |other| (one, other))) {
            let grants = |rights: Rights, bit: u32| rights.bits() >> bit & 1 == 1;
            let contained = (0..4).all(|bit| grants(one, bit) || !grants(other, bit));
            assert_eq!(one.contains(other), contained, "{one:?} {other:?}");
            let both = one | other;
            assert!((0..4).all(|bit| grants(both, bit) == (grants(one, bit) || grants(other, bit))));
        }
    }
}
