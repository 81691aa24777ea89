//! The client: the stateful side of a connection, which executes the requests of both programs.
//!
//! | file | concept |
//! |---|---|
//! | `mod.rs` | the connection's state; packets in and out |
//! | `demand.rs`, `receive_requests.rs` | receives of a shared queue: how many are needed; demand for them |
//! | `begin.rs` | beginning an operation |
//! | `chunk.rs` | the bytes of one packet |
//! | `egress_wait.rs` | chunks that the egress module has blocked |
//! | `answers.rs` | answers of the server's card |
//! | `complete.rs` | completing operations |
//! | `closing.rs` | the end of the connection |
//! | `timers.rs` | timers |

mod answers;
mod begin;
mod chunk;
mod closing;
mod complete;
mod demand;
mod egress_wait;
mod receive_requests;
mod timers;

use demand::ReceiveDemand;
use egress_wait::EgressWait;
use nichrome_wire::rdma::{QpNumber, UdpFlow};
use nichrome_wire::star::{
    Atomic, Cqe, Element, Flags, GrantCode, Lease, Message, PacketCheck, PacketType, PacketWriter, Repr,
    Rights, Span, Stamp,
};
use nichrome_wire::{Ecn, Instant};

use crate::congestion::Control;
use crate::core::access::Access;
use crate::core::attributes::QpState;
use crate::core::completion::Status;
use crate::core::memory::Memory;
use crate::core::queue_pair::QueuePair;
use crate::core::send_queue::SendWork;
use crate::core::verbs::Verbs;
use crate::net::{Datagram, Route};
use crate::star::connection_end::ConnectionEnd;
use crate::star::elements::{Inbox, Outbox};
use crate::star::flight::{ChunkId, Flight, Initiator};
use crate::star::grace::Grace;
use crate::star::lease::{self, HeldLease};
use crate::star::memory_table::remote_rights;
use crate::star::mirror::Mirror;
use crate::star::packet::{Cause, Impossible, Incoming, Outgoing};
use crate::star::pipeline::{Pipeline, Transfer};
use crate::star::seal::Seal;
use crate::star::security::Blocked;
use crate::star::server_clock::ServerClock;
use crate::star::setup::{Admission, Credentials, Offer, Receives, Timers};
use crate::star::shared::StarShared;
use crate::star::timer::Awaited;

/// A queue pair whose peer's card keeps no state.
pub(crate) struct Stateful {
    pub(super) qp: QueuePair,
    pub(super) route: Option<Route>,
    /// The server's number of the connection.
    pub(super) peer: QpNumber,
    /// The client's rights on the server's memory: those of the server's queue pair.
    pub(super) peer_access: Access,
    /// The server's timers.
    pub(super) peer_timers: Timers,
    seal: Seal,
    /// With authentication, the leases under which RDPs and GDs may be sent.
    pub(super) lease: Option<HeldLease>,
    clock: ServerClock,
    /// Received WQEPs.
    pub(super) inbox: Inbox,
    /// CQEPs to send.
    pub(super) outbox: Outbox<Report>,
    pub(super) mirror: Mirror,
    /// `Some` if the server's receives are in a shared queue.
    demand: Option<ReceiveDemand>,
    /// Operations of the client's program.
    pub(super) client_ops: Pipeline,
    /// Operations of the server's program.
    pub(super) server_ops: Pipeline,
    pub(super) rdp: Flight,
    pub(super) gd: Flight,
    /// The initiator whose chunk leaves next; the two take turns.
    turn: Initiator,
    /// By initiator, since when its next operation waits for a receive.
    pub(super) rnr_since: [Option<Instant>; 2],
    /// Time of the next liveness check of the server, while an operation of the client waits for a receive.
    next_liveness_check: Option<Instant>,
    /// Chunks that the egress module has blocked.
    egress_wait: EgressWait,
    /// Deadline for polling a receive queue again.
    pub(super) rnr_poll: Option<Instant>,
    /// The ticket of the last atomic operation of the client's program, 0 before the first.
    pub(super) ticket: u32,
    /// Completed sends of the server that no CQEP has reported.
    pub(super) unreported: u32,
    /// The server closed the connection or no longer answers.
    pub(super) is_closed: bool,
    pub(super) grace: Grace,
}

/// A CQEP for the server's driver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    pub(super) cqe: Cqe,
    pub(super) flags: Flags,
}

