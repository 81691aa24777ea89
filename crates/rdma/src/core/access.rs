//! Rights on memory.

use std::ops::BitOr;

/// What a memory region, a memory window or a queue pair lets others do. The bits are those of the verbs
/// (`enum ibv_access_flags`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Access(u8);

impl Access {
    /// Local reads only.
    pub const NONE: Self = Self(0);
    /// The device may write here for its own program: receives, READ responses, results of atomics.
    pub const LOCAL_WRITE: Self = Self(1);
    /// Peers may WRITE.
    pub const REMOTE_WRITE: Self = Self(1 << 1);
    /// Peers may READ.
    pub const REMOTE_READ: Self = Self(1 << 2);
    /// Peers may do atomics.
    pub const REMOTE_ATOMIC: Self = Self(1 << 3);
    /// Memory windows may be bound to the region.
    pub const WINDOW_BIND: Self = Self(1 << 4);
    /// A window's addresses begin at 0.
    pub const ZERO_BASED: Self = Self(1 << 5);
    /// Work requests and peers may invalidate the region's keys. Not a right of the verbs, whose regions cannot be
    /// invalidated unless they were made by a work request.
    pub const INVALIDATE: Self = Self(1 << 7);

    const ALL: u8 = 0xBF;

    /// The rights in these bits; `None` where a bit is none of them.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits & !Self::ALL == 0 { Some(Self(bits)) } else { None }
    }

    /// The rights as bits.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether all of `other` are granted.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other` is granted.
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether peers could change memory under these rights: such memory must be locally writable too
    /// (IBA C10-44, C10-74).
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
