//! The queue pair, apart from its transport: queues, settings, state, completions.

use nichrome_wire::rdma::{PathMtu, QKey, QpNumber, RnrTimer};

use crate::core::access::Access;
use crate::core::attributes::{AddressVector, DrainNotice, QpState, QpType};
use crate::core::completion::{CompletedOperation, Completion, Notice, Status};
use crate::core::cq::Urgency;
use crate::core::drain::Drain;
use crate::core::event::Event;
use crate::core::memory::Memory;
use crate::core::protection::{Asker, Refusal};
use crate::core::receive_queue::{ReceiveQueue, ReceiveSlot};
use crate::core::send_queue::{Pieces, Scatter, SendQueue};
use crate::core::slab::Handle;
use crate::core::verbs::{Verbs, scatter};
use crate::core::work::{SendFlags, Sge};
use crate::kind;

/// Which successful sends complete visibly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signaling {
    /// Those that ask for it.
    Requested,
    /// All.
    All,
}

/// How much a queue pair holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpCapacity {
    /// Requests in the send queue.
    pub send_wrs: usize,
    /// Requests in the receive queue; 0 with a shared one.
    pub receive_wrs: usize,
    /// Buffers in a send.
    pub send_sges: usize,
    /// Buffers in a receive; 0 with a shared receive queue.
    pub receive_sges: usize,
    /// Inline bytes in a send.
    pub inline: usize,
}

/// The attributes of a queue pair as they are.
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

impl Settings {
    /// Those of a new queue pair.
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

/// Where a queue pair's receives are.
pub(crate) enum Receives {
    Own(ReceiveQueue),
    Shared(Handle<kind::Srq>),
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
    /// The receive that a message is being put into.
    pub(crate) receiving: Option<ReceiveSlot>,
    /// A completion queue overflowed: the queue pair moves to ERROR.
    pub(crate) cq_overrun: bool,
    pub(crate) drain: Drain,
    /// Whether it is in the device's send line.
    pub(crate) in_line: bool,
    /// Nothing is sent or received until the transport is known.
    pub(crate) on_hold: bool,
    /// It is on a transport that was negotiated.
    pub(crate) is_set_up: bool,
    /// Its stream takes no bytes now.
    pub(crate) is_blocked: bool,
}

impl QueuePair {
    /// In whose name memory is reached.
    #[inline]
    pub(crate) fn asker(&self) -> Asker {
        Asker { domain: self.domain, qp: self.handle }
    }

    /// Bytes of payload in a full packet.
    #[inline]
    pub(crate) fn mtu(&self) -> usize {
        self.settings.path_mtu.bytes()
    }

    /// Takes a receive for a message that begins; false where there is none.
    #[inline]
    pub(crate) fn take_receive<M: Memory>(&mut self, verbs: &mut Verbs<M>) -> bool {
        self.receiving = match &mut self.receives {
            Receives::Own(queue) => queue.take(),
            Receives::Shared(handle) => {
                let Some(shared) = verbs.srqs.get_mut(*handle) else { return false };
                let taken = shared.queue.take();
                if taken.is_some() && shared.passed_limit() {
                    verbs.events.push_back(Event::SrqLimit(*handle));
                }
                taken
            }
        };
        self.receiving.is_some()
    }

    /// Gives back the receive of a message that will not come whole, for the next message.
    pub(crate) fn put_back_receive<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        let Some(slot) = self.receiving.take() else { return };
        match &mut self.receives {
            Receives::Own(queue) => queue.put_back(slot),
            Receives::Shared(handle) => {
                if let Some(shared) = verbs.srqs.get_mut(*handle) {
                    shared.queue.put_back(slot);
                }
            }
        }
    }

    /// Bytes that the receive of the current message holds.
    #[inline]
    pub(crate) fn receive_room<M: Memory>(&self, verbs: &Verbs<M>) -> u32 {
        let Some(slot) = self.receiving else { return 0 };
        match &self.receives {
            Receives::Own(queue) => queue.room(slot),
            Receives::Shared(handle) => verbs.srqs.get(*handle).map_or(0, |shared| shared.queue.room(slot)),
        }
    }

    /// The buffers that hold the first `len` bytes of the current message.
    pub(crate) fn receive_buffers<'a, M: Memory>(
        &'a self,
        len: u32,
        verbs: &'a Verbs<M>,
    ) -> impl Iterator<Item = Sge> + 'a {
        let queue = match &self.receives {
            Receives::Own(queue) => Some(queue),
            Receives::Shared(handle) => verbs.srqs.get(*handle).map(|shared| &shared.queue),
        };
        let buffers = self.receiving.and_then(|slot| queue.map(|queue| queue.buffers(slot)));
        Scatter::new(buffers.unwrap_or_default().iter(), 0, len)
    }

    /// Puts bytes of the current message to where its receive wants them.
    #[inline]
    pub(crate) fn put<M: Memory>(
        &self,
        offset: u32,
        bytes: &[u8],
        verbs: &mut Verbs<M>,
    ) -> Result<(), Refusal> {
        let slot = self.receiving.ok_or(Refusal::State)?;
        let queue = match &self.receives {
            Receives::Own(queue) => queue,
            Receives::Shared(handle) => &verbs.srqs.get(*handle).ok_or(Refusal::State)?.queue,
        };
        let buffers = Scatter::new(queue.buffers(slot).iter(), offset, bytes.len() as u32);
        scatter(&mut verbs.memory, &verbs.protection, self.domain, buffers, bytes)
    }

    /// Puts bytes of a response to where the send at `index` wants them.
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

    /// Completes the oldest send, which leaves the queue.
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

    /// Completes the receive of the current message.
    #[inline]
    pub(crate) fn complete_receive<M: Memory>(
        &mut self,
        done: Received,
        urgency: Urgency,
        verbs: &mut Verbs<M>,
    ) {
        let Some(slot) = self.receiving.take() else { return };
        let wr_id = match &mut self.receives {
            Receives::Own(queue) => queue.release(slot),
            Receives::Shared(handle) => match verbs.srqs.get_mut(*handle) {
                Some(shared) => shared.queue.release(slot),
                None => return,
            },
        };
        let Received { status, operation, len, notice, source } = done;
        let (qp, at) = (self.number, verbs.now);
        let completion = Completion { wr_id, status, operation, qp, len, notice, source, at };
        if !verbs.complete(self.receive_cq, completion, urgency) {
            self.cq_overrun = true;
        }
    }

    /// Completes everything that waits as flushed.
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

    /// Completes every send that waits as flushed.
    pub(crate) fn flush_sends<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        while self.sends.len() > 0 {
            self.complete_send(Status::Flushed, verbs);
        }
    }

    /// Reports that the send queue has drained, if it was draining and `outstanding` requests are none.
    pub(crate) fn check_drained<M: Memory>(&mut self, outstanding: bool, verbs: &mut Verbs<M>) {
        if !outstanding && self.drain.finish() && self.settings.drain_notice == DrainNotice::Event {
            verbs.events.push_back(Event::SendQueueDrained(self.handle));
        }
    }

    /// Forgets everything that waits.
    pub(crate) fn clear<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        self.sends = SendQueue::default();
        self.put_back_receive(verbs);
        if let Receives::Own(queue) = &mut self.receives {
            queue.clear();
        }
    }
}

/// What became of a receive.
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
