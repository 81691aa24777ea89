//! The interfaces of a capture.

use nichrome_lro::Medium;
use nichrome_port::capture::{LinkType, Record};

/// An interface of the input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interface {
    pub(super) number: u32,
    pub(super) link_type: LinkType,
    /// Index of the interface within Linux's `any`.
    channel: u64,
}

impl Interface {
    /// Returns the interface of a record.
    pub(crate) fn of(record: &Record, bytes: &[u8]) -> Self {
        let channel = record.link_type.channel(bytes);
        Self { number: record.interface, link_type: record.link_type, channel }
    }

    /// Returns the medium of its frames, as engines see them.
    pub(crate) fn medium(self) -> Medium {
        match self.link_type {
            LinkType::Ethernet => Medium::Ethernet,
            _ => Medium::Ip,
        }
    }

    /// Returns true if frames of both passed the same link in the same direction.
    pub(crate) fn is_same_link(self, other: Self) -> bool {
        (self.number, self.link_type, self.channel) == (other.number, other.link_type, other.channel)
    }
}
