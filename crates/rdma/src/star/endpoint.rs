//! What both sides of a connection have in common on their way to the wire.

use nichrome_wire::rdma::UdpFlow;
use nichrome_wire::star::{Authentication, Flags, PacketCheck, STAR_PORT, Stamp};
use nichrome_wire::{Ecn, Instant};

use super::packet::{Cause, Impossible, Incoming, Outgoing};
use super::security::Blocked;
use super::tag::ConnectionKey;
use crate::config::Config;
use crate::core::memory::Memory;
use crate::core::verbs::Verbs;
use crate::qp::QueuePair;
use crate::roce::packet::Route;

/// One side of a connection.
pub(crate) trait Endpoint<M: Memory> {
    fn qp(&self) -> &QueuePair;
    fn seal(&self) -> &Seal;

    /// What the server's clock shows.
    fn stamp(&self, now: Instant) -> Stamp;

    /// Takes in a packet whose addresses and seal are right.
    fn receive(&mut self, packet: &Incoming<'_>, config: &Config, verbs: &mut Verbs<M>);

    /// Does what needs no packet.
    fn run(&mut self, config: &Config, verbs: &mut Verbs<M>);

    /// The packet that is to leave next.
    fn next_packet(&self, now: Instant) -> Option<Outgoing>;

    /// Fills in the payload of a packet.
    fn fill(&self, packet: &Outgoing, into: &mut [u8], verbs: &Verbs<M>) -> Result<(), Impossible>;

    /// A packet has left.
    fn sent(&mut self, packet: &Outgoing, verbs: &mut Verbs<M>);

    /// A packet could not be made.
    fn failed(&mut self, packet: &Outgoing, verbs: &mut Verbs<M>);

    /// The security module has not let a packet out.
    fn blocked(&mut self, packet: &Outgoing, why: Blocked, verbs: &mut Verbs<M>);
}

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
}

/// Puts the trailer to a packet, and gives its length.
pub(crate) fn finish(
    writer: nichrome_wire::star::PacketWriter<'_>,
    flow: &UdpFlow,
    seal: &Seal,
    stamp: Stamp,
) -> usize {
    match seal.proof {
        None => writer.finish(flow, seal.check),
        Some((key, domain)) => {
            let tag = |addresses: &[u8], covered: &[u8]| key.tag(addresses, covered);
            writer.finish_authenticated(flow, seal.check, domain, stamp, tag)
        }
    }
}

/// The way of a packet: that of the queue pair, to the other port. What carries data can be marked on its way.
pub(crate) fn route(qp: &QueuePair, config: &Config, packet: &Outgoing) -> Option<Route> {
    let Route { flow, traffic_class, .. } = qp.route?;
    let flow = UdpFlow { src_port: config.star.source_port, dst_port: STAR_PORT, ..flow };
    let ecn = match packet.cause {
        Cause::Chunk(_) if packet.payload_len > 0 => Ecn::Ect0,
        _ => Ecn::NotEct,
    };
    Some(Route { flow, traffic_class: traffic_class.with_ecn(ecn), ..qp.route? })
}
