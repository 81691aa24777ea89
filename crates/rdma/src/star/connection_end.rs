//! One end of a connection: building and receiving packets, the same on both sides.

use nichrome_wire::Instant;
use nichrome_wire::rdma::UdpFlow;
use nichrome_wire::star::{PacketWriter, Repr};

use super::packet::{Cause, Impossible, Incoming, Outgoing};
use super::seal::Seal;
use super::security::Blocked;
use super::shared::StarShared;
use crate::core::memory::Memory;
use crate::core::verbs::Verbs;
use crate::net::{Datagram, Room, Route, SteeringKey};

/// One end of a connection.
pub(super) trait ConnectionEnd<M: Memory> {
    /// Returns the route to the peer, without UDP ports.
    fn route(&self) -> Option<&Route>;
    fn seal(&self) -> &Seal;

    /// Returns true if a packet is of the peer and undamaged.
    fn is_valid(&self, packet: &Incoming<'_>, datagram: &Datagram<'_>) -> bool {
        self.seal().is_valid(&datagram.flow, datagram.bytes, packet.authentication.as_ref())
    }

    /// Adds the server's grant to an RDP or GD, if there is one.
    fn authorize(&self, packet: Outgoing, shared: &StarShared) -> Outgoing;

    /// Appends the trailer of a packet, and returns its length in bytes.
    fn finish(&self, packet: &Outgoing, writer: PacketWriter<'_>, flow: &UdpFlow) -> usize;

    /// Receives a packet whose addresses and seal are valid.
    fn receive(&mut self, packet: &Incoming<'_>, shared: &mut StarShared, verbs: &mut Verbs<M>);

    /// Prepares the next packet: begins operations, announces requests.
    fn run(&mut self, shared: &mut StarShared, verbs: &mut Verbs<M>);

    /// Returns the next packet to send.
    fn next_packet(&self, now: Instant) -> Option<Outgoing>;

    /// Returns the packet that continues the message of `packet`, which was just sent; `None` if another
    /// packet may come first.
    fn following(&self, packet: &Outgoing, now: Instant) -> Option<Outgoing>;

    /// Copies the payload of a packet.
    fn fill(&self, packet: &Outgoing, into: &mut [u8], verbs: &Verbs<M>) -> Result<(), Impossible>;

    /// Records that a packet of `len` bytes left.
    fn sent(&mut self, packet: &Outgoing, len: usize, verbs: &mut Verbs<M>);

    /// Handles a packet that cannot be built.
    fn failed(&mut self, packet: &Outgoing, verbs: &mut Verbs<M>);

    /// Handles a packet that the egress module blocked.
    fn blocked(&mut self, packet: &Outgoing, why: Blocked, verbs: &mut Verbs<M>);

    /// Receives a packet if its seal is valid, else drops and counts it, and returns false.
    fn receive_verified(
        &mut self,
        packet: &Incoming<'_>,
        datagram: &Datagram<'_>,
        shared: &mut StarShared,
        verbs: &mut Verbs<M>,
    ) -> bool {
        let is_valid = self.is_valid(packet, datagram);
        if is_valid {
            self.receive(packet, shared, verbs);
        } else {
            verbs.counters.dropped_icrc += 1;
        }
        is_valid
    }

    /// Fills `room` with packets. Returns true if there are more than fit.
    fn write(&mut self, room: &mut Room<'_>, shared: &mut StarShared, verbs: &mut Verbs<M>) -> bool {
        let mut following = None;
        loop {
            let packet = match following.take() {
                Some(packet) => packet,
                None => {
                    self.run(shared, verbs);
                    let Some(packet) = self.next_packet(verbs.now) else { return false };
                    self.authorize(packet, shared)
                }
            };
            match self.build(&packet, room, shared, verbs) {
                Built::Placed(len) => {
                    self.sent(&packet, len, verbs);
                    following = self.following(&packet, verbs.now);
                }
                Built::Full => return true,
                Built::Unroutable => return false,
                Built::Impossible => self.failed(&packet, verbs),
                Built::Blocked(why) => self.blocked(&packet, why, verbs),
            }
        }
    }

    /// Builds a packet in `room`, unless the egress module blocks it.
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
        let steering = steering_of(&repr);
        if !room.fits(&route, steering, len) {
            return Built::Full;
        }
        if let Err(why) = shared.egress.check_headers(&route.flow, &repr, packet.payload_len) {
            return Built::Blocked(why);
        }
        let Some(mut writer) = PacketWriter::new(&repr, packet.payload_len, room.free()) else {
            return Built::Impossible;
        };
        if self.fill(packet, writer.payload(), verbs).is_err() {
            return Built::Impossible;
        }
        let len = self.finish(packet, writer, &route.flow);
        room.add(route, steering, len);
        Built::Placed(len)
    }
}

/// The outcome of building a packet.
pub(super) enum Built {
    /// The packet's length in bytes.
    Placed(usize),
    /// The room is full, or has packets to another destination.
    Full,
    /// The connection has no route.
    Unroutable,
    /// The packet cannot be built: its memory or request no longer exists.
    Impossible,
    Blocked(Blocked),
}

/// Packets for a card are steered by the server's number, others by the receiver's.
#[inline]
fn steering_of(repr: &Repr) -> SteeringKey {
    let number = repr.message.span().map_or(repr.connection, |span| span.capability.server);
    SteeringKey::of(number)
}

/// Returns true if a packet carries data and may be marked by routers.
fn is_data(packet: &Outgoing) -> bool {
    matches!(packet.cause, Cause::Chunk(_)) && packet.payload_len > 0
}
