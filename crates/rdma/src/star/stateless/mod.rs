//! The server: the stateless side of a connection, which the driver in the card's host runs.
//!
//! The driver announces requests to the client in WQEPs (`requests.rs`); the client executes them and reports
//! them in CQEPs (`completions.rs`). Lost elements are retransmitted (section 3.3 of the paper, "Handling WQE
//! loss"). WQEs and CQEs name requests by their position in the queue; the program's work request IDs stay
//! here.
//!
//! | case | reaction |
//! |---|---|
//! | a buffer of a send is in no region of the program | the send fails in its turn, unannounced (3.2, "Security mechanism") |
//! | no EA, or no packet while sends are outstanding, for the timeout and retries of the queue pair | the oldest send fails, the others are flushed |
//! | receives of a shared queue | handed to the client when it asks (`shared_receives.rs`) |
//! | error | a Close element to the client; the queues are flushed after its EA, or after the last retry, so that no bytes reach a flushed buffer |

mod completions;
mod loans;
mod requests;
mod shared_receives;

use std::collections::VecDeque;

use nichrome_wire::SeqNumber;
use nichrome_wire::rdma::{QpNumber, UdpFlow};
use nichrome_wire::star::{
    Element, Flags, GrantCode, Message, PacketWriter, Registration, Repr, Request, Rights, Segment, Stamp,
    StatusCode,
};
use nichrome_wire::{Ecn, Instant};

use crate::core::attributes::QpState;
use crate::core::cq::Urgency;
use crate::core::drain::Drain;
use crate::core::memory::Memory;
use crate::core::protection::{LKey, Region};
use crate::core::queue_pair::{QueuePair, Receives, Settings};
use crate::core::send_queue::{Pieces, Progress, SendWork};
use crate::core::verbs::Verbs;
use crate::core::work::Sge;
use crate::net::Route;
use crate::star::connection_end::ConnectionEnd;
use crate::star::elements::{Inbox, Outbox};
use crate::star::grace::Grace;
use crate::star::lease::{self, Grantor};
use crate::star::packet::{Cause, Impossible, Incoming, Outgoing};
use crate::star::seal::Seal;
use crate::star::security::Blocked;
use crate::star::setup::Offer;
use crate::star::shared::StarShared;
use crate::star::timer::{Awaited, Expiry};
use loans::Loans;
pub(super) use loans::MAX_LENT;

/// The timeout of a Close on a queue pair without one, as an exponent: 67 ms.
const CLOSE_TIMEOUT: u8 = 14;

/// An element for the client.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entry {
    /// The send with this number.
    Send(u64),
    /// The receive with this number.
    Receive(u64),
    /// A registration, deregistration or close.
    Control(Element),
}

/// Requests of one queue that were announced and have not completed.
#[derive(Debug, Default)]
pub(super) struct Announced {
    /// The numbers of their elements.
    pub(super) elements: VecDeque<SeqNumber>,
    /// Completed so far: the number of the oldest request in the queue.
    pub(super) done: u64,
}

/// The progress of closing the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    Open,
    /// The client must acknowledge the Close with this number.
    Announced(SeqNumber),
    Closed,
}

/// A queue pair whose card keeps no state.
pub(crate) struct Stateless {
    pub(super) qp: QueuePair,
    pub(super) route: Option<Route>,
    /// The client's number of the connection.
    peer: QpNumber,
    seal: Seal,
    /// With authentication, the grantor of the client's access.
    pub(super) grantor: Option<Grantor>,
    /// The leases of the client are void.
    is_revoked: bool,
    /// Received CQEPs.
    inbox: Inbox,
    /// WQEPs to send.
    pub(super) outbox: Outbox<Entry>,
    pub(super) sends: Announced,
    pub(super) receives: Announced,
    /// Receives of a shared queue that the client holds.
    loans: Loans,
    /// A WQEP must be sent again to get an EA from the client.
    ping: bool,
    pub(super) closing: Closing,
    pub(super) grace: Grace,
}

impl Stateless {
    /// Creates the server's side from both offers.
    pub(super) fn new(
        qp: QueuePair,
        route: Option<Route>,
        ours: &Offer,
        theirs: &Offer,
        (seal, grantor): (Seal, Option<Grantor>),
    ) -> Self {
        Self {
            qp,
            route,
            peer: theirs.connection,
            seal,
            grantor,
            is_revoked: false,
            inbox: Inbox::new(theirs.first_element),
            outbox: Outbox::new(ours.first_element),
            sends: Announced::default(),
            receives: Announced::default(),
            loans: Loans::default(),
            ping: false,
            closing: Closing::Open,
            grace: Grace::default(),
        }
    }

