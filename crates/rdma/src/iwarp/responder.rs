//! The responder: executes the peer's messages.
//!
//! | rule | source |
//! |---|---|
//! | messages of a queue come in the order of their numbers, segments in the order of their offsets | RFC 5041 section 5.3 |
//! | a WRITE's segments follow each other in memory and name one STag; no other tagged message begins within it | siw |
//! | an untagged message of queue 0 ends before the next begins | RFC 5040 section 5 |
//! | a SEND without a receive waits, or ends the connection | [`WithoutReceive`] |
//! | every segment's memory is checked when it arrives; nothing is written of a segment that does not fit | RFC 5041 section 8 |
//! | immediate data takes a receive, and reports the bytes of the WRITE before it | RFC 7306 section 6 |

use nichrome_wire::iwarp::{
    AtomicRequest, AtomicResponse, IMMEDIATE_LEN, MessageNumber, Opcode, ReadRequest, STag, Segment,
    SegmentDestination, TerminateCode,
};
use nichrome_wire::rdma::{ImmediateData, RKey};

use super::arrival::Arrived;
use super::atomic::applied;
use super::config::WithoutReceive;
use super::context::Context;
use super::fault::{Fault, FaultKind};
use super::responses::{Responses, key};
use crate::core::access::Access;
use crate::core::completion::{CompletedOperation, Notice, Status};
use crate::core::cq::Urgency;
use crate::core::memory::Memory;
use crate::core::protection::{Invalidator, Refusal};
use crate::core::queue_pair::Received;

/// The responder's half of a queue pair.
pub(super) struct Responder {
    extended: bool,
    without_receive: WithoutReceive,
    /// The next message of the peer's queue 0.
    next_send: MessageNumber,
    /// The next message of the peer's queue 1.
    next_request: MessageNumber,
    /// The SEND that is being received.
    send: Option<Send>,
    /// The WRITE that is being received.
    write: Option<Write>,
    /// Bytes of the last complete WRITE, for immediate data.
    written: u32,
    pub(super) responses: Responses,
}

#[derive(Clone, Copy)]
struct Send {
    opcode: Opcode,
    received: u32,
}

#[derive(Clone, Copy)]
struct Write {
    stag: STag,
    /// Tagged offset of the next segment.
    offset: u64,
    received: u32,
}

/// The result of a valid segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SegmentOutcome {
    /// It was processed.
    Processed,
    /// It is of a message for which no receive is posted. Nothing has changed.
    NoReceive,
}

impl Responder {
    pub(super) fn new(ird: u16, extended: bool, without_receive: WithoutReceive) -> Self {
        Self {
            extended,
            without_receive,
            next_send: MessageNumber::FIRST,
            next_request: MessageNumber::FIRST,
            send: None,
            write: None,
            written: 0,
            responses: Responses::new(ird),
        }
    }

    /// Returns true if a WRITE's last segment has not arrived.
    #[inline]
    pub(super) fn is_within_write(&self) -> bool {
        self.write.is_some()
    }

    /// Counts the ready-to-receive message if it is a SEND: it has a message number, but takes no receive.
    pub(super) fn skip_send(&mut self) {
        self.next_send = self.next_send.next();
    }

    /// Processes a segment of a WRITE, or a part of one.
    #[inline]
    pub(super) fn write<M: Memory>(
        &mut self,
        segment: &Segment,
        payload: Arrived<'_>,
        context: &mut Context<'_, M>,
    ) -> Result<SegmentOutcome, Fault> {
        let SegmentDestination::Tagged { stag, offset } = segment.destination else {
            return Err(TerminateCode::OPCODE.into());
        };
        let begun = self.write.unwrap_or(Write { stag, offset, received: 0 });
        if begun.stag != stag {
            return Err(TerminateCode::TAGGED_STAG.into());
        }
        if begun.offset != offset {
            return Err(TerminateCode::TAGGED_BOUNDS.into());
        }
        let Context { qp, verbs } = context;
        let len = payload.bytes.len() as u64;
        if len > 0 {
            let left = payload.left() as u64;
            offset.checked_add(left).ok_or(TerminateCode::TAGGED_WRAP)?;
            if !qp.settings.access.contains(Access::REMOTE_WRITE) {
                return Err(Fault::tagged(Refusal::Right));
            }
            let at = verbs.protection.remote(qp.accessor(), key(stag), offset, left, Access::REMOTE_WRITE);
            let written =
                at.and_then(|at| verbs.memory.write(at, payload.bytes).map_err(|_| Refusal::Bounds));
            written.map_err(Fault::tagged)?;
            verbs.counters.bytes_received += len;
        }
        let received = begun.received.saturating_add(len as u32);
        self.write = if segment.is_last && payload.ends() {
            self.written = received;
            None
        } else {
            Some(Write { stag, offset: offset.wrapping_add(len), received })
        };
        Ok(SegmentOutcome::Processed)
    }

