//! A queue pair with the state of its transport.

use nichrome_wire::rdma::{IcrcCheck, Message, Psn, RcMessage};
use nichrome_wire::{Ecn, Instant};

use super::conversation::Conversation;
use super::dcqcn::ReactionPoint;
use super::ident::Identifications;
use super::packet::{Cause, Incoming, Outgoing, PayloadSource, Route};
use super::probe::Probe;
use super::requester::{Drain, Requester};
use super::responder::{Inbound, Responder};
use crate::config::{Config, Congestion, SelectiveRepeat};
use crate::core::access::Access;
use crate::core::completion::Status;
use crate::core::event::Event;
use crate::core::memory::Memory;
use crate::core::protection::Refusal;
use crate::core::send_queue::SendWork;
use crate::core::verbs::Verbs;
use crate::qp::attributes::{QpState, QpType};
use crate::qp::{QueuePair, Receives};

/// At most one congestion notification in so many nanoseconds (DCQCN, section 5.1).
const NOTIFICATION_INTERVAL: u64 = 50_000;

/// A queue pair on RoCEv2.
pub(crate) struct Connection {
    pub(crate) qp: QueuePair,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    /// Bytes of the longest message.
    pub(super) message_limit: u32,
    /// Whether lost packets are repeated one by one with peers that take it.
    pub(crate) selective: bool,
    /// Packets that are kept behind lost ones, for all queue pairs together.
    pub(super) held_limit: usize,
    /// How long acknowledgements wait for the program's answer, in nanoseconds.
    pub(super) acknowledgement_delay: u64,
    /// The rate that congestion has set.
    pub(super) paced: Option<Box<ReactionPoint>>,
    /// What is known of the peer's IPv4 identifications.
    identifications: Identifications,
    /// When the peer was told last that a packet of its was marked.
    notified: Option<Instant>,
}

impl Connection {
    pub(crate) fn new(qp: QueuePair, config: &Config) -> Self {
        Self {
            qp,
            requester: Requester::new(&config.window),
            responder: Responder::new(),
            message_limit: config.limits.message,
            selective: config.selective_repeat == SelectiveRepeat::Offered,
            held_limit: config.held_packets,
            acknowledgement_delay: config.acknowledgement_delay,
            paced: None,
            identifications: Identifications::default(),
            notified: None,
        }
    }

    /// Whether a packet with this verdict on its ICRC is to be taken. Datagrams come from anywhere, and show their key.
    #[inline]
    pub(crate) fn believes(&mut self, check: IcrcCheck, message: &Message, psn: Psn, now: Instant) -> bool {
        if self.qp.kind == QpType::Ud {
            return check != IcrcCheck::Wrong;
        }
        let (requester, expected) = (&self.requester, self.responder.expected);
        let in_sequence = || match message {
            Message::Rc(message) if is_answer(message) => {
                !psn.before(requester.unacked) && psn.before(requester.next)
            }
            _ => psn == expected,
        };
        self.identifications.accept(check, in_sequence, now)
    }

    /// Takes in a packet whose addresses, keys and CRC are right.
    #[inline]
    pub(crate) fn receive<M: Memory>(
        &mut self,
        message: Message,
        packet: &Incoming<'_>,
        config: &Config,
        verbs: &mut Verbs<M>,
    ) {
        if packet.traffic_class.ecn() == Ecn::Ce {
            self.marked(verbs);
        }
        match (self.qp.kind, message) {
            (QpType::Rc, Message::Rc(message)) if is_answer(&message) => {
                self.receive_answer(message, packet, &config.window, verbs);
            }
            (QpType::Rc, Message::Rc(message)) => self.receive_request(message, packet, verbs),
            (QpType::Uc, Message::Uc(message)) => self.receive_unreliable(message, packet, verbs),
            (QpType::Ud, Message::Ud(deth, immediate)) => {
                self.receive_datagram(deth, immediate, packet, verbs);
            }
            (QpType::Rc | QpType::Uc, Message::CongestionNotification) => {
                verbs.counters.congestion_notifications_received += 1;
                self.congested(&config.congestion, verbs.now);
            }
            _ => verbs.counters.dropped_unknown += 1,
        }
    }

