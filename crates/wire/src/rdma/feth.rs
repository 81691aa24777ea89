//! The flush extended transport header (IBA annex A19): which earlier writes a FLUSH places, and where.

use std::ops::BitOr;

use crate::bytes::be32;

/// Where a FLUSH places earlier writes: a set of placement types, with the bit values of
/// `enum ibv_placement_type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Placement(u8);

impl Placement {
    /// No placement type.
    pub const NONE: Self = Self(0);
    /// Visible to all that access the memory.
    pub const GLOBAL: Self = Self(1);
    /// In persistent memory.
    pub const PERSISTENT: Self = Self(1 << 1);

    /// Converts from bits; `None` if a reserved bit is set.
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if bits <= 0b11 { Some(Self(bits as u8)) } else { None }
    }

    /// Returns true if all of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Placement {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Which writes a FLUSH places, with the values of `enum ibv_selectivity_level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Selectivity {
    /// Writes to a range of addresses.
    Range,
    /// Writes to a memory region.
    Region,
}

impl Selectivity {
    /// Converts from a value; `None` if it is reserved.
    pub const fn new(value: u32) -> Option<Self> {
        match value {
            0 => Some(Self::Range),
            1 => Some(Self::Region),
            _ => None,
        }
    }
}

/// A flush extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Feth {
    /// Where earlier writes are placed: bits 0 to 3.
    pub placement: Placement,
    /// Which writes: bits 4 and 5.
    pub selectivity: Selectivity,
}

impl Feth {
    /// Bytes of the header.
    pub const LEN: usize = 4;

    /// Reads the header; `None` if a placement type or selectivity is reserved. The reserved bits 6 to 31 are
    /// ignored.
    #[inline]
    pub(super) fn from_bytes(bytes: [u8; Self::LEN]) -> Option<Self> {
        let word = be32(&bytes, 0);
        let (placement, selectivity) =
            (Placement::from_bits(word & 0xF)?, Selectivity::new(word >> 4 & 0b11)?);
        Some(Self { placement, selectivity })
    }

    #[inline]
    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        (u32::from(self.placement.0) | (self.selectivity as u32) << 4).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of rxe's `rxe_hdr.h`: FETH_PLT_MASK 0xF, FETH_SEL_MASK 0x30.
    #[test]
    fn the_fields_have_the_bits_of_rxe() {
        let feth = Feth { placement: Placement::GLOBAL, selectivity: Selectivity::Region };
        assert_eq!(feth.to_bytes(), [0, 0, 0, 0x11]);
        let both = Placement::GLOBAL | Placement::PERSISTENT;
        assert_eq!(Feth { placement: both, selectivity: Selectivity::Range }.to_bytes(), [0, 0, 0, 0x03]);
        assert_eq!(both | Placement::GLOBAL, both);
        assert_eq!(Feth::from_bytes([0xFF, 0xFF, 0xFF, 0xC1 | 0x10]), Some(feth));
    }

    #[test]
    fn reserved_values_are_refused() {
        for word in [0x04, 0x08, 0x20, 0x30] {
            assert_eq!(Feth::from_bytes([0, 0, 0, word]), None, "{word:#x}");
        }
    }

    #[test]
    fn a_placement_contains_its_parts() {
        let (global, persistent) = (Placement::GLOBAL, Placement::PERSISTENT);
        assert!((global | persistent).contains(persistent) && persistent.contains(persistent));
        assert!(!global.contains(persistent) && !global.contains(global | persistent));
    }
}
