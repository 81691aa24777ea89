//! Posting requests and polling completions.

use super::send_form::{SendForm, is_carried, wants_response};
use super::transports::{Transport, for_endpoint};
use super::{Config, Device};
use crate::core::attributes::{QpState, QpType};
use crate::core::completion::Completion;
use crate::core::error::{ObjectError, ObjectKind, PostError};
use crate::core::kind;
use crate::core::memory::Memory;
use crate::core::queue_pair::{QueuePair, Receives};
use crate::core::send_queue::{SendQueue, SendWork, Source};
use crate::core::slab::Handle;
use crate::core::verbs::Verbs;
use crate::core::work::{Operation, Payload, ReceiveRequest, SendRequest, Sge, total_len};
use crate::transport::Endpoint;

impl<M: Memory> Device<M> {
    /// Posts a request to a send queue. [`Device::poll_transmit`] returns its packets.
    ///
    /// # Errors
    /// The request is invalid, or the queue is full or in a wrong state. Later failures are reported by the
    /// completion.
    #[inline]
    pub fn post_send(
        &mut self,
        handle: Handle<kind::Qp>,
        request: &SendRequest<'_>,
    ) -> Result<(), PostError> {
        let Self { qps, config, verbs, transports, .. } = self;
        let transport = qps.get_mut(handle).ok_or(ObjectError::Unknown(ObjectKind::Qp))?;
        check_room(transport, 1)?;
        let SendForm { len, progress } = check_send(transport, request, config, verbs)?;
        let qp = transport.qp_mut();
        let source = take_payload(&mut qp.sends, &request.payload, len, verbs)?;
        verbs.counters.operations.posted(&request.operation);
        let SendRequest { wr_id, operation, flags, recipient, srq, .. } = *request;
        let work = SendWork { wr_id, operation, recipient, srq, source, len, flags, progress };
        for_endpoint!(transport, transports, |endpoint, shared| endpoint.post_send(work, shared, verbs));
        self.settle(handle.index());
        Ok(())
    }

    /// Posts several requests to a send queue: all of them or, on error, none.
    ///
    /// # Errors
    /// See [`Device::post_send`]. Also fails for [`Payload::InlineFrom`].
    pub fn post_sends<'a>(
        &mut self,
        handle: Handle<kind::Qp>,
        requests: impl ExactSizeIterator<Item = SendRequest<'a>> + Clone,
    ) -> Result<(), PostError> {
        let Self { qps, config, verbs, .. } = self;
        let transport = qps.get(handle).ok_or(ObjectError::Unknown(ObjectKind::Qp))?;
        check_room(transport, requests.len())?;
        for request in requests.clone() {
            check_send(transport, &request, config, verbs)?;
            if matches!(request.payload, Payload::InlineFrom(_)) {
                // `post_send` may fail to read the bytes, when earlier requests are already posted.
                return Err(PostError::Payload);
            }
        }
        requests.into_iter().try_for_each(|request| self.post_send(handle, &request))
    }

    /// Posts a request to a receive queue.
    ///
    /// # Errors
    /// The request is invalid, or the queue is full, shared or in a wrong state.
    #[inline]
    pub fn post_receive(
        &mut self,
        handle: Handle<kind::Qp>,
        request: &ReceiveRequest<'_>,
    ) -> Result<(), PostError> {
        let Self { qps, verbs, .. } = self;
        let transport = qps.get_mut(handle).ok_or(ObjectError::Unknown(ObjectKind::Qp))?;
        for_endpoint!(transport, |endpoint| endpoint.accepts_receive(request.buffers.len()))?;
        let qp = transport.qp_mut();
        let Receives::Own(queue) = &mut qp.receives else { return Err(PostError::Shared) };
        if qp.state == QpState::Reset {
            return Err(PostError::State(qp.state));
        }
        let len = check_receive(queue.max_sge, request)?;
        if queue.is_full() {
            return Err(PostError::Full(queue.max_wr));
        }
        queue.post(request.wr_id, request.buffers, len);
        verbs.counters.operations.receives += 1;
        if for_endpoint!(transport, |endpoint| endpoint.receive_posted(verbs)) {
            self.settle(handle.index());
        }
        Ok(())
    }

    /// Posts a request to a shared receive queue.
    ///
    /// # Errors
    /// The request is invalid, or the queue is full.
    pub fn post_srq_receive(
        &mut self,
        handle: Handle<kind::Srq>,
        request: &ReceiveRequest<'_>,
    ) -> Result<(), PostError> {
        let queue = &mut self.srq_mut(handle)?.queue;
        let len = check_receive(queue.max_sge, request)?;
        if queue.is_full() {
            return Err(PostError::Full(queue.max_wr));
        }
        queue.post(request.wr_id, request.buffers, len);
        self.verbs.counters.operations.receives += 1;
        self.verbs.serve_waiters(handle);
        self.hand_out_receives();
        Ok(())
    }

    /// Removes the oldest completion of a queue; `None` if it is empty or does not exist.
    #[inline]
    pub fn poll_cq(&mut self, cq: Handle<kind::Cq>) -> Option<Completion> {
        self.verbs.cqs.get_mut(cq)?.poll()
    }
}

fn check_receive(max_sge: usize, request: &ReceiveRequest<'_>) -> Result<u32, PostError> {
    let count = request.buffers.len();
    if count > max_sge {
        return Err(PostError::Buffers { count, max: max_sge });
    }
    total_len(request.buffers).ok_or(PostError::TooLong)
}

