//! A queue pair on RoCE: packets in and out, error, timers.

use nichrome_wire::rdma::{
    Bth, BthFlags, DatagramWriter, IcrcCheck, Message, PKey, Psn, QpNumber, Repr, SrqNumber,
};
use nichrome_wire::{AddressPair, Ecn, Instant};

use super::config::SelectiveRepeat;
use super::context::Context;
use super::identifications::Identifications;
use super::packet::{Cause, Outgoing, PayloadSource, is_of_partition};
use super::requester::Requester;
use super::responder::{Failed, Responder};
use super::shared::{Packet, RoceShared};
use crate::core::access::Access;
use crate::core::attributes::{QpChange, QpState, QpType};
use crate::core::completion::Status;
use crate::core::event::Event;
use crate::core::memory::Memory;
use crate::core::protection::{Accessor, Refusal};
use crate::core::queue_pair::{QueuePair, Receives};
use crate::core::send_queue::SendWork;
use crate::core::verbs::Verbs;
use crate::net::{Datagram, Room, Route, SteeringKey};
use crate::transport::Endpoint;

/// Minimum interval of CNPs in nanoseconds (DCQCN, section 5.1).
const NOTIFICATION_INTERVAL: u64 = 50_000;

/// A queue pair on RoCE.
pub(crate) type RoceQp = Box<Connection>;

/// A queue pair with the state of its transport.
pub(crate) struct Connection {
    qp: QueuePair,
    /// The route of sent packets, once the peer is known. UD requests name their own.
    route: Option<Route>,
    requester: Requester,
    responder: Responder,
    identifications: Identifications,
    /// When the last CNP was requested.
    notified: Option<Instant>,
}

/// The result of building a packet.
enum Built {
    /// The packet is in the room, and has this many bytes.
    Placed(usize),
    /// The packet does not fit the room: it is full, or holds packets for another destination.
    Full,
    /// Its memory can no longer be accessed.
    Failed,
    /// The program has destroyed its address handle.
    Undeliverable,
}

impl Connection {
    pub(crate) fn new(qp: QueuePair, shared: &RoceShared) -> RoceQp {
        Box::new(Self {
            qp,
            route: None,
            requester: Requester::new(shared),
            responder: Responder::new(),
            identifications: Identifications::default(),
            notified: None,
        })
    }

    /// Returns true if a packet with this ICRC verdict is accepted. On UD any identification is accepted:
    /// datagrams come from any peer, and are checked by their Q_Key.
    #[inline]
    fn accepts_icrc(&mut self, check: IcrcCheck, message: &Message, psn: Psn, now: Instant) -> bool {
        if self.qp.kind == QpType::Ud {
            return check != IcrcCheck::Wrong;
        }
        let Self { requester, responder, .. } = self;
        let in_sequence = || match message {
            Message::Rc(message) | Message::Xrc(_, message) if message.is_answer() => {
                requester.is_outstanding(psn)
            }
            _ => psn == responder.expected(),
        };
        self.identifications.accept(check, in_sequence, now)
    }

    /// Handles a packet with a congestion mark: echoes it in ACKs, or requests a CNP, at most one per
    /// [`NOTIFICATION_INTERVAL`].
    fn marked<M: Memory>(&mut self, shared: &RoceShared, verbs: &mut Verbs<M>) {
        verbs.counters.congestion_marks += 1;
        if shared.echoes_marks() && self.qp.kind.is_reliable() {
            return self.responder.echo_congestion();
        }
        let due = self.notified.is_none_or(|last| verbs.now.nanos_since(last) >= NOTIFICATION_INTERVAL);
        if due && self.qp.kind != QpType::Ud {
            self.notified = Some(verbs.now);
            self.responder.notify_congestion();
        }
    }

    /// Returns the next packet to send: answers first. A delayed ACK follows a request. The congestion
    /// controller's rate limits requests and READ responses alike: the sender of the data reacts (DCQCN,
    /// section 3.1).
    #[inline]
    fn next_packet(&self, shared: &RoceShared, behind_request: bool, now: Instant) -> Option<Outgoing> {
        let (read, is_paced) = (shared.environment.window.read, self.requester.paced_until(now).is_some());
        let next = self.responder.next_packet(&self.qp, is_paced, now);
        let next = next.or_else(|| if is_paced { None } else { self.requester.next_packet(&self.qp, read) });
        next.or_else(|| if behind_request { self.responder.acknowledgement(&self.qp) } else { None })
    }

