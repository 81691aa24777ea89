//! What the answers of the peer do to the requests.
//!
//! | answer | here |
//! |---|---|
//! | ACK | everything up to its number has arrived; a READ or atomic among it whose data has not is asked for again |
//! | NAK of the sequence | everything before its number has arrived, everything from there on is sent again |
//! | RNR NAK | the same, after the time that it names |
//! | other NAK | everything before has arrived, that send fails, the rest is flushed |
//! | READ response, atomic response | as an ACK of what is before it; the data is taken if it is what comes next |
//! | none in time | everything that is not acknowledged is sent again |

use nichrome_wire::Instant;
use nichrome_wire::rdma::{NakCode, Psn, RcMessage, ReadResponse, RnrTimer, Syndrome};

use super::connection::Connection;
use super::packet::Incoming;
use super::requester::{Cursor, Drain};
use crate::config::SendWindow;
use crate::core::completion::Status;
use crate::core::event::Event;
use crate::core::memory::Memory;
use crate::core::send_queue::{Progress, SendWork};
use crate::core::verbs::Verbs;
use crate::core::work::Operation;
use crate::qp::attributes::{DrainNotice, QpState};

/// A response that should have come before this answer did not.
struct ResponseLost;

/// Repetitions for a peer without receives that never end.
const FOR_EVER: u8 = 7;

impl Connection {
    /// Takes in an answer.
    #[inline]
    pub(super) fn receive_answer<M: Memory>(
        &mut self,
        message: RcMessage,
        answer: &Incoming<'_>,
        window: &SendWindow,
        verbs: &mut Verbs<M>,
    ) {
        let psn = answer.psn;
        let outstanding = !psn.before(self.requester.unacked) && psn.before(self.requester.next);
        if !matches!(self.qp.state, QpState::Rts | QpState::Sqd) || !outstanding {
            verbs.counters.dropped_stale += 1;
            return;
        }
        match message {
            RcMessage::Acknowledge(aeth) => match aeth.syndrome {
                Syndrome::Nak(NakCode::PsnSequence) if answer.selective => self.missing(psn, window, verbs),
                Syndrome::Ack(_) => {
                    self.requester.probe.useful |= answer.selective;
                    self.acknowledged(psn, window, verbs);
                }
                Syndrome::Nak(code) => self.refused(psn, code, window, verbs),
                Syndrome::RnrNak(timer) => self.receiver_not_ready(psn, timer, window, verbs),
            },
            RcMessage::ReadResponse(part) => self.read_response(part, answer, window, verbs),
            RcMessage::AtomicAcknowledge(_, before) => self.atomic_response(psn, before, window, verbs),
            _ => {}
        }
    }

    fn acknowledged<M: Memory>(&mut self, psn: Psn, window: &SendWindow, verbs: &mut Verbs<M>) {
        if self.arrived_through(psn, window, verbs).is_err() {
            self.go_back(verbs);
        }
    }

    /// Everything before this number has arrived; false where something that should have is missing.
    fn arrived_before<M: Memory>(&mut self, psn: Psn, window: &SendWindow, verbs: &mut Verbs<M>) -> bool {
        let complete =
            psn == self.requester.unacked || self.arrived_through(psn.previous(), window, verbs).is_ok();
        if !complete {
            self.go_back(verbs);
        }
        complete
    }

    /// Everything up to this number has arrived: completes what is complete.
    #[inline]
    fn arrived_through<M: Memory>(
        &mut self,
        psn: Psn,
        window: &SendWindow,
        verbs: &mut Verbs<M>,
    ) -> Result<(), ResponseLost> {
        while let Some(work) = self.qp.sends.front()
            && work.progress == Progress::Begun
            && !self.requester.unacked.after(psn)
        {
            if work.wants_data() {
                return Err(ResponseLost);
            }
            let last = work.last_psn();
            if last.after(psn) {
                self.advance(psn.next(), window, verbs.now);
                break;
            }
            self.advance(last.next(), window, verbs.now);
            self.pop_send(Status::Success, verbs);
            self.retire(verbs);
        }
        Ok(())
    }

    /// All before `psn` is acknowledged: there is progress.
    #[inline]
    fn advance(&mut self, psn: Psn, window: &SendWindow, now: Instant) {
        let settings = &self.qp.settings;
        let requester = &mut self.requester;
        requester.window.acknowledged(psn.since(requester.unacked).unsigned_abs(), window);
        requester.unacked = psn;
        (requester.retries, requester.rnr_retries) = (settings.retry_count, settings.rnr_retry);
        requester.recovering = false;
        requester.probe.progress(psn, requester.outstanding(), now);
        self.restart_timer(now);
        self.skip_acknowledged();
    }

