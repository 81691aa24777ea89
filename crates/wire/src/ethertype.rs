//! EtherTypes: the protocol behind a link header.

use std::fmt;

/// An Ethernet type field: a protocol or tag type, or an 802.3 length below 0x600.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: Self = Self(0x0800);
    /// ARP.
    pub const ARP: Self = Self(0x0806);
    /// A VLAN tag (802.1Q).
    pub const VLAN: Self = Self(0x8100);
    /// IPv6.
    pub const IPV6: Self = Self(0x86DD);
    /// PPP over Ethernet, session stage (RFC 2516).
    pub const PPPOE_SESSION: Self = Self(0x8864);
    /// A provider's outer VLAN tag (802.1ad).
    pub const QINQ: Self = Self(0x88A8);

    /// Returns true for an 802.3 length.
    #[inline]
    pub const fn is_length(self) -> bool {
        self.0 < 0x600
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}
