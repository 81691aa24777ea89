//! The interfaces of a capture.

use nichrome_lro::Medium;
use nichrome_port::capture::{LinkType, Record};

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

    /// Returns the medium of its frames, as engines see them.
    pub(crate) fn medium(self) -> Medium {
        match self.link_type {
            LinkType::Ethernet => Medium::Ethernet,
            _ => Medium::Ip,
        }
    }
}
