//! Common parts of IPv4 and IPv6: protocol numbers, traffic class with ECN bits, fragments, address pairs.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::checksum::Sum;

/// An Internet protocol number: IPv4's protocol field, IPv6's next header (IANA registry).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct IpProtocol(pub u8);

impl IpProtocol {
    /// IPv6 hop-by-hop options (RFC 8200 section 4.3).
    pub const HOP_BY_HOP: Self = Self(0);
    /// ICMP for IPv4.
    pub const ICMP: Self = Self(1);
    /// IPv4 within IP (RFC 2003).
    pub const IPV4: Self = Self(4);
    /// TCP.
    pub const TCP: Self = Self(6);
    /// UDP.
    pub const UDP: Self = Self(17);
    /// IPv6 within IP (RFC 2473, RFC 4213).
    pub const IPV6: Self = Self(41);
    /// IPv6 routing header (RFC 8200 section 4.4).
    pub const ROUTING: Self = Self(43);
    /// IPv6 fragment header (RFC 8200 section 4.5).
    pub const FRAGMENT: Self = Self(44);
    /// Generic routing encapsulation (RFC 2784).
    pub const GRE: Self = Self(47);
    /// Encapsulating security payload (RFC 4303).
    pub const ESP: Self = Self(50);
    /// Authentication header (RFC 4302).
    pub const AH: Self = Self(51);
    /// ICMP for IPv6.
    pub const ICMPV6: Self = Self(58);
    /// Nothing follows (RFC 8200 section 4.7).
    pub const NO_NEXT_HEADER: Self = Self(59);
    /// IPv6 destination options (RFC 8200 section 4.6).
    pub const DESTINATION_OPTIONS: Self = Self(60);
}

impl fmt::Display for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ICMP => f.write_str("ICMP"),
            Self::TCP => f.write_str("TCP"),
            Self::UDP => f.write_str("UDP"),
            Self::ICMPV6 => f.write_str("ICMPv6"),
            Self(number) => write!(f, "IP protocol {number}"),
        }
    }
}

/// Explicit congestion notification (RFC 3168 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// Not ECN-capable transport.
    #[default]
    NotEct = 0b00,
    /// ECN-capable transport, codepoint 1.
    Ect1 = 0b01,
    /// ECN-capable transport, codepoint 0.
    Ect0 = 0b10,
    /// Congestion experienced.
    Ce = 0b11,
}

/// The octet that IPv4 calls type of service and IPv6 traffic class: six bits DSCP (RFC 2474), two bits
/// [`Ecn`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TrafficClass(pub u8);

impl TrafficClass {
    /// Returns the differentiated services codepoint, 0 to 63.
    #[inline]
    pub const fn dscp(self) -> u8 {
        self.0 >> 2
    }

    /// Returns the ECN bits.
    #[inline]
    pub const fn ecn(self) -> Ecn {
        match self.0 & 0b11 {
            0b00 => Ecn::NotEct,
            0b01 => Ecn::Ect1,
            0b10 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    /// Returns the same codepoint with other ECN bits.
    #[inline]
    #[must_use]
    pub const fn with_ecn(self, ecn: Ecn) -> Self {
        Self(self.0 & !0b11 | ecn as u8)
    }
}

impl From<Ecn> for TrafficClass {
    fn from(ecn: Ecn) -> Self {
        Self(ecn as u8)
    }
}

/// The offset of a fragment in its packet: a multiple of 8 bytes, at most 65,528.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FragmentOffset(u16);

impl FragmentOffset {
    /// The first byte of the packet.
    pub const START: Self = Self(0);

    /// Creates an offset from bytes; `None` if not a multiple of 8.
    #[inline]
    pub const fn from_bytes(bytes: u16) -> Option<Self> {
        if bytes.is_multiple_of(8) { Some(Self(bytes)) } else { None }
    }

    /// Creates an offset from units of 8 bytes; uses the low 13 bits.
    #[inline]
    pub(crate) const fn from_units(units: u16) -> Self {
        Self(units << 3)
    }

    /// The offset in units of 8 bytes, 0 to 0x1FFF.
    #[inline]
    pub(crate) const fn units(self) -> u16 {
        self.0 >> 3
    }

    /// The offset in bytes.
    #[inline]
    pub const fn bytes(self) -> u16 {
        self.0
    }
}

/// The position of a fragment in its packet; by default the whole packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fragment {
    /// The offset in the packet.
    pub offset: FragmentOffset,
    /// True if fragments with higher offsets follow (MF).
    pub more_fragments: bool,
}

impl Fragment {
    /// Returns true for a whole packet. An IPv6 fragment header on one makes an atomic fragment (RFC 6946).
    #[inline]
    pub const fn is_whole(self) -> bool {
        self.is_first() && !self.more_fragments
    }

