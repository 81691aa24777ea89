//! The server's driver: software in the host of the stateless card, with what a connection needs of it.
//!
//! Requests of the program become WQEPs; the client does the work and tells of it in CQEPs. The driver sends again what was
//! lost of either (section 3.3 of the paper, "Handling WQE loss"). It tells elements by its own running numbers, so that a
//! completion needs no search; what the program calls them stays here.
//!
//! `requests.rs` has how requests become elements, `completions.rs` what completions do.
//!
//! | case | here |
//! |---|---|
//! | a buffer of a send is not in a region of the program's | it fails in its turn, and is not told (3.2, "Security mechanism") |
//! | no EA, or, while sends wait for their completion, no sign of life for the time and the retries of the queue pair | the oldest send fails, the rest is flushed |
//! | error | the client is told; all is flushed when it knows, or when it is given up: nothing reaches a flushed buffer |

use std::collections::VecDeque;

use nichrome_wire::SeqNumber;
use nichrome_wire::rdma::QpNumber;
use nichrome_wire::star::{Element, Flags, Message, Repr, Request, Segment, Stamp, StatusCode};
use nichrome_wire::{Ecn, Instant};

use super::elements::{Inbox, Outbox};
use super::packet::{Cause, Impossible, Incoming, Outgoing};
use super::seal::Seal;
use super::security::Blocked;
use super::setup::Offer;
use super::shared::StarShared;
use super::side::Side;
use super::tag::stamp_of;
use super::time::count;
use super::timer::{Awaited, Expiry};
use crate::core::attributes::QpState;
use crate::core::cq::Urgency;
use crate::core::drain::Drain;
use crate::core::memory::Memory;
use crate::core::queue_pair::{QueuePair, Receives};
use crate::core::send_queue::{Pieces, Progress, SendWork};
use crate::core::verbs::Verbs;
use crate::core::work::Sge;
use crate::net::Route;

/// Something that the client is told.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entry {
    /// The send with this number.
    Send(u64),
    /// The receive with this number.
    Receive(u64),
    /// Something else.
    Control(Element),
}

/// Requests of one queue that were told and have not completed.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The numbers of their elements.
    pub(super) elements: VecDeque<SeqNumber>,
    /// How many have completed so far.
    pub(super) done: u64,
}

/// How far the driver is with closing the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    Open,
    /// The client is to acknowledge the element with this number.
    Told(SeqNumber),
    Closed,
}

/// A queue pair whose own card keeps no state.
pub(crate) struct Driver {
    pub(super) qp: QueuePair,
    pub(super) route: Option<Route>,
    /// The client's number of the connection.
    peer: QpNumber,
    seal: Seal,
    /// CQEPs.
    inbox: Inbox,
    /// WQEPs.
    pub(super) outbox: Outbox<Entry>,
    pub(super) sends: Told,
    pub(super) receives: Told,
    /// The client is to show that it lives.
    ping: bool,
    pub(super) closing: Closing,
}

impl Driver {
    /// The connection that set-up has brought about.
    pub(super) fn new(qp: QueuePair, route: Option<Route>, ours: &Offer, theirs: &Offer, seal: Seal) -> Self {
        Self {
            qp,
            route,
            peer: theirs.connection,
            seal,
            inbox: Inbox::new(theirs.first_element),
            outbox: Outbox::new(ours.first_element),
            sends: Told::default(),
            receives: Told::default(),
            ping: false,
            closing: Closing::Open,
        }
    }

    fn is_up(&self) -> bool {
        let state = matches!(self.qp.state, QpState::Rtr | QpState::Rts | QpState::Sqd);
        state && self.closing == Closing::Open
    }

    /// What is waited for.
    fn awaited(&self) -> Awaited {
        match self.outbox.outstanding() {
            Awaited::Nothing if !self.sends.elements.is_empty() && self.is_up() => Awaited::Life,
            awaited => awaited,
        }
    }

    /// Memory was registered, or is no longer.
    pub(super) fn push_element(&mut self, element: Element) {
        if self.closing == Closing::Open {
            self.outbox.push(Entry::Control(element));
        }
    }

