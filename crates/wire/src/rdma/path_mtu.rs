//! The path MTU of a queue pair.

/// A path MTU: the maximum payload of a packet without any header (IBA 9.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathMtu {
    /// 256 bytes.
    B256,
    /// 512 bytes.
    B512,
    /// 1024 bytes.
    B1024,
    /// 2048 bytes.
    B2048,
    /// 4096 bytes.
    B4096,
}

impl PathMtu {
    /// All path MTUs, ascending.
    pub const ALL: [Self; 5] = [Self::B256, Self::B512, Self::B1024, Self::B2048, Self::B4096];

    /// Bytes of payload.
    #[inline]
    pub const fn bytes(self) -> usize {
        256 << self as usize
    }

    /// Returns the largest path MTU of at most `bytes`; `None` below 256.
    pub fn fitting(bytes: usize) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|mtu| mtu.bytes() <= bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_that_fits_is_found() {
        assert_eq!(PathMtu::ALL.map(PathMtu::bytes), [256, 512, 1024, 2048, 4096]);
        assert_eq!(PathMtu::fitting(255), None);
        assert_eq!(PathMtu::fitting(1500 - 58), Some(PathMtu::B1024));
        assert_eq!(PathMtu::fitting(65_536), Some(PathMtu::B4096));
    }
}