    /// Returns true if the fragment contains the upper-layer header.
    #[inline]
    pub const fn is_first(self) -> bool {
        self.offset.0 == 0
    }

    /// Returns true if a fragment may have `len` bytes of payload: a multiple of 8 unless it is the last, and
    /// no byte beyond 65,535 (RFC 791 section 3.2, RFC 8200 section 4.5).
    pub(crate) fn may_carry(self, len: usize) -> bool {
        self.is_whole()
            || (!self.more_fragments || len.is_multiple_of(8)) && usize::from(self.offset.0) + len <= 0xFFFF
    }
}

/// Source and destination address: the part of the IP header that transport checksums cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressPair {
    /// Over IPv4.
    V4 {
        /// The source.
        src: Ipv4Addr,
        /// The destination.
        dst: Ipv4Addr,
    },
    /// Over IPv6.
    V6 {
        /// The source.
        src: Ipv6Addr,
        /// The destination.
        dst: Ipv6Addr,
    },
}

impl AddressPair {
    /// Returns the sum of the pseudo-header; `length` counts transport header and payload, in bytes.
    #[inline]
    pub fn pseudo_header(&self, protocol: IpProtocol, length: u32) -> Sum {
        match *self {
            Self::V4 { src, dst } => Sum::pseudo_ipv4(src, dst, protocol.0, length),
            Self::V6 { src, dst } => Sum::pseudo_ipv6(src, dst, protocol.0, length),
        }
    }

    /// Returns the source.
    #[inline]
    pub fn src(&self) -> IpAddr {
        match *self {
            Self::V4 { src, .. } => src.into(),
            Self::V6 { src, .. } => src.into(),
        }
    }

    /// The receiver.
    #[inline]
    pub fn dst(&self) -> IpAddr {
        match *self {
            Self::V4 { dst, .. } => dst.into(),
            Self::V6 { dst, .. } => dst.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traffic_class_is_dscp_and_ecn() {
        let expedited = TrafficClass(0b1011_1001);
        assert_eq!((expedited.dscp(), expedited.ecn()), (46, Ecn::Ect1));
        let marked = expedited.with_ecn(Ecn::Ce);
        assert_eq!((marked.dscp(), marked.ecn()), (46, Ecn::Ce));
        assert_eq!(marked.with_ecn(Ecn::Ect0).ecn(), Ecn::Ect0);
        for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
            assert_eq!(TrafficClass::from(ecn).ecn(), ecn);
        }
    }

    #[test]
    fn fragment_offsets_are_multiples_of_eight() {
        assert_eq!(FragmentOffset::from_bytes(1480).map(FragmentOffset::bytes), Some(1480));
        assert_eq!(FragmentOffset::from_bytes(1484), None);
        assert_eq!(FragmentOffset::from_units(0x1FFF).bytes(), 65_528);
    }

    #[test]
    fn a_fragment_carries_multiples_of_eight_and_ends_within_a_packet() {
        let first = Fragment { more_fragments: true, ..Fragment::default() };
        assert!(first.may_carry(1480) && !first.may_carry(1481));
        let last = Fragment { offset: FragmentOffset::from_units(0x1FFF), more_fragments: false };
        assert!(last.may_carry(7) && !last.may_carry(8));
        assert!(Fragment::default().may_carry(1481));
    }
}
