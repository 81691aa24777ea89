//! Completes requests by the peer's answers.
//!
//! | answer | here |
//! |---|---|
//! | ACK | acknowledges everything up to its PSN; requests a READ or atomic again whose response is missing |
//! | sequence NAK | acknowledges everything before its PSN; retransmits everything from there on |
//! | selective NAK | retransmits the packet with its PSN |
//! | RNR NAK | as a sequence NAK, after the time that it names, or once the peer acknowledges a late copy of the packet |
//! | other NAK | acknowledges everything before its PSN; that send fails, the rest is flushed |
//! | READ response, atomic response | as an ACK of the packets before it; accepts the data if it is the next in order |
//! | empty READ response | the same for a FLUSH or an ATOMIC WRITE |
//! | none in time | retransmits everything that is not acknowledged |

use nichrome_wire::Instant;
use nichrome_wire::rdma::{NakCode, Psn, RcMessage, ReadResponse, RnrTimer, Syndrome};

use super::super::context::Context;
use super::super::packet::{Incoming, serial};
use super::{Cursor, Requester};
use crate::congestion::{Acknowledged, Controller, Mark};
use crate::core::attributes::QpState;
use crate::core::completion::Status;
use crate::core::memory::Memory;
use crate::core::queue_pair::QueuePair;
use crate::core::send_queue::{Progress, SendWork};
use crate::core::work::Operation;

/// A response that precedes this answer was lost.
struct ResponseLost;

/// The RNR retry count that means no limit.
const FOR_EVER: u8 = 7;

impl Requester {
    /// Processes an answer.
    #[inline]
    pub(in super::super) fn receive<M: Memory>(
        &mut self,
        message: RcMessage,
        answer: &Incoming<'_>,
        context: &mut Context<'_, M>,
    ) {
        let psn = answer.psn;
        if !matches!(context.qp.state, QpState::Rts | QpState::Sqd) || !self.is_outstanding(psn) {
            context.verbs.counters.dropped_stale += 1;
            return;
        }
        let mark = Mark::from(answer.ecn_echo);
        match message {
            RcMessage::Acknowledge(aeth) => match aeth.syndrome {
                Syndrome::Nak(NakCode::PsnSequence) if answer.selective => self.missing(psn, context),
                Syndrome::Ack(_) => {
                    self.peer_offers(answer);
                    if self.arrived_through(psn, mark, context).is_err() {
                        self.go_back(context);
                    }
                }
                Syndrome::Nak(code) => self.refused(psn, mark, code, context),
                Syndrome::RnrNak(timer) => self.receiver_not_ready(psn, mark, timer, context),
            },
            RcMessage::ReadResponse(part) => {
                self.peer_offers(answer);
                self.read_response(part, answer, context);
            }
            RcMessage::AtomicAcknowledge(_, before) => {
                self.peer_offers(answer);
                self.atomic_response(psn, mark, before, context);
            }
            _ => {}
        }
    }

    /// Enables probes if a positive answer offers selective repeat.
    #[inline]
    fn peer_offers(&mut self, answer: &Incoming<'_>) {
        self.probe.useful |= answer.selective;
    }

    /// Handles an implicit ACK of everything before this PSN. Returns false, and goes back, if a response
    /// before it is missing.
    fn arrived_before<M: Memory>(&mut self, psn: Psn, mark: Mark, context: &mut Context<'_, M>) -> bool {
        let complete = psn == self.unacked || self.arrived_through(psn.previous(), mark, context).is_ok();
        if !complete {
            self.go_back(context);
        }
        complete
    }

