//! The integrity check and authentication of a connection's packets, on both sides.

use nichrome_wire::rdma::UdpFlow;
use nichrome_wire::star::{Authentication, Flags, GrantCode, PacketCheck, PacketWriter};

use super::tag::ConnectionKey;

/// The integrity check of a connection's packets and, with authentication, their key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seal {
    pub(crate) check: PacketCheck,
    /// The key of the connection.
    pub(crate) key: Option<ConnectionKey>,
}

impl Seal {
    /// Returns the flags of sealed packets.
    pub(crate) fn flags(&self) -> Flags {
        if self.key.is_some() { Flags::AUTHENTICATED } else { Flags::NONE }
    }

    /// Returns true if the check or, with authentication, the tag of a packet is valid.
    pub(crate) fn is_valid(
        &self,
        flow: &UdpFlow,
        datagram: &[u8],
        authentication: Option<&Authentication>,
    ) -> bool {
        match (&self.key, authentication) {
            (None, None) => self.check.is_valid(flow, datagram),
            (Some(key), Some(tag)) => key.is_valid(GrantCode::default(), flow, datagram, tag),
            _ => false,
        }
    }

    /// Appends a packet's trailer and returns the packet's length in bytes.
    pub(super) fn finish(&self, writer: PacketWriter<'_>, flow: &UdpFlow) -> usize {
        match self.key {
            None => writer.finish(flow, self.check),
            Some(key) => writer.finish_authenticated(flow, |addresses, covered| {
                key.tag(GrantCode::default(), addresses, covered)
            }),
        }
    }
}
