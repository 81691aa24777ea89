//! Where the packets of a capture came from.

use nichrome_lro::Medium;
use nichrome_port::capture::{LinkType, Record};

/// An interface of the input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interface {
    pub(super) number: u32,
    pub(super) link_type: LinkType,
    /// The interface within that of the capture, as Linux's `any` has them.
    channel: u64,
}

impl Interface {
    /// The interface of a record.
    pub(crate) fn of(record: &Record, bytes: &[u8]) -> Self {
        let channel = record.link_type.channel(bytes);
        Self { number: record.interface, link_type: record.link_type, channel }
    }

    /// What engines see of its frames begins with this.
    pub(crate) fn medium(self) -> Medium {
        match self.link_type {
            LinkType::Ethernet => Medium::Ethernet,
            _ => Medium::Ip,
        }
    }

    /// Returns true if the frames of both came over one link in one direction.
    pub(crate) fn is_same_link(self, other: Self) -> bool {
        (self.number, self.link_type, self.channel) == (other.number, other.link_type, other.channel)
    }
}
