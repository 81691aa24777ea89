//! Access rights.

use std::ops::BitOr;

/// The access rights of a memory region, a memory window or a queue pair, with the bit values of
/// `enum ibv_access_flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Access(u16);

impl Access {
    /// Local reads only.
    pub const NONE: Self = Self(0);
    /// Local writes: receives, READ responses, results of atomics.
    pub const LOCAL_WRITE: Self = Self(1);
    /// WRITEs of peers.
    pub const REMOTE_WRITE: Self = Self(1 << 1);
    /// READs of peers.
    pub const REMOTE_READ: Self = Self(1 << 2);
    /// Atomics of peers.
    pub const REMOTE_ATOMIC: Self = Self(1 << 3);
    /// Memory windows may be bound to the region.
    pub const WINDOW_BIND: Self = Self(1 << 4);
    /// A window's addresses begin at 0.
    pub const ZERO_BASED: Self = Self(1 << 5);
    /// Invalidation of the region's keys by work requests and peers. An extension of the verbs, where only
    /// regions that a work request registered can be invalidated.
    pub const INVALIDATE: Self = Self(1 << 7);
    /// FLUSHes of peers that make writes globally visible.
    pub const FLUSH_GLOBAL: Self = Self(1 << 8);
    /// FLUSHes of peers to persistent memory.
    pub const FLUSH_PERSISTENT: Self = Self(1 << 9);

    const ALL: u16 = 0x3BF;

    /// Converts from bits; `None` if an unknown bit is set.
    pub const fn from_bits(bits: u16) -> Option<Self> {
        if bits & !Self::ALL == 0 { Some(Self(bits)) } else { None }
    }

    /// Returns the rights as bits.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Returns true if all of `other` are granted.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns true if any of `other` is granted.
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the rights that StaR packets carry: all but those of FLUSH, which StaR does not support.
    pub const fn star_bits(self) -> u8 {
        self.0 as u8
    }

    /// Returns true if peers can change memory under these rights, which requires local write (IBA C10-44,
    /// C10-74).
    pub(crate) const fn lets_peers_change(self) -> bool {
        self.intersects(Self(Self::REMOTE_WRITE.0 | Self::REMOTE_ATOMIC.0))
    }
}

impl BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_that_is_given_twice_is_given() {
        let both = Access::LOCAL_WRITE | Access::REMOTE_READ;
        assert_eq!(both | Access::LOCAL_WRITE, both);
        assert!(both.contains(Access::LOCAL_WRITE) && !both.contains(Access::REMOTE_WRITE));
    }
}