impl Stateful {
    /// Creates the client's side from both offers and the server's admission.
    pub(super) fn new(
        qp: QueuePair,
        route: Option<Route>,
        ours: &Offer,
        theirs: &Offer,
        admission: &Admission,
        shared: &StarShared,
        now: Instant,
    ) -> Self {
        let StarShared { config, environment, mirrors, .. } = shared;
        let control = || Control::new(&config.congestion, &environment.window, ours.first_element);
        let demand = (theirs.receives == Receives::Shared).then(|| ReceiveDemand::new(&qp));
        Self {
            qp,
            route,
            peer: theirs.connection,
            peer_access: theirs.access,
            peer_timers: theirs.timers,
            seal: Seal {
                check: PacketCheck::new(admission.epoch),
                key: admission.credentials.map(|credentials| credentials.key),
            },
            lease: admission.credentials.map(|Credentials { key, lease }| HeldLease::new(key, lease, now)),
            clock: ServerClock::set_up(admission.clock, now),
            inbox: Inbox::new(theirs.first_element),
            outbox: Outbox::new(ours.first_element),
            mirror: Mirror::new(theirs.depth, config.mirrored_bytes, mirrors),
            demand,
            client_ops: Pipeline::default(),
            server_ops: Pipeline::default(),
            rdp: Flight::new(ours.first_element, Transfer::ToServer, control()),
            gd: Flight::new(ours.first_element, Transfer::FromServer, control()),
            turn: Initiator::Client,
            rnr_since: [None; 2],
            next_liveness_check: None,
            egress_wait: EgressWait::default(),
            rnr_poll: None,
            ticket: 0,
            unreported: 0,
            is_closed: false,
            grace: Grace::default(),
        }
    }

    pub(super) fn pipeline(&self, initiator: Initiator) -> &Pipeline {
        match initiator {
            Initiator::Client => &self.client_ops,
            Initiator::Server => &self.server_ops,
        }
    }

    pub(super) fn pipeline_mut(&mut self, initiator: Initiator) -> &mut Pipeline {
        match initiator {
            Initiator::Client => &mut self.client_ops,
            Initiator::Server => &mut self.server_ops,
        }
    }

    /// Returns the request of the operation at `index`; behind the last operation, the request that begins
    /// next.
    pub(super) fn work(&self, initiator: Initiator, index: usize) -> Option<&SendWork> {
        match initiator {
            Initiator::Client => self.qp.sends.get(index),
            Initiator::Server => self.mirror.sends.get(index),
        }
    }

    pub(super) fn flight(&self, transfer: Transfer) -> &Flight {
        match transfer {
            Transfer::ToServer => &self.rdp,
            Transfer::FromServer => &self.gd,
        }
    }

    pub(super) fn flight_mut(&mut self, transfer: Transfer) -> &mut Flight {
        match transfer {
            Transfer::ToServer => &mut self.rdp,
            Transfer::FromServer => &mut self.gd,
        }
    }

    /// Returns true if operations may begin and their packets leave.
    pub(super) fn is_up(&self) -> bool {
        let state = matches!(self.qp.state, QpState::Rtr | QpState::Rts | QpState::Sqd);
        state && !self.is_closed
    }

    fn receive_element<M: Memory>(
        &mut self,
        element: &Element,
        packet: &Incoming<'_>,
        shared: &mut StarShared,
        verbs: &mut Verbs<M>,
    ) {
        let expected = packet.repr.sequence == self.inbox.expected();
        if !expected && packet.repr.sequence.after(self.inbox.expected()) {
            verbs.counters.out_of_sequence += 1;
        }
        verbs.counters.duplicates += u64::from(packet.repr.sequence.before(self.inbox.expected()));
        // The server's driver sends again, although the retries of the CQEPs were used up.
        if self.outbox.outstanding() == Awaited::Answer && self.outbox.timer.due().is_none() {
            self.outbox.retransmit();
        }
        if expected && self.is_up() {
            match element {
                Element::Work(wqe) => {
                    if self.mirror.push(wqe, packet.payload).is_err() {
                        verbs.counters.refused += 1;
                        return;
                    }
                }
                Element::Register(_) | Element::Deregister(_) => self.retry_blocked(),
                Element::Rights(rights) => {
                    self.peer_access = Access::from_bits((*rights).into()).unwrap_or(Access::NONE);
                }
                Element::Lease(next) => {
                    if let Some(lease) = &mut self.lease {
                        let was_valid = lease.is_valid(verbs.now);
                        lease.renew(next, verbs.now);
                        if !was_valid {
                            let awaited = self.rdp.awaited();
                            self.rdp.timer.progress(awaited, &self.qp.settings, verbs.now);
                        }
                    }
                }
                Element::Close(_) => self.peer_closed(verbs),
            }
            if let Some(route) = &self.route {
                shared.egress.apply(self.qp.number, route.flow.addresses.dst(), element);
            }
        }
        self.inbox.receive(packet.repr.sequence);
    }

