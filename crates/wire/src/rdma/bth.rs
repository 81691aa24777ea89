//! The base transport header (IBA 9.2).

use std::ops::{BitAnd, BitOr, BitOrAssign, Not};

use crate::bytes::{be16, be32, put};

use super::number::{PKey, Psn, QpNumber};
use super::opcode::{BTH_LEN, Opcode};

/// An unchecked view of a base transport header.
#[derive(Clone, Copy, Debug)]
pub struct BthHeader<'a> {
    fixed: &'a [u8; 12],
}

impl<'a> BthHeader<'a> {
    /// Bytes of a header.
    pub const LEN: usize = BTH_LEN;

    /// A view of a datagram's first bytes; `None` if it is shorter than a header.
    #[inline]
    pub fn new(datagram: &'a [u8]) -> Option<Self> {
        Some(Self { fixed: datagram.first_chunk()? })
    }

    /// Returns the opcode byte.
    #[inline]
    pub fn opcode_byte(&self) -> u8 {
        self.fixed[0]
    }

    /// Returns the opcode; `None` if unknown.
    #[inline]
    pub fn opcode(&self) -> Option<Opcode> {
        Opcode::new(self.fixed[0])
    }

    /// Bytes of padding after the payload, 0 to 3.
    #[inline]
    pub fn pad(&self) -> usize {
        usize::from(self.fixed[1] >> 4 & 0b11)
    }

    /// The version of the header, 0 to 15; 0 in a valid header.
    #[inline]
    pub fn version(&self) -> u8 {
        self.fixed[1] & 0x0F
    }

    /// The flags.
    #[inline]
    pub fn flags(&self) -> BthFlags {
        BthFlags(u32::from_be_bytes([0, self.fixed[1], self.fixed[4], self.fixed[8]])) & BthFlags::ALL
    }

    /// The partition key.
    #[inline]
    pub fn pkey(&self) -> PKey {
        PKey(be16(self.fixed, 2))
    }

    /// Returns the destination queue pair.
    #[inline]
    pub fn dest_qp(&self) -> QpNumber {
        QpNumber::from_low_bits(be32(self.fixed, 4))
    }

    /// The packet's sequence number.
    #[inline]
    pub fn psn(&self) -> Psn {
        Psn::new(be32(self.fixed, 8))
    }
}

/// Flags of the header, at their positions in bytes 1, 4 and 8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BthFlags(u32);

impl BthFlags {
    /// None.
    pub const NONE: Self = Self(0);
    /// Solicited event: the message raises an event at a receiver that requested one.
    pub const SOLICITED: Self = Self(0x80_0000);
    /// Path migration: set by hardware, not by Linux; ignored by receivers.
    pub const MIGRATED: Self = Self(0x40_0000);
    /// Forward congestion notification by a switch. RoCEv2 uses IP's ECN bits instead.
    pub const FECN: Self = Self(0x8000);
    /// Backward congestion notification: the receiver saw congestion.
    pub const BECN: Self = Self(0x4000);
    /// The responder must acknowledge.
    pub const ACK_REQUEST: Self = Self(0x80);

    /// The sender accepts selective NAKs: a reserved bit, ignored by other receivers, used between two
    /// Nichrome ends.
    pub const SELECTIVE: Self = Self(0x01);

    const ALL: Self = Self(0xC0_C081);

    /// Returns true if every flag of `flags` is set.
    #[inline]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }
}

impl BitOr for BthFlags {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for BthFlags {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAnd for BthFlags {
    type Output = Self;

    #[inline]
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Not for BthFlags {
    type Output = Self;

    #[inline]
    fn not(self) -> Self {
        Self(!self.0) & Self::ALL
    }
}

/// A valid header without opcode and padding, which derive from message and payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bth {
    /// The flags.
    pub flags: BthFlags,
    /// The partition key.
    pub pkey: PKey,
    /// The destination queue pair.
    pub dest_qp: QpNumber,
    /// The packet's sequence number.
    pub psn: Psn,
}

impl Bth {
    #[inline]
    pub(super) fn of(header: &BthHeader<'_>) -> Self {
        Self { flags: header.flags(), pkey: header.pkey(), dest_qp: header.dest_qp(), psn: header.psn() }
    }

    /// Encodes the header of a packet with this opcode and `pad` bytes of padding, 0 to 3.
    #[inline]
    pub(super) fn to_bytes(self, opcode: Opcode, pad: u8) -> [u8; BthHeader::LEN] {
        let [_, first, dest, ack] = self.flags.0.to_be_bytes();
        let mut bytes = [0; BthHeader::LEN];
        put(&mut bytes, 2, self.pkey.0.to_be_bytes());
        put(&mut bytes, 4, self.dest_qp.value().to_be_bytes());
        put(&mut bytes, 8, self.psn.value().to_be_bytes());
        bytes[0] = opcode.code();
        bytes[1] = first | pad << 4;
        bytes[4] = dest;
        bytes[8] = ack;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fetch-and-add of rxe's, frame 700 or so of rxe-verbs.pcap, with flags of our own.
    const HEADER: [u8; 12] = [0x14, 0xB0, 0xFF, 0xFF, 0x40, 0x00, 0x00, 0x11, 0x80, 0xAB, 0xCD, 0xEF];

    #[test]
    fn the_view_reads_every_field_and_the_header_is_written_back() {
        let view = BthHeader::new(&HEADER).unwrap();
        assert_eq!((view.opcode_byte(), view.pad(), view.version()), (0x14, 3, 0));
        assert_eq!((view.dest_qp(), view.psn()), (QpNumber::new(0x11).unwrap(), Psn::new(0xAB_CDEF)));
        assert_eq!(view.flags(), BthFlags::SOLICITED | BthFlags::BECN | BthFlags::ACK_REQUEST);
        assert!(!view.flags().contains(BthFlags::MIGRATED));
        assert!(view.flags().contains(BthFlags::SOLICITED) && !view.flags().contains(BthFlags::FECN));
        let mut more = view.flags();
        more |= BthFlags::MIGRATED;
        assert_eq!(more, view.flags() | BthFlags::MIGRATED);
        assert_eq!(Bth::of(&view).to_bytes(view.opcode().unwrap(), 3), HEADER);
    }

    #[test]
    fn reserved_bits_are_ignored() {
        let mut reserved = HEADER;
        reserved[4] |= 0x3F;
        reserved[8] |= 0x7E;
        let view = BthHeader::new(&reserved).unwrap();
        assert_eq!(Bth::of(&view), Bth::of(&BthHeader::new(&HEADER).unwrap()));
    }

    #[test]
    fn flags_are_cleared_with_not() {
        let flags = BthFlags::SOLICITED | BthFlags::ACK_REQUEST;
        assert_eq!(flags & !BthFlags::SOLICITED, BthFlags::ACK_REQUEST);
    }

    #[test]
    fn a_flag_that_is_given_twice_is_set() {
        let flags = BthFlags::SOLICITED | BthFlags::BECN;
        assert_eq!(flags | BthFlags::BECN, flags);
    }
}