    /// Handles a cumulative ACK up to this PSN: completes the requests that it covers.
    #[inline]
    fn arrived_through<M: Memory>(
        &mut self,
        psn: Psn,
        mark: Mark,
        context: &mut Context<'_, M>,
    ) -> Result<(), ResponseLost> {
        while let Some(work) = context.qp.sends.front()
            && work.progress == Progress::Begun
            && !self.unacked.after(psn)
        {
            if work.wants_response() {
                return Err(ResponseLost);
            }
            let Some(span) = self.spans.get(0) else { break };
            let last = span.last();
            if last.after(psn) {
                self.advance(psn.next(), mark, context.qp, context.verbs.now);
                break;
            }
            self.advance(last.next(), mark, context.qp, context.verbs.now);
            self.pop_send(Status::Success, context);
            self.retire(context);
        }
        Ok(())
    }

    /// Marks everything before `psn` as acknowledged: restarts the timers and the retry counters.
    #[inline]
    fn advance(&mut self, psn: Psn, mark: Mark, qp: &QueuePair, now: Instant) {
        let packets = psn.since(self.unacked).unsigned_abs();
        let (sequence, next) = (serial(psn.previous()), serial(self.next));
        self.control.acknowledged(&Acknowledged { sequence, packets, next, mark, now });
        self.unacked = psn;
        // After an RNR NAK: the peer has a receive by now.
        self.waiting_until = None;
        (self.retries, self.rnr_retries) = (qp.settings.retry_count, qp.settings.rnr_retry);
        self.recovering = false;
        self.probe.progress(psn, self.outstanding(), now);
        self.restart_timer(qp, now);
        self.skip_acknowledged(qp);
    }

    /// Moves the cursor past the acknowledged packets.
    #[inline]
    fn skip_acknowledged(&mut self, qp: &QueuePair) {
        if self.cursor.work > 0 {
            return;
        }
        if qp.sends.front().is_some_and(|work| work.progress == Progress::Begun)
            && let Some(span) = self.spans.get(0)
        {
            let cursor = &mut self.cursor;
            cursor.packet = cursor.packet.max(span.place_of(self.unacked));
            if cursor.packet >= span.packets {
                *cursor = Cursor { work: 1, packet: 0 };
            }
        }
    }

    /// Completes the oldest send, which leaves the queue.
    #[inline]
    pub(super) fn pop_send<M: Memory>(&mut self, status: Status, context: &mut Context<'_, M>) {
        context.qp.complete_send(status, context.verbs);
        self.spans.pop();
        self.cursor = match self.cursor.work {
            0 => Cursor::default(),
            work => Cursor { work: work - 1, ..self.cursor },
        };
    }

    /// Completes the requests at the front of the queue that need nothing from the peer.
    #[inline]
    pub(super) fn retire<M: Memory>(&mut self, context: &mut Context<'_, M>) {
        while let Some(work) = context.qp.sends.front() {
            match work.progress {
                Progress::Done => self.pop_send(Status::Success, context),
                Progress::Failed(status) => return self.fail(status, context),
                Progress::Posted | Progress::Begun => break,
            }
        }
        self.check_drained(context);
    }

    /// Reports that the send queue has drained, if it has.
    pub(in super::super) fn check_drained<M: Memory>(&self, context: &mut Context<'_, M>) {
        let begun = context.qp.sends.front().is_some_and(|work| work.progress == Progress::Begun);
        context.qp.check_drained(begun, context.verbs);
    }

    fn refused<M: Memory>(&mut self, psn: Psn, mark: Mark, code: NakCode, context: &mut Context<'_, M>) {
        if !self.arrived_before(psn, mark, context) {
            return;
        }
        let status = match code {
            NakCode::PsnSequence => {
                context.verbs.counters.sequence_naks_received += 1;
                return self.go_back(context);
            }
            NakCode::InvalidRequest | NakCode::InvalidRdRequest => Status::RemoteInvalidRequest,
            NakCode::RemoteAccess => Status::RemoteAccess,
            NakCode::RemoteOperation => Status::RemoteOperation,
        };
        self.fail(status, context);
    }

