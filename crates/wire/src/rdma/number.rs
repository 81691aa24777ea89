//! Sequence numbers, queue pair numbers and keys.

use std::fmt;
use std::ops::{Add, AddAssign};

const BITS_24: u32 = 0x00FF_FFFF;

/// A packet sequence number with serial arithmetic modulo 2²⁴ (IBA 9.7.2). Numbers 2²³ or more apart are
/// unordered, so this type has no `Ord`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// Creates a number from the low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Self(value & BITS_24)
    }

    /// The number, below 2²⁴.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Returns the next number.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        Self::new(self.0 + 1)
    }

    /// Returns the previous number.
    #[inline]
    #[must_use]
    pub const fn previous(self) -> Self {
        Self::new(self.0.wrapping_sub(1))
    }

    /// Returns the signed distance from `other` to `self`, −2²³ to 2²³ − 1: positive if `self` is later.
    #[inline]
    pub const fn since(self, other: Self) -> i32 {
        (self.0.wrapping_sub(other.0) << 8).cast_signed() >> 8
    }

    /// Returns true if `self` precedes `other`.
    #[inline]
    pub const fn before(self, other: Self) -> bool {
        self.since(other) < 0
    }

    /// Returns true if `self` follows `other`.
    #[inline]
    pub const fn after(self, other: Self) -> bool {
        self.since(other) > 0
    }
}

impl Add<u32> for Psn {
    type Output = Self;

    #[inline]
    fn add(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_add(packets))
    }
}

impl AddAssign<u32> for Psn {
    #[inline]
    fn add_assign(&mut self, packets: u32) {
        *self = *self + packets;
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A message sequence number: the number of requests completed by a responder, modulo 2²⁴ (IBA 9.7.7.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Msn(u32);

impl Msn {
    /// Creates a number from the low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Self(value & BITS_24)
    }

    /// The number, below 2²⁴.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Returns the next number.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        Self::new(self.0 + 1)
    }
}

/// A queue pair number, below 2²⁴.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QpNumber(u32);

impl QpNumber {
    /// The queue pair of the subnet management interface.
    pub const SUBNET_MANAGEMENT: Self = Self(0);
    /// The queue pair of the general services interface, used by connection management.
    pub const GENERAL_SERVICES: Self = Self(1);
    /// The destination of every multicast datagram.
    pub const MULTICAST: Self = Self(BITS_24);

    /// Creates a number; `None` from 2²⁴ on.
    #[inline]
    pub const fn new(value: u32) -> Option<Self> {
        if value <= BITS_24 { Some(Self(value)) } else { None }
    }

    /// Creates a number from the low 24 bits of `value`.
    #[inline]
    pub(crate) const fn from_low_bits(value: u32) -> Self {
        Self(value & BITS_24)
    }

    /// The number.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Display for QpNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

/// The number of a shared receive queue of an XRC domain, below 2²⁴.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SrqNumber(u32);

impl SrqNumber {
    /// Bytes of the XRC extended transport header: 8 reserved bits, then the number.
    pub(super) const LEN: usize = 4;

    /// Creates a number; `None` from 2²⁴ on.
    pub const fn new(value: u32) -> Option<Self> {
        if value <= BITS_24 { Some(Self(value)) } else { None }
    }

    /// The number.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    #[inline]
    pub(super) fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(u32::from_be_bytes(bytes) & BITS_24)
    }

    #[inline]
    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        self.0.to_be_bytes()
    }
}

/// The key of a memory region or window for remote access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RKey(pub u32);

/// The key that a datagram must carry to be delivered to a UD queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct QKey(pub u32);

/// A partition key; RoCE has only the default partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PKey(pub u16);

impl Default for PKey {
    /// The default partition, full membership.
    fn default() -> Self {
        Self(0xFFFF)
    }
}

/// Four bytes of a message for the receiver's completion, in wire format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ImmediateData(pub [u8; 4]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_packets_survives_the_wrap() {
        let before = Psn::new(0x00FF_FFF6);
        let after = before + 20;
        assert_eq!(after, Psn::new(10));
        assert!(after.after(before) && before.before(after));
        assert_eq!((after.since(before), before.since(after)), (20, -20));
        assert_eq!((Psn::new(BITS_24).next(), Psn::new(0).previous()), (Psn::new(0), Psn::new(BITS_24)));
        assert_eq!((Psn::new(7).next(), Psn::new(7).previous()), (Psn::new(8), Psn::new(6)));
        let mut moved = before;
        moved += 20;
        assert_eq!(moved, after);
    }

    #[test]
    fn half_the_numbers_are_before_a_packet_and_half_after() {
        let zero = Psn::new(0);
        assert_eq!(Psn::new(0x7F_FFFF).since(zero), 0x7F_FFFF);
        assert_eq!(Psn::new(0x80_0000).since(zero), -0x80_0000);
        assert!(!zero.before(zero) && !zero.after(zero));
    }

    #[test]
    fn a_queue_pair_number_has_24_bits() {
        assert_eq!(QpNumber::new(BITS_24), Some(QpNumber::MULTICAST));
        assert_eq!(QpNumber::new(BITS_24 + 1), None);
        assert_eq!(QpNumber::new(0x11).unwrap().to_string(), "0x000011");
    }

    #[test]
    fn messages_are_counted_modulo_two_to_the_24() {
        assert_eq!((Msn::new(7).next(), Msn::new(BITS_24).next()), (Msn::new(8), Msn::new(0)));
    }

    #[test]
    fn the_number_of_a_shared_receive_queue_has_24_bits() {
        assert_eq!(SrqNumber::new(BITS_24).map(SrqNumber::value), Some(BITS_24));
        assert_eq!(SrqNumber::new(BITS_24 + 1), None);
    }
}
