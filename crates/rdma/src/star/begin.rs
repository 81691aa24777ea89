//! An operation begins at the client: what it needs is there, and it is known where its bytes go.
//!
//! | rule | where |
//! |---|---|
//! | operations begin in order, none behind one that failed, none of the client's while its send queue drains | [`Stateful::may_begin`] |
//! | a fenced one waits for READs and atomics before it (IBA 10.8.3.3) | [`Stateful::may_begin`] |
//! | what fills or uses up a receive waits for one at this side, in the queue or its mirror, as long as the sender's RNR retries have it | [`Stateful::not_ready`] |
//! | an atomic is done when it begins, and so is what came with its bytes: then all before it that has to do with them is settled | [`Stateful::has_turn`] |

use nichrome_wire::rdma::RKey;

use super::flight::Initiator;
use super::mirror::{self, extent};
use super::pipeline::{Conflict, Extent, Operation, Side, Transfer};
use super::shared::StarShared;
use super::stateful::Stateful;
use crate::core::access::Access;
use crate::core::attributes::QpState;
use crate::core::completion::Status;
use crate::core::memory::Memory;
use crate::core::queue_pair::Receives;
use crate::core::receive_queue::ReceiveSlot;
use crate::core::send_queue::{Pieces, SendWork};
use crate::core::verbs::Verbs;
use crate::core::work::{Operation as Verb, Remote, SendFlags, Sge};

/// A shared receive queue is looked at again after so many nanoseconds at least.
const LOOK_AGAIN: u64 = 50_000;

/// Why an operation does not begin.
pub(super) enum Hindrance {
    /// It waits for a receive.
    NotReady,
    /// It waits for operations before it.
    Turn,
    /// It cannot be done: how it completes, and how its receive does.
    Failure(Status, Status),
}

const INVALID: Hindrance = Hindrance::Failure(Status::RemoteInvalidRequest, Status::Flushed);
const ACCESS: Hindrance = Hindrance::Failure(Status::RemoteAccess, Status::Flushed);
const TOO_LONG: Hindrance = Hindrance::Failure(Status::RemoteInvalidRequest, Status::LocalLength);

/// What an operation that begins is like.
struct Plan {
    transfer: Transfer,
    chunks: u32,
    writes: Extent,
    is_one: bool,
    reads: Extent,
    receive: Option<ReceiveSlot>,
    before: u64,
}

impl Plan {
    /// Where it writes is one piece, and its chunks are cut from one piece.
    fn one(self, is_one: bool) -> Self {
        Self { is_one, ..self }
    }

    fn new(transfer: Transfer, chunks: u32, writes: Extent, reads: Extent) -> Self {
        Self { transfer, chunks, writes, is_one: false, reads, receive: None, before: 0 }
    }
}

impl Stateful {
    /// Begins the next operation of one side; whether it has.
    pub(super) fn begin<M: Memory>(
        &mut self,
        initiator: Initiator,
        shared: &StarShared,
        verbs: &mut Verbs<M>,
    ) -> bool {
        let index = self.pipeline(initiator).operations.len();
        let Some(work) = self.work(initiator, index) else { return false };
        if !self.may_begin(initiator, work) {
            return false;
        }
        let work = work.clone();
        let plan = match initiator {
            Initiator::Client => self.plan_own(&work),
            Initiator::Server => self.plan_theirs(&work, shared, verbs),
        };
        let (plan, failed) = match plan {
            Ok(plan) => (plan, None),
            Err(Hindrance::Turn) => return false,
            Err(Hindrance::NotReady) => match self.not_ready(initiator, verbs) {
                true => return false,
                false => (none(), Some((Status::RnrRetryExceeded, Status::Flushed))),
            },
            Err(Hindrance::Failure(status, receive)) => (none(), Some((status, receive))),
        };
        self.unready[initiator as usize] = None;
        let source = if work.wants_data() { Extent::NONE } else { self.source(initiator, &work) };
        let receive = plan.receive.or_else(|| failed.and_then(|_| self.qp.receiving.take()));
        let is_again = self.is_again(initiator) && self.has_buffers(&work, verbs);
        let pipeline = self.pipeline_mut(initiator);
        let Plan { transfer, chunks, writes, is_one, reads, before, .. } = plan;
        let conflict = match is_again {
            true => Conflict::Again,
            false if pipeline.has_conflict(&writes, &reads) => Conflict::Some,
            false => Conflict::None,
        };
        let first = pipeline.end();
        pipeline.begin(Operation {
            first,
            vouches: first + u64::from(chunks),
            chunks,
            transfer,
            receive,
            mirrored: None,
            failed,
            before,
            writes,
            is_one,
            reads,
            source,
            conflict,
            told: None,
            held: None,
        });
        if initiator == Initiator::Client
            && uses_receive(&work.operation)
            && !matches!(failed, Some((Status::RnrRetryExceeded, _)))
        {
            let taken = self.mirror.take_receive();
            self.own.operations[index].mirrored = taken;
        }
        true
    }

