//! Packets and time.

use nichrome_wire::rdma::{Bth, BthFlags, DatagramWriter, IcrcCheck, PKey, QpNumber, Repr};
use nichrome_wire::star::{self, PacketWriter, STAR_PORT, Stamp};
use nichrome_wire::{AddressPair, Instant};

use super::Device;
use super::transport::Transport;
use crate::config::Config;
use crate::core::completion::Status;
use crate::core::memory::Memory;
use crate::core::slab::Handle;
use crate::core::verbs::Verbs;
use crate::kind;
use crate::qp::attributes::QpType;
use crate::roce::answers::Acknowledgement;
use crate::roce::connection::Connection;
use crate::roce::packet::{Cause, Datagram, Incoming, Outgoing, Route};
use crate::star::Blocked;
use crate::star::endpoint::{Endpoint, finish, route};
use crate::star::packet::Outgoing as StarPacket;

/// Datagrams of one destination at the front of a driver's buffer.
///
/// Each is of `segment_len` bytes, but for the last, which may be shorter: a driver hands them to the kernel at once
/// (`UDP_SEGMENT`). Over IPv4, the n-th (from 0) has the ICRC of identification n, which is what the kernel then gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where they go.
    pub route: Route,
    /// Bytes, all together.
    pub len: usize,
    /// Bytes of each but the last.
    pub segment_len: usize,
}

impl Transmit {
    /// The datagrams within the buffer that was filled.
    pub fn datagrams<'a>(&self, buffer: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        buffer[..self.len].chunks(self.segment_len)
    }
}

/// A transmit under construction.
pub(super) struct Batch<'b> {
    buffer: &'b mut [u8],
    max_segments: usize,
    route: Option<Route>,
    len: usize,
    segment_len: usize,
    count: usize,
}

/// Whether a packet found its place in a batch.
enum Placed {
    /// It did, and has so many bytes.
    Yes(usize),
    /// The batch is full, or of another kind.
    No,
    /// The packet cannot be made.
    Impossible,
    /// The security module does not let it out.
    Blocked(Blocked),
}

impl Batch<'_> {
    fn into_transmit(self) -> Option<Transmit> {
        let Batch { route, len, segment_len, .. } = self;
        Some(Transmit { route: route?, len, segment_len })
    }

    /// Whether the batch can take a datagram of so many bytes.
    #[inline]
    pub(super) fn has_room(&self, route: &Route, len: usize) -> bool {
        self.has_room_for(len) && (self.count == 0 || self.route.as_ref() == Some(route))
    }

    /// The same, for one that goes where the others go.
    #[inline]
    pub(super) fn has_room_for(&self, len: usize) -> bool {
        let fits = self.len + len <= self.buffer.len() && self.count < self.max_segments;
        fits && (self.count == 0 || len <= self.segment_len && !self.is_closed())
    }

    /// Whether there is no datagram in it.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The place of the next datagram.
    #[inline]
    pub(super) fn free(&mut self) -> &mut [u8] {
        &mut self.buffer[self.len..]
    }

    /// A datagram of so many bytes was built at its place.
    #[inline]
    pub(super) fn add(&mut self, route: Route, len: usize) {
        if self.count == 0 {
            (self.segment_len, self.route) = (len, Some(route));
        }
        self.len += len;
        self.count += 1;
    }

    /// Whether the last datagram is shorter than the others.
    #[inline]
    fn is_closed(&self) -> bool {
        self.len < self.segment_len * self.count
    }

    /// Builds a packet behind those that are there.
    #[inline]
    fn place<M: Memory>(
        &mut self,
        connection: &Connection,
        packet: &Outgoing,
        route: Route,
        verbs: &Verbs<M>,
    ) -> Placed {
        let Some(repr) = connection.header(packet) else { return Placed::Impossible };
        let len = repr.datagram_len(packet.payload_len);
        if !self.has_room(&route, len) {
            return Placed::No;
        }
        let ident = self.count as u16;
        let writer = DatagramWriter::new(&repr, packet.payload_len, &route.flow, ident, self.free());
        let Some(mut writer) = writer else { return Placed::Impossible };
        if connection.fill(packet, writer.payload(), verbs).is_err() {
            return Placed::Impossible;
        }
        writer.finish();
        self.add(route, len);
        Placed::Yes(len)
    }

    /// Builds a packet of StaR behind those that are there, if the security module lets it out.
    fn place_star<M: Memory>(
        &mut self,
        endpoint: &impl Endpoint<M>,
        packet: &StarPacket,
        route: Route,
        stamp: Stamp,
        verbs: &mut Verbs<M>,
    ) -> Placed {
        let seal = endpoint.seal();
        let repr = star::Repr { flags: packet.repr.flags | seal.flags(), ..packet.repr };
        let len = repr.datagram_len(packet.payload_len);
        if !self.has_room(&route, len) {
            return Placed::No;
        }
        let Some(mut writer) = PacketWriter::new(&repr, packet.payload_len, self.free()) else {
            return Placed::Impossible;
        };
        if endpoint.fill(packet, writer.payload(), verbs).is_err() {
            return Placed::Impossible;
        }
        let len = finish(writer, &route.flow, seal, stamp);
        if let Err(why) = verbs.egress.check(&route.flow, &self.free()[..len]) {
            return Placed::Blocked(why);
        }
        self.add(route, len);
        Placed::Yes(len)
    }
}

