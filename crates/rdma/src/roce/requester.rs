//! Which request packet leaves next, and what its leaving changes.
//!
//! | rule | where |
//! |---|---|
//! | requests begin in order, none while the send queue drains | [`Connection::next_request`] |
//! | a fenced request waits for READs and atomics before it (IBA 10.8.3.3) | [`Connection::may_begin`] |
//! | at most max_rd_atomic READ requests and atomics outstanding | [`Connection::may_begin`] |
//! | at most a window of packets outstanding, READ responses included | [`Connection::within_window`] |
//! | every message's last packet asks for an acknowledgement, and so does the last that the window lets out | [`Connection::next_request`] |

use std::collections::VecDeque;

use nichrome_wire::Instant;
use nichrome_wire::rdma::{AtomicEth, Deth, Message, Part, Psn, RcMessage, Reth, SendEnd, UcMessage};

use super::connection::Connection;
use super::packet::{Cause, Outgoing, PayloadSource};
use super::probe::Probe;
use super::window::CongestionWindow;
use crate::config::SendWindow;
use crate::core::completion::Status;
use crate::core::memory::Memory;
use crate::core::protection::Invalidator;
use crate::core::send_queue::{Progress, SendWork};
use crate::core::verbs::Verbs;
use crate::core::work::{Operation, Recipient, Remote, SendFlags};
use crate::qp::attributes::{QpState, QpType};

/// After so many packets that asked for no acknowledgement, one does.
const ACK_EVERY: u32 = 16;

/// The requester's side of a queue pair.
pub(crate) struct Requester {
    /// The number of the first packet that was never sent.
    pub(crate) next: Psn,
    /// The oldest packet that is not acknowledged.
    pub(crate) unacked: Psn,
    /// What is sent next, again or for the first time.
    pub(crate) cursor: Cursor,
    /// READ requests and atomics that are outstanding.
    pub(crate) rd_atomic: u8,
    /// Repetitions left until something is acknowledged.
    pub(crate) retries: u8,
    pub(crate) rnr_retries: u8,
    /// The peer had no receive: nothing is sent until then.
    pub(crate) waiting_until: Option<Instant>,
    /// No answer by then means that something was lost.
    pub(crate) deadline: Option<Instant>,
    /// Packets since the last that asked for an acknowledgement.
    unrequested: u32,
    /// A gap is being repaired: more news of it change nothing.
    pub(crate) recovering: bool,
    pub(crate) window: CongestionWindow,
    pub(crate) drain: Drain,
    /// Packets that the peer has told to be missing, each by itself.
    pub(crate) repeats: VecDeque<Psn>,
    pub(crate) probe: Probe,
}

/// A place in the send queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// Sends before it.
    pub(crate) work: usize,
    /// Packets of that send before it.
    pub(crate) packet: u32,
}

/// What is known of the draining of a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drain {
    Running,
    Draining,
    Drained,
}

impl Requester {
    pub(crate) fn new(window: &SendWindow) -> Self {
        Self {
            next: Psn::new(0),
            unacked: Psn::new(0),
            cursor: Cursor::default(),
            rd_atomic: 0,
            retries: 0,
            rnr_retries: 0,
            waiting_until: None,
            deadline: None,
            unrequested: 0,
            recovering: false,
            window: CongestionWindow::new(window),
            drain: Drain::Running,
            repeats: VecDeque::new(),
            probe: Probe::default(),
        }
    }

    /// Packets that were sent and are not acknowledged, responses to READs included.
    pub(crate) fn outstanding(&self) -> u32 {
        self.next.since(self.unacked).unsigned_abs()
    }
}

/// The part of a send that one packet carries.
struct Cut {
    offset: u32,
    len: u32,
    starts: bool,
    ends: bool,
    /// Packet numbers that it takes.
    packets: u32,
}