    fn is_up(&self) -> bool {
        let state = matches!(self.qp.state, QpState::Rtr | QpState::Rts | QpState::Sqd);
        state && self.closing == Closing::Open
    }

    /// Returns the oldest request that a live client must complete, with its element's number.
    fn oldest_request(&self) -> Option<(SeqNumber, Entry)> {
        let send = self.sends.elements.front().map(|element| (*element, Entry::Send(self.sends.done)));
        send.or_else(|| self.oldest_loan())
    }

    /// Returns the event that the retransmission timer waits for.
    fn awaited(&self) -> Awaited {
        match self.outbox.outstanding() {
            Awaited::Nothing if self.is_up() && self.oldest_request().is_some() => Awaited::Liveness,
            awaited => awaited,
        }
    }

    /// Returns the memory table's entry for a region; `None` if the client may not reach it.
    pub(super) fn registration(&self, key: u32, region: &Region) -> Option<Registration> {
        lease::registration(key, region, self.qp.settings.access, self.grantor.as_ref())
    }

    /// Makes the client's leases void if the connection is closed.
    pub(super) fn revoke_closed(&mut self, shared: &mut StarShared, now: Instant) {
        if self.closing == Closing::Closed {
            self.revoke(shared, now);
        }
    }

    fn revoke(&mut self, shared: &mut StarShared, now: Instant) {
        if let Some(grantor) = self.grantor.as_ref().filter(|_| !self.is_revoked) {
            shared.card.revoke(grantor.ends.server, grantor.lease, now);
            self.is_revoked = true;
        }
    }

    /// Queues a registration or deregistration for the client.
    pub(super) fn push_element(&mut self, element: Element) {
        if self.closing == Closing::Open {
            self.outbox.push(Entry::Control(element));
        }
    }

