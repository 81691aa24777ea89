//! What the requests of the peer do on a reliable connection.
//!
//! | case | answer |
//! |---|---|
//! | ahead of what is expected | one NAK of the sequence, then silence until the gap is filled (IBA 9.7.5.2.8) |
//! | behind it | acknowledged again; READs and atomics are answered again, and not done again (IBA 9.7.1.2) |
//! | does not carry on the message before it, has not the length it must have, is not allowed on this queue pair | NAK, invalid request; error |
//! | its key, bounds or rights do not fit | NAK, remote access; error |
//! | needs a receive, and there is none | RNR NAK; it is expected again |
//! | a receive or the program's memory cannot take it | NAK, remote operation; error |
//! | else | done; acknowledged if it asks for that |

use nichrome_wire::rdma::{
    AtomicEth, ImmediateData, Msn, NakCode, Part, Position, Psn, RKey, RcMessage, Reth, SendEnd, Syndrome,
};

use super::answers::{Acknowledgement, Answers};
use super::connection::Connection;
use super::conversation::Conversation;
use super::packet::Incoming;
use super::reorder::Reorder;
use crate::core::access::Access;
use crate::core::completion::{CompletedOperation, Notice, Status};
use crate::core::cq::Urgency;
use crate::core::event::Event;
use crate::core::memory::Memory;
use crate::core::protection::Invalidator;
use crate::core::verbs::Verbs;
use crate::qp::Received;
use crate::qp::attributes::QpState;

/// The responder's side of a queue pair.
pub(crate) struct Responder {
    /// The number of the packet that is expected.
    pub(crate) expected: Psn,
    /// Messages that were done.
    pub(crate) msn: Msn,
    pub(crate) inbound: Inbound,
    /// A gap or a missing receive has been told: silence until what is expected comes.
    pub(crate) told: bool,
    /// The program knows that the peer has begun.
    pub(crate) established: bool,
    pub(crate) answers: Answers,
    pub(crate) conversation: Conversation,
    /// What arrived ahead of a lost packet, from a peer of ours.
    pub(crate) reorder: Reorder,
    /// The peer offers selective repeat.
    pub(crate) offered: bool,
}

/// The message that is being received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inbound {
    /// None: the next packet starts one.
    Nothing,
    /// A SEND, of which so many bytes have come.
    Send { received: u32 },
    /// A WRITE: where its next byte goes, by which key, how many are left.
    Write { address: u64, rkey: RKey, len: u32, left: u32 },
    /// The rest of an unreliable message that is lost.
    Lost,
}

/// Why a request is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reject {
    /// No receive is posted.
    NotReady,
    /// Its form is wrong, or it is not allowed here.
    Invalid,
    /// It reaches for memory that it may not reach.
    Access,
    /// The receive is too short for it.
    TooLong,
    /// The receive's memory is not what the program said.
    Receive,
    /// The program's memory failed.
    Memory,
    /// The key that it wants to invalidate cannot be.
    Invalidate,
}

impl Responder {
    pub(crate) fn new() -> Self {
        Self {
            expected: Psn::new(0),
            msn: Msn::new(0),
            inbound: Inbound::Nothing,
            told: false,
            established: false,
            answers: Answers::default(),
            conversation: Conversation::default(),
            reorder: Reorder::default(),
            offered: false,
        }
    }
}

impl Connection {
    /// Takes in a request.
    #[inline]
    pub(super) fn receive_request<M: Memory>(
        &mut self,
        message: RcMessage,
        request: &Incoming<'_>,
        verbs: &mut Verbs<M>,
    ) {
        if !self.takes_requests() {
            verbs.counters.dropped_state += 1;
            return;
        }
        self.responder.offered = request.selective;
        match request.psn.since(self.responder.expected) {
            0 => {
                self.expected_request(message, request, verbs);
                self.do_held(verbs);
            }
            1.. => self.ahead(message, request, verbs),
            _ => self.duplicate(message, request.psn, verbs),
        }
    }

    pub(super) fn takes_requests(&self) -> bool {
        matches!(self.qp.state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe)
    }