    /// A send that failed here has its turn when those before it are complete.
    pub(super) fn retire<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        let failed = self.qp.sends.front().map(|work| work.progress);
        if let Some(Progress::Failed(status)) = failed.filter(|_| self.sends.elements.is_empty()) {
            self.pop_send(status, verbs);
            self.enter_error(verbs);
        }
        self.check_drained(verbs);
    }

    /// Whether there may be something to send.
    pub(super) fn has_work(&self) -> bool {
        let untold_receive = || match &self.qp.receives {
            Receives::Own(queue) => queue.len() > self.receives.elements.len(),
            Receives::Shared(_) => false,
        };
        let untold_send = || self.qp.sends.len() > self.sends.elements.len();
        let waits = self.inbox.due || self.ping || self.outbox.next().is_some();
        waits || self.is_up() && (untold_receive() || untold_send())
    }

    /// When time alone changes something.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.outbox.timer.due()
    }

    /// Does what is due.
    pub(super) fn handle_timeout<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        let (settings, now) = (self.qp.settings, verbs.now);
        let Some(expiry) = self.outbox.timer.expire(&settings, now) else { return };
        count(expiry, verbs);
        if expiry == Expiry::GivenUp {
            return self.client_is_silent(verbs);
        }
        match self.outbox.outstanding() {
            Awaited::Answer => self.outbox.repeat(),
            _ => self.ping = true,
        }
        self.outbox.timer.start(self.awaited(), &settings, now);
    }

    /// The client gives no sign of life: what was asked of it fails.
    fn client_is_silent<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        self.outbox.clear();
        match self.closing {
            Closing::Open => {
                self.closing = Closing::Closed;
                self.fail_closed(verbs);
            }
            Closing::Told(_) | Closing::Closed => self.close_now(verbs),
        }
    }

    /// Adds a request whose form has been checked.
    pub(super) fn post_send<M: Memory>(&mut self, work: SendWork, verbs: &mut Verbs<M>) {
        self.qp.sends.push(work);
        if self.qp.state == QpState::Err && self.closing == Closing::Closed {
            self.qp.flush_sends(verbs);
        }
        self.fail_closed(verbs);
    }

    /// The client is to be told once more what completions have come.
    pub(super) fn repeat_acknowledgement(&mut self) {
        self.inbox.due |= self.closing == Closing::Open;
    }

    /// Whether all is over with this connection.
    pub(super) fn is_closed(&self) -> bool {
        self.closing == Closing::Closed
    }

    /// Nothing more is begun; the client is told, and when it knows, all that waits is flushed.
    pub(super) fn enter_error<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        let was_connected = matches!(self.qp.state, QpState::Rtr | QpState::Rts | QpState::Sqd);
        self.qp.state = QpState::Err;
        self.qp.drain = Drain::Running;
        if !was_connected || self.closing != Closing::Open {
            return self.close_now(verbs);
        }
        self.outbox.withdraw();
        let end = self.outbox.next_number();
        for told in [&mut self.sends, &mut self.receives] {
            while told.elements.back().is_some_and(|element| !element.before(end)) {
                told.elements.pop_back();
            }
        }
        let close = self.outbox.push(Entry::Control(Element::Close(StatusCode::FLUSHED)));
        self.closing = Closing::Told(close);
    }

    fn check_closed<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        if let Closing::Told(close) = self.closing
            && self.outbox.is_acknowledged(close)
        {
            self.close_now(verbs);
        }
    }

    /// The client knows, or is given up: all that waits is flushed.
    pub(super) fn close_now<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        self.closing = Closing::Closed;
        self.qp.state = QpState::Err;
        self.outbox.clear();
        (self.ping, self.qp.drain) = (false, Drain::Running);
        self.sends.elements.clear();
        self.receives.elements.clear();
        self.qp.flush(verbs);
    }

    /// The last word, before the queue pair is destroyed.
    fn farewell(&self) -> Option<Repr> {
        let message = Message::Wqep(Element::Close(StatusCode::FLUSHED));
        let sequence = self.outbox.next_number();
        let repr = Repr { flags: Flags::NONE, connection: self.peer, sequence, message };
        self.is_up().then_some(repr)
    }

    /// Reports that the send queue has drained, if it has.
    pub(super) fn check_drained<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        self.qp.check_drained(!self.sends.elements.is_empty(), verbs);
    }

    /// Ends the connection without waiting for the client, which is told once.
    pub(super) fn dissolve(self, shared: &mut StarShared, now: Instant) -> QueuePair {
        if let Some((repr, route)) = self.farewell().zip(self.route.as_ref()) {
            let route = shared.route_of(route, false);
            shared.card.push(repr, &self.seal, route, now);
        }
        shared.stateless -= 1;
        self.qp
    }
}

impl<M: Memory> Side<M> for Driver {
    fn route(&self) -> Option<&Route> {
        self.route.as_ref()
    }

    fn seal(&self) -> &Seal {
        &self.seal
    }

    fn stamp(&self, now: Instant) -> Stamp {
        stamp_of(now)
    }

