//! The requester: chooses the next request packet, and updates the state when it leaves.
//!
//! | rule | where |
//! |---|---|
//! | requests begin in order, none while the send queue drains | [`Requester::next_request`] |
//! | a fenced request waits for READs and atomics before it (IBA 10.8.3.3) | [`Requester::may_begin`] |
//! | at most max_rd_atomic READ requests, atomics, FLUSHes and ATOMIC WRITEs outstanding | [`Requester::may_begin`] |
//! | at most a window of packets outstanding, READ responses included | [`Requester::within_window`] |
//! | every message's last packet requests an acknowledgement, and so does the last that the window allows | [`Requester::next_request`] |
//!
//! | file | concept |
//! |---|---|
//! | `completer.rs` | completes requests by the peer's answers |
//! | `cut.rs` | the part of a send that one packet carries |
//! | `spans.rs` | packet numbers of the sends in the queue |
//! | `probe.rs` | repeating the oldest packet after a few round trips |

mod completer;
mod cut;
mod probe;
mod spans;

use std::collections::VecDeque;

use nichrome_wire::Instant;
use nichrome_wire::rdma::Psn;

use super::context::Context;
use super::packet::{Cause, Outgoing, serial};
use super::shared::RoceShared;
use crate::congestion::{Control, Controller};
use crate::core::attributes::QpState;
use crate::core::completion::Status;
use crate::core::drain::Drain;
use crate::core::memory::Memory;
use crate::core::queue_pair::{QueuePair, Settings};
use crate::core::send_queue::{Progress, SendWork};
use crate::core::work::{Operation, Recipient, SendFlags};
use cut::Cut;
use probe::Probe;
use spans::Spans;

/// At least one packet of this many requests an acknowledgement.
const ACK_EVERY: u32 = 16;

/// The requester's half of a queue pair.
pub(super) struct Requester {
    /// PSN of the first packet that was never sent.
    next: Psn,
    /// The oldest packet that is not acknowledged.
    unacked: Psn,
    spans: Spans,
    /// The position of the next packet to send or retransmit.
    cursor: Cursor,
    /// Outstanding requests that have a response of their own: READs, atomics, FLUSHes, ATOMIC WRITEs.
    rd_atomic: u8,
    /// Retransmissions left until something is acknowledged.
    retries: u8,
    rnr_retries: u8,
    /// End of the wait after an RNR NAK; no request is sent before.
    waiting_until: Option<Instant>,
    /// The retransmission timer.
    deadline: Option<Instant>,
    /// Packets since the last one that requested an acknowledgement.
    unrequested: u32,
    /// Everything from the gap on is being retransmitted: further sequence NAKs of it are ignored.
    recovering: bool,
    /// The send queue failed: the whole queue pair of a reliable connection enters ERROR.
    failed: bool,
    control: Control,
    /// Packets to retransmit alone: those that selective NAKs name, and probes.
    repeats: VecDeque<Psn>,
    probe: Probe,
}

/// A position in the send queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cursor {
    /// Index of the send.
    work: usize,
    /// Index of the packet within the send.
    packet: u32,
}

impl Requester {
    pub(super) fn new(shared: &RoceShared) -> Self {
        Self {
            next: Psn::new(0),
            unacked: Psn::new(0),
            spans: Spans::default(),
            cursor: Cursor::default(),
            rd_atomic: 0,
            retries: 0,
            rnr_retries: 0,
            waiting_until: None,
            deadline: None,
            unrequested: 0,
            recovering: false,
            failed: false,
            control: control(shared, Psn::new(0)),
            repeats: VecDeque::new(),
            probe: Probe::default(),
        }
    }

    /// Sets the PSN of the first packet.
    pub(super) fn start_at(&mut self, psn: Psn, settings: &Settings, shared: &RoceShared) {
        (self.next, self.unacked) = (psn, psn);
        (self.retries, self.rnr_retries) = (settings.retry_count, settings.rnr_retry);
        self.control = control(shared, psn);
    }

