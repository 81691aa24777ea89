//! The stateless card's queue: answers, and requests to be answered, of all connections.
//!
//! The card stores an RDP on arrival and queues the RA. One RA acknowledges up to 17 RDPs of a burst. The
//! card queues GDs and AOPs unprocessed, so that data is copied once, from the program's memory to the
//! driver's buffer. The configuration bounds the queue of all connections together.

use std::collections::VecDeque;

use nichrome_wire::rdma::{QpNumber, UdpFlow};
use nichrome_wire::star::{
    AUTHENTICATION_LEN, CHECK_LEN, CommonHeader, Flags, Lease, PacketType, PacketWriter, Repr,
};
use nichrome_wire::{Instant, TrafficClass};

use super::card::{Acknowledgement, Answer, StatelessCard};
use super::result_slots::ResultSlots;
use super::seal::Seal;
use crate::core::memory::Memory;
use crate::core::verbs::Verbs;
use crate::net::{Datagram, Room, Route, SteeringKey};

/// Bytes of the longest queued packet: an AOP with authentication.
const LONGEST: usize = PacketType::Aop.authenticated_len(0);

/// A queued packet.
struct Packet {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Packet {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// An entry of the queue.
enum Waiting {
    Acknowledgement(Acknowledgement),
    /// The last packet of a connection.
    Close(Packet, Route),
    /// A GD or AOP to answer.
    Request {
        packet: Packet,
        flow: UdpFlow,
        traffic_class: TrafficClass,
    },
}

/// The card and its queue.
pub(super) struct CardQueue {
    card: StatelessCard,
    waiting: VecDeque<Waiting>,
    limit: usize,
}

impl CardQueue {
    /// Creates the queue of a card, for at most `limit` packets.
    pub(super) fn new(card: StatelessCard, limit: usize) -> Self {
        Self { card, waiting: VecDeque::new(), limit }
    }

    pub(super) fn card(&self) -> &StatelessCard {
        &self.card
    }

    /// Returns the size in bytes of the card's memory, which is allocated at its start, and of its queue,
    /// which grows to its limit.
    pub(super) fn state_bytes(&self) -> usize {
        StatelessCard::BYTES + self.limit * size_of::<Waiting>()
    }

    /// Ends the leases of a closed connection.
    pub(super) fn revoke(&mut self, server: QpNumber, last: Lease, now: Instant) {
        self.card.revoke(server, last, now);
    }

    /// Receives an RDP, GD or AOP.
    pub(super) fn receive<M: Memory>(
        &mut self,
        datagram: &Datagram<'_>,
        kind: PacketType,
        verbs: &mut Verbs<M>,
    ) {
        if self.waiting.len() >= self.limit {
            verbs.counters.dropped_full += 1;
            return;
        }
        if kind != PacketType::Rdp {
            let (mut bytes, len) = ([0; LONGEST], datagram.bytes.len());
            let Some(place) = bytes.get_mut(..len) else {
                verbs.counters.dropped_malformed += 1;
                return;
            };
            place.copy_from_slice(datagram.bytes);
            let Datagram { flow, traffic_class, .. } = *datagram;
            self.waiting.push_back(Waiting::Request { packet: Packet { bytes, len }, flow, traffic_class });
            return;
        }
        let Verbs { protection, memory, now, .. } = verbs;
        let stored = self.card.counters().bytes_stored;
        let ra = self.card.execute_rdp(datagram, *now, protection, memory);
        verbs.counters.bytes_received += self.card.counters().bytes_stored - stored;
        let Some(ra) = ra else { return };
        if let Some(Waiting::Acknowledgement(last)) = self.waiting.back_mut()
            && last.merge(&ra)
        {
            return;
        }
        self.waiting.push_back(Waiting::Acknowledgement(ra));
    }

    /// Fills `room` with answers. Returns true if there are more than fit.
    pub(super) fn fill<M: Memory>(
        &mut self,
        room: &mut Room<'_>,
        slots: &mut ResultSlots,
        verbs: &mut Verbs<M>,
    ) -> bool {
        let mut last: Option<(UdpFlow, TrafficClass)> = None;
        while let Some(waiting) = self.waiting.front() {
            match waiting {
                Waiting::Acknowledgement(ra) => {
                    let steering = SteeringKey::of(ra.connection());
                    if !room.fits(&ra.route, steering, ra.len()) {
                        return true;
                    }
                    if let Some(Answer { route, len }) = self.card.write(ra, verbs.now, room.free()) {
                        room.add(route, steering, len);
                        verbs.counters.sent += 1;
                    }
                }
                Waiting::Close(close, route) => {
                    let (bytes, steering) = (close.bytes(), receiver_of(close.bytes()));
                    if !room.fits(route, steering, bytes.len()) {
                        return true;
                    }
                    room.free()[..bytes.len()].copy_from_slice(bytes);
                    room.add(*route, steering, bytes.len());
                    verbs.counters.sent += 1;
                }
                Waiting::Request { packet, flow, traffic_class } => {
                    // The answer has the request's client number, so the same steering key.
                    let (bytes, steering) = (packet.bytes(), receiver_of(packet.bytes()));
                    // A request for more bytes than any packet holds does not block the queue: the card
                    // refuses it.
                    let follows = || {
                        last == Some((*flow, *traffic_class))
                            && room.fits_behind(steering, expected_len(bytes))
                    };
                    if !room.is_empty() && !follows() {
                        return true;
                    }
                    last = Some((*flow, *traffic_class));
                    let datagram = Datagram { flow: *flow, traffic_class: *traffic_class, bytes };
                    let Verbs { protection, memory, now, .. } = verbs;
                    let sent = self.card.counters().bytes_sent();
                    let answer = self.card.respond(&datagram, *now, protection, (memory, slots), room.free());
                    if let Some(Answer { route, len }) = answer {
                        room.add(route, steering, len);
                        verbs.counters.sent += 1;
                        verbs.counters.bytes_sent += self.card.counters().bytes_sent() - sent;
                    }
                }
            }
            self.waiting.pop_front();
        }
        false
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Queues the last packet of a connection that ends, which has no payload.
    pub(super) fn push(&mut self, mut repr: Repr, seal: &Seal, route: Route) {
        repr.flags = repr.flags | seal.flags();
        let mut bytes = [0; LONGEST];
        let Some(writer) = PacketWriter::new(&repr, 0, &mut bytes) else { return };
        let len = seal.finish(writer, &route.flow);
        if self.waiting.len() < self.limit {
            self.waiting.push_back(Waiting::Close(Packet { bytes, len }, route));
        }
    }
}

/// Returns the steering key for the connection number of `packet`.
fn receiver_of(packet: &[u8]) -> SteeringKey {
    let number = CommonHeader::new(packet).and_then(|header| QpNumber::new(header.connection()));
    number.map_or(SteeringKey::MANAGEMENT, SteeringKey::of)
}

/// Returns the length in bytes of the SDP that answers a GD or AOP.
fn expected_len(gd: &[u8]) -> usize {
    let wanted = gd.get(2..4).map_or(0, |len| usize::from(u16::from_be_bytes([len[0], len[1]])));
    let is_authenticated = CommonHeader::new(gd).is_some_and(|gd| gd.flags().contains(Flags::AUTHENTICATED));
    PacketType::Sdp.header_len() + wanted + if is_authenticated { AUTHENTICATION_LEN } else { CHECK_LEN }
}