    fn next_retransmission(&self, now: Instant) -> Option<Outgoing> {
        let flights = [(&self.rdp, Transfer::ToServer), (&self.gd, Transfer::FromServer)];
        flights.into_iter().find_map(|(flight, transfer)| {
            let chunk_id = *flight.retransmissions.front()?;
            if self.may_leave(transfer, now) { self.chunk_packet(chunk_id, now) } else { None }
        })
    }

    fn next_chunk(&self, initiator: Initiator, now: Instant) -> Option<Outgoing> {
        let pipeline = self.pipeline(initiator);
        if pipeline.is_all_sent() || !pipeline.has_room() || self.egress_wait.has_new(initiator) {
            return None;
        }
        let nth = pipeline.next();
        let index = pipeline.operation_of(nth)?;
        let operation = &pipeline.operations[index];
        if !self.may_leave(operation.transfer, now) || self.is_blocked(initiator, index, nth) {
            return None;
        }
        self.chunk_packet(ChunkId { initiator, nth }, now)
    }

    /// Ends the waits for receives.
    fn stop_waiting(&mut self) {
        (self.rnr_since, self.next_liveness_check, self.rnr_poll) = ([None; 2], None, None);
    }

    /// Returns true if lease, window, rate and pacing allow a packet.
    pub(super) fn may_leave(&self, transfer: Transfer, now: Instant) -> bool {
        let flight = self.flight(transfer);
        let has_lease = self.lease.as_ref().is_none_or(|lease| lease.is_valid(now));
        has_lease && flight.has_room() && flight.departure() <= now
    }

    fn chunk_sent<M: Memory>(&mut self, chunk_id: ChunkId, bytes: usize, verbs: &mut Verbs<M>) {
        let pipeline = self.pipeline_mut(chunk_id.initiator);
        let Some(index) = pipeline.operation_of(chunk_id.nth) else { return };
        let transfer = pipeline.operations[index].transfer;
        let is_retransmission = chunk_id.nth != pipeline.next();
        pipeline.chunk_sent(index, chunk_id.nth);
        let settings = self.qp.settings;
        let expiration = self.clock.expiration(self.flight(transfer).lifetime(), verbs.now);
        let flight = self.flight_mut(transfer);
        if is_retransmission {
            verbs.counters.retransmitted += 1;
            flight.retransmissions.pop_front();
        }
        flight.packet_sent(chunk_id, bytes, &expiration, &settings, verbs.now);
        self.turn =
            if chunk_id.initiator == Initiator::Client { Initiator::Server } else { Initiator::Client };
    }

    /// Ends the connection without notice to the server and returns the queue pair.
    pub(super) fn dissolve<M: Memory>(mut self, shared: &mut StarShared, verbs: &mut Verbs<M>) -> QueuePair {
        self.put_back_receives(verbs);
        shared.egress.remove(self.qp.number);
        self.qp
    }

    /// Returns true if there may be something to send.
    pub(super) fn has_work(&self) -> bool {
        self.inbox.ack_due || self.outbox.next().is_some() || self.has_chunks()
    }

    /// Returns true if anything may have to leave before the next new chunk of `initiator`.
    fn has_work_before(&self, initiator: Initiator) -> bool {
        let other = if initiator == Initiator::Client { Initiator::Server } else { Initiator::Client };
        let pipeline = self.pipeline(other);
        self.inbox.ack_due
            || !self.rdp.retransmissions.is_empty()
            || !self.gd.retransmissions.is_empty()
            || !pipeline.is_all_sent()
            || self.work(other, pipeline.operations.len()).is_some()
            || self.outbox.next().is_some()
    }

    /// Returns true if there may be RDPs or GDs to send.
    fn has_chunks(&self) -> bool {
        let begun = |initiator| {
            let pipeline = self.pipeline(initiator);
            !pipeline.is_all_sent() || self.work(initiator, pipeline.operations.len()).is_some()
        };
        self.is_up()
            && (begun(Initiator::Client)
                || begun(Initiator::Server)
                || !self.rdp.retransmissions.is_empty()
                || !self.gd.retransmissions.is_empty())
    }
}