    /// Appends a packet to the room.
    #[inline]
    fn build<M: Memory>(
        &self,
        packet: &Outgoing,
        room: &mut Room<'_>,
        shared: &RoceShared,
        verbs: &Verbs<M>,
    ) -> Built {
        let Some(route) = self.route_of(shared, verbs) else { return Built::Undeliverable };
        let Some(repr) = self.header(packet, shared) else { return Built::Failed };
        let (steering, len) = (SteeringKey::of(repr.bth.dest_qp), repr.datagram_len(packet.payload_len));
        if !room.fits(&route, steering, len) {
            return Built::Full;
        }
        let ident = room.count() as u16;
        let writer = DatagramWriter::new(&repr, packet.payload_len, &route.flow, ident, room.free());
        let Some(mut writer) = writer else { return Built::Failed };
        if self.fill(packet, writer.payload(), verbs).is_err() {
            return Built::Failed;
        }
        writer.finish();
        room.add(route, steering, len);
        Built::Placed(len)
    }

    /// Returns the route of the next packet.
    #[inline]
    fn route_of<M: Memory>(&self, shared: &RoceShared, verbs: &Verbs<M>) -> Option<Route> {
        if self.qp.kind != QpType::Ud {
            return self.route;
        }
        let recipient = self.requester.recipient(&self.qp)?;
        shared.route(&verbs.addresses.get(recipient.address)?.vector)
    }

    #[inline]
    fn header(&self, packet: &Outgoing, shared: &RoceShared) -> Option<Repr> {
        let mut flags = BthFlags::MIGRATED;
        for (is_set, flag) in [
            (packet.ack_request, BthFlags::ACK_REQUEST),
            (packet.solicited, BthFlags::SOLICITED),
            (self.offers_selective(packet, shared), BthFlags::SELECTIVE),
            (self.responder.echoes(packet), BthFlags::BECN),
        ] {
            if is_set {
                flags |= flag;
            }
        }
        let dest_qp = self.destination(packet)?;
        let bth = Bth { flags, pkey: PKey::default(), dest_qp, psn: packet.psn };
        let message = match packet.message {
            // A response of an XRC target.
            Message::Rc(message) if self.qp.kind.is_xrc() => Message::Xrc(SrqNumber::default(), message),
            message => message,
        };
        Some(Repr { bth, message })
    }

    /// Returns true if a packet offers selective repeat, or is a selective NAK.
    #[inline]
    fn offers_selective(&self, packet: &Outgoing, shared: &RoceShared) -> bool {
        let is_offered = shared.config.selective_repeat == SelectiveRepeat::Offered;
        match packet.cause {
            Cause::Request { .. } | Cause::Repeat { .. } => is_offered && self.qp.kind.is_reliable(),
            Cause::Missing => true,
            _ => is_offered && self.responder.offers_selective(packet),
        }
    }

    fn destination(&self, packet: &Outgoing) -> Option<QpNumber> {
        match packet.cause {
            Cause::Request { .. } if self.qp.kind == QpType::Ud => {
                Some(self.requester.recipient(&self.qp)?.qp)
            }
            _ => self.qp.settings.destination,
        }
    }

    /// Copies the payload of a packet.
    #[inline]
    fn fill<M: Memory>(&self, packet: &Outgoing, into: &mut [u8], verbs: &Verbs<M>) -> Result<(), Refusal> {
        match packet.payload {
            PayloadSource::Nothing => Ok(()),
            PayloadSource::Send { source, offset } => {
                let pieces = self.qp.sends.pieces(source, offset, into.len() as u32);
                verbs.gather(self.qp.domain, pieces, into)
            }
            PayloadSource::Remote { domain, address, rkey } => {
                if into.is_empty() {
                    return Ok(());
                }
                let (accessor, len) = (Accessor { domain, ..self.qp.accessor() }, into.len() as u64);
                let at = verbs.protection.remote(accessor, rkey, address, len, Access::REMOTE_READ)?;
                verbs.memory.read(at, into).map_err(|_| Refusal::Bounds)
            }
        }
    }

    /// Updates requester or responder after a packet of `len` bytes was sent.
    #[inline]
    fn sent<M: Memory>(
        &mut self,
        packet: &Outgoing,
        len: usize,
        shared: &mut RoceShared,
        verbs: &mut Verbs<M>,
    ) {
        verbs.counters.sent += 1;
        verbs.counters.bytes_sent += packet.payload_len as u64;
        self.requester.packet_sent(len, verbs.now);
        let Self { qp, requester, responder, .. } = self;
        match packet.cause {
            Cause::Request { packets, ends } => {
                responder.request_sent(shared.config.acknowledgement_delay, verbs.now);
                requester.request_sent(packet, packets, ends, &mut Context { qp, shared, verbs });
            }
            Cause::Repeat { .. } => {
                verbs.counters.retransmitted += 1;
                requester.repeat_sent();
            }
            _ => responder.answer_sent(packet, &mut Context { qp, shared, verbs }),
        }
    }

