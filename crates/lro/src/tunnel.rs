//! The tunnel headers between the link header and the IP header of a segment.

use nichrome_wire::PppoeHeader;

/// The tunnel around a packet: at most one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Tunnel {
    /// No tunnel.
    #[default]
    None,
    /// IPv4 without options (RFC 2003, RFC 4213).
    Ipv4,
    /// IPv6 without extension headers (RFC 2473).
    Ipv6,
    /// PPP over Ethernet (RFC 2516).
    Pppoe,
}

impl Tunnel {
    /// Returns the length of the tunnel headers, directly before the IP header.
    #[inline]
    pub(crate) const fn len(self) -> usize {
        match self {
            Self::None => 0,
            Self::Ipv4 => 20,
            Self::Ipv6 => 40,
            Self::Pppoe => PppoeHeader::LEN,
        }
    }

    /// Returns the tunnel bytes that count for the limit of 65,535 bytes: PPP's length field covers the
    /// protocol number.
    #[inline]
    pub(crate) const fn counted(self) -> usize {
        match self {
            Self::Pppoe => 2,
            Self::None | Self::Ipv4 | Self::Ipv6 => self.len(),
        }
    }

    /// Returns the offset of the length field in the tunnel header, and its value around an IP packet of
    /// `packet` bytes.
    #[inline]
    pub(crate) const fn length(self, packet: u16) -> Option<(usize, u16)> {
        match self {
            Self::None => None,
            Self::Ipv4 => Some((2, packet.wrapping_add(20))),
            Self::Ipv6 => Some((4, packet)),
            Self::Pppoe => Some((4, packet.wrapping_add(2))),
        }
    }
}