impl Connection {
    /// The request packet that is to leave next.
    #[inline]
    pub(super) fn next_request(&self, window: &SendWindow) -> Option<Outgoing> {
        let Cursor { work: index, packet } = self.requester.cursor;
        let work = self.qp.sends.get(index)?;
        if work.is_local() || self.requester.waiting_until.is_some() || !self.may_send(work) {
            return None;
        }
        let cut = self.cut(work, packet, window);
        let psn = match work.progress {
            Progress::Begun => work.first_psn + packet,
            Progress::Posted => self.requester.next,
            Progress::Done | Progress::Failed(_) => return None,
        };
        let first_time = psn == self.requester.next;
        if first_time && !self.may_begin(work, packet) || !self.within_window(psn, cut.packets) {
            return None;
        }
        let message = self.message(work, &cut)?;
        let payload = match work.operation {
            Operation::Read(_) | Operation::CompareSwap { .. } | Operation::FetchAdd { .. } => {
                PayloadSource::Nothing
            }
            _ => PayloadSource::Send { source: work.source, offset: cut.offset },
        };
        let payload_len = if payload == PayloadSource::Nothing { 0 } else { cut.len as usize };
        let ack_request = self.qp.kind == QpType::Rc
            && (cut.ends
                || self.requester.unrequested + 1 >= ACK_EVERY
                || !self.within_window(psn + cut.packets, 1));
        let solicited = cut.ends && work.flags.contains(SendFlags::SOLICITED) && work.reaches_a_receive();
        let cause = Cause::Request { packets: cut.packets, ends: cut.ends };
        Some(Outgoing { message, psn, ack_request, solicited, payload, payload_len, cause })
    }

    /// The packet that is to be repeated by itself.
    pub(super) fn next_repeat(&self, window: &SendWindow) -> Option<Outgoing> {
        let psn = *self.requester.repeats.front()?;
        let index = self.begun_at(psn)?;
        let work = self.qp.sends.get(index)?;
        if self.requester.waiting_until.is_some() || !self.may_send(work) {
            return None;
        }
        let cut = self.cut(work, psn.since(work.first_psn).unsigned_abs(), window);
        let message = self.message(work, &cut)?;
        let (payload, payload_len) = match work.wants_data() {
            true => (PayloadSource::Nothing, 0),
            false => {
                let source = PayloadSource::Send { source: work.source, offset: cut.offset };
                (source, cut.len as usize)
            }
        };
        let solicited = cut.ends && work.flags.contains(SendFlags::SOLICITED) && work.reaches_a_receive();
        let cause = Cause::Repeat { work: index };
        Some(Outgoing { message, psn, ack_request: true, solicited, payload, payload_len, cause })
    }

    /// The send that this packet number belongs to, if it was begun.
    pub(super) fn begun_at(&self, psn: Psn) -> Option<usize> {
        let works = (0..).map_while(|index| self.qp.sends.get(index));
        works.enumerate().find_map(|(index, work)| {
            let within = work.progress == Progress::Begun
                && !psn.before(work.first_psn)
                && !psn.after(work.last_psn());
            within.then_some(index)
        })
    }

    /// What has been acknowledged, or has failed, is not repeated.
    #[inline]
    pub(super) fn skip_needless_repeats(&mut self) {
        while let Some(psn) = self.requester.repeats.front() {
            if !psn.before(self.requester.unacked) && self.begun_at(*psn).is_some() {
                return;
            }
            self.requester.repeats.pop_front();
        }
    }

    /// A packet that was to be repeated cannot be made any more.
    pub(super) fn repeat_failed<M: Memory>(&mut self, index: usize, verbs: &mut Verbs<M>) {
        self.requester.repeats.clear();
        if let Some(work) = self.qp.sends.get_mut(index) {
            work.progress = Progress::Failed(Status::LocalProtection);
        }
        self.retire(verbs);
    }

    /// Whether the state lets this send's packets out.
    #[inline]
    fn may_send(&self, work: &SendWork) -> bool {
        match self.qp.state {
            QpState::Rts => true,
            QpState::Sqd => work.progress == Progress::Begun,
            QpState::Reset | QpState::Init | QpState::Rtr | QpState::Sqe | QpState::Err => false,
        }
    }

    /// Whether a packet of this send may leave that has never left.
    #[inline]
    fn may_begin(&self, work: &SendWork, packet: u32) -> bool {
        let outstanding = self.requester.rd_atomic;
        let fenced = packet == 0 && work.flags.contains(SendFlags::FENCE) && outstanding > 0;
        !fenced && (!work.wants_data() || outstanding < self.qp.settings.max_rd_atomic)
    }