    /// Whether the request that begins next is a WRITE to exactly the bytes that the operation before it writes.
    fn is_again(&self, initiator: Initiator) -> bool {
        let next = self.pipeline(initiator).operations.len();
        let place = |index: usize| match self.qp.sends.get(index)? {
            SendWork { operation: Verb::Write(remote), len, .. } => Some((*remote, *len)),
            _ => None,
        };
        let before = next.checked_sub(1).and_then(place).filter(|(_, len)| *len > 0);
        initiator == Initiator::Client && before.is_some() && before == place(next)
    }

    /// Whether the buffers of a request are the program's. One that has not would make none before it certain.
    fn has_buffers<M: Memory>(&self, work: &SendWork, verbs: &Verbs<M>) -> bool {
        let domain = self.qp.domain;
        mirror::pieces(&self.qp.sends, work.source, work.len).all(|Sge { lkey, address, len }| {
            verbs.protection.local(domain, lkey, address, u64::from(len), Access::NONE).is_ok()
        })
    }

    /// Whether the next operation is to begin, if it can: when all before it was sent, or a WRITE that is being sent has
    /// to know whether it is the last one to its place.
    pub(super) fn is_to_begin(&self, initiator: Initiator) -> bool {
        let pipeline = self.pipeline(initiator);
        pipeline.is_all_sent() || pipeline.is_last_under_way() && self.is_again(initiator)
    }

    fn may_begin(&self, initiator: Initiator, work: &SendWork) -> bool {
        let pipeline = self.pipeline(initiator);
        let state = match initiator {
            Initiator::Client => self.qp.state == QpState::Rts,
            Initiator::Server => true,
        };
        let failed = pipeline.operations.back().is_some_and(|last| last.failed.is_some());
        let reading = || {
            let unsettled = pipeline.operations.iter().enumerate().skip(pipeline.settled);
            let mut works = unsettled.filter_map(|(index, _)| self.work(initiator, index));
            works.any(SendWork::wants_data)
        };
        let fenced = work.flags.contains(SendFlags::FENCE) && reading();
        state && !failed && !fenced && pipeline.has_room()
    }

    /// An operation waits for a receive; false where it has waited long enough.
    fn not_ready<M: Memory>(&mut self, initiator: Initiator, verbs: &mut Verbs<M>) -> bool {
        let now = verbs.now;
        let limit = self.readiness(initiator);
        if self.unready[initiator as usize].is_none() {
            match initiator {
                Initiator::Client => verbs.counters.rnr_naks_received += 1,
                Initiator::Server => verbs.counters.rnr_naks_sent += 1,
            }
        }
        let since = *self.unready[initiator as usize].get_or_insert(now);
        let until = limit.map(|limit| since.plus_nanos(limit));
        let waits = until.is_none_or(|until| now < until);
        let shared = initiator == Initiator::Server && matches!(self.qp.receives, Receives::Shared(_));
        let polls = shared.then(|| now.plus_nanos(self.qp.settings.min_rnr_timer.nanos().max(LOOK_AGAIN)));
        if waits {
            self.look_again = [self.look_again, until, polls].into_iter().flatten().min();
        }
        waits
    }

    /// The memory of its own side that a request copies from.
    fn source(&self, initiator: Initiator, work: &SendWork) -> Extent {
        match initiator {
            Initiator::Client => extent(Side::Client, mirror::pieces(&self.qp.sends, work.source, work.len)),
            Initiator::Server => {
                extent(Side::Server, mirror::pieces(&self.mirror.sends, work.source, work.len))
            }
        }
    }