impl<M: Memory> Device<M> {
    /// Takes in a datagram that came at `now` for UDP port 4791, RoCE's, or 4793, StaR's.
    #[inline]
    pub fn receive(&mut self, datagram: &Datagram<'_>, now: Instant) {
        self.verbs.now = now;
        self.verbs.counters.received += 1;
        if datagram.flow.dst_port == STAR_PORT {
            return self.receive_star(datagram);
        }
        let Ok((repr, payload)) = Repr::parse(datagram.bytes) else {
            self.verbs.counters.dropped_malformed += 1;
            return;
        };
        let index = self.place_of(repr.bth.dest_qp);
        let found = index.and_then(|index| Some((index, self.qps.at_mut(index)?)));
        let Some((index, Transport::Roce(connection))) = found else {
            self.verbs.counters.dropped_unknown += 1;
            return;
        };
        if connection.qp.on_hold || !connection.is_from_peer(&datagram.flow.addresses) {
            self.verbs.counters.dropped_unknown += 1;
            return;
        }
        if !is_of_partition(repr.bth.pkey) {
            self.verbs.counters.dropped_key += 1;
            return;
        }
        let check = self.icrc.check(&datagram.flow, datagram.bytes);
        let is_right = if self.config.sees_identifications {
            check == IcrcCheck::Right
        } else {
            connection.believes(check, &repr.message, repr.bth.psn, now)
        };
        if !is_right {
            self.verbs.counters.dropped_icrc += 1;
            return;
        }
        let incoming = Incoming {
            psn: repr.bth.psn,
            ack_request: repr.bth.flags.contains(BthFlags::ACK_REQUEST),
            solicited: repr.bth.flags.contains(BthFlags::SOLICITED),
            selective: repr.bth.flags.contains(BthFlags::SELECTIVE),
            payload,
            addresses: datagram.flow.addresses,
            traffic_class: datagram.traffic_class,
        };
        connection.receive(repr.message, &incoming, &self.config, &mut self.verbs);
        self.settle(index);
    }

