//! One side of a connection, and how its packets are built and received: alike on both.

use nichrome_wire::rdma::UdpFlow;
use nichrome_wire::star::{PacketWriter, Repr, STAR_PORT, Stamp};
use nichrome_wire::{Ecn, Instant};

use super::packet::{Cause, Impossible, Incoming, Outgoing};
use super::seal::Seal;
use super::security::Blocked;
use super::shared::StarShared;
use crate::core::memory::Memory;
use crate::core::verbs::Verbs;
use crate::net::{Datagram, Room, Route};

/// One side of a connection.
pub(super) trait Side<M: Memory> {
    /// The route to the peer, of RoCE's addresses.
    fn route(&self) -> Option<&Route>;
    fn seal(&self) -> &Seal;

    /// The time that the server's clock shows.
    fn stamp(&self, now: Instant) -> Stamp;

    /// Takes in a packet whose addresses and seal are right.
    fn receive(&mut self, packet: &Incoming<'_>, shared: &mut StarShared, verbs: &mut Verbs<M>);

    /// Does what needs no packet.
    fn run(&mut self, shared: &mut StarShared, verbs: &mut Verbs<M>);

    /// The packet that leaves next.
    fn next_packet(&self, now: Instant) -> Option<Outgoing>;

    /// Copies the payload of a packet.
    fn fill(&self, packet: &Outgoing, into: &mut [u8], verbs: &Verbs<M>) -> Result<(), Impossible>;

    /// A packet of `len` bytes has left.
    fn sent(&mut self, packet: &Outgoing, len: usize, verbs: &mut Verbs<M>);

    /// A packet cannot be built.
    fn failed(&mut self, packet: &Outgoing, verbs: &mut Verbs<M>);

    /// The egress module has blocked a packet.
    fn blocked(&mut self, packet: &Outgoing, why: Blocked, verbs: &mut Verbs<M>);

    /// Takes in a packet if its seal is right.
    fn take_in(
        &mut self,
        packet: &Incoming<'_>,
        datagram: &Datagram<'_>,
        shared: &mut StarShared,
        verbs: &mut Verbs<M>,
    ) {
        if self.seal().is_right(&datagram.flow, datagram.bytes, packet.authentication.as_ref()) {
            self.receive(packet, shared, verbs);
        } else {
            verbs.counters.dropped_icrc += 1;
        }
    }

    /// Fills room with what is to leave. Returns true if there is more than fits.
    fn write(&mut self, room: &mut Room<'_>, shared: &mut StarShared, verbs: &mut Verbs<M>) -> bool {
        loop {
            self.run(shared, verbs);
            let Some(packet) = self.next_packet(verbs.now) else { return false };
            match self.build(&packet, room, shared, verbs) {
                Built::Placed(len) => self.sent(&packet, len, verbs),
                Built::Full => return true,
                Built::Unroutable => return false,
                Built::Impossible => self.failed(&packet, verbs),
                Built::Blocked(why) => self.blocked(&packet, why, verbs),
            }
        }
    }

    /// Builds a packet behind those that are there, if the egress module lets it out.
    fn build(
        &self,
        packet: &Outgoing,
        room: &mut Room<'_>,
        shared: &mut StarShared,
        verbs: &Verbs<M>,
    ) -> Built {
        let Some(route) = self.route().map(|route| shared.route_of(route, is_data(packet))) else {
            return Built::Unroutable;
        };
        let seal = self.seal();
        let repr = Repr { flags: packet.repr.flags | seal.flags(), ..packet.repr };
        let len = repr.datagram_len(packet.payload_len);
        if !room.fits(&route, len) {
            return Built::Full;
        }
        let Some(mut writer) = PacketWriter::new(&repr, packet.payload_len, room.free()) else {
            return Built::Impossible;
        };
        if self.fill(packet, writer.payload(), verbs).is_err() {
            return Built::Impossible;
        }
        let len = seal.finish(writer, &route.flow, self.stamp(verbs.now));
        if let Err(why) = shared.egress.check(&route.flow, &room.free()[..len]) {
            return Built::Blocked(why);
        }
        room.add(route, len);
        Built::Placed(len)
    }
}

/// How building a packet ended.
pub(super) enum Built {
    /// The packet has so many bytes.
    Placed(usize),
    /// The room is full, or of another destination.
    Full,
    /// The connection has no route.
    Unroutable,
    /// What the packet needs is gone.
    Impossible,
    /// The egress module does not let it out.
    Blocked(Blocked),
}

/// Whether a packet carries data, and so may be marked on a congested path.
fn is_data(packet: &Outgoing) -> bool {
    matches!(packet.cause, Cause::Chunk(_)) && packet.payload_len > 0
}

impl StarShared {
    /// A connection's route, to StaR's port.
    pub(super) fn route_of(&self, route: &Route, is_data: bool) -> Route {
        let flow = UdpFlow { src_port: self.config.source_port, dst_port: STAR_PORT, ..route.flow };
        let ecn = if is_data { Ecn::Ect0 } else { Ecn::NotEct };
        Route { flow, traffic_class: route.traffic_class.with_ecn(ecn), ..*route }
    }
}