    fn plan_own(&self, work: &SendWork) -> Result<Plan, Hindrance> {
        let mtu = self.qp.mtu() as u32;
        let (access, len) = (self.peer_access, work.len);
        if uses_receive(&work.operation) && !self.mirror.has_receive() {
            return Err(Hindrance::NotReady);
        }
        match work.operation {
            Verb::Send | Verb::SendWithImmediate(_) | Verb::SendWithInvalidate(_) => {
                let receive = self.mirror.waiting_receive();
                if len > self.mirror.receive_room(receive) {
                    return Err(TOO_LONG);
                }
                let buffers = || self.mirror.receive_buffers(receive, len);
                let writes = extent(Side::Server, buffers());
                let plan = Plan::new(Transfer::ToServer, mirror::count(buffers(), mtu), writes, Extent::NONE);
                Ok(plan.one(buffers().nth(1).is_none()))
            }
            Verb::Write(remote) | Verb::WriteWithImmediate(remote, _) => {
                if !access.contains(Access::REMOTE_WRITE) {
                    return Err(INVALID);
                }
                let writes = Extent::new(Side::Server, remote.address, len);
                Ok(Plan::new(Transfer::ToServer, len.div_ceil(mtu), writes, Extent::NONE).one(true))
            }
            Verb::Read(remote) => {
                if !access.contains(Access::REMOTE_READ) {
                    return Err(INVALID);
                }
                let buffers = || mirror::pieces(&self.qp.sends, work.source, len);
                let writes = extent(Side::Client, buffers());
                let reads = Extent::new(Side::Server, remote.address, len);
                let plan = Plan::new(Transfer::FromServer, len.div_ceil(mtu), writes, reads);
                Ok(plan.one(buffers().nth(1).is_none()))
            }
            Verb::CompareSwap { .. }
            | Verb::FetchAdd { .. }
            | Verb::LocalInvalidate(_)
            | Verb::BindWindow(_) => Err(Hindrance::Failure(Status::LocalQpOperation, Status::Flushed)),
        }
    }

    fn plan_theirs<M: Memory>(
        &mut self,
        work: &SendWork,
        shared: &StarShared,
        verbs: &mut Verbs<M>,
    ) -> Result<Plan, Hindrance> {
        let mtu = self.qp.mtu() as u32;
        let len = work.len;
        if len > shared.environment.message_limit {
            return Err(INVALID);
        }
        let pieces = || mirror::pieces(&self.mirror.sends, work.source, len);
        let (chunks, is_one) = (mirror::count(pieces(), mtu), pieces().nth(1).is_none());
        match work.operation {
            Verb::Send | Verb::SendWithImmediate(_) | Verb::SendWithInvalidate(_) => {
                if !self.qp.take_receive(verbs) {
                    return Err(Hindrance::NotReady);
                }
                if len > self.qp.receive_room(verbs) {
                    return Err(TOO_LONG);
                }
                let writes = extent(Side::Client, self.qp.receive_buffers(len, verbs));
                let is_one = is_one && self.qp.receive_buffers(len, verbs).nth(1).is_none();
                let plan = Plan::new(Transfer::FromServer, chunks, writes, Extent::NONE).one(is_one);
                self.take_in(work, plan, verbs)
            }
            Verb::Write(remote) | Verb::WriteWithImmediate(remote, _) => {
                self.reachable(remote, len, Access::REMOTE_WRITE, verbs)?;
                if uses_receive(&work.operation) && !self.qp.take_receive(verbs) {
                    return Err(Hindrance::NotReady);
                }
                let writes = Extent::new(Side::Client, remote.address, len);
                let plan = Plan::new(Transfer::FromServer, chunks, writes, Extent::NONE).one(is_one);
                self.take_in(work, plan, verbs)
            }
            Verb::Read(remote) => {
                self.reachable(remote, len, Access::REMOTE_READ, verbs)?;
                let writes = extent(Side::Server, pieces());
                let reads = Extent::new(Side::Client, remote.address, len);
                Ok(Plan::new(Transfer::ToServer, chunks, writes, reads).one(is_one))
            }
            Verb::CompareSwap { remote, compare, swap } => {
                self.atomic(work, remote, verbs, |value| if value == compare { swap } else { value })
            }
            Verb::FetchAdd { remote, add } => {
                self.atomic(work, remote, verbs, |value| value.wrapping_add(add))
            }
            Verb::LocalInvalidate(_) | Verb::BindWindow(_) => Err(INVALID),
        }
    }