    /// Returns the PSN of the first packet that was never sent.
    pub(super) fn next(&self) -> Psn {
        self.next
    }

    /// Returns true if a packet with this PSN is outstanding.
    #[inline]
    pub(super) fn is_outstanding(&self, psn: Psn) -> bool {
        !psn.before(self.unacked) && psn.before(self.next)
    }

    /// Returns the number of packets that were sent and are not acknowledged, READ responses included.
    fn outstanding(&self) -> u32 {
        self.next.since(self.unacked).unsigned_abs()
    }

    /// Adds a request to the queue; flushes it in ERROR and SQE.
    #[inline]
    pub(super) fn post<M: Memory>(&mut self, work: SendWork, context: &mut Context<'_, M>) {
        let Context { qp, verbs, .. } = context;
        let packets = work.len.div_ceil(qp.mtu() as u32).max(1);
        qp.sends.push(work);
        match qp.state {
            QpState::Err | QpState::Sqe => qp.flush_sends(verbs),
            QpState::Reset | QpState::Init | QpState::Rtr | QpState::Rts | QpState::Sqd => {
                self.spans.push(packets);
            }
        }
    }

    /// Returns true if the requester may have something to send.
    #[inline]
    pub(super) fn has_work(&self, qp: &QueuePair) -> bool {
        let sendable = matches!(qp.state, QpState::Rts | QpState::Sqd);
        sendable && (qp.sends.get(self.cursor.work).is_some() || !self.repeats.is_empty())
    }

    /// Returns the time at which the congestion controller allows the next packet, if later than `now`.
    #[inline]
    pub(super) fn paced_until(&self, now: Instant) -> Option<Instant> {
        self.control.departure().filter(|departure| *departure > now)
    }

    /// Returns the next request packet. The caller checks [`paced_until`](Self::paced_until).
    #[inline]
    pub(super) fn next_packet(&self, qp: &QueuePair, read: u32) -> Option<Outgoing> {
        if self.waiting_until.is_some() {
            return None;
        }
        self.next_repeat(qp, read).or_else(|| self.next_request(qp, read))
    }

    #[inline]
    fn next_request(&self, qp: &QueuePair, read: u32) -> Option<Outgoing> {
        let Cursor { work: index, packet } = self.cursor;
        let work = qp.sends.get(index)?;
        if work.is_local() || !may_send(qp, work) {
            return None;
        }
        let span = self.spans.get(index)?;
        let cut = Cut::new(work, span, packet, qp.mtu() as u32, read);
        let psn = match work.progress {
            Progress::Begun => span.first + packet,
            Progress::Posted => self.next,
            Progress::Done | Progress::Failed(_) => return None,
        };
        let first_time = psn == self.next;
        if first_time && !self.may_begin(qp, work, packet) || !self.within_window(qp, psn, cut.packets) {
            return None;
        }
        let message = cut.message(qp, work)?;
        let (payload, payload_len) = cut.payload(work);
        let ack_request = qp.kind.is_reliable()
            && (cut.ends
                || self.unrequested + 1 >= ACK_EVERY
                || !self.within_window(qp, psn + cut.packets, 1));
        let solicited = cut.is_solicited(work);
        let cause = Cause::Request { packets: cut.packets, ends: cut.ends };
        Some(Outgoing { message, psn, ack_request, solicited, payload, payload_len, cause })
    }

    /// Returns the next packet to retransmit alone.
    #[inline]
    fn next_repeat(&self, qp: &QueuePair, read: u32) -> Option<Outgoing> {
        let psn = *self.repeats.front()?;
        let index = self.begun_at(qp, psn)?;
        let (work, span) = (qp.sends.get(index)?, self.spans.get(index)?);
        if !may_send(qp, work) {
            return None;
        }
        let cut = Cut::new(work, span, span.place_of(psn), qp.mtu() as u32, read);
        let message = cut.message(qp, work)?;
        let (payload, payload_len) = cut.payload(work);
        let (solicited, cause) = (cut.is_solicited(work), Cause::Repeat { work: index });
        Some(Outgoing { message, psn, ack_request: true, solicited, payload, payload_len, cause })
    }