    /// Handles a packet whose memory can no longer be accessed.
    fn failed<M: Memory>(&mut self, packet: &Outgoing, shared: &mut RoceShared, verbs: &mut Verbs<M>) {
        let Self { qp, requester, responder, .. } = self;
        match packet.cause {
            Cause::Request { .. } => {
                requester.request_failed(Status::LocalProtection, &mut Context { qp, shared, verbs });
            }
            Cause::Repeat { work } => requester.repeat_failed(work, &mut Context { qp, shared, verbs }),
            Cause::Data { .. } => {
                responder.data_failed(packet.psn);
                if qp.state != QpState::Err {
                    verbs.events.push_back(Event::QpAccessError(qp.handle));
                    self.fail(shared, verbs);
                }
            }
            Cause::Acknowledgement | Cause::Missing | Cause::Notification => {
                responder.drop_answers(&mut shared.held_pool);
            }
        }
        self.check_failure(shared, verbs);
    }

    /// Handles a packet without a route: the program has destroyed the address handle.
    fn undeliverable<M: Memory>(&mut self, packet: &Outgoing, shared: &mut RoceShared, verbs: &mut Verbs<M>) {
        let Self { qp, requester, responder, .. } = self;
        match packet.cause {
            Cause::Request { .. } => {
                requester.request_failed(Status::LocalQpOperation, &mut Context { qp, shared, verbs });
            }
            _ => responder.drop_answers(&mut shared.held_pool),
        }
        self.check_failure(shared, verbs);
    }

    /// Moves the queue pair to ERROR if its send queue has failed.
    #[inline]
    fn check_failure<M: Memory>(&mut self, shared: &mut RoceShared, verbs: &mut Verbs<M>) {
        if self.requester.take_failure() {
            self.responder.drop_data();
            self.stop_receiving(shared, verbs);
        }
    }

    /// Moves the queue pair to ERROR. Queued answers are still sent: answers to requests before a refused one
    /// leave before its NAK (IBA 9.7.5.1, 9.9.2).
    fn fail<M: Memory>(&mut self, shared: &mut RoceShared, verbs: &mut Verbs<M>) {
        let Self { qp, requester, responder, .. } = self;
        let entered = qp.state != QpState::Err;
        qp.state = QpState::Err;
        requester.stop(qp);
        if entered {
            return self.stop_receiving(shared, verbs);
        }
        responder.stop(&mut shared.held_pool);
        qp.flush(verbs);
    }

    fn stop_receiving<M: Memory>(&mut self, shared: &mut RoceShared, verbs: &mut Verbs<M>) {
        self.responder.stop(&mut shared.held_pool);
        self.qp.flush(verbs);
        if matches!(self.qp.receives, Receives::Shared(_)) {
            verbs.events.push_back(Event::LastReceiveReached(self.qp.handle));
        }
    }
}

impl Endpoint for RoceQp {
    type Shared = RoceShared;

    #[inline]
    fn qp(&self) -> &QueuePair {
        &self.qp
    }

    #[inline]
    fn qp_mut(&mut self) -> &mut QueuePair {
        &mut self.qp
    }

    fn modified(&mut self, change: &QpChange, shared: &RoceShared) {
        if let Some(path) = &change.path {
            self.route = shared.route(path);
        }
        if let Some(psn) = change.rq_psn {
            self.responder.start_at(psn);
        }
        if let Some(psn) = change.sq_psn {
            self.requester.start_at(psn, &self.qp.settings, shared);
        }
    }

    fn packet_numbers(&self) -> (Psn, Psn) {
        (self.responder.expected(), self.requester.next())
    }

    #[inline]
    fn post_send<M: Memory>(&mut self, work: SendWork, shared: &mut RoceShared, verbs: &mut Verbs<M>) {
        let Connection { qp, requester, .. } = &mut **self;
        requester.post(work, &mut Context { qp, shared, verbs });
    }

    #[inline]
    fn is_from_peer(&self, addresses: &AddressPair) -> bool {
        match &self.route {
            Some(route) => route.is_reverse_of(addresses),
            // A datagram to a multicast address must not name a single queue pair.
            None => self.qp.kind == QpType::Ud && !addresses.dst().is_multicast(),
        }
    }

