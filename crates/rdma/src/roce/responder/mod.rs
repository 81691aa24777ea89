//! The responder: executes the peer's requests on a reliable connection.
//!
//! | case | answer |
//! |---|---|
//! | ahead of the expected PSN | one sequence NAK, then silence until the gap is filled (IBA 9.7.5.2.8) |
//! | behind the expected PSN | acknowledged again; READs, atomics, FLUSHes and ATOMIC WRITEs are answered again, and not executed again (IBA 9.7.1.2) |
//! | on XRC, names no shared receive queue of the target's XRC domain, or another than the packet before it | NAK, invalid request; error |
//! | does not continue the message before it, has a wrong length, is not allowed on this queue pair | NAK, invalid request; error |
//! | its key, bounds or rights do not permit the access | NAK, remote access; error |
//! | needs a receive, and none is posted | RNR NAK; the responder still expects its PSN |
//! | the receive's buffers or the program's memory cannot be written | NAK, remote operation; error |
//! | else | executed; acknowledged if it requests that |
//!
//! | file | concept |
//! |---|---|
//! | `answers.rs` | the queue of answers to send |
//! | `delayed_ack.rs` | acknowledgements that leave together with the program's answer |
//! | `reorder.rs` | requests that arrived ahead of a lost one, between two ends of this crate |
//! | `requests.rs`, `outcome.rs` | executes each kind of request; the result of a request |
//! | `unreliable.rs` | requests of unreliable connections, and datagrams |

mod answers;
mod delayed_ack;
mod outcome;
mod reorder;
mod requests;
mod unreliable;

use nichrome_wire::Instant;
use nichrome_wire::rdma::{Msn, NakCode, Psn, RKey, RcMessage, SrqNumber, Syndrome};

use super::config::SelectiveRepeat;
use super::context::Context;
use super::held_pool::HeldPool;
use super::packet::{Cause, Incoming, Outgoing};
use crate::core::attributes::{QpState, QpType};
use crate::core::completion::Status;
use crate::core::cq::Urgency;
use crate::core::event::Event;
use crate::core::memory::Memory;
use crate::core::queue_pair::{QueuePair, Received};
use answers::{Answers, Position as AnswerPosition};
use delayed_ack::DelayedAck;
use outcome::{Done, Reject};
use reorder::Reorder;

/// The responder's half of a queue pair.
pub(super) struct Responder {
    /// PSN of the expected packet.
    expected: Psn,
    /// Number of completed messages.
    msn: Msn,
    inbound: Inbound,
    /// On XRC, the shared receive queue of the message that is being received.
    srq: SrqNumber,
    /// A sequence or RNR NAK was sent: no further NAK until the expected packet arrives.
    nak_sent: bool,
    /// The communication established event was reported.
    established: bool,
    answers: Answers,
    delayed_ack: DelayedAck,
    /// Packets that arrived ahead of a lost one.
    reorder: Reorder,
    /// The peer offers selective repeat.
    offered: bool,
    /// Packets with a congestion mark have arrived since the last ACK; the next ACK echoes them.
    ecn_echo: bool,
}

/// The message that is being received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inbound {
    /// None: the next packet starts one.
    Nothing,
    /// A SEND, and the bytes of it that have arrived.
    Send { received: u32 },
    /// A WRITE: the address of its next byte, its key and the remaining bytes.
    Write { address: u64, rkey: RKey, len: u32, left: u32 },
    /// The rest of an unreliable message that is lost.
    Lost,
}

/// The peer's request was refused, or its receive cannot be written: the queue pair enters ERROR.
pub(super) struct Failed;

impl Responder {
    pub(super) fn new() -> Self {
        Self {
            expected: Psn::new(0),
            msn: Msn::new(0),
            inbound: Inbound::Nothing,
            srq: SrqNumber::default(),
            nak_sent: false,
            established: false,
            answers: Answers::default(),
            delayed_ack: DelayedAck::default(),
            reorder: Reorder::default(),
            offered: false,
            ecn_echo: false,
        }
    }

    /// Sets the PSN of the first packet expected.
    pub(super) fn start_at(&mut self, psn: Psn) {
        self.expected = psn;
    }

    /// Returns the PSN of the expected packet.
    pub(super) fn expected(&self) -> Psn {
        self.expected
    }