impl<M: Memory> ConnectionEnd<M> for Stateful {
    fn route(&self) -> Option<&Route> {
        self.route.as_ref()
    }

    fn seal(&self) -> &Seal {
        &self.seal
    }

    fn is_valid(&self, packet: &Incoming<'_>, datagram: &Datagram<'_>) -> bool {
        let Datagram { flow, bytes, .. } = datagram;
        match (packet.repr.message, &self.lease, &packet.authentication) {
            (Message::Ra(_) | Message::Sdp(_), Some(lease), Some(tag)) => {
                lease.keys().iter().any(|key| key.is_valid(GrantCode::default(), flow, bytes, tag))
            }
            _ => self.seal.is_valid(flow, bytes, packet.authentication.as_ref()),
        }
    }

    fn authorize(&self, packet: Outgoing, shared: &StarShared) -> Outgoing {
        let (mut message, mut code) = (packet.repr.message, packet.code);
        let Some(Span { capability, .. }) = message.span_mut() else { return packet };
        capability.lease = self.lease.as_ref().map_or(Lease::default(), |lease| lease.lease);
        if !capability.rights.contains(Rights::ELEMENT)
            && let Some(region) = shared.egress.region_of(self.qp.number, &packet.repr.message)
        {
            let access = Access::from_bits(region.rights.into()).unwrap_or(Access::NONE);
            capability.rights = remote_rights(access, access);
            (capability.base, capability.len, code) = (region.address, region.len, region.code);
        }
        Outgoing { repr: Repr { message, ..packet.repr }, code, ..packet }
    }

    fn finish(&self, packet: &Outgoing, writer: PacketWriter<'_>, flow: &UdpFlow) -> usize {
        match (packet.cause, &self.lease) {
            (Cause::Chunk(_), Some(lease)) => writer.finish_authenticated(flow, |addresses, covered| {
                lease.key.tag(packet.code, addresses, covered)
            }),
            _ => self.seal.finish(writer, flow),
        }
    }

    fn receive(&mut self, packet: &Incoming<'_>, shared: &mut StarShared, verbs: &mut Verbs<M>) {
        if matches!(self.qp.state, QpState::Reset | QpState::Init) {
            verbs.counters.dropped_state += 1;
            return;
        }
        if packet.ecn == Ecn::Ce {
            verbs.counters.congestion_marks += 1;
        }
        let sequence = packet.repr.sequence;
        match packet.repr.message {
            Message::Wqep(element) => self.receive_element(&element, packet, shared, verbs),
            Message::Ea if !packet.repr.flags.contains(Flags::TO_SERVER) => {
                if self.outbox.ea_received(sequence, verbs.now) {
                    let awaited = self.outbox.outstanding();
                    self.outbox.timer.progress(awaited, &self.qp.settings, verbs.now);
                }
            }
            Message::Ra(outcome) => self.acknowledged(packet, outcome, verbs),
            Message::Sdp(outcome) => self.data_received(packet, outcome, verbs),
            _ => verbs.counters.dropped_unknown += 1,
        }
        self.complete(verbs);
    }

    fn run(&mut self, shared: &mut StarShared, verbs: &mut Verbs<M>) {
        if !self.is_up() {
            return;
        }
        self.rdp.advance(verbs.now);
        self.gd.advance(verbs.now);
        let has_chunks = self.has_chunks();
        if let Some(lease) = self.lease.as_mut().filter(|_| has_chunks) {
            // The server's driver answers an EA by the next lease.
            self.inbox.ack_due |= lease.request_if_due(verbs.now);
            if !lease.is_valid(verbs.now) {
                // No RDP or GD is sent whose answer the timer could wait for.
                self.rdp.timer.start(Awaited::Liveness, &lease::renewal_timers(self.qp.settings), verbs.now);
            }
        }
        self.request_receives();
        for initiator in [Initiator::Client, Initiator::Server] {
            while self.should_begin(initiator) && self.begin(initiator, shared, verbs) {
                self.complete(verbs);
            }
        }
        let mut superseded = false;
        for flight in [&mut self.rdp, &mut self.gd] {
            while let Some(ChunkId { initiator, nth }) = flight.retransmissions.front().copied() {
                let pipeline = match initiator {
                    Initiator::Client => &mut self.client_ops,
                    Initiator::Server => &mut self.server_ops,
                };
                // A failed operation sends no more: its packet cannot be built, or the egress module blocks
                // it.
                if !pipeline.is_done(nth) && !pipeline.has_failed(nth) {
                    if !pipeline.supersede(nth) {
                        break;
                    }
                    superseded = true;
                }
                flight.retransmissions.pop_front();
            }
        }
        if superseded {
            self.complete(verbs);
        }
    }

