//! Beginning an operation: its preconditions, its receive, and the memory that it reads and writes.
//!
//! | rule | where |
//! |---|---|
//! | operations begin in order, none after a failed one, none of the client's while its send queue drains | [`Stateful::may_begin`] |
//! | a fenced operation waits for READs and atomics before it (IBA 10.8.3.3) | [`Stateful::may_begin`] |
//! | an operation that consumes a receive waits for one, at most for the time of the sender's RNR retries | [`Stateful::wait_for_receive`] |
//! | the server's atomics and inline bytes take effect at once: overlapping operations before them must be settled | [`Hindrance::Conflict`] |

use nichrome_wire::rdma::RKey;
use nichrome_wire::star::{Atomic, AtomicKind, Operands};

use super::Stateful;
use super::demand::uses_receive;
use crate::core::access::Access;
use crate::core::attributes::QpState;
use crate::core::completion::Status;
use crate::core::memory::Memory;
use crate::core::protection::LKey;
use crate::core::queue_pair::Receives;
use crate::core::receive_queue::ReceiveSlot;
use crate::core::send_queue::{Pieces, Progress, SendWork};
use crate::core::verbs::Verbs;
use crate::core::work::{Operation as Verb, Remote, SendFlags, Sge};
use crate::star::flight::Initiator;
use crate::star::mirror;
use crate::star::pipeline::{Conflict, Extent, Host, Operation, Transfer};
use crate::star::result_slots::next_ticket;
use crate::star::shared::StarShared;

/// Shortest interval, in nanoseconds, at which an operation polls a shared receive queue.
const RNR_POLL_INTERVAL: u64 = 50_000;

/// Why an operation does not begin.
pub(super) enum Hindrance {
    NoReceive,
    /// An overlapping operation before it is not settled.
    Conflict,
    /// The statuses of the operation's completion and of its receive's.
    Failure(Status, Status),
}

const INVALID: Hindrance = Hindrance::Failure(Status::RemoteInvalidRequest, Status::Flushed);
const ACCESS: Hindrance = Hindrance::Failure(Status::RemoteAccess, Status::Flushed);
const TOO_LONG: Hindrance = Hindrance::Failure(Status::RemoteInvalidRequest, Status::LocalLength);

/// The properties of an operation that begins.
struct Plan {
    transfer: Transfer,
    chunks: u32,
    writes: Extent,
    is_contiguous: bool,
    fills: Option<Sge>,
    reads: Extent,
    receive: Option<ReceiveSlot>,
    before: u64,
    atomic: Option<Atomic>,
    lands: Extent,
}

impl Plan {
    /// Sets whether source and destination are one buffer each.
    fn contiguous(self, is_contiguous: bool) -> Self {
        Self { is_contiguous, ..self }
    }

    /// Sets the client's buffers that it fills.
    fn filling(self, buffers: impl Iterator<Item = Sge>) -> Self {
        let one = only(buffers);
        let is_contiguous = self.is_contiguous && one.is_some();
        Self { is_contiguous, fills: one.filter(|_| is_contiguous && self.chunks > 0), ..self }
    }

    fn new(transfer: Transfer, chunks: u32, writes: Extent, reads: Extent) -> Self {
        let (receive, before, atomic, lands) = (None, 0, None, Extent::NONE);
        let (is_contiguous, fills) = (false, None);
        Self { transfer, chunks, writes, is_contiguous, fills, reads, receive, before, atomic, lands }
    }
}