    fn receiver_not_ready<M: Memory>(
        &mut self,
        psn: Psn,
        mark: Mark,
        timer: RnrTimer,
        context: &mut Context<'_, M>,
    ) {
        // Ignores a second RNR NAK during the wait.
        if self.waiting_until.is_some() || !self.arrived_before(psn, mark, context) {
            return;
        }
        context.verbs.counters.rnr_naks_received += 1;
        if self.rnr_retries == 0 {
            return self.fail(Status::RnrRetryExceeded, context);
        }
        if context.qp.settings.rnr_retry != FOR_EVER {
            self.rnr_retries -= 1;
        }
        self.waiting_until = Some(context.verbs.now.plus_nanos(timer.nanos()));
        (self.deadline, self.probe.due) = (None, None);
        // The round trip time must not include the wait for a receive.
        self.probe.repeated();
        // The packet has arrived: a gap behind it is a new one.
        self.recovering = false;
        self.send_again_from_unacked(context.qp);
    }

    fn read_response<M: Memory>(
        &mut self,
        part: ReadResponse,
        answer: &Incoming<'_>,
        context: &mut Context<'_, M>,
    ) {
        let mark = Mark::from(answer.ecn_echo);
        if !self.arrived_before(answer.psn, mark, context) {
            return;
        }
        let Context { qp, verbs, shared } = context;
        let Some(work) = qp.sends.front().filter(|work| work.progress == Progress::Begun) else { return };
        if work.wants_response() && !work.wants_data() {
            let fits = matches!(part, ReadResponse::Only(_)) && answer.payload.is_empty();
            return match fits {
                true => self.data_arrived(answer.psn, mark, true, true, context),
                false => self.fail(Status::BadResponse, context),
            };
        }
        let Some(span) = self.spans.get(0) else { return };
        let packet = span.place_of(answer.psn);
        let (mtu, last) = (qp.mtu() as u32, packet + 1 == span.packets);
        let offset = packet * mtu;
        let ends_request = last || (packet + 1).is_multiple_of(shared.environment.window.read);
        let fits = matches!(work.operation, Operation::Read(_))
            && part.position().ends() == ends_request
            && answer.payload.len() as u32 == mtu.min(work.len - offset);
        if !fits {
            return self.fail(Status::BadResponse, context);
        }
        if qp.put_response(0, offset, answer.payload, verbs).is_err() {
            return self.fail(Status::LocalProtection, context);
        }
        verbs.counters.bytes_received += answer.payload.len() as u64;
        self.data_arrived(answer.psn, mark, ends_request, last, context);
    }

    fn atomic_response<M: Memory>(
        &mut self,
        psn: Psn,
        mark: Mark,
        before: u64,
        context: &mut Context<'_, M>,
    ) {
        if !self.arrived_before(psn, mark, context) {
            return;
        }
        let Context { qp, verbs, .. } = context;
        let Some(work) = qp.sends.front().filter(|work| work.progress == Progress::Begun) else { return };
        if !is_atomic(work) {
            return self.fail(Status::BadResponse, context);
        }
        if qp.put_response(0, 0, &before.to_ne_bytes(), verbs).is_err() {
            return self.fail(Status::LocalProtection, context);
        }
        self.data_arrived(psn, mark, true, true, context);
    }

    /// Handles the arrival of the next response in order.
    fn data_arrived<M: Memory>(
        &mut self,
        psn: Psn,
        mark: Mark,
        ends_request: bool,
        ends_send: bool,
        context: &mut Context<'_, M>,
    ) {
        self.rd_atomic -= u8::from(ends_request);
        self.advance(psn.next(), mark, context.qp, context.verbs.now);
        if ends_send {
            self.pop_send(Status::Success, context);
            self.retire(context);
        }
    }

    /// Selective NAK: retransmits this packet alone. A READ is requested by its first packet.
    fn missing<M: Memory>(&mut self, psn: Psn, context: &mut Context<'_, M>) {
        context.verbs.counters.sequence_naks_received += 1;
        let window = &context.shared.environment.window;
        let index = self.begun_at(context.qp, psn);
        let found = index.and_then(|index| context.qp.sends.get(index).zip(self.spans.get(index)));
        let is_request = found.is_some_and(|(work, span)| {
            psn.since(span.first).unsigned_abs().is_multiple_of(window.read) || !work.wants_data()
        });
        if !is_request {
            return;
        }
        self.control.lost(serial(psn), serial(self.next));
        self.probe.repeated();
        if self.repeats.len() < window.max as usize && !self.repeats.contains(&psn) {
            self.repeats.push_back(psn);
        }
    }