    /// Takes the receive for an operation of the server, and the bytes that came with it.
    fn take_in<M: Memory>(
        &mut self,
        work: &SendWork,
        mut plan: Plan,
        verbs: &mut Verbs<M>,
    ) -> Result<Plan, Hindrance> {
        if let Pieces::Inline(front, back) = self.mirror.sends.pieces(work.source, 0, work.len)
            && work.len > 0
        {
            if !self.has_turn(&plan.writes, &plan.reads) {
                self.qp.put_back_receive(verbs);
                return Err(Hindrance::Turn);
            }
            let landed = [(0, front), (front.len() as u32, back)].into_iter().try_for_each(
                |(offset, bytes)| match work.operation {
                    Verb::Write(remote) | Verb::WriteWithImmediate(remote, _) => {
                        let address = remote.address.wrapping_add(u64::from(offset));
                        self.write_here(address, remote.rkey, bytes, verbs)
                    }
                    _ => {
                        let put = self.qp.put(offset, bytes, verbs);
                        put.map_err(|_| (Status::RemoteOperation, Status::LocalProtection))
                    }
                },
            );
            if let Err((status, receive)) = landed {
                return Err(Hindrance::Failure(status, receive));
            }
        }
        plan.receive = self.qp.receiving.take();
        Ok(plan)
    }

    /// Writes bytes of the server's to where its program wants them in the client's memory.
    pub(super) fn write_here<M: Memory>(
        &self,
        address: u64,
        rkey: RKey,
        bytes: &[u8],
        verbs: &mut Verbs<M>,
    ) -> Result<(), (Status, Status)> {
        let (asker, len) = (self.qp.asker(), bytes.len() as u64);
        let at = verbs.protection.remote(asker, rkey, address, len, Access::REMOTE_WRITE);
        let at = at.map_err(|_| (Status::RemoteAccess, Status::Flushed))?;
        verbs.memory.write(at, bytes).map_err(|_| (Status::RemoteOperation, Status::Flushed))
    }

    /// Whether the server may do this with the client's memory. Where there are no bytes, no key is needed (IBA C9-88).
    fn reachable<M: Memory>(
        &self,
        remote: Remote,
        len: u32,
        right: Access,
        verbs: &Verbs<M>,
    ) -> Result<Option<u64>, Hindrance> {
        if !self.qp.settings.access.contains(right) {
            return Err(INVALID);
        }
        if len == 0 {
            return Ok(None);
        }
        let asker = self.qp.asker();
        let found = verbs.protection.remote(asker, remote.rkey, remote.address, u64::from(len), right);
        found.map(Some).map_err(|_| ACCESS)
    }

    /// Whether all before an operation of the server that has to do with it is settled.
    fn has_turn(&self, writes: &Extent, reads: &Extent) -> bool {
        !self.theirs.has_conflict(writes, reads)
    }

    fn atomic<M: Memory>(
        &mut self,
        work: &SendWork,
        remote: Remote,
        verbs: &mut Verbs<M>,
        change: impl Fn(u64) -> u64,
    ) -> Result<Plan, Hindrance> {
        let reads = Extent::new(Side::Client, remote.address, 8);
        let at = self.reachable(remote, 8, Access::REMOTE_ATOMIC, verbs)?;
        let aligned = at.filter(|at| at.is_multiple_of(8) && remote.address.is_multiple_of(8));
        let (Some(at), 8) = (aligned, work.len) else { return Err(INVALID) };
        if !self.has_turn(&Extent::NONE, &reads) {
            return Err(Hindrance::Turn);
        }
        let before = verbs.memory.update(at, change);
        let before = before.map_err(|_| Hindrance::Failure(Status::RemoteOperation, Status::Flushed))?;
        let mtu = self.qp.mtu() as u32;
        let buffers = || mirror::pieces(&self.mirror.sends, work.source, work.len);
        let writes = extent(Side::Server, buffers());
        Ok(Plan { before, ..Plan::new(Transfer::ToServer, mirror::count(buffers(), mtu), writes, reads) })
    }
}

fn none() -> Plan {
    Plan::new(Transfer::ToServer, 0, Extent::NONE, Extent::NONE)
}

/// Whether the operation completes a receive at the other side.
pub(super) fn uses_receive(operation: &Verb) -> bool {
    matches!(
        operation,
        Verb::Send | Verb::SendWithImmediate(_) | Verb::SendWithInvalidate(_) | Verb::WriteWithImmediate(..)
    )
}