    fn next_packet(&self, now: Instant) -> Option<Outgoing> {
        if matches!(self.qp.state, QpState::Reset | QpState::Init) {
            return None;
        }
        let (connection, stamp) = (self.peer, Stamp(0));
        let repr = |message, flags, sequence| Repr { flags, connection, sequence, stamp, message };
        let outgoing =
            |repr, cause| Outgoing { repr, payload_len: 0, cause, code: GrantCode::default(), offset: 0 };
        if self.inbox.ack_due {
            let repr = repr(Message::Ea, Flags::TO_SERVER, self.inbox.expected());
            return Some(outgoing(repr, Cause::Acknowledgement));
        }
        if let Some((sequence, Report { cqe, flags })) = self.outbox.next() {
            let repr = repr(Message::Cqep(cqe), flags, sequence);
            return Some(outgoing(repr, Cause::Element));
        }
        if !self.is_up() {
            return None;
        }
        let other = if self.turn == Initiator::Client { Initiator::Server } else { Initiator::Client };
        self.next_retransmission(now)
            .or_else(|| self.next_chunk(self.turn, now))
            .or_else(|| self.next_chunk(other, now))
    }

    fn following(&self, packet: &Outgoing, now: Instant) -> Option<Outgoing> {
        let Cause::Chunk(chunk_id) = packet.cause else { return None };
        let is_last = packet.repr.flags.contains(Flags::LAST);
        if is_last || self.has_work_before(chunk_id.initiator) {
            None
        } else {
            self.next_of_message(packet, chunk_id, now)
        }
    }

    fn fill(&self, packet: &Outgoing, into: &mut [u8], verbs: &Verbs<M>) -> Result<(), Impossible> {
        match packet.cause {
            Cause::Chunk(chunk_id) if !into.is_empty() => {
                self.copy_payload(chunk_id, packet.offset, into, verbs).map_err(|_| Impossible)
            }
            _ => Ok(()),
        }
    }

    fn sent(&mut self, packet: &Outgoing, len: usize, verbs: &mut Verbs<M>) {
        verbs.counters.sent += 1;
        verbs.counters.bytes_sent += packet.payload_len as u64;
        match packet.cause {
            Cause::Acknowledgement | Cause::Ping => self.inbox.ack_due = false,
            Cause::Element => {
                let is_new = self.outbox.element_sent(&self.qp.settings, verbs.now);
                verbs.counters.retransmitted += u64::from(!is_new);
                if is_new
                    && let Message::Cqep(cqe) = packet.repr.message
                    && cqe.completed.is_of_send()
                {
                    self.mirror.report_left();
                }
            }
            Cause::Chunk(chunk_id) => {
                let bytes = match packet.repr.message {
                    Message::Gd(_, requested) => PacketType::Sdp.datagram_len(requested.into()),
                    Message::Aop(..) => PacketType::Sdp.datagram_len(Atomic::WORD.into()),
                    _ => len,
                };
                self.chunk_sent(chunk_id, bytes, verbs);
            }
        }
    }

    fn failed(&mut self, packet: &Outgoing, verbs: &mut Verbs<M>) {
        if let Cause::Chunk(chunk_id) = packet.cause
            && let Some(index) = self.pipeline(chunk_id.initiator).operation_of(chunk_id.nth)
        {
            let failure = match chunk_id.initiator {
                Initiator::Client => Status::LocalProtection,
                Initiator::Server => Status::RemoteAccess,
            };
            self.fail_operation(chunk_id.initiator, index, (failure, Status::Flushed));
        }
        self.complete(verbs);
    }

    fn blocked(&mut self, packet: &Outgoing, why: Blocked, verbs: &mut Verbs<M>) {
        match packet.cause {
            Cause::Chunk(chunk_id) => self.chunk_blocked(chunk_id, why, verbs),
            // The egress module has no entry for this server: CQEPs and EAs cannot be sent.
            _ => {
                self.inbox.ack_due = false;
                self.peer_gone(verbs);
                self.outbox.clear();
            }
        }
        self.complete(verbs);
    }
}