    /// Processes a segment of a SEND, or a part of one.
    #[inline]
    pub(super) fn send<M: Memory>(
        &mut self,
        segment: &Segment,
        payload: Arrived<'_>,
        context: &mut Context<'_, M>,
    ) -> Result<SegmentOutcome, Fault> {
        let SegmentDestination::Untagged { message, offset, invalidate } = segment.destination else {
            return Err(TerminateCode::OPCODE.into());
        };
        let received = self.check_send(segment.opcode, message, offset)?;
        let Context { qp, verbs } = context;
        if self.send.is_none() && !qp.take_receive(verbs) {
            return self.no_receive();
        }
        if received.saturating_add(payload.left() as u32) > qp.receive_room(verbs) {
            return Err(failed(Status::LocalLength, TerminateCode::TOO_LONG.into(), context));
        }
        if let Err(refusal) = qp.put(received, payload.bytes, verbs) {
            let kind = if refusal == Refusal::State { FaultKind::Protocol } else { FaultKind::Access };
            let fault = Fault { code: TerminateCode::DDP_CATASTROPHIC, kind };
            return Err(failed(Status::LocalProtection, fault, context));
        }
        verbs.counters.bytes_received += payload.bytes.len() as u64;
        let total = received + payload.bytes.len() as u32;
        self.send = Some(Send { opcode: segment.opcode, received: total });
        if segment.is_last && payload.ends() {
            self.send = None;
            self.next_send = message.next();
            let notice = end_of_send(segment.opcode, invalidate, context)?;
            complete(CompletedOperation::Receive, total, notice, segment.opcode, context);
        }
        Ok(SegmentOutcome::Processed)
    }

    /// Checks that a segment is the next one of queue 0; returns how many bytes of its message came before
    /// it.
    #[inline]
    fn check_send(&self, opcode: Opcode, message: MessageNumber, offset: u32) -> Result<u32, Fault> {
        let begun = self.send.unwrap_or(Send { opcode, received: 0 });
        if message != self.next_send {
            Err(TerminateCode::MESSAGE_NUMBER.into())
        } else if offset != begun.received {
            Err(TerminateCode::MESSAGE_OFFSET.into())
        } else if opcode != begun.opcode {
            Err(TerminateCode::OPCODE.into())
        } else {
            Ok(begun.received)
        }
    }

    fn no_receive(&self) -> Result<SegmentOutcome, Fault> {
        match self.without_receive {
            WithoutReceive::Wait => Ok(SegmentOutcome::NoReceive),
            WithoutReceive::Terminate => Err(TerminateCode::NO_BUFFER.into()),
        }
    }

    /// Processes immediate data.
    pub(super) fn immediate<M: Memory>(
        &mut self,
        segment: &Segment,
        payload: &[u8],
        context: &mut Context<'_, M>,
    ) -> Result<SegmentOutcome, Fault> {
        let SegmentDestination::Untagged { message, offset, .. } = segment.destination else {
            return Err(TerminateCode::OPCODE.into());
        };
        if !self.extended || self.send.is_some() {
            return Err(TerminateCode::OPCODE.into());
        }
        self.check_send(segment.opcode, message, offset)?;
        let Some((data, _)) = payload.split_first_chunk().filter(|_| payload.len() == IMMEDIATE_LEN) else {
            return Err(TerminateCode::UNSPECIFIED.into());
        };
        if !context.qp.take_receive(context.verbs) {
            return self.no_receive();
        }
        self.next_send = message.next();
        let len = std::mem::take(&mut self.written);
        let notice = Some(Notice::Immediate(ImmediateData(*data)));
        complete(CompletedOperation::ReceiveWithWrite, len, notice, segment.opcode, context);
        Ok(SegmentOutcome::Processed)
    }

    /// Checks that a segment is the next message of queue 1, and that the IRD allows it.
    fn check_request(&mut self, segment: &Segment) -> Result<MessageNumber, Fault> {
        let SegmentDestination::Untagged { message, offset, .. } = segment.destination else {
            return Err(TerminateCode::OPCODE.into());
        };
        if message != self.next_request {
            return Err(TerminateCode::MESSAGE_NUMBER.into());
        }
        if offset != 0 || !segment.is_last {
            return Err(TerminateCode::MESSAGE_OFFSET.into());
        }
        self.responses.check_room()?;
        self.next_request = message.next();
        Ok(message)
    }