    fn receive(&mut self, packet: &Incoming<'_>, _: &mut StarShared, verbs: &mut Verbs<M>) {
        if matches!(self.qp.state, QpState::Reset | QpState::Init) {
            verbs.counters.dropped_state += 1;
            return;
        }
        if packet.ecn == Ecn::Ce {
            verbs.counters.congestion_marks += 1;
        }
        let sequence = packet.repr.sequence;
        let news = match packet.repr.message {
            Message::Ea if packet.repr.flags.contains(Flags::TO_SERVER) => {
                self.outbox.acknowledged(sequence, verbs.now)
            }
            Message::Cqep(cqe) => {
                let urgency = match packet.repr.flags.contains(Flags::SOLICITED) {
                    true => Urgency::Solicited,
                    false => Urgency::Plain,
                };
                if sequence != self.inbox.expected() {
                    verbs.counters.duplicates += 1;
                } else if !self.completed(&cqe, urgency, verbs) {
                    return;
                }
                self.inbox.take(sequence)
            }
            _ => {
                verbs.counters.dropped_unknown += 1;
                return;
            }
        };
        let awaited = self.awaited();
        if news || awaited == Awaited::Life {
            self.outbox.timer.progress(awaited, &self.qp.settings, verbs.now);
        }
        self.check_closed(verbs);
    }

    fn run(&mut self, _: &mut StarShared, verbs: &mut Verbs<M>) {
        if !self.is_up() {
            return;
        }
        if let Receives::Own(queue) = &self.qp.receives {
            while queue.waiting(self.receives.elements.len()).is_some() {
                let number = self.receives.done + self.receives.elements.len() as u64;
                self.receives.elements.push_back(self.outbox.push(Entry::Receive(number)));
            }
        }
        while self.qp.state == QpState::Rts && self.tell_send(verbs) {}
        self.retire(verbs);
    }

    fn next_packet(&self, _now: Instant) -> Option<Outgoing> {
        if matches!(self.qp.state, QpState::Reset | QpState::Init) {
            return None;
        }
        let repr = |message, sequence| Repr { flags: Flags::NONE, connection: self.peer, sequence, message };
        if self.inbox.due {
            let repr = repr(Message::Ea, self.inbox.expected());
            return Some(Outgoing { repr, payload_len: 0, cause: Cause::Acknowledgement });
        }
        let (sequence, entry, cause) = match self.outbox.next() {
            Some((sequence, entry)) => (sequence, entry, Cause::Element),
            None => {
                let oldest = *self.sends.elements.front().filter(|_| self.ping)?;
                (oldest, Entry::Send(self.sends.done), Cause::Ping)
            }
        };
        let (element, payload_len) = self.element(entry)?;
        Some(Outgoing { repr: repr(Message::Wqep(element), sequence), payload_len, cause })
    }

    fn fill(&self, packet: &Outgoing, into: &mut [u8], _verbs: &Verbs<M>) -> Result<(), Impossible> {
        let Message::Wqep(Element::Work(wqe)) = packet.repr.message else { return Ok(()) };
        let put = |into: &mut [u8], buffers: &mut dyn Iterator<Item = Sge>| {
            for (place, sge) in into.chunks_exact_mut(Segment::LEN).zip(buffers) {
                let Sge { address, len, lkey } = sge;
                place.copy_from_slice(&Segment { address, len, lkey: lkey.0 }.to_bytes());
            }
        };
        if wqe.request == Request::Receive {
            let (queue, slot) = self.receive_slot(wqe.wr_id).ok_or(Impossible)?;
            put(into, &mut queue.buffers(slot).iter().copied());
            return Ok(());
        }
        let work = self.send(wqe.wr_id).ok_or(Impossible)?;
        match self.qp.sends.pieces(work.source, 0, work.len) {
            Pieces::Buffers(mut buffers) => put(into, &mut buffers),
            Pieces::Inline(front, back) => {
                let (first, second) = into.split_at_mut_checked(front.len()).ok_or(Impossible)?;
                first.copy_from_slice(front);
                second.copy_from_slice(back);
            }
        }
        Ok(())
    }

    fn sent(&mut self, packet: &Outgoing, _: usize, verbs: &mut Verbs<M>) {
        verbs.counters.sent += 1;
        match packet.cause {
            Cause::Acknowledgement => self.inbox.due = false,
            Cause::Ping => self.ping = false,
            _ => {
                let is_new = self.outbox.element_sent(&self.qp.settings, verbs.now);
                verbs.counters.retransmitted += u64::from(!is_new);
            }
        }
    }

    fn failed(&mut self, _packet: &Outgoing, verbs: &mut Verbs<M>) {
        (self.inbox.due, self.ping) = (false, false);
        self.outbox.clear();
        self.close_now(verbs);
    }

    fn blocked(&mut self, packet: &Outgoing, _why: Blocked, verbs: &mut Verbs<M>) {
        self.failed(packet, verbs);
    }
}
