//! What the packets of a capture begin with.

use std::fmt;

/// The link types that Nichrome reads, of the registry at <https://www.tcpdump.org/linktypes.html>.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// An Ethernet header.
    Ethernet,
    /// An IPv4 or IPv6 header, told apart by its version.
    RawIp,
}

impl LinkType {
    /// The link types that [`LinkType::from_code`] knows, for messages.
    pub(super) const SUPPORTED: &str = "Ethernet (1) and raw IP (101, 12, 14, 228, 229)";

    /// The link type of a code in a file; `None` where it is not supported.
    pub const fn from_code(code: u32) -> Option<Self> {
        match code {
            1 => Some(Self::Ethernet),
            // LINKTYPE_RAW; DLT_RAW as some systems wrote it; LINKTYPE_IPV4 and LINKTYPE_IPV6.
            101 | 12 | 14 | 228 | 229 => Some(Self::RawIp),
            _ => None,
        }
    }

    /// The code that stands for the link type in a file.
    pub const fn code(self) -> u16 {
        match self {
            Self::Ethernet => 1,
            Self::RawIp => 101,
        }
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "Ethernet",
            Self::RawIp => "raw IP",
        })
    }
}

/// The name of a common link type that is not supported.
pub(super) const fn unsupported_name(code: u32) -> Option<&'static str> {
    Some(match code {
        0 => "BSD loopback/null",
        6 => "Token Ring",
        9 => "PPP",
        50 => "PPP in HDLC framing",
        51 => "PPPoE",
        104 => "Cisco HDLC",
        105 => "IEEE 802.11",
        107 => "Frame Relay",
        108 => "OpenBSD loopback",
        113 => "Linux cooked",
        119 => "IEEE 802.11 with Prism header",
        127 => "IEEE 802.11 with radiotap header",
        147..=162 => "user-defined",
        189 => "USB",
        192 => "per-packet information",
        195 | 230 => "IEEE 802.15.4",
        201 => "Bluetooth",
        220 => "Linux USB",
        227 => "CAN bus",
        239 => "Linux netfilter log",
        247 => "InfiniBand",
        253 => "Linux netlink",
        276 => "Linux cooked v2",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_raw_ip_code_is_read_and_101_is_written() {
        for code in [12, 14, 101, 228, 229] {
            assert_eq!(LinkType::from_code(code), Some(LinkType::RawIp));
        }
        assert_eq!(LinkType::RawIp.code(), 101);
        assert_eq!(LinkType::from_code(1), Some(LinkType::Ethernet));
        assert_eq!(LinkType::Ethernet.code(), 1);
    }

    #[test]
    fn a_code_is_supported_or_named_as_unsupported_but_not_both() {
        for code in 0..1000 {
            assert!(LinkType::from_code(code).is_none() || unsupported_name(code).is_none(), "{code}");
        }
        assert_eq!(LinkType::from_code(113), None);
        assert_eq!(LinkType::from_code(65_537), None);
    }
}