    /// Sends everything from the oldest packet that is not acknowledged again, once per loss.
    fn go_back<M: Memory>(&mut self, context: &mut Context<'_, M>) {
        if !self.recovering {
            self.control.lost(serial(self.unacked), serial(self.next));
            self.repeat_all(context);
        }
    }

    /// Returns the deadline of the next timer.
    #[inline]
    pub(in super::super) fn next_timeout(&self) -> Option<Instant> {
        // An explicit fold: valgrind takes the flattened iterator's minimum for uninitialised.
        let earlier = |one: Option<Instant>, other: Option<Instant>| match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        earlier(earlier(self.deadline, self.waiting_until), self.probe.due)
    }

    /// Handles the timers that are due.
    pub(in super::super) fn handle_timeout<M: Memory>(&mut self, context: &mut Context<'_, M>) {
        let now = context.verbs.now;
        if self.waiting_until.is_some_and(|until| until <= now) {
            self.waiting_until = None;
            self.restart_timer(context.qp, now);
        }
        if self.probe.due.is_some_and(|due| due <= now) {
            self.send_probe(context);
        }
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            context.verbs.counters.timeouts += 1;
            self.control.timed_out();
            self.repeat_all(context);
        }
    }

    /// After a few round trips without an answer, retransmits the oldest packet, or the missing part of a
    /// READ.
    fn send_probe<M: Memory>(&mut self, context: &mut Context<'_, M>) {
        self.probe.fired(self.outstanding(), context.verbs.now);
        if !self.repeats.contains(&self.unacked) {
            context.verbs.counters.probes += 1;
            self.repeats.push_front(self.unacked);
        }
    }

    fn repeat_all<M: Memory>(&mut self, context: &mut Context<'_, M>) {
        if self.retries == 0 {
            return self.fail(Status::RetryExceeded, context);
        }
        self.retries -= 1;
        self.recovering = true;
        self.probe.repeated();
        self.restart_timer(context.qp, context.verbs.now);
        self.send_again_from_unacked(context.qp);
    }

    fn send_again_from_unacked(&mut self, qp: &QueuePair) {
        if qp.sends.front().is_some_and(|work| work.progress == Progress::Begun)
            && let Some(span) = self.spans.get(0)
        {
            self.cursor = Cursor { work: 0, packet: span.place_of(self.unacked) };
            self.repeats.clear();
        }
    }

    /// Starts the retransmission timer anew while packets are outstanding; stops it otherwise.
    #[inline]
    pub(super) fn restart_timer(&mut self, qp: &QueuePair, now: Instant) {
        let settings = &qp.settings;
        let timed = self.outstanding() > 0 && settings.timeout > 0;
        let repeated = settings.retry_count.saturating_sub(self.retries);
        let wait = settings.retry_timeout(repeated);
        self.deadline = timed.then(|| now.plus_nanos(wait));
    }

    /// Completes the oldest send with an error and flushes the others. With a reliable connection, the whole
    /// queue pair enters ERROR; else only the send queue does.
    fn fail<M: Memory>(&mut self, status: Status, context: &mut Context<'_, M>) {
        self.pop_send(status, context);
        let Context { qp, verbs, .. } = context;
        self.failed = qp.kind.is_reliable();
        qp.state = if self.failed { QpState::Err } else { QpState::Sqe };
        self.stop(qp);
        qp.flush_sends(verbs);
    }
}

fn is_atomic(work: &SendWork) -> bool {
    matches!(work.operation, Operation::CompareSwap { .. } | Operation::FetchAdd { .. })
}