    /// Whether the window has room for so many packets from this one on. There is always room for one request.
    #[inline]
    fn within_window(&self, psn: Psn, packets: u32) -> bool {
        let ahead = psn.since(self.requester.unacked).unsigned_abs();
        self.qp.kind != QpType::Rc || ahead == 0 || ahead + packets <= self.requester.window.size()
    }

    /// What the packet at this place of a send carries. A READ is asked for in parts that end at multiples of
    /// `window.read` packets, also when it is repeated: the peer then finds each within a request that it knows.
    #[inline]
    fn cut(&self, work: &SendWork, packet: u32, window: &SendWindow) -> Cut {
        let mtu = self.qp.mtu() as u32;
        let last = work.packets - 1;
        match work.operation {
            Operation::Read(_) => {
                let end = ((packet / window.read + 1) * window.read).min(work.packets);
                let offset = packet * mtu;
                let len = work.len.min(end.saturating_mul(mtu)) - offset;
                Cut { offset, len, starts: packet == 0, ends: end == work.packets, packets: end - packet }
            }
            Operation::CompareSwap { .. } | Operation::FetchAdd { .. } => {
                Cut { offset: 0, len: work.len, starts: true, ends: true, packets: 1 }
            }
            _ => {
                let offset = packet * mtu;
                let len = (work.len - offset).min(mtu);
                Cut { offset, len, starts: packet == 0, ends: packet == last, packets: 1 }
            }
        }
    }

    #[inline]
    fn message(&self, work: &SendWork, cut: &Cut) -> Option<Message> {
        match self.qp.kind {
            QpType::Rc => rc_message(work, cut).map(Message::Rc),
            QpType::Uc => uc_message(work, cut).map(Message::Uc),
            QpType::Ud => self.datagram(work),
        }
    }

    fn datagram(&self, work: &SendWork) -> Option<Message> {
        let immediate = match work.operation {
            Operation::Send => None,
            Operation::SendWithImmediate(immediate) => Some(immediate),
            _ => return None,
        };
        let Recipient { qkey, .. } = work.recipient?;
        // A key with the top bit set stands for the queue pair's own (IBA 10.2.5).
        let qkey = if qkey.0 >> 31 == 1 { self.qp.settings.qkey } else { qkey };
        Some(Message::Ud(Deth { qkey, src_qp: self.qp.number }, immediate))
    }

    /// A request packet has left.
    #[inline]
    pub(super) fn request_sent<M: Memory>(
        &mut self,
        sent: &Outgoing,
        packets: u32,
        ends: bool,
        verbs: &mut Verbs<M>,
    ) {
        let requester = &mut self.requester;
        let Some(work) = self.qp.sends.get_mut(requester.cursor.work) else { return };
        if work.progress == Progress::Posted {
            (work.progress, work.first_psn) = (Progress::Begun, requester.next);
        }
        if sent.psn == requester.next {
            requester.next += packets;
            requester.rd_atomic += u8::from(work.wants_data());
            if sent.ack_request {
                requester.probe.packet_sent(sent.psn, verbs.now);
            }
        } else {
            verbs.counters.retransmitted += 1;
        }
        requester.unrequested = if sent.ack_request { 0 } else { requester.unrequested + 1 };
        requester.cursor = match ends {
            true => Cursor { work: requester.cursor.work + 1, packet: 0 },
            false => Cursor { packet: requester.cursor.packet + packets, ..requester.cursor },
        };
        if self.qp.kind == QpType::Rc {
            if self.requester.deadline.is_none() {
                self.restart_timer(verbs.now);
            }
            if self.requester.probe.due.is_none() {
                self.requester.probe.restart(packets, verbs.now);
            }
        } else if ends {
            self.requester.unacked = self.requester.next;
            self.pop_send(Status::Success, verbs);
        }
    }