    /// A packet came with a congestion mark: its sender is told, but not each time.
    fn marked<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        verbs.counters.congestion_marks += 1;
        let due = self.notified.is_none_or(|last| verbs.now.nanos_since(last) >= NOTIFICATION_INTERVAL);
        if due && self.qp.kind != QpType::Ud {
            self.notified = Some(verbs.now);
            self.responder.answers.notification = true;
        }
    }

    /// Packets of ours were marked on their way.
    fn congested(&mut self, congestion: &Congestion, now: Instant) {
        match congestion {
            Congestion::Window => {
                let (psn, next) = (self.requester.unacked, self.requester.next);
                self.requester.window.lost(psn, next);
            }
            Congestion::Dcqcn(dcqcn) => {
                let point = self.paced.get_or_insert_with(|| Box::new(ReactionPoint::new(dcqcn, now)));
                point.advance(dcqcn, now);
                point.notified(dcqcn, now);
            }
        }
    }

    /// The packet that is to leave next.
    #[inline]
    pub(crate) fn next_packet(&self, config: &Config, now: Instant) -> Option<Outgoing> {
        let answer = self.next_answer(now);
        if answer.is_some() || self.paced.as_ref().is_some_and(|point| point.free_at() > now) {
            return answer;
        }
        self.next_repeat(&config.window).or_else(|| self.next_request(&config.window))
    }

    /// Whether there may be something to send.
    #[inline]
    pub(crate) fn has_work(&self, now: Instant) -> bool {
        let sendable = matches!(self.qp.state, QpState::Rts | QpState::Sqd);
        !self.responder.answers.is_empty() && !self.is_holding(now)
            || !self.responder.reorder.missing.is_empty()
            || sendable
                && (self.qp.sends.get(self.requester.cursor.work).is_some()
                    || !self.requester.repeats.is_empty())
    }

    /// Does what needs no packet.
    #[inline]
    pub(crate) fn run<M: Memory>(&mut self, config: &Config, verbs: &mut Verbs<M>) {
        self.run_local(verbs);
        self.skip_needless_repeats();
        self.responder.reorder.prune(self.responder.expected);
        if let (Some(point), Congestion::Dcqcn(dcqcn)) = (&mut self.paced, &config.congestion)
            && !point.advance(dcqcn, verbs.now)
        {
            self.paced = None;
        }
    }

    /// The way of a packet; `None` where the program has destroyed it.
    #[inline]
    pub(crate) fn route_of<M: Memory>(&self, config: &Config, verbs: &Verbs<M>) -> Option<Route> {
        if self.qp.kind != QpType::Ud {
            return self.qp.route;
        }
        let recipient = self.qp.sends.get(self.requester.cursor.work)?.recipient?;
        let address = verbs.addresses.get(recipient.address)?;
        config.route(&address.vector)
    }

    /// Fills in the payload of a packet.
    #[inline]
    pub(crate) fn fill<M: Memory>(
        &self,
        packet: &Outgoing,
        into: &mut [u8],
        verbs: &Verbs<M>,
    ) -> Result<(), Refusal> {
        match packet.payload {
            PayloadSource::Nothing => Ok(()),
            PayloadSource::Send { source, offset } => {
                let pieces = self.qp.sends.pieces(source, offset, into.len() as u32);
                verbs.gather(self.qp.domain, pieces, into)
            }
            PayloadSource::Remote { address, rkey } => {
                if into.is_empty() {
                    return Ok(());
                }
                let (asker, len) = (self.qp.asker(), into.len() as u64);
                let at = verbs.protection.remote(asker, rkey, address, len, Access::REMOTE_READ)?;
                verbs.memory.read(at, into).map_err(|_| Refusal::Bounds)
            }
        }
    }

    /// A packet has left.
    #[inline]
    pub(crate) fn sent<M: Memory>(
        &mut self,
        packet: &Outgoing,
        len: usize,
        config: &Config,
        verbs: &mut Verbs<M>,
    ) {
        verbs.counters.sent += 1;
        verbs.counters.bytes_sent += packet.payload_len as u64;
        if let (Some(point), Congestion::Dcqcn(dcqcn)) = (&mut self.paced, &config.congestion) {
            point.sent(len, dcqcn, verbs.now);
        }
        match packet.cause {
            Cause::Request { packets, ends } => {
                self.responder.conversation.answered(self.acknowledgement_delay, verbs.now);
                self.request_sent(packet, packets, ends, verbs);
            }
            Cause::Repeat { .. } => {
                verbs.counters.retransmitted += 1;
                self.requester.repeats.pop_front();
            }
            Cause::Data { index } => self.data_sent(index, packet.psn),
            Cause::Missing => {
                verbs.counters.sequence_naks_sent += 1;
                self.responder.reorder.missing.pop_front();
            }
            Cause::Acknowledgement => {
                self.responder.answers.acknowledgement = None;
                self.responder.conversation.acknowledged(verbs.now);
            }
            Cause::Notification => {
                verbs.counters.congestion_notifications_sent += 1;
                self.responder.answers.notification = false;
            }
        }
    }

    /// A packet could not be made, because its memory is out of reach.
    pub(crate) fn failed<M: Memory>(&mut self, packet: &Outgoing, verbs: &mut Verbs<M>) {
        match packet.cause {
            Cause::Request { .. } => self.request_failed(Status::LocalProtection, verbs),
            Cause::Repeat { work } => self.repeat_failed(work, verbs),
            Cause::Data { .. } => {
                self.data_failed(packet.psn);
                verbs.events.push_back(Event::QpAccessError(self.qp.handle));
                self.enter_error(verbs);
            }
            Cause::Acknowledgement | Cause::Missing | Cause::Notification => self.drop_answers(verbs),
        }
    }

    /// When time alone changes something.
    #[inline]
    pub(crate) fn next_timeout(&self, now: Instant) -> Option<Instant> {
        let requester = &self.requester;
        let paced = self.paced.as_ref().map(|point| point.free_at());
        let paced = paced.filter(|free_at| *free_at > now && self.has_work(now));
        let held = self.responder.conversation.held(now);
        let all = [requester.deadline, requester.waiting_until, requester.probe.due, paced, held];
        all.into_iter().flatten().min()
    }

    /// Does what is due.
    pub(crate) fn handle_timeout<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        if self.requester.waiting_until.is_some_and(|until| until <= verbs.now) {
            self.requester.waiting_until = None;
            self.restart_timer(verbs.now);
        }
        if self.requester.probe.due.is_some_and(|due| due <= verbs.now) {
            self.probe(verbs);
        }
        if self.requester.deadline.is_some_and(|deadline| deadline <= verbs.now) {
            self.timed_out(verbs);
        }
    }

    /// Adds a request whose form has been checked.
    pub(crate) fn push_send<M: Memory>(&mut self, mut work: SendWork, verbs: &mut Verbs<M>) {
        work.packets = work.len.div_ceil(self.qp.mtu() as u32).max(1);
        self.qp.sends.push(work);
        match self.qp.state {
            QpState::Err | QpState::Sqe => self.qp.flush_sends(verbs),
            QpState::Reset | QpState::Init | QpState::Rtr | QpState::Rts | QpState::Sqd => {}
        }
    }

    /// The send queue cannot go on: with a reliable connection, neither can the rest.
    pub(crate) fn send_queue_error<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        if self.qp.kind == QpType::Rc {
            return self.enter_error(verbs);
        }
        self.qp.state = QpState::Sqe;
        self.stop_sending();
        self.qp.flush_sends(verbs);
    }

    /// All that waits is flushed; what was to be told is still told.
    pub(crate) fn enter_error<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        let entered = self.qp.state != QpState::Err;
        self.qp.state = QpState::Err;
        self.stop_sending();
        self.responder.inbound = Inbound::Nothing;
        self.responder.answers.drop_data();
        self.responder.reorder.clear(&mut verbs.spare);
        self.qp.flush(verbs);
        if entered && matches!(self.qp.receives, Receives::Shared(_)) {
            verbs.events.push_back(Event::LastReceiveReached(self.qp.handle));
        }
    }

    fn stop_sending(&mut self) {
        let requester = &mut self.requester;
        requester.unacked = requester.next;
        requester.cursor = super::requester::Cursor::default();
        (requester.deadline, requester.waiting_until) = (None, None);
        (requester.rd_atomic, requester.drain) = (0, Drain::Running);
        requester.repeats.clear();
        requester.probe = Probe::default();
        self.paced = None;
    }

    /// There is no way to tell the peer anything.
    pub(crate) fn drop_answers<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        self.responder.answers.clear();
        self.responder.conversation = Conversation::default();
        self.responder.reorder.clear(&mut verbs.spare);
    }

    /// Ready to receive from this number on.
    pub(crate) fn receive_from(&mut self, psn: Psn) {
        self.responder.expected = psn;
    }

    /// Ready to send from this number on.
    pub(crate) fn send_from(&mut self, psn: Psn) {
        (self.requester.next, self.requester.unacked) = (psn, psn);
        self.requester.retries = self.qp.settings.retry_count;
        self.requester.rnr_retries = self.qp.settings.rnr_retry;
    }

    /// Begins to drain the send queue.
    pub(crate) fn drain<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        if self.requester.drain == Drain::Running {
            self.requester.drain = Drain::Draining;
            self.tell_drained(verbs);
        }
    }

    /// Whether requests are outstanding although the send queue drains.
    pub(crate) fn is_draining(&self) -> bool {
        self.requester.drain == Drain::Draining
    }

    /// The send queue goes on after it was drained.
    pub(crate) fn resume(&mut self) {
        self.requester.drain = Drain::Running;
    }

    /// Completions are lost: the program cannot know any more how its requests ended.
    pub(crate) fn lost_completions<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        if self.qp.state != QpState::Err {
            self.enter_error(verbs);
            verbs.events.push_back(Event::QpFatal(self.qp.handle));
        }
        self.qp.fatal = false;
    }
}

fn is_answer(message: &RcMessage) -> bool {
    matches!(
        message,
        RcMessage::Acknowledge(_) | RcMessage::ReadResponse(_) | RcMessage::AtomicAcknowledge(..)
    )
}
