//! The objects that all queue pairs of a device share, and access to the program's memory.

use std::collections::VecDeque;

use nichrome_wire::rdma::{QpNumber, SrqNumber};
use nichrome_wire::{Instant, TimingWheel};

use super::access::Access;
use super::completion::{Completion, Status};
use super::cq::{Added, CompletionQueue, Released, Urgency};
use super::event::Event;
use super::memory::Memory;
use super::numbers::QpNumbers;
use super::protection::{Accessor, Invalidator, Protection, Refusal};
use super::receive_queue::{ReceiveSlot, SharedReceiveQueue};
use super::send_queue::Pieces;
use super::slab::{Handle, Slab};
use super::work::{Operation, Sge};
use crate::core::attributes::AddressVector;
use crate::core::counters::Counters;
use crate::core::kind;
use crate::core::limits::Limits;

/// Resolution of the timing wheels in nanoseconds; a turn takes 34 ms.
pub(crate) const TICK: u64 = 8192;

/// An address handle: the path of datagrams.
pub(crate) struct Address {
    pub(crate) domain: Handle<kind::Domain>,
    pub(crate) vector: AddressVector,
}

/// The objects that queue pairs share: the program's memory, completion queues, shared receive queues,
/// events.
pub(crate) struct Verbs<M> {
    pub(crate) memory: M,
    pub(crate) protection: Protection,
    pub(crate) cqs: Slab<CompletionQueue, kind::Cq>,
    pub(crate) srqs: Slab<SharedReceiveQueue, kind::Srq>,
    /// Shared receive queues that may have both receives and queue pairs that wait for them.
    unserved: VecDeque<Handle<kind::Srq>>,
    /// Numbers of the shared receive queues, by which XRC requests name them.
    srq_numbers: QpNumbers,
    pub(crate) addresses: Slab<Address, kind::Address>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) counters: Counters,
    /// Moderation timer of each completion queue.
    pub(crate) cq_timers: TimingWheel<TICK>,
    /// The time passed by the driver's last call.
    pub(crate) now: Instant,
}

impl<M: Memory> Verbs<M> {
    pub(crate) fn new(memory: M, limits: &Limits, seed: u128) -> Self {
        Self {
            memory,
            protection: Protection::new(limits.keys, seed),
            cqs: Slab::new(limits.cqs),
            srqs: Slab::new(limits.srqs),
            unserved: VecDeque::new(),
            srq_numbers: QpNumbers::new(1, limits.srqs as u32, seed, "shared receive queue numbers"),
            addresses: Slab::new(limits.addresses),
            events: VecDeque::new(),
            counters: Counters::default(),
            cq_timers: TimingWheel::new(0),
            now: Instant::ZERO,
        }
    }

    /// Returns the number of a shared receive queue.
    pub(crate) fn srq_number(&self, srq: Handle<kind::Srq>) -> SrqNumber {
        SrqNumber::new(self.srq_numbers.number_of(srq.index()).value()).unwrap_or_default()
    }

    /// Returns the shared receive queue of an XRC domain that has this number.
    #[inline]
    pub(crate) fn srq_of(
        &self,
        domain: Handle<kind::Xrc>,
        number: SrqNumber,
    ) -> Option<(Handle<kind::Srq>, &SharedReceiveQueue)> {
        let handle = self.srqs.handle_at(self.srq_numbers.index_of(QpNumber::new(number.value())?)?)?;
        let queue = self.srqs.get(handle)?;
        queue.xrc.is_some_and(|xrc| xrc.domain == domain).then_some((handle, queue))
    }

    /// Takes the oldest receive of a shared queue and raises the limit event if it is due.
    #[inline]
    pub(crate) fn take_shared_receive(&mut self, srq: Handle<kind::Srq>) -> Option<ReceiveSlot> {
        let shared = self.srqs.get_mut(srq)?;
        let taken = shared.queue.take();
        if taken.is_some() && shared.passed_limit() {
            self.events.push_back(Event::SrqLimit(srq));
        }
        taken
    }

    /// Returns receives that were taken, and not filled, to the front of a shared queue.
    pub(crate) fn put_back_shared_receives(
        &mut self,
        srq: Handle<kind::Srq>,
        slots: impl DoubleEndedIterator<Item = ReceiveSlot>,
    ) {
        if let Some(shared) = self.srqs.get_mut(srq) {
            slots.rev().for_each(|slot| shared.queue.put_back(slot));
        }
        self.serve_waiters(srq);
    }

