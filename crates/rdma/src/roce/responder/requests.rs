//! Executes each kind of request.

use nichrome_wire::rdma::{
    AtomicEth, Feth, ImmediateData, Part, Placement, Position, RKey, Reth, Selectivity, SendEnd,
};

use super::super::context::Context;
use super::super::packet::Incoming;
use super::outcome::{Done, Reject};
use super::{Inbound, Responder};
use crate::core::access::Access;
use crate::core::completion::{CompletedOperation, Notice, Status};
use crate::core::cq::Urgency;
use crate::core::memory::Memory;
use crate::core::protection::Invalidator;
use crate::core::queue_pair::{QueuePair, Received};

impl Responder {
    #[inline]
    pub(super) fn send<M: Memory>(
        &mut self,
        part: Part<(), SendEnd>,
        request: &Incoming<'_>,
        context: &mut Context<'_, M>,
    ) -> Result<Done, Reject> {
        let Context { qp, verbs, .. } = context;
        let received = match (self.inbound, part.start().is_some()) {
            (Inbound::Nothing, true) => 0,
            (Inbound::Send { received }, false) => received,
            _ => return Err(Reject::Invalid),
        };
        let len = request.payload.len();
        if !fits_position(qp, part.position(), len) {
            return Err(Reject::Invalid);
        }
        if part.start().is_some() && !qp.take_receive(verbs) {
            return Err(Reject::NotReady);
        }
        let total = received.saturating_add(len as u32);
        if total > qp.receive_room(verbs) {
            return Err(Reject::TooLong);
        }
        qp.put(received, request.payload, verbs).map_err(|_| Reject::Receive)?;
        self.inbound = Inbound::Send { received: total };
        if let Some(end) = part.end() {
            let notice = end_of_send(*end, context)?;
            self.inbound = Inbound::Nothing;
            complete_receive(CompletedOperation::Receive, total, notice, request, context);
        }
        Ok(Done::packet(part.end().is_some()))
    }

    #[inline]
    pub(super) fn write<M: Memory>(
        &mut self,
        part: Part<Reth, Option<ImmediateData>>,
        request: &Incoming<'_>,
        context: &mut Context<'_, M>,
    ) -> Result<Done, Reject> {
        if !context.qp.settings.access.contains(Access::REMOTE_WRITE) {
            return Err(Reject::Invalid);
        }
        let (address, rkey, len, left) = match (self.inbound, part.start()) {
            (Inbound::Nothing, Some(reth)) => {
                reachable(reth.rkey, reth.va, reth.len, Access::REMOTE_WRITE, context)?;
                (reth.va, reth.rkey, reth.len, reth.len)
            }
            (Inbound::Write { address, rkey, len, left }, None) => (address, rkey, len, left),
            _ => return Err(Reject::Invalid),
        };
        let payload = request.payload;
        let rest = left.checked_sub(payload.len() as u32).ok_or(Reject::Invalid)?;
        let is_last = part.end().is_some();
        if !fits_position(context.qp, part.position(), payload.len()) || is_last != (rest == 0) {
            return Err(Reject::Invalid);
        }
        let at = reachable(rkey, address, payload.len() as u32, Access::REMOTE_WRITE, context)?;
        let Context { qp, verbs, .. } = context;
        let immediate = part.end().copied().flatten();
        if immediate.is_some() && !qp.take_receive(verbs) {
            return Err(Reject::NotReady);
        }
        if let Some(at) = at {
            verbs.memory.write(at, payload).map_err(|_| Reject::Memory)?;
        }
        self.inbound = match rest {
            0 => Inbound::Nothing,
            left => {
                let address = address.wrapping_add(payload.len() as u64);
                Inbound::Write { address, rkey, len, left }
            }
        };
        if let Some(immediate) = immediate {
            let notice = Some(Notice::Immediate(immediate));
            complete_receive(CompletedOperation::ReceiveWithWrite, len, notice, request, context);
        }
        Ok(Done::packet(is_last))
    }

    pub(super) fn read<M: Memory>(
        &mut self,
        reth: &Reth,
        request: &Incoming<'_>,
        context: &mut Context<'_, M>,
    ) -> Result<Done, Reject> {
        let settings = &context.qp.settings;
        let limit = usize::from(settings.max_dest_rd_atomic);
        let allowed = settings.access.contains(Access::REMOTE_READ) && limit > 0;
        let alone = self.inbound == Inbound::Nothing && request.payload.is_empty();
        if !allowed || !alone || reth.len > context.shared.environment.message_limit {
            return Err(Reject::Invalid);
        }
        reachable(reth.rkey, reth.va, reth.len, Access::REMOTE_READ, context)?;
        let packets = reth.len.div_ceil(context.qp.mtu() as u32).max(1);
        let pushed = self.answers.push_read(request.psn, reth, context.qp.domain, packets, limit);
        pushed.map_err(|_| Reject::Invalid)?;
        Ok(Done { packets, ends: true, answered: true })
    }

    pub(super) fn atomic<M: Memory>(
        &mut self,
        eth: &AtomicEth,
        request: &Incoming<'_>,
        context: &mut Context<'_, M>,
        change: impl Fn(u64) -> u64,
    ) -> Result<Done, Reject> {
        let settings = &context.qp.settings;
        let limit = usize::from(settings.max_dest_rd_atomic);
        let allowed = settings.access.contains(Access::REMOTE_ATOMIC) && limit > 0;
        let alone = self.inbound == Inbound::Nothing && request.payload.is_empty();
        if !allowed || !alone || !eth.va.is_multiple_of(8) || !self.answers.has_room(limit) {
            return Err(Reject::Invalid);
        }
        let at = reachable(eth.rkey, eth.va, 8, Access::REMOTE_ATOMIC, context)?;
        let at = at.filter(|at| at.is_multiple_of(8)).ok_or(Reject::Invalid)?;
        let before = context.verbs.memory.update(at, change).map_err(|_| Reject::Memory)?;
        let pushed = self.answers.push_atomic(request.psn, before, limit);
        pushed.map_err(|_| Reject::Invalid)?;
        Ok(Done { packets: 1, ends: true, answered: true })
    }

