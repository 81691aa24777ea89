//! Queue pairs without their transport: queues, attributes, state, completions.

use nichrome_wire::rdma::{PathMtu, QKey, QpNumber, RnrTimer, SrqNumber};

use crate::core::access::Access;
use crate::core::attributes::{AddressVector, DrainNotice, QpState, QpType};
use crate::core::completion::{CompletedOperation, Completion, Notice, Status};
use crate::core::cq::Urgency;
use crate::core::drain::Drain;
use crate::core::event::Event;
use crate::core::kind;
use crate::core::memory::Memory;
use crate::core::protection::{Accessor, Refusal};
use crate::core::receive_queue::{ReceiveQueue, ReceiveSlot, SharedReceiveQueue};
use crate::core::send_queue::{Pieces, Scatter, SendQueue};
use crate::core::slab::{Handle, Slab};
use crate::core::verbs::{Verbs, scatter};
use crate::core::work::{SendFlags, Sge};

/// Which successful sends generate a CQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signaling {
    /// Those with [`SendFlags::SIGNALED`].
    Requested,
    /// All.
    All,
}

/// The capacity of a queue pair's queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpCapacity {
    /// Maximum number of requests in the send queue.
    pub send_wrs: usize,
    /// Maximum number of requests in the receive queue; 0 with a shared receive queue.
    pub receive_wrs: usize,
    /// Maximum number of buffers in a send.
    pub send_sges: usize,
    /// Maximum number of buffers in a receive; 0 with a shared receive queue.
    pub receive_sges: usize,
    /// Maximum number of inline bytes in a send.
    pub inline: usize,
}

/// The current attributes of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) access: Access,
    pub(crate) qkey: QKey,
    pub(crate) path: Option<AddressVector>,
    pub(crate) path_mtu: PathMtu,
    pub(crate) destination: Option<QpNumber>,
    pub(crate) timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) min_rnr_timer: RnrTimer,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) drain_notice: DrainNotice,
}

/// Nanoseconds up to which a retransmission timer is prolonged: 4.096 µs × 2^16.
const LONGEST_BACKOFF: u64 = 4096 << 16;

impl Settings {
    /// Returns the nanoseconds of the retransmission timer after `retries` retries without progress.
    ///
    /// The standard allows 1 to 4 times 4.096 µs × 2^timeout (IBA 9.7.6.1.3); rxe and most hardware wait once
    /// that time. An adapter in software is silent while its process has no processor, so short timers double
    /// up to twice, to at most [`LONGEST_BACKOFF`]. With longer timers, a send fails after retry count + 1 of
    /// them, as elsewhere.
    pub(crate) fn retry_timeout(&self, retries: u8) -> u64 {
        let shortest = 4096u64 << self.timeout;
        (shortest << retries.min(2)).min(LONGEST_BACKOFF.max(shortest))
    }

    /// Creates the attributes of a new queue pair.
    pub(crate) fn new(path_mtu: PathMtu) -> Self {
        Self {
            access: Access::NONE,
            qkey: QKey::default(),
            path: None,
            path_mtu,
            destination: None,
            timeout: 0,
            retry_count: 0,
            rnr_retry: 0,
            min_rnr_timer: RnrTimer::default(),
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            drain_notice: DrainNotice::Silent,
        }
    }
}

/// The receive queue of a queue pair.
pub(crate) enum Receives {
    Own(ReceiveQueue),
    Shared(Handle<kind::Srq>),
}

type SharedQueues = Slab<SharedReceiveQueue, kind::Srq>;

impl Receives {
    /// Returns the queue itself; `None` if it is shared and does not exist.
    #[inline]
    fn queue<'a>(&'a self, shared: &'a SharedQueues) -> Option<&'a ReceiveQueue> {
        match self {
            Self::Own(queue) => Some(queue),
            Self::Shared(handle) => shared.get(*handle).map(|shared| &shared.queue),
        }
    }

    #[inline]
    fn queue_mut<'a>(&'a mut self, shared: &'a mut SharedQueues) -> Option<&'a mut ReceiveQueue> {
        match self {
            Self::Own(queue) => Some(queue),
            Self::Shared(handle) => shared.get_mut(*handle).map(|shared| &mut shared.queue),
        }
    }
}