    /// Processes a request of a reliable connection.
    #[inline]
    pub(super) fn receive<M: Memory>(
        &mut self,
        message: RcMessage,
        request: &Incoming<'_>,
        context: &mut Context<'_, M>,
    ) -> Result<(), Failed> {
        if !takes_requests(context.qp) {
            context.verbs.counters.dropped_state += 1;
            return Ok(());
        }
        self.offered = request.selective;
        match request.psn.since(self.expected) {
            0 => {
                self.expected_request(message, request, context)?;
                self.execute_held(context)?;
            }
            1.. => self.ahead(message, request, context),
            _ => self.duplicate(message, request.psn, context),
        }
        Ok(())
    }

    fn ahead<M: Memory>(&mut self, message: RcMessage, request: &Incoming<'_>, context: &mut Context<'_, M>) {
        let Context { qp, shared, verbs } = context;
        verbs.counters.out_of_sequence += 1;
        let is_offered = shared.config.selective_repeat == SelectiveRepeat::Offered;
        // A longer packet is not kept: it would be refused in order, and so the limit of kept packets also
        // limits their bytes.
        let fits_mtu = request.payload.len() <= qp.mtu();
        // After an RNR NAK the peer retransmits everything.
        if request.selective && is_offered && fits_mtu && !self.nak_sent && !self.answers.is_rnr_nak() {
            let limit = shared.config.held_packets;
            if self.reorder.keep(self.expected, message, request, limit, &mut shared.held_pool) {
                return;
            }
        }
        if !self.nak_sent {
            self.nak_sent = true;
            verbs.counters.sequence_naks_sent += 1;
            self.answer_negatively(Syndrome::Nak(NakCode::PsnSequence));
        }
    }

    /// Executes the held requests that are next in sequence.
    #[inline]
    fn execute_held<M: Memory>(&mut self, context: &mut Context<'_, M>) -> Result<(), Failed> {
        while let Some(held) = self.reorder.take_expected() {
            let mut done = Ok(());
            if takes_requests(context.qp) && held.psn == self.expected {
                done = self.expected_request(held.message, &held.incoming(), context);
            }
            context.shared.held_pool.give_back(held.into_payload());
            done?;
        }
        Ok(())
    }

    fn duplicate<M: Memory>(&mut self, message: RcMessage, psn: Psn, context: &mut Context<'_, M>) {
        let Context { qp, verbs, .. } = context;
        verbs.counters.duplicates += 1;
        let known = match message {
            RcMessage::ReadRequest(reth) => self.answers.repeat_read(psn, &reth, qp.mtu() as u32),
            RcMessage::CompareSwap(_)
            | RcMessage::FetchAdd(_)
            | RcMessage::Flush(..)
            | RcMessage::AtomicWrite(_) => self.answers.repeat_whole(psn),
            _ => {
                self.answers.acknowledge();
                self.delayed_ack.release();
                true
            }
        };
        verbs.counters.dropped_stale += u64::from(!known);
    }

    #[inline]
    fn expected_request<M: Memory>(
        &mut self,
        message: RcMessage,
        request: &Incoming<'_>,
        context: &mut Context<'_, M>,
    ) -> Result<(), Failed> {
        self.report_established(context);
        if context.qp.kind == QpType::XrcReceive && !self.select_srq(request.srq, context) {
            return self.reject(Reject::Invalid, context);
        }
        let done = match message {
            RcMessage::Send(part) => self.send(part, request, context),
            RcMessage::Write(part) => self.write(part, request, context),
            RcMessage::ReadRequest(reth) => self.read(&reth, request, context),
            RcMessage::CompareSwap(eth) => self.atomic(&eth, request, context, |value| {
                if value == eth.compare { eth.swap_or_add } else { value }
            }),
            RcMessage::FetchAdd(eth) => {
                self.atomic(&eth, request, context, |value| value.wrapping_add(eth.swap_or_add))
            }
            RcMessage::Flush(feth, reth) => self.flush(feth, &reth, request, context),
            RcMessage::AtomicWrite(reth) => self.atomic_write(&reth, request, context),
            _ => Err(Reject::Invalid),
        };
        match done {
            Ok(done) => {
                self.done(&done, request, context);
                Ok(())
            }
            Err(reject) => self.reject(reject, context),
        }
    }