    /// What is acknowledged is not sent again.
    #[inline]
    fn skip_acknowledged(&mut self) {
        if self.requester.cursor.work > 0 {
            return;
        }
        if let Some(work) = self.qp.sends.front().filter(|work| work.progress == Progress::Begun) {
            let acknowledged = self.requester.unacked.since(work.first_psn).max(0).unsigned_abs();
            let cursor = &mut self.requester.cursor;
            cursor.packet = cursor.packet.max(acknowledged);
            if cursor.packet >= work.packets {
                *cursor = Cursor { work: 1, packet: 0 };
            }
        }
    }

    /// The oldest send completes and leaves the queue.
    #[inline]
    pub(super) fn pop_send<M: Memory>(&mut self, status: Status, verbs: &mut Verbs<M>) {
        self.qp.complete_send(status, verbs);
        let cursor = &mut self.requester.cursor;
        *cursor = match cursor.work {
            0 => Cursor::default(),
            work => Cursor { work: work - 1, ..*cursor },
        };
    }

    /// Completes what is at the front of the queue and waits for nothing from the peer.
    #[inline]
    pub(super) fn retire<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        while let Some(work) = self.qp.sends.front() {
            match work.progress {
                Progress::Done => self.pop_send(Status::Success, verbs),
                Progress::Failed(status) => return self.fail(status, verbs),
                Progress::Posted | Progress::Begun => break,
            }
        }
        self.tell_drained(verbs);
    }

    /// The send queue drains, and nothing is outstanding any more.
    pub(super) fn tell_drained<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        let begun = self.qp.sends.front().is_some_and(|work| work.progress == Progress::Begun);
        if self.requester.drain != Drain::Draining || begun {
            return;
        }
        self.requester.drain = Drain::Drained;
        if self.qp.settings.drain_notice == DrainNotice::Event {
            verbs.events.push_back(Event::SendQueueDrained(self.qp.handle));
        }
    }

    fn refused<M: Memory>(&mut self, psn: Psn, code: NakCode, window: &SendWindow, verbs: &mut Verbs<M>) {
        if !self.arrived_before(psn, window, verbs) {
            return;
        }
        let status = match code {
            NakCode::PsnSequence => {
                verbs.counters.sequence_naks_received += 1;
                return self.go_back(verbs);
            }
            NakCode::InvalidRequest | NakCode::InvalidRdRequest => Status::RemoteInvalidRequest,
            NakCode::RemoteAccess => Status::RemoteAccess,
            NakCode::RemoteOperation => Status::RemoteOperation,
        };
        self.fail(status, verbs);
    }

    fn receiver_not_ready<M: Memory>(
        &mut self,
        psn: Psn,
        timer: RnrTimer,
        window: &SendWindow,
        verbs: &mut Verbs<M>,
    ) {
        // While it waits already, this is the same news once more.
        if self.requester.waiting_until.is_some() || !self.arrived_before(psn, window, verbs) {
            return;
        }
        verbs.counters.rnr_naks_received += 1;
        let requester = &mut self.requester;
        if requester.rnr_retries == 0 {
            return self.fail(Status::RnrRetryExceeded, verbs);
        }
        if self.qp.settings.rnr_retry != FOR_EVER {
            requester.rnr_retries -= 1;
        }
        requester.waiting_until = Some(verbs.now.plus_nanos(timer.nanos()));
        (requester.deadline, requester.probe.due) = (None, None);
        self.send_again_from_unacked();
    }

    fn read_response<M: Memory>(
        &mut self,
        part: ReadResponse,
        answer: &Incoming<'_>,
        window: &SendWindow,
        verbs: &mut Verbs<M>,
    ) {
        if !self.arrived_before(answer.psn, window, verbs) {
            return;
        }
        let Some(work) = self.qp.sends.front().filter(|work| work.progress == Progress::Begun) else {
            return;
        };
        let packet = answer.psn.since(work.first_psn).max(0).unsigned_abs();
        let (mtu, last) = (self.qp.mtu() as u32, packet + 1 == work.packets);
        let offset = packet * mtu;
        let ends_request = last || (packet + 1).is_multiple_of(window.read);
        let fits = matches!(work.operation, Operation::Read(_))
            && part.position().ends() == ends_request
            && answer.payload.len() as u32 == mtu.min(work.len - offset);
        if !fits {
            return self.fail(Status::BadResponse, verbs);
        }
        if self.qp.put_response(0, offset, answer.payload, verbs).is_err() {
            return self.fail(Status::LocalProtection, verbs);
        }
        verbs.counters.bytes_received += answer.payload.len() as u64;
        self.data_arrived(answer.psn, ends_request, last, window, verbs);
    }

    fn atomic_response<M: Memory>(
        &mut self,
        psn: Psn,
        before: u64,
        window: &SendWindow,
        verbs: &mut Verbs<M>,
    ) {
        if !self.arrived_before(psn, window, verbs) {
            return;
        }
        let Some(work) = self.qp.sends.front().filter(|work| work.progress == Progress::Begun) else {
            return;
        };
        if !is_atomic(work) {
            return self.fail(Status::BadResponse, verbs);
        }
        if self.qp.put_response(0, 0, &before.to_ne_bytes(), verbs).is_err() {
            return self.fail(Status::LocalProtection, verbs);
        }
        self.data_arrived(psn, true, true, window, verbs);
    }

    /// The data that was next has come.
    fn data_arrived<M: Memory>(
        &mut self,
        psn: Psn,
        ends_request: bool,
        ends_send: bool,
        window: &SendWindow,
        verbs: &mut Verbs<M>,
    ) {
        self.requester.rd_atomic -= u8::from(ends_request);
        self.advance(psn.next(), window, verbs.now);
        if ends_send {
            self.pop_send(Status::Success, verbs);
            self.retire(verbs);
        }
    }

    /// This packet alone is missing: it is repeated by itself. A READ is asked for by its first packet.
    fn missing<M: Memory>(&mut self, psn: Psn, window: &SendWindow, verbs: &mut Verbs<M>) {
        verbs.counters.sequence_naks_received += 1;
        let work = self.begun_at(psn).and_then(|index| self.qp.sends.get(index));
        let first_of_read = |work: &SendWork| {
            psn.since(work.first_psn).unsigned_abs().is_multiple_of(window.read) || !work.wants_data()
        };
        if !work.is_some_and(first_of_read) {
            return;
        }
        let requester = &mut self.requester;
        requester.window.lost(psn, requester.next);
        requester.probe.repeated();
        if requester.repeats.len() < window.max as usize && !requester.repeats.contains(&psn) {
            requester.repeats.push_back(psn);
        }
    }

    /// Something was lost: everything from the oldest that is not acknowledged is sent again, once per loss.
    fn go_back<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        if self.requester.recovering {
            return;
        }
        let requester = &mut self.requester;
        requester.window.lost(requester.unacked, requester.next);
        self.repeat(verbs);
    }

    /// No answer came for a while: the oldest packet once more, or the part of a READ that has not come.
    pub(super) fn probe<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        let requester = &mut self.requester;
        requester.probe.fired(requester.outstanding(), verbs.now);
        if !requester.repeats.contains(&requester.unacked) {
            verbs.counters.probes += 1;
            requester.repeats.push_front(requester.unacked);
        }
    }

    /// No answer came in time.
    pub(super) fn timed_out<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        verbs.counters.timeouts += 1;
        self.requester.window.timed_out();
        self.repeat(verbs);
    }

    fn repeat<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        if self.requester.retries == 0 {
            return self.fail(Status::RetryExceeded, verbs);
        }
        self.requester.retries -= 1;
        self.requester.recovering = true;
        self.requester.probe.repeated();
        self.restart_timer(verbs.now);
        self.send_again_from_unacked();
    }

    pub(super) fn send_again_from_unacked(&mut self) {
        let begun = self.qp.sends.front().filter(|work| work.progress == Progress::Begun);
        if let Some(work) = begun {
            let packet = self.requester.unacked.since(work.first_psn).max(0).unsigned_abs();
            self.requester.cursor = Cursor { work: 0, packet };
            self.requester.repeats.clear();
        }
    }

    /// The timer runs from the last progress while anything is outstanding. Without progress it takes up to four times
    /// as long, as the standard allows (IBA 9.7.6.1.3): a peer that has no processor for a while is not given up.
    #[inline]
    pub(super) fn restart_timer(&mut self, now: Instant) {
        let timed = self.requester.outstanding() > 0 && self.qp.settings.timeout > 0;
        let repeated = self.qp.settings.retry_count.saturating_sub(self.requester.retries);
        let wait = 4096u64 << (self.qp.settings.timeout + repeated.min(2));
        self.requester.deadline = timed.then(|| now.plus_nanos(wait));
    }

    /// The oldest send ends so, and the queue pair is in error.
    pub(super) fn fail<M: Memory>(&mut self, status: Status, verbs: &mut Verbs<M>) {
        self.pop_send(status, verbs);
        self.send_queue_error(verbs);
    }
}

fn is_atomic(work: &SendWork) -> bool {
    matches!(work.operation, Operation::CompareSwap { .. } | Operation::FetchAdd { .. })
}