    /// Completes a send that failed before it was announced, once all before it are complete. After a Close,
    /// the queues are flushed instead, when the client has acknowledged it.
    pub(super) fn retire<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        let failed = self.qp.sends.front().map(|work| work.progress);
        if let Some(Progress::Failed(status)) =
            failed.filter(|_| self.is_up() && self.sends.elements.is_empty())
        {
            self.pop_send(status, verbs);
            self.enter_error(verbs);
        }
        self.check_drained(verbs);
    }

    /// Returns true if there may be something to send.
    pub(super) fn has_work(&self) -> bool {
        let unannounced_receive = || match &self.qp.receives {
            Receives::Own(queue) => queue.len() > self.receives.elements.len(),
            Receives::Shared(_) => false,
        };
        let unannounced_send = || self.qp.sends.len() > self.sends.elements.len();
        let waits = self.inbox.ack_due || self.ping || self.outbox.next().is_some();
        waits || self.is_up() && (unannounced_receive() || unannounced_send())
    }

    /// Returns the timers of elements: those of the queue pair. A Close has a timeout even if they have none,
    /// since the queues are flushed behind it.
    fn timers(&self) -> Settings {
        let settings = self.qp.settings;
        let is_endless = settings.timeout == 0 && matches!(self.closing, Closing::Announced(_));
        let timeout = if is_endless { CLOSE_TIMEOUT } else { settings.timeout };
        Settings { timeout, ..settings }
    }

    /// Returns the deadline of the next timer.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        [self.outbox.timer.due(), self.grace.due()].into_iter().flatten().min()
    }

    /// Handles the timers that are due.
    pub(super) fn handle_timeout<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        let (settings, now) = (self.timers(), verbs.now);
        if self.grace.expire(now) {
            return self.fail_closed(verbs);
        }
        let Some(expiry) = self.outbox.timer.expire(&settings, now) else { return };
        expiry.count(&mut verbs.counters);
        if expiry == Expiry::Exhausted {
            return self.client_timed_out(verbs);
        }
        match self.outbox.outstanding() {
            Awaited::Answer => self.outbox.retransmit(),
            _ => self.ping = true,
        }
        self.outbox.timer.start(self.awaited(), &settings, now);
    }

    /// Handles a client that no longer answers: fails the queue pair's requests.
    fn client_timed_out<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        self.outbox.clear();
        match self.closing {
            Closing::Open => {
                self.closing = Closing::Closed;
                self.return_receives(verbs);
                self.fail_closed(verbs);
            }
            Closing::Announced(_) | Closing::Closed => self.close_now(verbs),
        }
    }

    /// Adds a request whose form has been checked.
    pub(super) fn post_send<M: Memory>(&mut self, work: SendWork, verbs: &mut Verbs<M>) {
        self.qp.sends.push(work);
        if self.qp.state == QpState::Err && self.closing == Closing::Closed {
            self.qp.flush_sends(verbs);
        }
        self.await_end(verbs);
    }

    /// Retransmits the last EA.
    pub(super) fn repeat_acknowledgement(&mut self) {
        self.inbox.ack_due |= self.closing == Closing::Open;
    }

    /// Returns true if the connection is closed: the client executes no more requests.
    pub(super) fn is_closed(&self) -> bool {
        self.closing == Closing::Closed
    }

    /// Moves the queue pair to ERROR and queues a Close; the queues are flushed when the client has
    /// acknowledged it.
    pub(super) fn enter_error<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        let was_connected = matches!(self.qp.state, QpState::Rtr | QpState::Rts | QpState::Sqd);
        self.qp.state = QpState::Err;
        self.qp.drain = Drain::Running;
        if !was_connected || self.closing != Closing::Open {
            return self.close_now(verbs);
        }
        self.outbox.drop_unsent();
        let end = self.outbox.next_number();
        for queue in [&mut self.sends, &mut self.receives] {
            while queue.elements.back().is_some_and(|element| !element.before(end)) {
                queue.elements.pop_back();
            }
        }
        let close = self.outbox.push(Entry::Control(Element::Close(StatusCode::FLUSHED)));
        self.closing = Closing::Announced(close);
    }

    fn finish_closing<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        if let Closing::Announced(close) = self.closing
            && self.outbox.is_acknowledged(close)
        {
            self.close_now(verbs);
        }
    }

    /// Flushes the queues, after the client's acknowledgement or without.
    pub(super) fn close_now<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        self.closing = Closing::Closed;
        self.qp.state = QpState::Err;
        self.outbox.clear();
        (self.ping, self.qp.drain) = (false, Drain::Running);
        self.sends.elements.clear();
        self.return_receives(verbs);
        self.qp.flush(verbs);
        self.report_last_receive(verbs);
    }

    /// Returns the Close of a queue pair that is destroyed or reset while it is up.
    fn close_message(&self) -> Option<Repr> {
        let message = Message::Wqep(Element::Close(StatusCode::FLUSHED));
        let sequence = self.outbox.next_number();
        let repr = Repr { flags: Flags::NONE, connection: self.peer, sequence, stamp: Stamp(0), message };
        self.is_up().then_some(repr)
    }

    /// Reports that the send queue has drained, if it has.
    pub(super) fn check_drained<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        self.qp.check_drained(!self.sends.elements.is_empty(), verbs);
    }

    /// Ends the connection with one Close, without waiting for its acknowledgement.
    pub(super) fn dissolve<M: Memory>(mut self, shared: &mut StarShared, verbs: &mut Verbs<M>) -> QueuePair {
        self.revoke(shared, verbs.now);
        self.return_receives(verbs);
        if let Some((repr, route)) = self.close_message().zip(self.route.as_ref()) {
            let route = shared.route_of(route, false);
            shared.card.push(repr, &self.seal, route);
        }
        shared.slots.close(self.qp.number);
        shared.stateless -= 1;
        self.qp
    }
}

impl<M: Memory> ConnectionEnd<M> for Stateless {
    fn route(&self) -> Option<&Route> {
        self.route.as_ref()
    }

    fn seal(&self) -> &Seal {
        &self.seal
    }

    fn authorize(&self, packet: Outgoing, _: &StarShared) -> Outgoing {
        packet
    }

    fn finish(&self, _: &Outgoing, writer: PacketWriter<'_>, flow: &UdpFlow) -> usize {
        self.seal.finish(writer, flow)
    }

