//! The stateless card in the device: packets that wait for their answer, of all connections in one queue.
//!
//! What an RDP brings is stored when it comes, and its RA waits; a GD waits itself, so that its data goes from the
//! program's memory into the driver's buffer. The queue is bounded by the configuration, whatever the number of
//! connections.

use std::collections::VecDeque;

use nichrome_wire::rdma::UdpFlow;
use nichrome_wire::star::{AUTHENTICATION_LEN, CHECK_LEN, PacketType, PacketWriter};
use nichrome_wire::{Instant, TrafficClass};

use super::traffic::Batch;
use super::transport::Transport;
use crate::config::Config;
use crate::core::memory::Memory;
use crate::core::verbs::Verbs;
use crate::roce::packet::{Datagram, Route};
use crate::star::endpoint::{finish, route};
use crate::star::packet::{Cause, Outgoing};
use crate::star::{Answer, CardConfig, StatelessCard};

/// Bytes of what waits, at most: a GD with authentication, and a Close without segments.
const LONGEST: usize = 64;

/// Time to live of the card's packets.
const HOP_LIMIT: u8 = 64;

/// Something short that waits to leave or to be answered.
struct Waiting {
    bytes: [u8; LONGEST],
    len: usize,
    kind: Kind,
}

enum Kind {
    /// It leaves as it is.
    Ready(Route),
    /// It asks for data.
    Asking { flow: UdpFlow, traffic_class: TrafficClass },
}

/// The card, and what waits for it.
pub(super) struct Answers {
    card: StatelessCard,
    waiting: VecDeque<Waiting>,
    limit: usize,
}

impl Answers {
    pub(super) fn new(config: &Config) -> Self {
        let card = StatelessCard::new(CardConfig {
            epoch: config.star.epoch,
            max_payload: config.mtu.bytes() as u16,
            hop_limit: HOP_LIMIT,
            authentication: config.star.authentication.clone(),
        });
        Self { card, waiting: VecDeque::new(), limit: config.star.waiting_packets }
    }

    pub(super) fn card(&self) -> &StatelessCard {
        &self.card
    }

    /// Takes in an RDP or GD.
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
        let mut bytes = [0; LONGEST];
        if kind == PacketType::Gd {
            let Some(place) = bytes.get_mut(..datagram.bytes.len()) else {
                verbs.counters.dropped_malformed += 1;
                return;
            };
            place.copy_from_slice(datagram.bytes);
            let Datagram { flow, traffic_class, .. } = *datagram;
            let kind = Kind::Asking { flow, traffic_class };
            self.waiting.push_back(Waiting { bytes, len: datagram.bytes.len(), kind });
            return;
        }
        let Verbs { protection, memory, now, .. } = verbs;
        if let Some(Answer { route, len }) = self.card.respond(datagram, *now, protection, memory, &mut bytes)
        {
            self.waiting.push_back(Waiting { bytes, len, kind: Kind::Ready(route) });
        }
    }

    /// Puts answers into a batch; true where there are more, which it cannot take.
    pub(super) fn fill<M: Memory>(&mut self, batch: &mut Batch<'_>, verbs: &mut Verbs<M>) -> bool {
        let mut last: Option<(UdpFlow, TrafficClass)> = None;
        while let Some(waiting) = self.waiting.front() {
            let bytes = &waiting.bytes[..waiting.len];
            match &waiting.kind {
                Kind::Ready(route) => {
                    if !batch.has_room(route, bytes.len()) {
                        return true;
                    }
                    batch.free()[..bytes.len()].copy_from_slice(bytes);
                    batch.add(*route, bytes.len());
                    verbs.counters.sent += 1;
                }
                Kind::Asking { flow, traffic_class } => {
                    let of_one = batch.is_empty() || last == Some((*flow, *traffic_class));
                    if !of_one || !batch.has_room_for(expected_len(bytes)) {
                        return true;
                    }
                    last = Some((*flow, *traffic_class));
                    let datagram = Datagram { flow: *flow, traffic_class: *traffic_class, bytes };
                    let Verbs { protection, memory, now, .. } = verbs;
                    let answer = self.card.respond(&datagram, *now, protection, memory, batch.free());
                    if let Some(Answer { route, len }) = answer {
                        batch.add(route, len);
                        verbs.counters.sent += 1;
                        verbs.counters.bytes_sent += len as u64;
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

    /// The last word of a connection that ends without waiting for its peer.
    pub(super) fn say_farewell(&mut self, transport: &Transport, config: &Config, now: Instant) {
        let Transport::Stateless(driver) = transport else { return };
        let Some(mut repr) = driver.farewell() else { return };
        let seal = *driver.seal_of();
        repr.flags = repr.flags | seal.flags();
        let packet = Outgoing { repr, payload_len: 0, cause: Cause::Element };
        let Some(route) = route(&driver.qp, config, &packet) else { return };
        let mut bytes = [0; LONGEST];
        let Some(writer) = PacketWriter::new(&repr, 0, &mut bytes) else { return };
        let len = finish(writer, &route.flow, &seal, self.card.clock(now));
        if self.waiting.len() < self.limit {
            self.waiting.push_back(Waiting { bytes, len, kind: Kind::Ready(route) });
        }
    }
}

/// Bytes of the SDP that answers a GD.
fn expected_len(gd: &[u8]) -> usize {
    let wanted = gd.get(2..4).map_or(0, |len| usize::from(u16::from_be_bytes([len[0], len[1]])));
    let authentication = gd.len() > PacketType::Gd.datagram_len(0);
    PacketType::Sdp.header_len() + wanted + CHECK_LEN + if authentication { AUTHENTICATION_LEN } else { 0 }
}