    /// Appends a queue pair to those that wait for a receive of a shared queue.
    pub(crate) fn wait_for_receive(&mut self, srq: Handle<kind::Srq>, qp: Handle<kind::Qp>) {
        if let Some(shared) = self.srqs.get_mut(srq) {
            shared.waiters.push_back(qp);
        }
        self.serve_waiters(srq);
    }

    /// Ends a queue pair's wait for a receive.
    pub(crate) fn stop_waiting(&mut self, srq: Handle<kind::Srq>, qp: Handle<kind::Qp>) {
        if let Some(shared) = self.srqs.get_mut(srq) {
            shared.waiters.retain(|waiter| *waiter != qp);
        }
    }

    /// Marks a shared queue for [`next_waiter`](Self::next_waiter), if it has both receives and queue pairs
    /// that wait.
    pub(crate) fn serve_waiters(&mut self, srq: Handle<kind::Srq>) {
        let served = |shared: &SharedReceiveQueue| shared.queue.len() > 0 && !shared.waiters.is_empty();
        if self.srqs.get(srq).is_some_and(served) && !self.unserved.contains(&srq) {
            self.unserved.push_back(srq);
        }
    }

    /// Removes the next queue pair that waits at a shared queue with receives.
    pub(crate) fn next_waiter(&mut self) -> Option<Handle<kind::Qp>> {
        while let Some(srq) = self.unserved.front() {
            let shared = self.srqs.get_mut(*srq).filter(|shared| shared.queue.len() > 0);
            if let Some(waiter) = shared.and_then(|shared| shared.waiters.pop_front()) {
                return Some(waiter);
            }
            self.unserved.pop_front();
        }
        None
    }

    /// Adds a completion to a queue. Returns false on CQ overrun: the completion is lost.
    #[must_use]
    pub(crate) fn complete(
        &mut self,
        cq: Handle<kind::Cq>,
        completion: Completion,
        urgency: Urgency,
    ) -> bool {
        let Some(queue) = self.cqs.get_mut(cq) else { return false };
        if completion.status != Status::Success {
            self.counters.completions_in_error += 1;
        }
        match queue.add(completion, urgency) {
            Added::WithoutEvent => true,
            Added::Event => {
                self.events.push_back(Event::Completion(cq));
                true
            }
            Added::EventAt(at) => {
                self.cq_timers.set(cq.index(), at, self.now);
                true
            }
            Added::Overflow => {
                self.events.push_back(Event::CqError(cq));
                false
            }
            Added::Lost => false,
        }
    }

    /// Executes a request for the device itself: invalidates a key or binds a window.
    ///
    /// # Errors
    /// The status with which the request completes.
    pub(crate) fn execute_local(&mut self, accessor: Accessor, operation: &Operation) -> Result<(), Status> {
        match *operation {
            Operation::LocalInvalidate(key) => {
                let done = self.protection.invalidate(accessor, key, Invalidator::Program);
                done.map_err(|_| Status::LocalQpOperation)
            }
            Operation::BindWindow(bind) => {
                self.protection.bind(accessor, bind).map(drop).map_err(|_| Status::WindowBind)
            }
            _ => Ok(()),
        }
    }

    /// Copies the payload of a packet from the program's buffers to `into`.
    #[inline]
    pub(crate) fn gather(
        &self,
        domain: Handle<kind::Domain>,
        pieces: Pieces<'_>,
        into: &mut [u8],
    ) -> Result<(), Refusal> {
        match pieces {
            Pieces::Buffers(scatter) => {
                let mut rest = into;
                for sge in scatter {
                    let (part, after) = rest.split_at_mut_checked(sge.len as usize).ok_or(Refusal::Bounds)?;
                    let len = u64::from(sge.len);
                    let address = self.protection.local(domain, sge.lkey, sge.address, len, Access::NONE)?;
                    self.memory.read(address, part).map_err(|_| Refusal::Bounds)?;
                    rest = after;
                }
                Ok(())
            }
            Pieces::Inline(front, back) => {
                let (first, second) = into.split_at_mut_checked(front.len()).ok_or(Refusal::Bounds)?;
                first.copy_from_slice(front);
                if second.len() != back.len() {
                    return Err(Refusal::Bounds);
                }
                second.copy_from_slice(back);
                Ok(())
            }
        }
    }