    /// Builds datagrams that are to leave, up to `max_segments`, at the front of `buffer`; `None` where there are none
    /// now. A buffer of 4 KiB more than the largest datagram holds at least one.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        max_segments: usize,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        self.verbs.now = now;
        let mut batch = Batch { buffer, max_segments, route: None, len: 0, segment_len: 0, count: 0 };
        if !self.answers.is_empty() && self.answers.fill(&mut batch, &mut self.verbs) {
            return batch.into_transmit();
        }
        while let Some(index) = self.line.pop_front() {
            let more = self.fill_batch(index, &mut batch);
            self.keep_time(index);
            if more {
                self.queue_up(index);
                break;
            }
        }
        batch.into_transmit()
    }

    /// Puts packets of one queue pair into a batch; true where it has more, which the batch cannot take.
    #[inline]
    fn fill_batch(&mut self, index: u32, batch: &mut Batch<'_>) -> bool {
        let Self { qps, config, verbs, .. } = self;
        let Some(transport) = qps.at_mut(index) else { return false };
        transport.qp_mut().in_line = false;
        let connection = match transport {
            Transport::Roce(connection) => connection,
            Transport::Stateful(client) => return fill_star(client.as_mut(), batch, config, verbs),
            Transport::Stateless(driver) => return fill_star(driver.as_mut(), batch, config, verbs),
        };
        let mut has_spoken = false;
        loop {
            connection.run(config, verbs);
            // What waits for the program to say something leaves right behind it.
            let held = |connection: &Connection| connection.acknowledgement().filter(|_| has_spoken);
            let next = connection.next_packet(config, verbs.now).or_else(|| held(connection));
            let Some(packet) = next else { return false };
            let Some(route) = connection.route_of(config, verbs) else {
                connection.undeliverable(&packet, verbs);
                continue;
            };
            match batch.place(connection, &packet, route, verbs) {
                Placed::Yes(len) => {
                    has_spoken |= matches!(packet.cause, Cause::Request { .. });
                    connection.sent(&packet, len, config, verbs);
                }
                Placed::No => {
                    connection.responder.conversation.release();
                    return true;
                }
                Placed::Impossible | Placed::Blocked(_) => connection.failed(&packet, verbs),
            }
        }
    }

    /// When [`Device::handle_timeout`] is wanted; `None` where time alone changes nothing. May be early.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match (self.wheel.next_timeout(), self.verbs.cq_timers.next_timeout()) {
            (Some(qp), Some(cq)) => Some(qp.min(cq)),
            (qp, cq) => qp.or(cq),
        }
    }

    /// Does what was due at or before `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.verbs.now = now;
        self.verbs.release_events(now);
        while let Some(index) = self.wheel.expire(now) {
            if let Some(transport) = self.qps.at_mut(index) {
                transport.handle_timeout(&self.config, &mut self.verbs);
            }
            self.settle(index);
        }
    }

    /// Has an acknowledgement leave that waits for the program's answer: for a queue pair that is about to go.
    pub fn acknowledge(&mut self, qp: Handle<kind::Qp>) {
        if self.qps.get(qp).is_some() {
            self.acknowledge_at(qp.index());
        }
    }

    /// The same for all queue pairs: for a device that is about to go.
    pub fn acknowledge_all(&mut self) {
        (0..self.qps.places()).for_each(|index| self.acknowledge_at(index));
    }

    fn acknowledge_at(&mut self, index: u32) {
        let Some(transport) = self.qps.at_mut(index) else { return };
        transport.acknowledge();
        self.queue_up(index);
    }

    /// After anything was done to a queue pair: its timer is set, and it is in line if it may have something to send.
    #[inline]
    pub(super) fn settle(&mut self, index: u32) {
        self.keep_time(index);
        self.queue_up(index);
    }

    #[inline]
    fn keep_time(&mut self, index: u32) {
        let Some(transport) = self.qps.at_mut(index) else { return };
        if transport.qp().fatal {
            transport.lost_completions(&mut self.verbs);
        }
        if let Some(deadline) = transport.next_timeout(&self.config, self.verbs.now) {
            self.wheel.set(index, deadline, self.verbs.now);
        }
    }

    #[inline]
    fn queue_up(&mut self, index: u32) {
        let Some(transport) = self.qps.at_mut(index) else { return };
        let qp = transport.qp();
        if !qp.in_line && !qp.on_hold && transport.has_work(self.verbs.now) {
            transport.qp_mut().in_line = true;
            self.line.push_back(index);
        }
    }
}