/// A queue pair without its transport.
pub(crate) struct QueuePair {
    pub(crate) handle: Handle<kind::Qp>,
    pub(crate) number: QpNumber,
    pub(crate) kind: QpType,
    pub(crate) state: QpState,
    pub(crate) domain: Handle<kind::Domain>,
    pub(crate) send_cq: Handle<kind::Cq>,
    pub(crate) receive_cq: Handle<kind::Cq>,
    pub(crate) capacity: QpCapacity,
    pub(crate) signaling: Signaling,
    pub(crate) settings: Settings,
    pub(crate) sends: SendQueue,
    pub(crate) receives: Receives,
    /// The XRC domain of a target; `None` for other queue pairs.
    pub(crate) xrc: Option<Handle<kind::Xrc>>,
    /// The receive of the current incoming message.
    pub(crate) receiving: Option<ReceiveSlot>,
    /// CQ overrun: the queue pair is about to move to ERROR.
    pub(crate) cq_overrun: bool,
    pub(crate) drain: Drain,
    /// The queue pair is in the device's transmit queue.
    pub(crate) in_transmit_queue: bool,
    /// No packets are sent or received until the transport is negotiated.
    pub(crate) on_hold: bool,
    /// The transport was negotiated.
    pub(crate) is_set_up: bool,
    /// Nothing can be sent: the driver's stream is not writable, or the peer is not set up yet.
    pub(crate) is_blocked: bool,
}

impl QueuePair {
    /// Returns the identity that protection checks accesses for.
    #[inline]
    pub(crate) fn accessor(&self) -> Accessor {
        Accessor { domain: self.domain, qp: self.handle }
    }

    /// Returns the path MTU: bytes of payload in a full packet.
    #[inline]
    pub(crate) fn mtu(&self) -> usize {
        self.settings.path_mtu.bytes()
    }

    /// Switches an XRC target to the shared receive queue that a request names, and to that queue's
    /// protection domain and completion queue (IBA annex A14). Returns false if the target's XRC domain has
    /// no such queue.
    #[inline]
    pub(crate) fn switch_srq<M: Memory>(&mut self, srq: SrqNumber, verbs: &Verbs<M>) -> bool {
        let found = self.xrc.and_then(|domain| verbs.srq_of(domain, srq));
        let Some((handle, queue, xrc)) = found.and_then(|(handle, queue)| Some((handle, queue, queue.xrc?)))
        else {
            return false;
        };
        (self.domain, self.receive_cq, self.receives) = (queue.domain, xrc.cq, Receives::Shared(handle));
        true
    }

    /// Takes a receive for the next message. Returns false if none is posted.
    #[inline]
    pub(crate) fn take_receive<M: Memory>(&mut self, verbs: &mut Verbs<M>) -> bool {
        self.receiving = match &mut self.receives {
            Receives::Own(queue) => queue.take(),
            Receives::Shared(handle) => verbs.take_shared_receive(*handle),
        };
        self.receiving.is_some()
    }

    /// Returns true if a receive is posted.
    pub(crate) fn has_receive<M: Memory>(&self, verbs: &Verbs<M>) -> bool {
        self.receives.queue(&verbs.srqs).is_some_and(|queue| queue.len() > 0)
    }

