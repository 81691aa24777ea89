//! Link types: the header that each packet of a capture begins with.

use std::fmt;

use super::cooked::CookedHeader;

/// The supported link types of the registry at <https://www.tcpdump.org/linktypes.html>.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// An Ethernet header.
    Ethernet,
    /// An IPv4 or IPv6 header; its version field distinguishes them.
    RawIp,
    /// Linux cooked header v1, 16 bytes (LINKTYPE_LINUX_SLL): captures of the interface `any`.
    LinuxCooked,
    /// Linux cooked header v2, 20 bytes, with the interface index (LINKTYPE_LINUX_SLL2).
    LinuxCookedV2,
    /// BSD loopback: the address family, 4 bytes in the byte order of the capturing machine (LINKTYPE_NULL).
    Null,
    /// OpenBSD loopback: the address family, 4 bytes in network byte order (LINKTYPE_LOOP).
    Loop,
}

impl LinkType {
    /// The supported link types, for error messages.
    pub(super) const SUPPORTED: &str =
        "Ethernet (1), raw IP (101, 12, 14, 228, 229), Linux cooked (113, 276) and loopback (0, 108)";

    /// Returns the link type of a code; `None` if it is not supported.
    pub const fn from_code(code: u32) -> Option<Self> {
        match code {
            0 => Some(Self::Null),
            1 => Some(Self::Ethernet),
            // LINKTYPE_RAW; values of DLT_RAW on some systems; LINKTYPE_IPV4 and LINKTYPE_IPV6.
            101 | 12 | 14 | 228 | 229 => Some(Self::RawIp),
            108 => Some(Self::Loop),
            113 => Some(Self::LinuxCooked),
            276 => Some(Self::LinuxCookedV2),
            _ => None,
        }
    }

    /// Returns the code of the link type in files.
    pub const fn code(self) -> u16 {
        match self {
            Self::Null => 0,
            Self::Ethernet => 1,
            Self::RawIp => 101,
            Self::Loop => 108,
            Self::LinuxCooked => 113,
            Self::LinuxCookedV2 => 276,
        }
    }

    /// Returns the length of the pseudo-header before the IP packet, in bytes: 0 for Ethernet and raw IP, the
    /// whole length if no IP packet follows.
    pub fn header_len(self, bytes: &[u8]) -> usize {
        let followed_by_ip = match self {
            Self::Ethernet | Self::RawIp => return 0,
            Self::LinuxCooked | Self::LinuxCookedV2 => self
                .cooked(bytes)
                .and_then(|header| behind_tags(bytes, &header.ethertype(), header.header_len())),
            Self::Null | Self::Loop => {
                bytes.first_chunk().filter(|family| is_family_of_ip(**family)).map(|_| 4)
            }
        };
        followed_by_ip.unwrap_or(bytes.len()).min(bytes.len())
    }

    /// Reads the cooked header of a packet. `None` for other link types and if the header is cut.
    pub fn cooked(self, bytes: &[u8]) -> Option<CookedHeader> {
        match self {
            Self::LinuxCooked => CookedHeader::v1(bytes),
            Self::LinuxCookedV2 => CookedHeader::v2(bytes),
            Self::Ethernet | Self::RawIp | Self::Null | Self::Loop => None,
        }
    }

    /// Returns a number that distinguishes the capturing interface and the direction of packets within one
    /// capture.
    pub fn channel(self, bytes: &[u8]) -> u64 {
        self.cooked(bytes).map_or(0, |header| header.channel())
    }
}

/// Returns the start of the IP packet that a header with this EtherType announces at `start`, behind up to
/// two VLAN tags.
fn behind_tags<'a>(bytes: &'a [u8], mut ethertype: &'a [u8], mut start: usize) -> Option<usize> {
    for _ in 0..2 {
        if !matches!(ethertype, [0x81, 0x00] | [0x88, 0xA8]) {
            break;
        }
        ethertype = bytes.get(start + 2..start + 4)?;
        start += 4;
    }
    is_ip(ethertype).then_some(start)
}

/// Returns true for the EtherTypes of IPv4 and IPv6.
fn is_ip(protocol: &[u8]) -> bool {
    matches!(protocol, [0x08, 0x00] | [0x86, 0xDD])
}