    /// Switches an XRC target to the shared receive queue that a request names. Returns false if the XRC
    /// domain has no such queue, or the packets of one message name different queues.
    fn select_srq<M: Memory>(&mut self, srq: SrqNumber, context: &mut Context<'_, M>) -> bool {
        if self.inbound == Inbound::Nothing {
            self.srq = srq;
            return context.qp.switch_srq(srq, context.verbs);
        }
        srq == self.srq
    }

    /// Raises [`Event::Established`] for the first packet that arrives in RTR.
    fn report_established<M: Memory>(&mut self, context: &mut Context<'_, M>) {
        if !self.established && context.qp.state == QpState::Rtr {
            self.established = true;
            context.verbs.events.push_back(Event::Established(context.qp.handle));
        }
    }

    #[inline]
    fn done<M: Memory>(&mut self, done: &Done, request: &Incoming<'_>, context: &mut Context<'_, M>) {
        let Context { shared, verbs, .. } = context;
        self.expected += done.packets;
        self.answers.drop_old(self.expected);
        self.nak_sent = false;
        self.reorder.advance(done.packets, &mut shared.held_pool);
        if done.ends {
            self.msn = self.msn.next();
        }
        verbs.counters.bytes_received += request.payload.len() as u64;
        if self.answers.request_done(request.ack_request && !done.answered) {
            self.delayed_ack.arrived(shared.config.acknowledgement_delay, verbs.now);
        }
    }

    fn answer_negatively(&mut self, syndrome: Syndrome) {
        self.answers.refuse(self.expected, syndrome);
    }

    fn reject<M: Memory>(&mut self, reject: Reject, context: &mut Context<'_, M>) -> Result<(), Failed> {
        type EventOf = fn(crate::core::slab::Handle<crate::core::kind::Qp>) -> Event;
        let Context { qp, shared, verbs } = context;
        let (code, receive, event): (_, _, EventOf) = match reject {
            Reject::NotReady => {
                verbs.counters.rnr_naks_sent += 1;
                self.nak_sent = true;
                self.reorder.clear(&mut shared.held_pool);
                self.answer_negatively(Syndrome::RnrNak(qp.settings.min_rnr_timer));
                return Ok(());
            }
            Reject::Invalid => (NakCode::InvalidRequest, Status::RemoteInvalidRequest, Event::QpRequestError),
            Reject::TooLong => (NakCode::InvalidRequest, Status::LocalLength, Event::QpRequestError),
            Reject::Access => (NakCode::RemoteAccess, Status::RemoteAccess, Event::QpAccessError),
            Reject::Receive => (NakCode::RemoteOperation, Status::LocalProtection, Event::QpFatal),
            Reject::Memory => (NakCode::RemoteOperation, Status::LocalQpOperation, Event::QpFatal),
            Reject::Invalidate => (NakCode::RemoteAccess, Status::RemoteInvalidRequest, Event::QpAccessError),
        };
        verbs.counters.refused += 1;
        self.answer_negatively(Syndrome::Nak(code));
        qp.complete_receive(Received::failed(receive), Urgency::Plain, verbs);
        verbs.events.push_back(event(qp.handle));
        Err(Failed)
    }

    /// Returns true if there may be an answer to send that is not delayed.
    #[inline]
    pub(super) fn has_work(&self, now: Instant) -> bool {
        !self.answers.is_empty() && !self.is_delaying(now) || self.reorder.has_missing()
    }

    /// Returns the next answer to send; no data if `is_paced`.
    #[inline]
    pub(super) fn next_packet(&self, qp: &QueuePair, is_paced: bool, now: Instant) -> Option<Outgoing> {
        if self.answers.is_empty() && !self.reorder.has_missing() {
            return None;
        }
        let urgent = self.answers.next(self.position(qp), is_paced, self.reorder.next_missing());
        urgent.or_else(|| if self.is_delaying(now) { None } else { self.acknowledgement(qp) })
    }

    /// Returns the queued ACK or NAK, delayed or not.
    #[inline]
    pub(super) fn acknowledgement(&self, qp: &QueuePair) -> Option<Outgoing> {
        self.answers.acknowledgement(self.position(qp))
    }

    #[inline]
    fn position(&self, qp: &QueuePair) -> AnswerPosition {
        AnswerPosition { expected: self.expected, msn: self.msn, mtu: qp.mtu() as u32 }
    }

    /// Returns true if a delayed ACK is the only answer to send.
    #[inline]
    fn is_delaying(&self, now: Instant) -> bool {
        self.delayed_ack.until(now).is_some()
            && self.answers.is_only_acknowledgement()
            && !self.reorder.has_missing()
    }