    fn receive(&mut self, packet: &Incoming<'_>, shared: &mut StarShared, verbs: &mut Verbs<M>) {
        if matches!(self.qp.state, QpState::Reset | QpState::Init) {
            verbs.counters.dropped_state += 1;
            return;
        }
        if packet.ecn == Ecn::Ce {
            verbs.counters.congestion_marks += 1;
        }
        let open = self.grantor.as_mut().filter(|_| self.closing == Closing::Open);
        if let Some(next) = open.and_then(|grantor| grantor.renewed(shared.card.card().revoked(), verbs.now))
        {
            self.push_element(Element::Lease(next));
        }
        let (sequence, oldest) = (packet.repr.sequence, self.outbox.oldest());
        match packet.repr.message {
            Message::Ea if packet.repr.flags.contains(Flags::TO_SERVER) => {
                self.outbox.ea_received(sequence, verbs.now);
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
                self.inbox.receive(sequence);
            }
            _ => {
                verbs.counters.dropped_unknown += 1;
                return;
            }
        }
        // CQEPs of a client that never acknowledges elements do not restart the timer, so that its retries
        // run out.
        let awaited = self.awaited();
        if self.outbox.oldest() != oldest || awaited != Awaited::Answer {
            self.outbox.timer.progress(awaited, &self.timers(), verbs.now);
        }
        self.finish_closing(verbs);
    }

    fn run(&mut self, _: &mut StarShared, verbs: &mut Verbs<M>) {
        if !self.is_up() {
            return;
        }
        self.announce_receives(verbs);
        while self.qp.state == QpState::Rts && self.announce_send(verbs) {}
        self.retire(verbs);
    }

    fn next_packet(&self, _now: Instant) -> Option<Outgoing> {
        if matches!(self.qp.state, QpState::Reset | QpState::Init) {
            return None;
        }
        let (flags, connection, stamp, code) = (Flags::NONE, self.peer, Stamp(0), GrantCode::default());
        let repr = |message, sequence| Repr { flags, connection, sequence, stamp, message };
        if self.inbox.ack_due && !self.has_loan_to_send() {
            let repr = repr(Message::Ea, self.inbox.expected());
            return Some(Outgoing { repr, payload_len: 0, cause: Cause::Acknowledgement, code, offset: 0 });
        }
        let (sequence, entry, cause) = match self.outbox.next() {
            Some((sequence, entry)) => (sequence, entry, Cause::Element),
            None => {
                let (oldest, entry) = self.oldest_request().filter(|_| self.ping)?;
                (oldest, entry, Cause::Ping)
            }
        };
        let (element, payload_len) = self.element(entry)?;
        let repr = repr(Message::Wqep(element), sequence);
        Some(Outgoing { repr, payload_len, cause, code, offset: 0 })
    }

    fn following(&self, _: &Outgoing, _: Instant) -> Option<Outgoing> {
        None
    }

    fn fill(&self, packet: &Outgoing, into: &mut [u8], verbs: &Verbs<M>) -> Result<(), Impossible> {
        let Message::Wqep(Element::Work(wqe)) = packet.repr.message else { return Ok(()) };
        let right = match wqe.request {
            Request::Receive | Request::Read(_) | Request::CompareSwap(..) | Request::FetchAdd(..) => {
                Rights::STORE
            }
            _ => Rights::FETCH,
        };
        let put = |into: &mut [u8], buffers: &mut dyn Iterator<Item = Sge>| {
            for (place, sge) in into.chunks_exact_mut(Segment::LEN).zip(buffers) {
                let Sge { address, len, lkey: LKey(lkey) } = sge;
                let range = (address, u64::from(len));
                let code = |grantor: &Grantor| grantor.code(lkey, range, right | Rights::ELEMENT);
                let code = self.grantor.as_ref().map_or(GrantCode::default(), code);
                place.copy_from_slice(&Segment { address, len, lkey, code }.to_bytes());
            }
        };
        if wqe.request == Request::Receive {
            put(into, &mut self.receive_buffers(wqe.wr_id, verbs).ok_or(Impossible)?);
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
            Cause::Acknowledgement => self.inbox.ack_due = false,
            Cause::Ping => self.ping = false,
            _ => {
                let is_new = self.outbox.element_sent(&self.timers(), verbs.now);
                verbs.counters.retransmitted += u64::from(!is_new);
            }
        }
    }

    fn failed(&mut self, _packet: &Outgoing, verbs: &mut Verbs<M>) {
        (self.inbox.ack_due, self.ping) = (false, false);
        self.outbox.clear();
        self.close_now(verbs);
    }

    fn blocked(&mut self, packet: &Outgoing, _why: Blocked, verbs: &mut Verbs<M>) {
        self.failed(packet, verbs);
    }
}