    /// Returns the index of the send that this PSN belongs to, if the send has begun.
    fn begun_at(&self, qp: &QueuePair, psn: Psn) -> Option<usize> {
        let works = (0..).map_while(|index| Some((index, qp.sends.get(index)?, self.spans.get(index)?)));
        works.into_iter().find_map(|(index, work, span)| {
            let within =
                work.progress == Progress::Begun && !psn.before(span.first) && !psn.after(span.last());
            within.then_some(index)
        })
    }

    /// Returns true if the fence and `max_rd_atomic` allow a new packet of this send.
    #[inline]
    fn may_begin(&self, qp: &QueuePair, work: &SendWork, packet: u32) -> bool {
        let fenced = packet == 0 && work.flags.contains(SendFlags::FENCE) && self.rd_atomic > 0;
        !fenced && (!work.wants_response() || self.rd_atomic < qp.settings.max_rd_atomic)
    }

    /// Returns true if the window has room for `packets` packets from `psn` on. There is always room for one
    /// request.
    #[inline]
    fn within_window(&self, qp: &QueuePair, psn: Psn, packets: u32) -> bool {
        let ahead = psn.since(self.unacked).unsigned_abs();
        !qp.kind.is_reliable() || ahead == 0 || ahead + packets <= self.control.window()
    }

    /// Executes local requests, fails requests that cannot be sent, and advances the congestion controller's
    /// clock.
    #[inline]
    pub(super) fn run<M: Memory>(&mut self, context: &mut Context<'_, M>) {
        while let Some(work) = context.qp.sends.get(self.cursor.work)
            && work.is_local()
            && !matches!(work.progress, Progress::Failed(_))
            && self.local_may_run(context.qp, work)
        {
            self.run_local(context);
        }
        self.fail_unsendable(context);
        self.drop_needless_repeats(context.qp);
        self.control.advance(context.verbs.now);
    }

    /// Returns true if a local request may be executed: an invalidation once all earlier requests are
    /// complete (IBA 10.6.5.1), a fenced bind once no READ or atomic is outstanding.
    fn local_may_run(&self, qp: &QueuePair, work: &SendWork) -> bool {
        let fenced = match work.operation {
            Operation::LocalInvalidate(_) => self.cursor.work > 0,
            _ => work.flags.contains(SendFlags::FENCE) && self.rd_atomic > 0,
        };
        qp.state == QpState::Rts && self.waiting_until.is_none() && !fenced
    }

    fn run_local<M: Memory>(&mut self, context: &mut Context<'_, M>) {
        let Context { qp, verbs, .. } = context;
        let accessor = qp.accessor();
        let Some(work) = qp.sends.get_mut(self.cursor.work) else { return };
        if work.progress == Progress::Posted {
            let done = verbs.execute_local(accessor, &work.operation);
            work.progress = done.map_or_else(Progress::Failed, |()| Progress::Done);
        }
        if work.progress == Progress::Done {
            self.cursor.work += 1;
        }
        self.retire(context);
    }

    /// Completes a request that failed when it was posted, once all earlier ones are complete.
    #[inline]
    fn fail_unsendable<M: Memory>(&mut self, context: &mut Context<'_, M>) {
        let work = context.qp.sends.get(self.cursor.work);
        if context.qp.state == QpState::Rts
            && work.is_some_and(|work| matches!(work.progress, Progress::Failed(_)))
        {
            self.retire(context);
        }
    }

    /// Drops queued retransmissions of packets that were acknowledged, or have failed.
    #[inline]
    fn drop_needless_repeats(&mut self, qp: &QueuePair) {
        while let Some(psn) = self.repeats.front() {
            if !psn.before(self.unacked) && self.begun_at(qp, *psn).is_some() {
                return;
            }
            self.repeats.pop_front();
        }
    }