    #[inline]
    fn receive<M: Memory>(
        &mut self,
        packet: Packet<'_>,
        datagram: &Datagram<'_>,
        shared: &mut RoceShared,
        verbs: &mut Verbs<M>,
    ) -> bool {
        let Packet { message, pkey, incoming } = &packet;
        if !is_of_partition(*pkey) {
            verbs.counters.dropped_key += 1;
            return false;
        }
        let check = shared.icrc.check(&datagram.flow, datagram.bytes);
        let is_valid = if shared.config.sees_identifications {
            check == IcrcCheck::Valid
        } else {
            self.accepts_icrc(check, message, incoming.psn, verbs.now)
        };
        if !is_valid {
            verbs.counters.dropped_icrc += 1;
            return false;
        }
        if incoming.traffic_class.ecn() == Ecn::Ce {
            self.marked(shared, verbs);
        }
        let Connection { qp, requester, responder, .. } = &mut **self;
        let kind = qp.kind;
        let context = &mut Context { qp, shared, verbs };
        let mut done = Ok(());
        match (kind, *message) {
            (QpType::Rc, Message::Rc(message)) | (QpType::XrcSend, Message::Xrc(_, message))
                if message.is_answer() =>
            {
                requester.receive(message, incoming, context);
            }
            // Answers to an XRC target are dropped: it sends no requests.
            (QpType::Rc, Message::Rc(message)) | (QpType::XrcReceive, Message::Xrc(_, message))
                if !message.is_answer() =>
            {
                done = responder.receive(message, incoming, context);
            }
            (QpType::Uc, Message::Uc(message)) => {
                done = responder.receive_unreliable(message, incoming, context);
            }
            (QpType::Ud, Message::Ud(deth, immediate)) => {
                done = Responder::receive_datagram(deth, immediate, incoming, context);
            }
            (_, Message::CongestionNotification) if kind != QpType::Ud => {
                verbs.counters.congestion_notifications_received += 1;
                requester.congested(verbs.now);
            }
            _ => verbs.counters.dropped_unknown += 1,
        }
        match done {
            Ok(()) => self.check_failure(shared, verbs),
            Err(Failed) => self.fail(shared, verbs),
        }
        true
    }

    fn write<M: Memory>(
        &mut self,
        room: &mut Room<'_>,
        shared: &mut RoceShared,
        verbs: &mut Verbs<M>,
    ) -> bool {
        let mut behind_request = false;
        loop {
            let Connection { qp, requester, responder, .. } = &mut **self;
            requester.run(&mut Context { qp, shared, verbs });
            responder.run();
            self.check_failure(shared, verbs);
            let Some(packet) = self.next_packet(shared, behind_request, verbs.now) else { return false };
            match self.build(&packet, room, shared, verbs) {
                Built::Placed(len) => {
                    behind_request |= matches!(packet.cause, Cause::Request { .. });
                    self.sent(&packet, len, shared, verbs);
                }
                Built::Full => {
                    self.responder.flush_acknowledgement();
                    return true;
                }
                Built::Failed => self.failed(&packet, shared, verbs),
                Built::Undeliverable => self.undeliverable(&packet, shared, verbs),
            }
        }
    }

    #[inline]
    fn has_work(&self, now: Instant) -> bool {
        self.responder.has_work(now) || self.requester.has_work(&self.qp)
    }

    #[inline]
    fn next_timeout(&self, _: &RoceShared, now: Instant) -> Option<Instant> {
        let paced = self.requester.paced_until(now).filter(|_| self.has_work(now));
        let timers = [self.requester.next_timeout(), paced, self.responder.next_timeout(now)];
        timers.into_iter().fold(None, |earliest, timer| match (earliest, timer) {
            (Some(one), Some(other)) => Some(Instant::min(one, other)),
            (one, other) => one.or(other),
        })
    }

    fn handle_timeout<M: Memory>(&mut self, shared: &mut RoceShared, verbs: &mut Verbs<M>) {
        let Connection { qp, requester, .. } = &mut **self;
        requester.handle_timeout(&mut Context { qp, shared, verbs });
        self.check_failure(shared, verbs);
    }

    fn flush_acknowledgement(&mut self) {
        self.responder.flush_acknowledgement();
    }

    fn repeat_acknowledgement(&mut self) {
        let Connection { qp, responder, .. } = &mut **self;
        responder.repeat_acknowledgement(qp);
    }

    fn drain<M: Memory>(&mut self, shared: &mut RoceShared, verbs: &mut Verbs<M>) {
        let Connection { qp, requester, .. } = &mut **self;
        qp.drain.begin();
        requester.check_drained(&mut Context { qp, shared, verbs });
    }

    fn enter_error<M: Memory>(&mut self, _: Status, shared: &mut RoceShared, verbs: &mut Verbs<M>) {
        if self.qp.state != QpState::Err {
            self.responder.drop_data();
        }
        self.fail(shared, verbs);
    }

    fn dissolve<M: Memory>(mut self, shared: &mut RoceShared, _: &mut Verbs<M>) -> QueuePair {
        self.responder.drop_answers(&mut shared.held_pool);
        self.qp
    }

    fn state_bytes(&self) -> usize {
        size_of::<Connection>()
    }
}