/// Returns true for AF_INET, and for the values of AF_INET6 on Linux, NetBSD, FreeBSD and macOS, in either
/// byte order.
fn is_family_of_ip(family: [u8; 4]) -> bool {
    matches!(family, [2 | 10 | 24 | 28 | 30, 0, 0, 0] | [0, 0, 0, 2 | 10 | 24 | 28 | 30])
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "Ethernet",
            Self::RawIp => "raw IP",
            Self::LinuxCooked => "Linux cooked",
            Self::LinuxCookedV2 => "Linux cooked v2",
            Self::Null => "BSD loopback",
            Self::Loop => "OpenBSD loopback",
        })
    }
}

/// The packets of a capture that are skipped because their link type is not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The link type code in the file.
    pub link_code: u16,
    /// The number of packets.
    pub packets: u64,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { link_code, packets } = *self;
        let plural = if packets == 1 { "" } else { "s" };
        let code = LinkCode(link_code.into());
        write!(f, "{packets} packet{plural} of link type {code}, which is not supported")
    }
}

/// A link type code, with its name if it is a common unsupported one.
pub(super) struct LinkCode(pub(super) u32);

impl fmt::Display for LinkCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match unsupported_name(self.0) {
            Some(name) => write!(f, "{} ({name})", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Returns the name of a common unsupported link type.
const fn unsupported_name(code: u32) -> Option<&'static str> {
    Some(match code {
        6 => "Token Ring",
        9 => "PPP",
        50 => "PPP in HDLC framing",
        51 => "PPPoE",
        104 => "Cisco HDLC",
        105 => "IEEE 802.11",
        107 => "Frame Relay",
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
        assert_eq!(LinkType::from_code(105), None);
        assert_eq!(LinkType::from_code(65_537), None);
    }

    #[test]
    fn link_types_have_the_code_that_they_are_read_from() {
        for code in [0, 1, 101, 108, 113, 276] {
            assert_eq!(LinkType::from_code(code.into()).map(LinkType::code), Some(code));
        }
    }

    #[test]
    fn the_ip_packet_is_found_behind_other_headers() {
        let cooked = |protocol: [u8; 2]| {
            [&[0, 4, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0][..], &protocol, &[0x45; 20]].concat()
        };
        assert_eq!(LinkType::LinuxCooked.header_len(&cooked([8, 0])), 16);
        assert_eq!(LinkType::LinuxCooked.header_len(&cooked([0x86, 0xDD])), 16);
        assert_eq!(LinkType::LinuxCooked.header_len(&cooked([8, 6])), 36);
        assert_eq!(LinkType::LinuxCooked.header_len(&[0; 3]), 3);
        let tagged = |tags: usize, protocol: [u8; 2]| {
            let tags = [0x81, 0, 0, 5].repeat(tags);
            [&[0, 4, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0][..], &tags, &protocol, &[0x45; 20]].concat()
        };
        assert_eq!(LinkType::LinuxCooked.header_len(&tagged(1, [8, 0])), 20);
        assert_eq!(LinkType::LinuxCooked.header_len(&tagged(2, [0x86, 0xDD])), 24);
        assert_eq!(LinkType::LinuxCooked.header_len(&tagged(1, [8, 6])), 40, "ARP");
        assert_eq!(LinkType::LinuxCooked.header_len(&tagged(3, [8, 0])), 48, "too many tags");
        assert_eq!(LinkType::LinuxCooked.header_len(&tagged(1, [8, 0])[..17]), 17);
        assert_eq!(LinkType::LinuxCooked.channel(&cooked([8, 0])), 1);

        let v2 = [&[8, 0, 0, 0, 0, 0, 1, 3, 0, 1, 0, 6][..], &[0; 8], &[0x45; 20]].concat();
        assert_eq!(
            (LinkType::LinuxCookedV2.header_len(&v2), LinkType::LinuxCookedV2.channel(&v2)),
            (20, 0x103 << 1)
        );
        assert_eq!(LinkType::LinuxCookedV2.header_len(&v2[..15]), 15);

        for family in [[2, 0, 0, 0], [0, 0, 0, 2], [30, 0, 0, 0], [0, 0, 0, 24]] {
            assert_eq!(LinkType::Null.header_len(&[&family[..], &[0x45; 20]].concat()), 4);
        }
        assert_eq!(LinkType::Loop.header_len(&[0, 0, 0, 7, 1, 2]), 6);
        assert_eq!(LinkType::Ethernet.header_len(&[0; 60]), 0);
    }
}