    /// Updates the state after a request packet was sent, which takes `packets` PSNs.
    #[inline]
    pub(super) fn request_sent<M: Memory>(
        &mut self,
        sent: &Outgoing,
        packets: u32,
        ends: bool,
        context: &mut Context<'_, M>,
    ) {
        let Context { qp, verbs, .. } = context;
        let Some(work) = qp.sends.get_mut(self.cursor.work) else { return };
        if work.progress == Progress::Posted {
            work.progress = Progress::Begun;
            self.spans.begin(self.cursor.work, self.next);
        }
        if sent.psn == self.next {
            self.next += packets;
            self.rd_atomic += u8::from(work.wants_response());
            if sent.ack_request {
                self.probe.packet_sent(sent.psn, verbs.now);
            }
        } else {
            verbs.counters.retransmitted += 1;
        }
        self.unrequested = if sent.ack_request { 0 } else { self.unrequested + 1 };
        self.cursor = match ends {
            true => Cursor { work: self.cursor.work + 1, packet: 0 },
            false => Cursor { packet: self.cursor.packet + packets, ..self.cursor },
        };
        if qp.kind.is_reliable() {
            if self.deadline.is_none() {
                self.restart_timer(qp, verbs.now);
            }
            if self.probe.due.is_none() {
                self.probe.restart(packets, verbs.now);
            }
        } else if ends {
            self.unacked = self.next;
            self.pop_send(Status::Success, context);
            self.retire(context);
        }
    }

    /// Records that the packet retransmitted alone was sent.
    pub(super) fn repeat_sent(&mut self) {
        self.repeats.pop_front();
    }

    /// Reports a sent packet of `len` bytes, of any kind, to the congestion controller.
    #[inline]
    pub(super) fn packet_sent(&mut self, len: usize, now: Instant) {
        self.control.sent(len, now);
    }

    /// Returns the recipient of the next datagram to send.
    #[inline]
    pub(super) fn recipient(&self, qp: &QueuePair) -> Option<Recipient> {
        qp.sends.get(self.cursor.work)?.recipient
    }

    /// Fails the send at the cursor, whose packet cannot be built. It completes after all earlier ones, so
    /// that completions stay in order.
    pub(super) fn request_failed<M: Memory>(&mut self, status: Status, context: &mut Context<'_, M>) {
        self.fail_at(self.cursor.work, status, context);
    }

    /// Handles a retransmission that cannot be built any more.
    pub(super) fn repeat_failed<M: Memory>(&mut self, index: usize, context: &mut Context<'_, M>) {
        self.repeats.clear();
        self.fail_at(index, Status::LocalProtection, context);
    }

    fn fail_at<M: Memory>(&mut self, index: usize, status: Status, context: &mut Context<'_, M>) {
        if let Some(work) = context.qp.sends.get_mut(index) {
            work.progress = Progress::Failed(status);
        }
        self.retire(context);
    }

    /// Handles a CNP.
    pub(super) fn congested(&mut self, now: Instant) {
        self.control.notified(serial(self.unacked), serial(self.next), now);
    }

    /// Starts no further request, and drops the outstanding ones.
    pub(super) fn stop(&mut self, qp: &mut QueuePair) {
        self.unacked = self.next;
        self.spans.clear();
        self.cursor = Cursor::default();
        (self.deadline, self.waiting_until) = (None, None);
        self.rd_atomic = 0;
        qp.drain = Drain::Running;
        self.repeats.clear();
        self.probe = Probe::default();
    }

    /// Returns true once after the send queue of a reliable connection has failed.
    pub(super) fn take_failure(&mut self) -> bool {
        std::mem::take(&mut self.failed)
    }
}

/// Returns true if packets of this send may be sent in the queue pair's state.
#[inline]
fn may_send(qp: &QueuePair, work: &SendWork) -> bool {
    match qp.state {
        QpState::Rts => true,
        QpState::Sqd => work.progress == Progress::Begun,
        QpState::Reset | QpState::Init | QpState::Rtr | QpState::Sqe | QpState::Err => false,
    }
}

fn control(shared: &RoceShared, first: Psn) -> Control {
    Control::new(&shared.config.congestion, &shared.environment.window, serial(first))
}