    /// Executes an ATOMIC WRITE.
    pub(super) fn atomic_write<M: Memory>(
        &mut self,
        reth: &Reth,
        request: &Incoming<'_>,
        context: &mut Context<'_, M>,
    ) -> Result<Done, Reject> {
        let value = <[u8; 8]>::try_from(request.payload).map_err(|_| Reject::Invalid)?;
        if reth.len != 8 || !reth.va.is_multiple_of(8) {
            return Err(Reject::Invalid);
        }
        let limit = self.answerable(Access::REMOTE_WRITE, context)?;
        let at = reachable(reth.rkey, reth.va, 8, Access::REMOTE_WRITE, context)?;
        let at = at.filter(|at| at.is_multiple_of(8)).ok_or(Reject::Invalid)?;
        let written = context.verbs.memory.update(at, |_| u64::from_ne_bytes(value));
        written.map_err(|_| Reject::Memory)?;
        self.answer_empty(request, limit)
    }

    /// Answers a FLUSH. Earlier writes are in the program's memory already, visible to all processors. As in
    /// rxe, queue pair and region must both grant the right of each placement type.
    pub(super) fn flush<M: Memory>(
        &mut self,
        feth: Feth,
        reth: &Reth,
        request: &Incoming<'_>,
        context: &mut Context<'_, M>,
    ) -> Result<Done, Reject> {
        let right = right_to_flush(feth.placement);
        let limit = self.answerable(right, context)?;
        let (accessor, protection) = (context.qp.accessor(), &context.verbs.protection);
        let found = match feth.selectivity {
            Selectivity::Range => {
                protection.remote(accessor, reth.rkey, reth.va, reth.len.into(), right).map(drop)
            }
            Selectivity::Region => protection.grants(accessor, reth.rkey, right),
        };
        found.map_err(|_| Reject::Access)?;
        self.answer_empty(request, limit)
    }

    /// Checks that the queue pair grants this right and can keep another answer; returns the maximum number
    /// of kept answers.
    fn answerable<M: Memory>(&self, right: Access, context: &Context<'_, M>) -> Result<usize, Reject> {
        let settings = &context.qp.settings;
        let limit = usize::from(settings.max_dest_rd_atomic);
        let is_alone = self.inbound == Inbound::Nothing;
        let allowed = settings.access.contains(right) && limit > 0 && self.answers.has_room(limit);
        if allowed && is_alone { Ok(limit) } else { Err(Reject::Invalid) }
    }

    /// Answers an executed request by an empty READ response.
    fn answer_empty(&mut self, request: &Incoming<'_>, limit: usize) -> Result<Done, Reject> {
        self.answers.push_empty(request.psn, limit).map_err(|_| Reject::Invalid)?;
        Ok(Done { packets: 1, ends: true, answered: true })
    }
}

fn right_to_flush(placement: Placement) -> Access {
    let rights =
        [(Placement::GLOBAL, Access::FLUSH_GLOBAL), (Placement::PERSISTENT, Access::FLUSH_PERSISTENT)];
    let needed = rights.into_iter().filter(|(kind, _)| placement.contains(*kind));
    needed.fold(Access::NONE, |all, (_, right)| all | right)
}

/// Returns true if a packet at this position of a message may have this length (IBA 9.7.4.1.6).
#[inline]
fn fits_position(qp: &QueuePair, position: Position, len: usize) -> bool {
    let mtu = qp.mtu();
    match position {
        Position::First | Position::Middle => len == mtu,
        Position::Last => (1..=mtu).contains(&len),
        Position::Only => len <= mtu,
    }
}

fn end_of_send<M: Memory>(end: SendEnd, context: &mut Context<'_, M>) -> Result<Option<Notice>, Reject> {
    match end {
        SendEnd::Plain => Ok(None),
        SendEnd::Immediate(immediate) => Ok(Some(Notice::Immediate(immediate))),
        SendEnd::Invalidate(key) => {
            let accessor = context.qp.accessor();
            let done = context.verbs.protection.invalidate(accessor, key, Invalidator::Peer);
            done.map_err(|_| Reject::Invalidate)?;
            Ok(Some(Notice::Invalidated(key)))
        }
    }
}

fn complete_receive<M: Memory>(
    operation: CompletedOperation,
    len: u32,
    notice: Option<Notice>,
    request: &Incoming<'_>,
    context: &mut Context<'_, M>,
) {
    let urgency = if request.solicited { Urgency::Solicited } else { Urgency::Plain };
    let done = Received { status: Status::Success, operation, len, notice, source: None };
    context.qp.complete_receive(done, urgency, context.verbs);
}

/// Returns the address of these bytes in the program's memory; `None` for 0 bytes, which need no key (IBA
/// C9-88).
#[inline]
fn reachable<M: Memory>(
    rkey: RKey,
    address: u64,
    len: u32,
    right: Access,
    context: &Context<'_, M>,
) -> Result<Option<u64>, Reject> {
    if len == 0 {
        return Ok(None);
    }
    let accessor = context.qp.accessor();
    let found = context.verbs.protection.remote(accessor, rkey, address, u64::from(len), right);
    found.map(Some).map_err(|_| Reject::Access)
}