    /// Raises the events of completion queues whose moderation period ends at or before `now`.
    pub(crate) fn release_events(&mut self, now: Instant) {
        while let Some(index) = self.cq_timers.expire(now) {
            let Some(handle) = self.cqs.handle_at(index) else { continue };
            match self.cqs.get_mut(handle).map(|queue| queue.release(now)) {
                Some(Released::Event) => self.events.push_back(Event::Completion(handle)),
                Some(Released::Later(due)) => self.cq_timers.set(index, due, now),
                Some(Released::Nothing) | None => {}
            }
        }
    }
}

/// Copies received bytes to the program's buffers.
#[inline]
pub(crate) fn scatter<M: Memory>(
    memory: &mut M,
    protection: &Protection,
    domain: Handle<kind::Domain>,
    buffers: impl Iterator<Item = Sge>,
    bytes: &[u8],
) -> Result<(), Refusal> {
    let mut rest = bytes;
    for sge in buffers {
        let (part, after) = rest.split_at_checked(sge.len as usize).ok_or(Refusal::Bounds)?;
        let len = u64::from(sge.len);
        let address = protection.local(domain, sge.lkey, sge.address, len, Access::LOCAL_WRITE)?;
        memory.write(address, part).map_err(|_| Refusal::Bounds)?;
        rest = after;
    }
    if rest.is_empty() { Ok(()) } else { Err(Refusal::Bounds) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::completion::CompletedOperation;
    use crate::core::memory::ByteMemory;
    use crate::core::receive_queue::ReceiveQueue;

    /// Verbs with a shared receive queue for eight receives, and handles of three queue pairs.
    fn shared() -> (Verbs<ByteMemory>, Handle<kind::Srq>, [Handle<kind::Qp>; 3]) {
        let mut verbs = Verbs::new(ByteMemory::new(0, 0), &Limits::default(), 1);
        let domain = Slab::<(), kind::Domain>::new(1).insert(|_| ()).unwrap();
        let queue = SharedReceiveQueue {
            domain,
            queue: ReceiveQueue::new(8, 1),
            limit: 0,
            waiters: VecDeque::new(),
            users: 3,
            xrc: None,
        };
        let srq = verbs.srqs.insert(|_| queue).unwrap();
        let mut qps = Slab::<(), kind::Qp>::new(3);
        (verbs, srq, std::array::from_fn(|_| qps.insert(|_| ()).unwrap()))
    }

    fn post(verbs: &mut Verbs<ByteMemory>, srq: Handle<kind::Srq>, receives: u64) {
        for wr_id in 0..receives {
            verbs.srqs.get_mut(srq).unwrap().queue.post(wr_id, &[], 0);
            verbs.serve_waiters(srq);
        }
    }

    #[test]
    fn a_queue_pair_that_stops_waiting_loses_its_turn() {
        let (mut verbs, srq, [first, second, third]) = shared();
        [first, second, third].into_iter().for_each(|qp| verbs.wait_for_receive(srq, qp));
        verbs.stop_waiting(srq, second);
        post(&mut verbs, srq, 3);
        assert_eq!([(); 3].map(|()| verbs.next_waiter()), [Some(first), Some(third), None]);
    }

    #[test]
    fn a_shared_queue_is_served_once_and_only_if_it_has_both_receives_and_waiters() {
        let (mut verbs, srq, [first, second, _]) = shared();
        post(&mut verbs, srq, 1);
        assert!(verbs.unserved.is_empty(), "without waiters");
        verbs.take_shared_receive(srq);
        verbs.wait_for_receive(srq, first);
        verbs.wait_for_receive(srq, second);
        assert!(verbs.unserved.is_empty(), "without receives");
        post(&mut verbs, srq, 3);
        assert_eq!(verbs.unserved, [srq], "however many receives are posted");
    }

    #[test]
    fn completions_in_error_are_counted() {
        let (mut verbs, ..) = shared();
        let cq = verbs.cqs.insert(|_| CompletionQueue::new(8)).unwrap();
        for (status, count) in
            [(Status::Success, 0), (Status::Flushed, 1), (Status::RetryExceeded, 2), (Status::Success, 2)]
        {
            let completion = Completion {
                wr_id: 1,
                status,
                operation: CompletedOperation::Receive,
                qp: QpNumber::new(17).unwrap(),
                len: 0,
                notice: None,
                source: None,
                at: Instant::ZERO,
            };
            assert!(verbs.complete(cq, completion, Urgency::Plain));
            assert_eq!(verbs.counters.completions_in_error, count, "{status:?}");
        }
    }
}
