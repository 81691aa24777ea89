//! The integrity check and authentication of a connection's packets, on both sides.

use nichrome_wire::rdma::UdpFlow;
use nichrome_wire::star::{Authentication, Flags, PacketCheck, PacketWriter};

use super::tag::ConnectionKey;

/// The integrity check of a connection's packets and, with authentication, their key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seal {
    pub(crate) check: PacketCheck,
    /// The key of the connection, and the server's name for its protection domain.
    pub(crate) proof: Option<(ConnectionKey, u32)>,
}

impl Seal {
    /// The flags of sealed packets.
    pub(crate) fn flags(&self) -> Flags {
        if self.proof.is_some() { Flags::AUTHENTICATED } else { Flags::NONE }
    }

    /// Whether check and tag of a packet are valid.
    pub(crate) fn is_right(
        &self,
        flow: &UdpFlow,
        datagram: &[u8],
        authentication: Option<&Authentication>,
    ) -> bool {
        let proved = match (&self.proof, authentication) {
            (None, None) => true,
            (Some((key, _)), Some(authentication)) => key.is_right(flow, datagram, authentication),
            _ => false,
        };
        proved && self.check.is_right(flow, datagram)
    }

    /// Appends a packet's trailer and returns the packet's length in bytes.
    pub(super) fn finish(&self, writer: PacketWriter<'_>, flow: &UdpFlow) -> usize {
        match self.proof {
            None => writer.finish(flow, self.check),
            Some((key, domain)) => {
                let tag = |addresses: &[u8], covered: &[u8]| key.tag(addresses, covered);
                writer.finish_authenticated(flow, self.check, domain, tag)
            }
        }
    }
}
