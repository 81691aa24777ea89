//! How packets of a connection are authenticated, on both sides.

use nichrome_wire::rdma::UdpFlow;
use nichrome_wire::star::{Authentication, Flags, PacketCheck, PacketWriter, Stamp};

use super::tag::ConnectionKey;

/// What packets of a connection are believed by, on both sides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seal {
    pub(crate) check: PacketCheck,
    /// The key of the connection, and the server's name for its protection domain.
    pub(crate) proof: Option<(ConnectionKey, u32)>,
}

impl Seal {
    /// The flags that packets have for it.
    pub(crate) fn flags(&self) -> Flags {
        if self.proof.is_some() { Flags::AUTHENTICATED } else { Flags::NONE }
    }

    /// Whether a packet is of this connection and as it was sent.
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

    /// Appends the trailer of a packet, and returns the packet's length.
    pub(super) fn finish(&self, writer: PacketWriter<'_>, flow: &UdpFlow, stamp: Stamp) -> usize {
        match self.proof {
            None => writer.finish(flow, self.check),
            Some((key, domain)) => {
                let tag = |addresses: &[u8], covered: &[u8]| key.tag(addresses, covered);
                writer.finish_authenticated(flow, self.check, domain, stamp, tag)
            }
        }
    }
}