    /// Returns the receive of an incomplete message to the front of its queue, for the next message or for a
    /// queue pair that waits.
    pub(crate) fn put_back_receive<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        let Some(slot) = self.receiving.take() else { return };
        match &mut self.receives {
            Receives::Own(queue) => queue.put_back(slot),
            Receives::Shared(srq) => verbs.put_back_shared_receives(*srq, std::iter::once(slot)),
        }
    }

    /// Returns the capacity of the current message's receive in bytes.
    #[inline]
    pub(crate) fn receive_room<M: Memory>(&self, verbs: &Verbs<M>) -> u32 {
        let queue = self.receives.queue(&verbs.srqs);
        self.receiving.zip(queue).map_or(0, |(slot, queue)| queue.room(slot))
    }

    /// Returns the buffers for the first `len` bytes of the current message.
    pub(crate) fn receive_buffers<'a, M: Memory>(
        &'a self,
        len: u32,
        verbs: &'a Verbs<M>,
    ) -> impl Iterator<Item = Sge> + 'a {
        let queue = self.receives.queue(&verbs.srqs);
        let buffers = self.receiving.zip(queue).map(|(slot, queue)| queue.buffers(slot));
        Scatter::new(buffers.unwrap_or_default().iter(), 0, len)
    }

    /// Copies bytes of the current message to its receive's buffers, from byte `offset` of the message on.
    #[inline]
    pub(crate) fn put<M: Memory>(
        &self,
        offset: u32,
        bytes: &[u8],
        verbs: &mut Verbs<M>,
    ) -> Result<(), Refusal> {
        let slot = self.receiving.ok_or(Refusal::State)?;
        let (queue, domain) = match &self.receives {
            Receives::Own(queue) => (queue, self.domain),
            // IBA 10.2.9: the L_Keys of a shared queue's receives belong to that queue's domain.
            Receives::Shared(handle) => {
                let shared = verbs.srqs.get(*handle).ok_or(Refusal::State)?;
                (&shared.queue, shared.domain)
            }
        };
        let buffers = Scatter::new(queue.buffers(slot).iter(), offset, bytes.len() as u32);
        scatter(&mut verbs.memory, &verbs.protection, domain, buffers, bytes)
    }

    /// Copies bytes of a response to the buffers of the send at `index`, from byte `offset` of the response
    /// on.
    #[inline]
    pub(crate) fn put_response<M: Memory>(
        &self,
        index: usize,
        offset: u32,
        bytes: &[u8],
        verbs: &mut Verbs<M>,
    ) -> Result<(), Refusal> {
        let work = self.sends.get(index).ok_or(Refusal::State)?;
        match self.sends.pieces(work.source, offset, bytes.len() as u32) {
            Pieces::Buffers(buffers) => {
                scatter(&mut verbs.memory, &verbs.protection, self.domain, buffers, bytes)
            }
            Pieces::Inline(..) => Err(Refusal::State),
        }
    }

    /// Removes the oldest send and generates its CQE, if it is signaled or failed.
    #[inline]
    pub(crate) fn complete_send<M: Memory>(&mut self, status: Status, verbs: &mut Verbs<M>) {
        let Some(work) = self.sends.pop() else { return };
        let signaled = self.signaling == Signaling::All || work.flags.contains(SendFlags::SIGNALED);
        if status == Status::Success && !signaled {
            return;
        }
        let completion = Completion {
            wr_id: work.wr_id,
            status,
            operation: work.completed_operation(),
            qp: self.number,
            len: work.len,
            notice: None,
            source: None,
            at: verbs.now,
        };
        if !verbs.complete(self.send_cq, completion, Urgency::Plain) {
            self.cq_overrun = true;
        }
    }

    /// Generates the CQE of the current message's receive.
    #[inline]
    pub(crate) fn complete_receive<M: Memory>(
        &mut self,
        done: Received,
        urgency: Urgency,
        verbs: &mut Verbs<M>,
    ) {
        let Some(slot) = self.receiving.take() else { return };
        let Some(queue) = self.receives.queue_mut(&mut verbs.srqs) else { return };
        let wr_id = queue.release(slot);
        let Received { status, operation, len, notice, source } = done;
        let (qp, at) = (self.number, verbs.now);
        let completion = Completion { wr_id, status, operation, qp, len, notice, source, at };
        if !verbs.complete(self.receive_cq, completion, urgency) {
            self.cq_overrun = true;
        }
    }

    /// Flushes the send queue, the current receive and the queue pair's own receive queue.
    pub(crate) fn flush<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        self.flush_sends(verbs);
        let flushed = Received::failed(Status::Flushed);
        self.complete_receive(flushed, Urgency::Plain, verbs);
        loop {
            let Receives::Own(queue) = &mut self.receives else { return };
            self.receiving = queue.take();
            if self.receiving.is_none() {
                return;
            }
            self.complete_receive(flushed, Urgency::Plain, verbs);
        }
    }

    /// Flushes the send queue.
    pub(crate) fn flush_sends<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        while self.sends.len() > 0 {
            self.complete_send(Status::Flushed, verbs);
        }
    }

    /// Raises the drain event if the send queue was draining and no request is outstanding.
    pub(crate) fn check_drained<M: Memory>(&mut self, outstanding: bool, verbs: &mut Verbs<M>) {
        if !outstanding && self.drain.finish() && self.settings.drain_notice == DrainNotice::Event {
            verbs.events.push_back(Event::SendQueueDrained(self.handle));
        }
    }

    /// Drops all queued requests without completions.
    pub(crate) fn clear<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        self.sends = SendQueue::default();
        self.put_back_receive(verbs);
        if let Receives::Own(queue) = &mut self.receives {
            queue.clear();
        }
    }
}

/// The result of a receive.
#[derive(Clone, Copy)]
pub(crate) struct Received {
    pub(crate) status: Status,
    pub(crate) operation: CompletedOperation,
    pub(crate) len: u32,
    pub(crate) notice: Option<Notice>,
    pub(crate) source: Option<QpNumber>,
}

impl Received {
    pub(crate) fn failed(status: Status) -> Self {
        let operation = CompletedOperation::Receive;
        Self { status, operation, len: 0, notice: None, source: None }
    }
}