/// Checks that the send queue accepts `count` more requests.
#[inline]
fn check_room(transport: &Transport, count: usize) -> Result<(), PostError> {
    let qp = transport.qp();
    if !for_endpoint!(transport, |endpoint| endpoint.takes_sends_in(qp.state)) {
        return Err(PostError::State(qp.state));
    }
    let max = qp.capacity.send_wrs;
    if qp.sends.len() + count > max { Err(PostError::Full(max)) } else { Ok(()) }
}

/// Validates a request; returns its form.
#[inline]
fn check_send<M>(
    transport: &Transport,
    request: &SendRequest<'_>,
    config: &Config,
    verbs: &Verbs<M>,
) -> Result<SendForm, PostError> {
    let qp = transport.qp();
    let limit = if qp.kind == QpType::Ud { config.mtu.bytes() as u32 } else { config.limits.message };
    check_operation(qp, request, verbs)?;
    let len = payload_len(qp, request)?;
    for_endpoint!(transport, |endpoint| endpoint.accepts(&request.operation, &request.payload, len))?;
    Ok(SendForm::new(qp.kind, &request.operation, len, limit))
}

/// Checks that the transport service supports the operation and the recipient.
#[inline]
fn check_operation<M>(qp: &QueuePair, request: &SendRequest<'_>, verbs: &Verbs<M>) -> Result<(), PostError> {
    use Operation as O;
    if !is_carried(qp.kind, &request.operation) {
        return Ok(());
    }
    let local = matches!(&request.operation, O::LocalInvalidate(_) | O::BindWindow(_));
    let writes = matches!(&request.operation, O::Write(_) | O::WriteWithImmediate(..));
    let sends = matches!(&request.operation, O::Send | O::SendWithImmediate(_));
    let allowed = match qp.kind {
        QpType::Rc => true,
        QpType::XrcSend => !local,
        QpType::Uc => sends || writes || local,
        QpType::Ud => sends,
        QpType::XrcReceive => false,
    };
    if !allowed {
        return Err(PostError::Operation(qp.kind));
    }
    if wants_response(&request.operation) && qp.settings.max_rd_atomic == 0 {
        return Err(PostError::NoReads);
    }
    let well_addressed = match (qp.kind, request.recipient) {
        (QpType::Ud, Some(recipient)) => {
            verbs.addresses.get(recipient.address).is_some_and(|address| address.domain == qp.domain)
        }
        (QpType::Ud, None) => false,
        (_, recipient) => recipient.is_none(),
    };
    let names_its_srq = request.srq.is_some() == (qp.kind == QpType::XrcSend);
    if well_addressed && names_its_srq { Ok(()) } else { Err(PostError::Recipient) }
}

/// Checks that the payload fits the operation; returns its length in bytes.
#[inline]
fn payload_len(qp: &QueuePair, request: &SendRequest<'_>) -> Result<u32, PostError> {
    let max = match request.operation {
        // The 8 bytes are part of the request in rdma-core's `ibv_wr_atomic_write`, whatever the queue's
        // inline capacity.
        Operation::AtomicWrite(_) => qp.capacity.inline.max(8),
        _ => qp.capacity.inline,
    };
    let len = match request.payload {
        Payload::Buffers(buffers) => {
            let (count, max) = (buffers.len(), qp.capacity.send_sges);
            if count > max {
                return Err(PostError::Buffers { count, max });
            }
            total_len(buffers).unwrap_or(u32::MAX)
        }
        Payload::InlineFrom(pieces) => inline_len(pieces.iter().map(|sge| sge.len as usize).sum(), max)?,
        Payload::Inline(bytes) => inline_len(bytes.len(), max)?,
    };
    let in_buffers = matches!(request.payload, Payload::Buffers(_));
    let fits = match request.operation {
        Operation::Read(_) | Operation::CompareSwap { .. } | Operation::FetchAdd { .. } => in_buffers,
        Operation::LocalInvalidate(_) | Operation::BindWindow(_) | Operation::Flush { .. } => len == 0,
        _ => true,
    };
    if fits { Ok(len) } else { Err(PostError::Payload) }
}

fn inline_len(len: usize, max: usize) -> Result<u32, PostError> {
    u32::try_from(len).ok().filter(|_| len <= max).ok_or(PostError::Inline { len, max })
}

#[inline]
fn take_payload<M: Memory>(
    sends: &mut SendQueue,
    payload: &Payload<'_>,
    len: u32,
    verbs: &Verbs<M>,
) -> Result<Source, PostError> {
    let source = sends.inline_start();
    match payload {
        Payload::Buffers(buffers) => Ok(sends.add_buffers(buffers)),
        Payload::Inline(bytes) => {
            sends.add_inline(bytes);
            Ok(source)
        }
        Payload::InlineFrom(pieces) => {
            take_inline(sends, pieces, len, verbs).map_err(|_| PostError::Memory)?;
            Ok(source)
        }
    }
}

fn take_inline<M: Memory>(
    sends: &mut SendQueue,
    pieces: &[Sge],
    len: u32,
    verbs: &Verbs<M>,
) -> Result<(), crate::MemoryFault> {
    const CHUNK: usize = 512;
    let mut taken = 0;
    for sge in pieces {
        let mut done = 0;
        while done < sge.len as usize {
            let mut chunk = [0; CHUNK];
            let part = (sge.len as usize - done).min(CHUNK);
            let address = sge.address.wrapping_add(done as u64);
            if let Err(fault) = verbs.memory.read(address, &mut chunk[..part]) {
                sends.drop_inline(taken);
                return Err(fault);
            }
            sends.add_inline(&chunk[..part]);
            (done, taken) = (done + part, taken + part);
        }
    }
    debug_assert_eq!(taken, len as usize);
    Ok(())
}