    /// Does the requests for the device itself that have their turn.
    #[inline]
    pub(super) fn run_local<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        while let Some(work) = self.qp.sends.get(self.requester.cursor.work)
            && work.is_local()
            && self.local_may_run(work)
        {
            self.run_one_local(verbs);
        }
    }

    /// A key is invalidated when all before it is complete (IBA 10.6.5.1); a bind waits where it is fenced.
    fn local_may_run(&self, work: &SendWork) -> bool {
        let fenced = match work.operation {
            Operation::LocalInvalidate(_) => self.requester.cursor.work > 0,
            _ => work.flags.contains(SendFlags::FENCE) && self.requester.rd_atomic > 0,
        };
        self.qp.state == QpState::Rts && self.requester.waiting_until.is_none() && !fenced
    }

    fn run_one_local<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        let asker = self.qp.asker();
        let Some(work) = self.qp.sends.get_mut(self.requester.cursor.work) else { return };
        self.requester.cursor.work += 1;
        if work.progress == Progress::Posted {
            let done = match work.operation {
                Operation::LocalInvalidate(key) => {
                    let done = verbs.protection.invalidate(asker, key, Invalidator::Program);
                    done.map_err(|_| Status::LocalQpOperation)
                }
                Operation::BindWindow(bind) => {
                    verbs.protection.bind(asker, bind).map(drop).map_err(|_| Status::WindowBind)
                }
                _ => Ok(()),
            };
            match done {
                Ok(()) => work.progress = Progress::Done,
                Err(status) => self.fail_at_cursor(status),
            }
        }
        self.retire(verbs);
    }

    fn fail_at_cursor(&mut self, status: Status) {
        self.requester.cursor.work -= 1;
        if let Some(work) = self.qp.sends.get_mut(self.requester.cursor.work) {
            work.progress = Progress::Failed(status);
        }
    }

    /// The packet at the cursor could not be made, for a reason of our own: the send fails when those before it are
    /// complete, so that completions stay in order.
    pub(crate) fn request_failed<M: Memory>(&mut self, status: Status, verbs: &mut Verbs<M>) {
        if let Some(work) = self.qp.sends.get_mut(self.requester.cursor.work) {
            work.progress = Progress::Failed(status);
        }
        self.retire(verbs);
    }
}

impl SendWork {
    /// Whether its end completes a receive at the peer.
    fn reaches_a_receive(&self) -> bool {
        matches!(
            self.operation,
            Operation::Send
                | Operation::SendWithImmediate(_)
                | Operation::SendWithInvalidate(_)
                | Operation::WriteWithImmediate(..)
        )
    }
}

fn rc_message(work: &SendWork, cut: &Cut) -> Option<RcMessage> {
    let send = |end| RcMessage::Send(Part::new(cut.starts.then_some(()), cut.ends.then_some(end)));
    let write = |remote: Remote, end| {
        let reth = Reth { va: remote.address, rkey: remote.rkey, len: work.len };
        RcMessage::Write(Part::new(cut.starts.then_some(reth), cut.ends.then_some(end)))
    };
    Some(match work.operation {
        Operation::Send => send(SendEnd::Plain),
        Operation::SendWithImmediate(immediate) => send(SendEnd::Immediate(immediate)),
        Operation::SendWithInvalidate(key) => send(SendEnd::Invalidate(key)),
        Operation::Write(remote) => write(remote, None),
        Operation::WriteWithImmediate(remote, immediate) => write(remote, Some(immediate)),
        Operation::Read(remote) => {
            let va = remote.address.wrapping_add(u64::from(cut.offset));
            RcMessage::ReadRequest(Reth { va, rkey: remote.rkey, len: cut.len })
        }
        Operation::CompareSwap { remote, compare, swap } => {
            let Remote { address: va, rkey } = remote;
            RcMessage::CompareSwap(AtomicEth { va, rkey, swap_or_add: swap, compare })
        }
        Operation::FetchAdd { remote, add } => {
            let Remote { address: va, rkey } = remote;
            RcMessage::FetchAdd(AtomicEth { va, rkey, swap_or_add: add, compare: 0 })
        }
        Operation::LocalInvalidate(_) | Operation::BindWindow(_) => return None,
    })
}

fn uc_message(work: &SendWork, cut: &Cut) -> Option<UcMessage> {
    let send = |end| UcMessage::Send(Part::new(cut.starts.then_some(()), cut.ends.then_some(end)));
    let write = |remote: Remote, end| {
        let reth = Reth { va: remote.address, rkey: remote.rkey, len: work.len };
        UcMessage::Write(Part::new(cut.starts.then_some(reth), cut.ends.then_some(end)))
    };
    Some(match work.operation {
        Operation::Send => send(None),
        Operation::SendWithImmediate(immediate) => send(Some(immediate)),
        Operation::Write(remote) => write(remote, None),
        Operation::WriteWithImmediate(remote, immediate) => write(remote, Some(immediate)),
        _ => return None,
    })
}