/// Puts packets of a connection on StaR into a batch; true where it has more, which the batch cannot take.
fn fill_star<M: Memory>(
    endpoint: &mut impl Endpoint<M>,
    batch: &mut Batch<'_>,
    config: &Config,
    verbs: &mut Verbs<M>,
) -> bool {
    loop {
        endpoint.run(config, verbs);
        let Some(packet) = endpoint.next_packet(verbs.now) else { return false };
        let Some(route) = route(endpoint.qp(), config, &packet) else { return false };
        let stamp = endpoint.stamp(verbs.now);
        match batch.place_star(endpoint, &packet, route, stamp, verbs) {
            Placed::Yes(_) => endpoint.sent(&packet, verbs),
            Placed::No => return true,
            Placed::Impossible => endpoint.failed(&packet, verbs),
            Placed::Blocked(why) => endpoint.blocked(&packet, why, verbs),
        }
    }
}

impl Connection {
    /// Whether packets with these addresses are from the peer.
    #[inline]
    fn is_from_peer(&self, addresses: &AddressPair) -> bool {
        match self.qp.route {
            Some(route) => match (route.flow.addresses, *addresses) {
                (AddressPair::V4 { src, dst }, AddressPair::V4 { src: from, dst: to }) => {
                    src == to && dst == from
                }
                (AddressPair::V6 { src, dst }, AddressPair::V6 { src: from, dst: to }) => {
                    src == to && dst == from
                }
                _ => false,
            },
            None => self.qp.kind == QpType::Ud,
        }
    }

    /// The headers of a packet.
    #[inline]
    fn header(&self, packet: &Outgoing) -> Option<Repr> {
        let dest_qp = self.destination(packet)?;
        let mut flags = BthFlags::MIGRATED;
        if packet.ack_request {
            flags |= BthFlags::ACK_REQUEST;
        }
        if packet.solicited {
            flags |= BthFlags::SOLICITED;
        }
        if self.offers_selective(packet) {
            flags |= BthFlags::SELECTIVE;
        }
        let bth = Bth { flags, pkey: PKey::default(), dest_qp, psn: packet.psn };
        Some(Repr { bth, message: packet.message })
    }

    /// Requests offer selective repeat, and so do positive acknowledgements of requests that do. On a negative one the
    /// bit means that it speaks of a single packet.
    #[inline]
    fn offers_selective(&self, packet: &Outgoing) -> bool {
        match packet.cause {
            Cause::Request { .. } | Cause::Repeat { .. } => self.selective && self.qp.kind == QpType::Rc,
            Cause::Missing => true,
            Cause::Acknowledgement => {
                let positive = self.responder.answers.acknowledgement == Some(Acknowledgement::Positive);
                self.selective && self.responder.offered && positive
            }
            Cause::Data { .. } | Cause::Notification => false,
        }
    }

    fn destination(&self, packet: &Outgoing) -> Option<QpNumber> {
        match packet.cause {
            Cause::Request { .. } if self.qp.kind == QpType::Ud => {
                Some(self.qp.sends.get(self.requester.cursor.work)?.recipient?.qp)
            }
            _ => self.qp.settings.destination,
        }
    }

    /// There is no way for this packet: the program has destroyed it.
    fn undeliverable<M: Memory>(&mut self, packet: &Outgoing, verbs: &mut Verbs<M>) {
        match packet.cause {
            Cause::Request { .. } => self.request_failed(Status::LocalQpOperation, verbs),
            _ => self.drop_answers(verbs),
        }
    }
}

/// The device is in the default partition, as full or limited member (IBA 10.9.3).
#[inline]
fn is_of_partition(pkey: PKey) -> bool {
    pkey.0 & 0x7FFF == PKey::default().0 & 0x7FFF
}