    /// Processes a READ request.
    pub(super) fn read<M: Memory>(
        &mut self,
        segment: &Segment,
        payload: &[u8],
        context: &mut Context<'_, M>,
    ) -> Result<SegmentOutcome, Fault> {
        let number = self.check_request(segment)?;
        let bytes = <&[u8; ReadRequest::LEN]>::try_from(payload).map_err(|_| TerminateCode::UNSPECIFIED)?;
        let request = ReadRequest::from_bytes(bytes);
        let Context { qp, verbs } = context;
        let len = u64::from(request.len);
        if len > 0 {
            let (source, sink) = (request.source_offset, request.sink_offset);
            source.checked_add(len).and(sink.checked_add(len)).ok_or(TerminateCode::WRAP)?;
            if !qp.settings.access.contains(Access::REMOTE_READ) {
                return Err(Fault::remote(Refusal::Right));
            }
            let found =
                verbs.protection.remote(qp.accessor(), key(request.source), source, len, Access::REMOTE_READ);
            found.map_err(Fault::remote)?;
        }
        self.responses.push_read(number, request);
        Ok(SegmentOutcome::Processed)
    }

    /// Processes an atomic request.
    pub(super) fn atomic<M: Memory>(
        &mut self,
        segment: &Segment,
        payload: &[u8],
        context: &mut Context<'_, M>,
    ) -> Result<SegmentOutcome, Fault> {
        if !self.extended {
            return Err(TerminateCode::OPCODE.into());
        }
        self.check_request(segment)?;
        let bytes = <&[u8; AtomicRequest::LEN]>::try_from(payload).map_err(|_| TerminateCode::UNSPECIFIED)?;
        let request = AtomicRequest::from_bytes(bytes).map_err(|_| TerminateCode::OPCODE)?;
        let Context { qp, verbs } = context;
        if !qp.settings.access.contains(Access::REMOTE_ATOMIC) {
            return Err(Fault::remote(Refusal::Right));
        }
        let (stag, offset) = (key(request.stag), request.offset);
        let found = verbs.protection.remote(qp.accessor(), stag, offset, 8, Access::REMOTE_ATOMIC);
        let is_aligned = |at: &u64| at.is_multiple_of(8) && offset.is_multiple_of(8);
        let at = found.and_then(|at| Some(at).filter(is_aligned).ok_or(Refusal::Bounds));
        let updated = at.and_then(|at| {
            let update = verbs.memory.update(at, |value| applied(request.operation, value));
            update.map_err(|_| Refusal::Bounds)
        });
        let original_value = updated.map_err(Fault::remote)?;
        self.responses.push_atomic(AtomicResponse { id: request.id, original_value });
        Ok(SegmentOutcome::Processed)
    }

    /// Forgets the messages that have begun, and the responses.
    pub(super) fn stop(&mut self) {
        (self.send, self.write) = (None, None);
        self.responses.clear();
    }
}

/// Executes the invalidation that the last segment of a SEND requests.
fn end_of_send<M: Memory>(
    opcode: Opcode,
    invalidate: STag,
    context: &mut Context<'_, M>,
) -> Result<Option<Notice>, Fault> {
    if !matches!(opcode, Opcode::SendInvalidate | Opcode::SendSolicitedInvalidate) {
        return Ok(None);
    }
    let (accessor, rkey) = (context.qp.accessor(), RKey(invalidate.0));
    match context.verbs.protection.invalidate(accessor, rkey, Invalidator::Peer) {
        Ok(()) => Ok(Some(Notice::Invalidated(rkey))),
        Err(_) => {
            let fault = Fault { code: TerminateCode::INVALIDATE, kind: FaultKind::Access };
            Err(failed(Status::RemoteInvalidRequest, fault, context))
        }
    }
}

/// Completes the receive of the current message in error.
fn failed<M: Memory>(status: Status, fault: Fault, context: &mut Context<'_, M>) -> Fault {
    context.qp.complete_receive(Received::failed(status), Urgency::Plain, context.verbs);
    fault
}

#[inline]
fn complete<M: Memory>(
    operation: CompletedOperation,
    len: u32,
    notice: Option<Notice>,
    opcode: Opcode,
    context: &mut Context<'_, M>,
) {
    let urgency = if opcode.is_solicited() { Urgency::Solicited } else { Urgency::Plain };
    let done = Received { status: Status::Success, operation, len, notice, source: None };
    context.qp.complete_receive(done, urgency, context.verbs);
}