impl Stateful {
    /// Begins the initiator's next operation. Returns false if there is none or it must wait.
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
            Initiator::Client => match work.progress {
                Progress::Failed(status) => Err(Hindrance::Failure(status, Status::Flushed)),
                _ => self.plan_client_op(&work),
            },
            Initiator::Server => self.plan_server_op(&work, shared, verbs),
        };
        let (plan, failed) = match plan {
            Ok(plan) => (plan, None),
            Err(Hindrance::Conflict) => return false,
            Err(Hindrance::NoReceive) => match self.wait_for_receive(initiator, verbs) {
                true => return false,
                false => (none(), Some((Status::RnrRetryExceeded, Status::Flushed))),
            },
            Err(Hindrance::Failure(status, receive)) => (none(), Some((status, receive))),
        };
        self.rnr_since[initiator as usize] = None;
        self.next_liveness_check = None;
        let source = if work.wants_data() { Extent::NONE } else { self.source(initiator, &work) };
        let receive = plan.receive.or_else(|| failed.and_then(|_| self.qp.receiving.take()));
        let rewrites_last = failed.is_none()
            && self.rewrites_last(initiator)
            && (initiator == Initiator::Server || self.has_buffers(&work, verbs))
            && !self.pipeline(initiator).has_conflict(&Extent::NONE, &plan.reads);
        let pipeline = self.pipeline_mut(initiator);
        let Plan { transfer, chunks, writes, is_contiguous, fills, reads, before, atomic, lands, .. } = plan;
        let conflict = match rewrites_last {
            true => Conflict::SameBytes,
            false if pipeline.is_refill(fills, &reads) => Conflict::Refill,
            false if pipeline.has_conflict(&writes, &reads) => Conflict::Overlap,
            false => Conflict::None,
        };
        let first = pipeline.end();
        if let Some(Atomic { ticket, .. }) = atomic {
            self.ticket = ticket;
        }
        let pipeline = self.pipeline_mut(initiator);
        pipeline.begin(Operation {
            first,
            settles_before: first + u64::from(chunks),
            chunks,
            transfer,
            receive,
            mirrored: None,
            failed,
            before,
            atomic,
            lands,
            writes,
            is_contiguous,
            fills,
            reads,
            source,
            conflict,
            reported: None,
            blocked_since: None,
        });
        if initiator == Initiator::Client
            && uses_receive(&work.operation)
            && !matches!(failed, Some((Status::RnrRetryExceeded, _)))
        {
            let taken = self.mirror.take_receive();
            self.client_ops.operations[index].mirrored = taken;
        }
        true
    }

    /// Returns the server's buffer that the initiator's request at `index` fills, if it fills a single one.
    fn target(&self, initiator: Initiator, index: usize) -> Option<Sge> {
        let work = self.work(initiator, index)?;
        match (initiator, work.operation) {
            (Initiator::Client, Verb::Write(Remote { address, rkey })) => {
                only(std::iter::once(Sge { address, len: work.len, lkey: LKey(rkey.0) }))
            }
            (Initiator::Client, Verb::Send | Verb::SendWithImmediate(_) | Verb::SendWithInvalidate(_)) => {
                let receive = match self.client_ops.operations.get(index) {
                    Some(operation) => operation.mirrored?,
                    None => self.mirror.waiting_receive(),
                };
                only(self.mirror.receive_buffers(receive, work.len))
            }
            (Initiator::Server, Verb::Read(_)) => {
                only(mirror::pieces(&self.mirror.sends, work.source, work.len))
            }
            _ => None,
        }
    }

    /// Returns true if the initiator's next request fills exactly the server's buffer that the operation
    /// before it fills.
    fn rewrites_last(&self, initiator: Initiator) -> bool {
        let next = self.pipeline(initiator).operations.len();
        let before = next.checked_sub(1).and_then(|last| self.target(initiator, last));
        before.is_some() && before == self.target(initiator, next)
    }

    /// Returns true if the client's program owns the buffers of a request. Otherwise the operation fails, and
    /// cannot vouch for one before it.
    fn has_buffers<M: Memory>(&self, work: &SendWork, verbs: &Verbs<M>) -> bool {
        let domain = self.qp.domain;
        mirror::pieces(&self.qp.sends, work.source, work.len).all(|Sge { lkey, address, len }| {
            verbs.protection.local(domain, lkey, address, u64::from(len), Access::NONE).is_ok()
        })
    }

    /// Returns true if the next operation should begin: all chunks before it were sent, or it rewrites the
    /// bytes of the operation that is being sent, which must know this.
    pub(super) fn should_begin(&self, initiator: Initiator) -> bool {
        let pipeline = self.pipeline(initiator);
        pipeline.is_all_sent() || pipeline.is_last_under_way() && self.rewrites_last(initiator)
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

    /// Lets an operation wait for a receive. Returns false if its RNR retries are used up.
    fn wait_for_receive<M: Memory>(&mut self, initiator: Initiator, verbs: &mut Verbs<M>) -> bool {
        if initiator == Initiator::Client && self.may_be_lent_more() {
            return true;
        }
        let now = verbs.now;
        let limit = self.rnr_limit(initiator);
        if self.rnr_since[initiator as usize].is_none() {
            match initiator {
                Initiator::Client => verbs.counters.rnr_naks_received += 1,
                Initiator::Server => verbs.counters.rnr_naks_sent += 1,
            }
        }
        let since = *self.rnr_since[initiator as usize].get_or_insert(now);
        let until = limit.map(|limit| since.plus_nanos(limit));
        let waits = until.is_none_or(|until| now < until);
        let shared = initiator == Initiator::Server && matches!(self.qp.receives, Receives::Shared(_));
        let polls =
            shared.then(|| now.plus_nanos(self.qp.settings.min_rnr_timer.nanos().max(RNR_POLL_INTERVAL)));
        if waits {
            let liveness_check = if initiator == Initiator::Client { self.check_liveness(now) } else { None };
            self.rnr_poll = [self.rnr_poll, until, polls, liveness_check].into_iter().flatten().min();
        }
        waits
    }

    /// Returns the initiator's memory that a request copies from.
    fn source(&self, initiator: Initiator, work: &SendWork) -> Extent {
        match initiator {
            Initiator::Client => {
                Extent::around(Host::Client, mirror::pieces(&self.qp.sends, work.source, work.len))
            }
            Initiator::Server => {
                Extent::around(Host::Server, mirror::pieces(&self.mirror.sends, work.source, work.len))
            }
        }
    }

    fn plan_client_op(&self, work: &SendWork) -> Result<Plan, Hindrance> {
        let mtu = self.qp.mtu() as u32;
        let (access, len) = (self.peer_access, work.len);
        if uses_receive(&work.operation) && !self.mirror.has_receive() {
            return Err(Hindrance::NoReceive);
        }
        match work.operation {
            Verb::Send | Verb::SendWithImmediate(_) | Verb::SendWithInvalidate(_) => {
                let receive = self.mirror.waiting_receive();
                if len > self.mirror.receive_room(receive) {
                    return Err(TOO_LONG);
                }
                let buffers = || self.mirror.receive_buffers(receive, len);
                let writes = Extent::around(Host::Server, buffers());
                let plan = Plan::new(Transfer::ToServer, mirror::count(buffers(), mtu), writes, Extent::NONE);
                Ok(plan.contiguous(buffers().nth(1).is_none()))
            }
            Verb::Write(remote) | Verb::WriteWithImmediate(remote, _) => {
                if !access.contains(Access::REMOTE_WRITE) {
                    return Err(INVALID);
                }
                let writes = Extent::new(Host::Server, remote.address, len);
                Ok(Plan::new(Transfer::ToServer, len.div_ceil(mtu), writes, Extent::NONE).contiguous(true))
            }
            Verb::Read(remote) => {
                if !access.contains(Access::REMOTE_READ) {
                    return Err(INVALID);
                }
                let buffers = || mirror::pieces(&self.qp.sends, work.source, len);
                let writes = Extent::around(Host::Client, buffers());
                let reads = Extent::new(Host::Server, remote.address, len);
                let plan = Plan::new(Transfer::FromServer, len.div_ceil(mtu), writes, reads);
                Ok(plan.contiguous(true).filling(buffers()))
            }
            Verb::CompareSwap { remote, compare, swap } => {
                let operands = Operands { compare, swap_or_add: swap };
                self.plan_atomic(work, remote, AtomicKind::CompareSwap, operands)
            }
            Verb::FetchAdd { remote, add } => {
                let operands = Operands { compare: 0, swap_or_add: add };
                self.plan_atomic(work, remote, AtomicKind::FetchAdd, operands)
            }
            Verb::Flush { .. } | Verb::AtomicWrite(_) | Verb::LocalInvalidate(_) | Verb::BindWindow(_) => {
                Err(Hindrance::Failure(Status::LocalQpOperation, Status::Flushed))
            }
        }
    }

    /// Plans an atomic operation on the server's memory, which the server's card executes
    /// (`result_slots.rs`).
    fn plan_atomic(
        &self,
        work: &SendWork,
        remote: Remote,
        kind: AtomicKind,
        operands: Operands,
    ) -> Result<Plan, Hindrance> {
        let may = self.peer_access.contains(Access::REMOTE_ATOMIC);
        if !may || work.len != Atomic::WORD.into() || !remote.address.is_multiple_of(Atomic::WORD.into()) {
            return Err(INVALID);
        }
        let atomic = Some(Atomic { kind, ticket: next_ticket(self.ticket), operands });
        let writes = Extent::new(Host::Server, remote.address, work.len);
        let lands = Extent::around(Host::Client, mirror::pieces(&self.qp.sends, work.source, work.len));
        Ok(Plan { atomic, lands, ..Plan::new(Transfer::FromServer, 1, writes, Extent::NONE) })
    }

    fn plan_server_op<M: Memory>(
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
        let (chunks, is_contiguous) = (mirror::count(pieces(), mtu), pieces().nth(1).is_none());
        match work.operation {
            Verb::Send | Verb::SendWithImmediate(_) | Verb::SendWithInvalidate(_) => {
                if !self.qp.take_receive(verbs) {
                    return Err(Hindrance::NoReceive);
                }
                if len > self.qp.receive_room(verbs) {
                    return Err(TOO_LONG);
                }
                let writes = Extent::around(Host::Client, self.qp.receive_buffers(len, verbs));
                let plan = Plan::new(Transfer::FromServer, chunks, writes, Extent::NONE);
                let plan = plan.contiguous(is_contiguous).filling(self.qp.receive_buffers(len, verbs));
                self.store_inline(work, plan, verbs)
            }
            Verb::Write(remote) | Verb::WriteWithImmediate(remote, _) => {
                self.reachable(remote, len, Access::REMOTE_WRITE, verbs)?;
                if uses_receive(&work.operation) && !self.qp.take_receive(verbs) {
                    return Err(Hindrance::NoReceive);
                }
                let Remote { address, rkey } = remote;
                let writes = Extent::new(Host::Client, address, len);
                let plan = Plan::new(Transfer::FromServer, chunks, writes, Extent::NONE);
                let whole = Sge { address, len, lkey: LKey(rkey.0) };
                let plan = plan.contiguous(is_contiguous).filling(std::iter::once(whole));
                self.store_inline(work, plan, verbs)
            }
            Verb::Read(remote) => {
                self.reachable(remote, len, Access::REMOTE_READ, verbs)?;
                let writes = Extent::around(Host::Server, pieces());
                let reads = Extent::new(Host::Client, remote.address, len);
                Ok(Plan::new(Transfer::ToServer, chunks, writes, reads).contiguous(is_contiguous))
            }
            Verb::CompareSwap { remote, compare, swap } => {
                self.atomic(work, remote, verbs, |value| if value == compare { swap } else { value })
            }
            Verb::FetchAdd { remote, add } => {
                self.atomic(work, remote, verbs, |value| value.wrapping_add(add))
            }
            Verb::LocalInvalidate(_) | Verb::BindWindow(_) | Verb::Flush { .. } | Verb::AtomicWrite(_) => {
                Err(INVALID)
            }
        }
    }

    /// Hands a server's operation the receive that was taken for it, and stores its inline bytes.
    fn store_inline<M: Memory>(
        &mut self,
        work: &SendWork,
        mut plan: Plan,
        verbs: &mut Verbs<M>,
    ) -> Result<Plan, Hindrance> {
        if let Pieces::Inline(front, back) = self.mirror.sends.pieces(work.source, 0, work.len)
            && work.len > 0
        {
            if self.server_ops.has_conflict(&plan.writes, &plan.reads) {
                self.qp.put_back_receive(verbs);
                return Err(Hindrance::Conflict);
            }
            let landed = [(0, front), (front.len() as u32, back)].into_iter().try_for_each(
                |(offset, bytes)| match work.operation {
                    Verb::Write(remote) | Verb::WriteWithImmediate(remote, _) => {
                        let address = remote.address.wrapping_add(u64::from(offset));
                        self.write_remote(address, remote.rkey, bytes, verbs)
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

    /// Writes a server's bytes to the client's memory, if the key allows it.
    pub(super) fn write_remote<M: Memory>(
        &self,
        address: u64,
        rkey: RKey,
        bytes: &[u8],
        verbs: &mut Verbs<M>,
    ) -> Result<(), (Status, Status)> {
        let (accessor, len) = (self.qp.accessor(), bytes.len() as u64);
        let at = verbs.protection.remote(accessor, rkey, address, len, Access::REMOTE_WRITE);
        let at = at.map_err(|_| (Status::RemoteAccess, Status::Flushed))?;
        verbs.memory.write(at, bytes).map_err(|_| (Status::RemoteOperation, Status::Flushed))
    }

    /// Checks the server's access to the client's memory and returns the address; `None` for 0 bytes, which
    /// need no key (IBA C9-88).
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
        let accessor = self.qp.accessor();
        let found = verbs.protection.remote(accessor, remote.rkey, remote.address, u64::from(len), right);
        found.map(Some).map_err(|_| ACCESS)
    }

    fn atomic<M: Memory>(
        &mut self,
        work: &SendWork,
        remote: Remote,
        verbs: &mut Verbs<M>,
        change: impl Fn(u64) -> u64,
    ) -> Result<Plan, Hindrance> {
        let reads = Extent::new(Host::Client, remote.address, 8);
        let at = self.reachable(remote, 8, Access::REMOTE_ATOMIC, verbs)?;
        let aligned = at.filter(|at| at.is_multiple_of(8) && remote.address.is_multiple_of(8));
        let (Some(at), 8) = (aligned, work.len) else { return Err(INVALID) };
        if self.server_ops.has_conflict(&Extent::NONE, &reads) {
            return Err(Hindrance::Conflict);
        }
        let before = verbs.memory.update(at, change);
        let before = before.map_err(|_| Hindrance::Failure(Status::RemoteOperation, Status::Flushed))?;
        let mtu = self.qp.mtu() as u32;
        let buffers = || mirror::pieces(&self.mirror.sends, work.source, work.len);
        let writes = Extent::around(Host::Server, buffers());
        Ok(Plan { before, ..Plan::new(Transfer::ToServer, mirror::count(buffers(), mtu), writes, reads) })
    }
}

/// Returns the buffer, if it is the only one and not empty.
fn only(mut buffers: impl Iterator<Item = Sge>) -> Option<Sge> {
    let first = buffers.next().filter(|sge| sge.len > 0);
    first.filter(|_| buffers.next().is_none())
}

fn none() -> Plan {
    Plan::new(Transfer::ToServer, 0, Extent::NONE, Extent::NONE)
}