    fn ahead<M: Memory>(&mut self, message: RcMessage, request: &Incoming<'_>, verbs: &mut Verbs<M>) {
        verbs.counters.out_of_sequence += 1;
        let responder = &mut self.responder;
        // Before a receive is posted, all must come again anyhow.
        let waits = matches!(
            responder.answers.acknowledgement,
            Some(Acknowledgement::Negative(_, Syndrome::RnrNak(_)))
        );
        if request.selective && self.selective && !responder.told && !waits {
            let (expected, limit) = (responder.expected, self.held_limit);
            if responder.reorder.keep(expected, message, request, limit, &mut verbs.spare) {
                return;
            }
        }
        if !self.responder.told {
            self.responder.told = true;
            verbs.counters.sequence_naks_sent += 1;
            self.answer_negatively(Syndrome::Nak(NakCode::PsnSequence));
        }
    }

    /// Does what was kept and is expected now.
    #[inline]
    fn do_held<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        while let Some(held) = self.responder.reorder.take_expected() {
            if self.takes_requests() && held.psn == self.responder.expected {
                self.expected_request(held.message, &held.incoming(), verbs);
            }
            verbs.spare.give_back(held);
        }
    }

    fn duplicate<M: Memory>(&mut self, message: RcMessage, psn: Psn, verbs: &mut Verbs<M>) {
        verbs.counters.duplicates += 1;
        let mtu = self.qp.mtu() as u32;
        let answers = &mut self.responder.answers;
        let known = match message {
            RcMessage::ReadRequest(reth) => answers.repeat_read(psn, &reth, mtu),
            RcMessage::CompareSwap(_) | RcMessage::FetchAdd(_) => answers.repeat_atomic(psn),
            _ => {
                answers.acknowledgement.get_or_insert(Acknowledgement::Positive);
                self.responder.conversation.release();
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
        verbs: &mut Verbs<M>,
    ) {
        self.told_established(verbs);
        let done =
            match message {
                RcMessage::Send(part) => self.send(part, request, verbs),
                RcMessage::Write(part) => self.write(part, request, verbs),
                RcMessage::ReadRequest(reth) => self.read(&reth, request, verbs),
                RcMessage::CompareSwap(eth) => self.atomic(&eth, request, verbs, |value| {
                    if value == eth.compare { eth.swap_or_add } else { value }
                }),
                RcMessage::FetchAdd(eth) => {
                    self.atomic(&eth, request, verbs, |value| value.wrapping_add(eth.swap_or_add))
                }
                _ => Err(Reject::Invalid),
            };
        match done {
            Ok(done) => self.done(&done, request, verbs),
            Err(reject) => self.reject(reject, verbs),
        }
    }

    pub(super) fn told_established<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        if !self.responder.established && self.qp.state == QpState::Rtr {
            self.responder.established = true;
            verbs.events.push_back(Event::Established(self.qp.handle));
        }
    }

    #[inline]
    fn done<M: Memory>(&mut self, done: &Done, request: &Incoming<'_>, verbs: &mut Verbs<M>) {
        let responder = &mut self.responder;
        responder.expected += done.packets;
        responder.told = false;
        responder.reorder.advance(done.packets, &mut verbs.spare);
        if done.ends {
            responder.msn = responder.msn.next();
        }
        verbs.counters.bytes_received += request.payload.len() as u64;
        match responder.answers.acknowledgement {
            // The gap was only disorder: what was to be told is no longer so.
            Some(Acknowledgement::Negative(..)) => {
                responder.answers.acknowledgement = Some(Acknowledgement::Positive);
            }
            None if request.ack_request && !done.answered => {
                responder.answers.acknowledgement = Some(Acknowledgement::Positive);
                responder.conversation.arrived(self.acknowledgement_delay, verbs.now);
            }
            _ => {}
        }
    }

    #[inline]
    pub(super) fn send<M: Memory>(
        &mut self,
        part: Part<(), SendEnd>,
        request: &Incoming<'_>,
        verbs: &mut Verbs<M>,
    ) -> Result<Done, Reject> {
        let received = match (self.responder.inbound, part.start().is_some()) {
            (Inbound::Nothing, true) => 0,
            (Inbound::Send { received }, false) => received,
            _ => return Err(Reject::Invalid),
        };
        let len = request.payload.len();
        if !self.fits_position(part.position(), len) {
            return Err(Reject::Invalid);
        }
        if part.start().is_some() && !self.qp.take_receive(verbs) {
            return Err(Reject::NotReady);
        }
        let total = received.saturating_add(len as u32);
        if total > self.qp.receive_room(verbs) {
            return Err(Reject::TooLong);
        }
        self.qp.put(received, request.payload, verbs).map_err(|_| Reject::Receive)?;
        self.responder.inbound = Inbound::Send { received: total };
        if let Some(end) = part.end() {
            let notice = self.end_of_send(*end, verbs)?;
            self.responder.inbound = Inbound::Nothing;
            self.complete_receive(CompletedOperation::Receive, total, notice, request, verbs);
        }
        Ok(Done::packet(part.end().is_some()))
    }

    fn end_of_send<M: Memory>(
        &mut self,
        end: SendEnd,
        verbs: &mut Verbs<M>,
    ) -> Result<Option<Notice>, Reject> {
        match end {
            SendEnd::Plain => Ok(None),
            SendEnd::Immediate(immediate) => Ok(Some(Notice::Immediate(immediate))),
            SendEnd::Invalidate(key) => {
                let done = verbs.protection.invalidate(self.qp.asker(), key, Invalidator::Peer);
                done.map_err(|_| Reject::Invalidate)?;
                Ok(Some(Notice::Invalidated(key)))
            }
        }
    }

    fn complete_receive<M: Memory>(
        &mut self,
        operation: CompletedOperation,
        len: u32,
        notice: Option<Notice>,
        request: &Incoming<'_>,
        verbs: &mut Verbs<M>,
    ) {
        let urgency = if request.solicited { Urgency::Solicited } else { Urgency::Plain };
        let done = Received { status: Status::Success, operation, len, notice, source: None };
        self.qp.complete_receive(done, urgency, verbs);
    }

    /// Whether a packet at this place of a message may have this length (IBA 9.7.4.1.6).
    #[inline]
    fn fits_position(&self, position: Position, len: usize) -> bool {
        let mtu = self.qp.mtu();
        match position {
            Position::First | Position::Middle => len == mtu,
            Position::Last => (1..=mtu).contains(&len),
            Position::Only => len <= mtu,
        }
    }

    #[inline]
    pub(super) fn write<M: Memory>(
        &mut self,
        part: Part<Reth, Option<ImmediateData>>,
        request: &Incoming<'_>,
        verbs: &mut Verbs<M>,
    ) -> Result<Done, Reject> {
        if !self.qp.settings.access.contains(Access::REMOTE_WRITE) {
            return Err(Reject::Invalid);
        }
        let (address, rkey, len, left) = match (self.responder.inbound, part.start()) {
            (Inbound::Nothing, Some(reth)) => {
                self.reachable(reth.rkey, reth.va, reth.len, Access::REMOTE_WRITE, verbs)?;
                (reth.va, reth.rkey, reth.len, reth.len)
            }
            (Inbound::Write { address, rkey, len, left }, None) => (address, rkey, len, left),
            _ => return Err(Reject::Invalid),
        };
        let payload = request.payload;
        let rest = left.checked_sub(payload.len() as u32).ok_or(Reject::Invalid)?;
        if !self.fits_position(part.position(), payload.len()) || part.end().is_some() != (rest == 0) {
            return Err(Reject::Invalid);
        }
        let at = self.reachable(rkey, address, payload.len() as u32, Access::REMOTE_WRITE, verbs)?;
        let immediate = part.end().copied().flatten();
        if immediate.is_some() && !self.qp.take_receive(verbs) {
            return Err(Reject::NotReady);
        }
        if let Some(at) = at {
            verbs.memory.write(at, payload).map_err(|_| Reject::Memory)?;
        }
        self.responder.inbound = match rest {
            0 => Inbound::Nothing,
            left => {
                let address = address.wrapping_add(payload.len() as u64);
                Inbound::Write { address, rkey, len, left }
            }
        };
        if let Some(immediate) = immediate {
            let notice = Some(Notice::Immediate(immediate));
            self.complete_receive(CompletedOperation::ReceiveWithWrite, len, notice, request, verbs);
        }
        Ok(Done::packet(part.end().is_some()))
    }

    /// Where these bytes are in the program's memory. None where there are none: those need no key (IBA C9-88).
    #[inline]
    fn reachable<M: Memory>(
        &self,
        rkey: RKey,
        address: u64,
        len: u32,
        right: Access,
        verbs: &Verbs<M>,
    ) -> Result<Option<u64>, Reject> {
        if len == 0 {
            return Ok(None);
        }
        let found = verbs.protection.remote(self.qp.asker(), rkey, address, u64::from(len), right);
        found.map(Some).map_err(|_| Reject::Access)
    }

    fn read<M: Memory>(
        &mut self,
        reth: &Reth,
        request: &Incoming<'_>,
        verbs: &mut Verbs<M>,
    ) -> Result<Done, Reject> {
        let limit = usize::from(self.qp.settings.max_dest_rd_atomic);
        let allowed = self.qp.settings.access.contains(Access::REMOTE_READ) && limit > 0;
        let alone = self.responder.inbound == Inbound::Nothing && request.payload.is_empty();
        if !allowed || !alone || reth.len > self.message_limit {
            return Err(Reject::Invalid);
        }
        self.reachable(reth.rkey, reth.va, reth.len, Access::REMOTE_READ, verbs)?;
        let packets = reth.len.div_ceil(self.qp.mtu() as u32).max(1);
        let pushed = self.responder.answers.push_read(request.psn, reth, packets, limit);
        pushed.map_err(|_| Reject::Invalid)?;
        Ok(Done { packets, ends: true, answered: true })
    }

    fn atomic<M: Memory>(
        &mut self,
        eth: &AtomicEth,
        request: &Incoming<'_>,
        verbs: &mut Verbs<M>,
        change: impl Fn(u64) -> u64,
    ) -> Result<Done, Reject> {
        let limit = usize::from(self.qp.settings.max_dest_rd_atomic);
        let allowed = self.qp.settings.access.contains(Access::REMOTE_ATOMIC) && limit > 0;
        let alone = self.responder.inbound == Inbound::Nothing && request.payload.is_empty();
        if !allowed || !alone || !eth.va.is_multiple_of(8) || !self.responder.answers.has_room(limit) {
            return Err(Reject::Invalid);
        }
        let at = self.reachable(eth.rkey, eth.va, 8, Access::REMOTE_ATOMIC, verbs)?;
        let at = at.filter(|at| at.is_multiple_of(8)).ok_or(Reject::Invalid)?;
        let before = verbs.memory.update(at, change).map_err(|_| Reject::Memory)?;
        let pushed = self.responder.answers.push_atomic(request.psn, before, limit);
        pushed.map_err(|_| Reject::Invalid)?;
        Ok(Done { packets: 1, ends: true, answered: true })
    }

    fn answer_negatively(&mut self, syndrome: Syndrome) {
        let negative = Acknowledgement::Negative(self.responder.expected, syndrome);
        self.responder.answers.acknowledgement = Some(negative);
    }

    fn reject<M: Memory>(&mut self, reject: Reject, verbs: &mut Verbs<M>) {
        verbs.counters.refused += 1;
        let (code, receive, event) = match reject {
            Reject::NotReady => {
                verbs.counters.rnr_naks_sent += 1;
                self.responder.told = true;
                self.responder.reorder.clear(&mut verbs.spare);
                return self.answer_negatively(Syndrome::RnrNak(self.qp.settings.min_rnr_timer));
            }
            Reject::Invalid => {
                (NakCode::InvalidRequest, Status::RemoteInvalidRequest, Event::QpRequestError as fn(_) -> _)
            }
            Reject::TooLong => {
                (NakCode::InvalidRequest, Status::LocalLength, Event::QpRequestError as fn(_) -> _)
            }
            Reject::Access => {
                (NakCode::RemoteAccess, Status::RemoteAccess, Event::QpAccessError as fn(_) -> _)
            }
            Reject::Receive => {
                (NakCode::RemoteOperation, Status::LocalProtection, Event::QpFatal as fn(_) -> _)
            }
            Reject::Memory => {
                (NakCode::RemoteOperation, Status::LocalQpOperation, Event::QpFatal as fn(_) -> _)
            }
            Reject::Invalidate => {
                (NakCode::RemoteAccess, Status::RemoteInvalidRequest, Event::QpAccessError as fn(_) -> _)
            }
        };
        self.answer_negatively(Syndrome::Nak(code));
        self.qp.complete_receive(Received::failed(receive), Urgency::Plain, verbs);
        verbs.events.push_back(event(self.qp.handle));
        self.enter_error(verbs);
    }
}

/// What a request that was done amounts to.
pub(super) struct Done {
    /// Packet numbers that it takes.
    packets: u32,
    /// Whether its message is complete.
    ends: bool,
    /// Whether it is acknowledged by an answer of its own.
    answered: bool,
}

impl Done {
    fn packet(ends: bool) -> Self {
        Self { packets: 1, ends, answered: false }
    }
}
