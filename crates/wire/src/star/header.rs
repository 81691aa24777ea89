//! The common header of all StaR packets.

use std::ops::BitOr;

use crate::bytes::{be16, be32, put};

/// An unchecked view of a common header.
#[derive(Clone, Copy, Debug)]
pub struct CommonHeader<'a> {
    fixed: &'a [u8; 16],
}

impl<'a> CommonHeader<'a> {
    /// Bytes of a header.
    pub const LEN: usize = 16;

    /// A view of a datagram's first bytes; `None` if it is shorter than a header.
    #[inline]
    pub fn new(datagram: &'a [u8]) -> Option<Self> {
        Some(Self { fixed: datagram.first_chunk()? })
    }

    /// The version, 0 to 15.
    #[inline]
    pub fn version(&self) -> u8 {
        self.fixed[0] >> 4
    }

    /// Returns the type code, 0 to 15.
    #[inline]
    pub fn type_code(&self) -> u8 {
        self.fixed[0] & 0x0F
    }

    /// Returns the flags, including the reserved one.
    #[inline]
    pub fn flags(&self) -> Flags {
        Flags(self.fixed[1])
    }

    /// Returns the length field, whose meaning depends on the type.
    #[inline]
    pub fn length(&self) -> u16 {
        be16(self.fixed, 2)
    }

    /// Returns the connection number.
    #[inline]
    pub fn connection(&self) -> u32 {
        be32(self.fixed, 4)
    }

    /// The sequence number.
    #[inline]
    pub fn sequence(&self) -> u32 {
        be32(self.fixed, 8)
    }

    /// Returns the stamp, whose meaning depends on the type.
    #[inline]
    pub fn stamp(&self) -> u32 {
        be32(self.fixed, 12)
    }
}

/// Encodes a common header.
#[inline]
pub(super) fn common_header(
    first: u8,
    flags: Flags,
    length: u16,
    connection: u32,
    sequence: u32,
    stamp: u32,
) -> [u8; CommonHeader::LEN] {
    let mut bytes = [0; CommonHeader::LEN];
    bytes[0] = first;
    bytes[1] = flags.0;
    put(&mut bytes, 2, length.to_be_bytes());
    put(&mut bytes, 4, connection.to_be_bytes());
    put(&mut bytes, 8, sequence.to_be_bytes());
    put(&mut bytes, 12, stamp.to_be_bytes());
    bytes
}

/// Flags of the common header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub(super) u8);

impl Flags {
    /// None.
    pub const NONE: Self = Self(0);
    /// The last packet of its message.
    pub const LAST: Self = Self(0x01);
    /// The completion is a solicited event for the server's program.
    pub const SOLICITED: Self = Self(0x02);
    /// The connection number is the server's; otherwise the client's.
    pub const TO_SERVER: Self = Self(0x08);
    /// The packet that this one answers had the ECN bits set to CE.
    pub const ECN_ECHO: Self = Self(0x10);
    /// The packet that this one answers was refused; the length field is the [`Reason`](super::Reason).
    pub const REFUSED: Self = Self(0x20);
    /// An [`Authentication`](super::Authentication) replaces the check.
    pub const AUTHENTICATED: Self = Self(0x40);

    /// Returns true if every flag of `flags` is set.
    #[inline]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Returns the union of both sets.
    #[inline]
    #[must_use]
    pub const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }

    /// Returns these flags without `flags`.
    #[inline]
    #[must_use]
    pub const fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }

    /// Returns the intersection of both sets.
    #[inline]
    #[must_use]
    pub const fn within(self, flags: Self) -> Self {
        Self(self.0 & flags.0)
    }

    /// Returns the flags in wire format.
    #[inline]
    pub const fn bits(self) -> u8 {
        self.0
    }
}

impl BitOr for Flags {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_view_reads_every_field() {
        let flags = Flags::LAST | Flags::REFUSED;
        let bytes = common_header(0x14, flags, 0x0102, 0x0304_0506, 0x0708_090A, 0x0B0C_0D0E);
        assert_eq!(bytes, [0x14, 0x21, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
        let view = CommonHeader::new(&bytes).unwrap();
        assert_eq!((view.version(), view.type_code(), view.length()), (1, 4, 0x0102));
        assert_eq!(
            (view.connection(), view.sequence(), view.stamp()),
            (0x0304_0506, 0x0708_090A, 0x0B0C_0D0E)
        );
        assert!(view.flags().contains(Flags::LAST) && !view.flags().contains(Flags::LAST | Flags::SOLICITED));
        assert_eq!(view.flags().without(Flags::LAST), Flags::REFUSED);
    }

    #[test]
    fn a_datagram_shorter_than_the_header_has_no_view() {
        assert!(CommonHeader::new(&[0x14; 15]).is_none());
    }
}
