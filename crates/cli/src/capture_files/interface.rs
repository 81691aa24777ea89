//! The interfaces of a capture.

use nichrome_lro::Medium;
use nichrome_port::capture::{LinkType, Record};
use nichrome_wire::LinkHeader;

/// An interface of the input, or one direction of an interface within Linux's `any`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Interface {
    pub(super) number: u32,
    pub(super) link_type: LinkType,
    /// Index and direction within Linux's `any`.
    channel: u64,
}

impl Interface {
    /// Returns the interface of a record.
    pub(crate) fn of(record: &Record, bytes: &[u8]) -> Self {
        let channel = record.link_type.channel(bytes);
        Self { number: record.interface, link_type: record.link_type, channel }
    }

    /// Returns the medium of the interface's frames as engines see them: packets with a cooked header are
    /// Ethernet frames.
    pub(crate) fn medium(self) -> Medium {
        match self.link_type {
            LinkType::Ethernet | LinkType::LinuxCooked | LinkType::LinuxCookedV2 => Medium::Ethernet,
            LinkType::RawIp | LinkType::Null | LinkType::Loop => Medium::Ip,
        }
    }

    /// Returns the interface and the bytes to record for an ACK that an engine generated. In captures of
    /// other link types than Ethernet this is an IP packet, since the link header's fields are unknown.
    pub(crate) fn of_generated(self, sent: &[u8]) -> (Self, &[u8]) {
        let as_ip = Self { link_type: LinkType::RawIp, ..self };
        match self.link_type {
            LinkType::Ethernet => (self, sent),
            LinkType::LinuxCooked | LinkType::LinuxCookedV2 => {
                (as_ip, LinkHeader::new(sent).map_or(sent, |link| link.payload()))
            }
            LinkType::RawIp | LinkType::Null | LinkType::Loop => (as_ip, sent),
        }
    }
}