    /// Returns the deadline of the delayed ACK.
    #[inline]
    pub(super) fn next_timeout(&self, now: Instant) -> Option<Instant> {
        self.delayed_ack.until(now)
    }

    /// Drops selective NAKs of packets that have arrived in the meantime.
    #[inline]
    pub(super) fn run(&mut self) {
        self.reorder.prune(self.expected);
    }

    /// Records that a request of the program was sent.
    #[inline]
    pub(super) fn request_sent(&mut self, delay: u64, now: Instant) {
        self.delayed_ack.answered(delay, now);
    }

    /// Ends the delay of the ACK.
    #[inline]
    pub(super) fn flush_acknowledgement(&mut self) {
        self.delayed_ack.release();
    }

    /// Queues the last ACK again, unless an ACK or NAK is queued.
    pub(super) fn repeat_acknowledgement(&mut self, qp: &QueuePair) {
        if qp.kind.is_reliable() && qp.state != QpState::Err && self.msn != Msn::new(0) {
            self.answers.acknowledge();
            self.delayed_ack.release();
        }
    }

    /// Queues a CNP.
    pub(super) fn notify_congestion(&mut self) {
        self.answers.notification = true;
    }

    /// Echoes a congestion mark in the next ACK or response.
    pub(super) fn echo_congestion(&mut self) {
        self.ecn_echo = true;
    }

    /// Returns true if an answer echoes a congestion mark.
    #[inline]
    pub(super) fn echoes(&self, packet: &Outgoing) -> bool {
        self.ecn_echo && matches!(packet.cause, Cause::Acknowledgement | Cause::Data { .. })
    }

    /// Returns true if an answer offers selective repeat: positive answers do if the last request did. On a
    /// NAK the flag marks it as selective.
    #[inline]
    pub(super) fn offers_selective(&self, packet: &Outgoing) -> bool {
        self.offered
            && match packet.cause {
                Cause::Acknowledgement => self.answers.is_positive(),
                Cause::Data { .. } => true,
                _ => false,
            }
    }

    /// Updates the state after an answer was sent.
    #[inline]
    pub(super) fn answer_sent<M: Memory>(&mut self, packet: &Outgoing, context: &mut Context<'_, M>) {
        let verbs = &mut *context.verbs;
        self.ecn_echo &= !self.echoes(packet);
        match packet.cause {
            Cause::Data { index } => {
                self.answers.data_sent(index);
                // The response acknowledges all that was received: the ACK is not needed.
                if packet.psn.next() == self.expected && self.answers.is_positive() {
                    self.answers.acknowledged();
                    self.delayed_ack.release();
                }
            }
            Cause::Missing => {
                verbs.counters.sequence_naks_sent += 1;
                self.reorder.missing_sent();
            }
            Cause::Acknowledgement => {
                self.answers.acknowledged();
                self.delayed_ack.acknowledged(verbs.now);
            }
            Cause::Notification => {
                verbs.counters.congestion_notifications_sent += 1;
                self.answers.notification = false;
            }
            Cause::Request { .. } | Cause::Repeat { .. } => {}
        }
    }

    /// Queues a remote access NAK for a READ whose memory can no longer be read.
    pub(super) fn data_failed(&mut self, psn: Psn) {
        self.answers.drop_data();
        self.answers.refuse(psn, Syndrome::Nak(NakCode::RemoteAccess));
    }

    /// Drops the message that is being received, and the kept packets. Queued answers are still sent.
    pub(super) fn stop(&mut self, held_pool: &mut HeldPool) {
        self.inbound = Inbound::Nothing;
        self.reorder.clear(held_pool);
    }

    /// Drops READ responses, and answers of atomics, FLUSHes and ATOMIC WRITEs. A queued ACK or NAK is still
    /// sent.
    pub(super) fn drop_data(&mut self) {
        self.answers.drop_data();
    }

    /// Drops all answers and the kept packets.
    pub(super) fn drop_answers(&mut self, held_pool: &mut HeldPool) {
        self.answers.clear();
        self.delayed_ack = DelayedAck::default();
        self.reorder.clear(held_pool);
    }
}

/// Returns true if the queue pair's state accepts requests.
fn takes_requests(qp: &QueuePair) -> bool {
    matches!(qp.state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe)
}
