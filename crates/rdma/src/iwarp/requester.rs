//! The requester: segments of the send queue, and responses of the peer.
//!
//! | rule | where |
//! |---|---|
//! | requests begin in order, none while the send queue drains | [`Requester::next`] |
//! | a fenced request waits for READs and atomics before it | [`Requester::may_begin`] |
//! | at most ORD READs and atomics outstanding; each buffer of a READ is one | [`Requester::may_begin`] |
//! | a SEND or WRITE is done when its last segment has left, a READ or atomic with its response | [`Requester::data_sent`] |
//! | requests complete in order | [`Requester::retire`] |
//! | a READ response names and fills the sink of the oldest READ only | [`Requester::read_response`] |
//!
//! The sink of a READ on the wire is not a key of the program: the STag is the request's number, and offsets
//! count from 0.

use std::collections::VecDeque;

use nichrome_wire::iwarp::{
    AtomicOperation, AtomicRequest, AtomicResponse, MessageNumber, Opcode, ReadRequest, STag, Segment,
    SegmentDestination, TerminateCode,
};

use super::arrival::Arrived;
use super::context::Context;
use super::fault::Fault;
use super::segment::{Body, Data, Origin, Outgoing, untagged};
use super::terms::RtrMessage;
use crate::core::attributes::QpState;
use crate::core::completion::Status;
use crate::core::drain::Drain;
use crate::core::memory::Memory;
use crate::core::queue_pair::QueuePair;
use crate::core::send_queue::{Pieces, Progress, SendWork};
use crate::core::work::{Operation, Remote, SendFlags};

/// The requester's half of a queue pair.
pub(super) struct Requester {
    ord: usize,
    /// The peer has RFC 7306.
    extended: bool,
    /// Requests removed from the send queue so far, modulo 2³².
    retired: u32,
    cursor: Cursor,
    /// The next message of queue 0.
    next_send: MessageNumber,
    /// The next message of queue 1.
    next_request: MessageNumber,
    /// The next message of the peer's queue 3.
    next_atomic_response: MessageNumber,
    /// READs and atomics without their response, oldest first.
    outstanding: VecDeque<Outstanding>,
    /// A request has failed and completed in error: the queue pair moves to ERROR.
    failed: bool,
}

/// A position in the send queue.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    /// Index of the request. All segments of earlier requests have left.
    work: usize,
    /// Bytes of that request that have left; for a READ, bytes that were requested.
    sent: u32,
    /// Some segments of a message have left, and others have not.
    is_within_message: bool,
    /// The WRITE of a WRITE with immediate data has left.
    data_has_left: bool,
}

/// A READ or atomic request without its response.
struct Outstanding {
    /// Message number of the request, by which the response names it.
    number: MessageNumber,
    kind: Awaited,
    /// Serial number of the work request on the queue pair, modulo 2³²; `None` for the ready-to-receive
    /// message.
    work: Option<u32>,
    /// The first byte of the request's local data that the response fills, and the number of bytes.
    start: u32,
    len: u32,
    /// Bytes of the response that have arrived.
    received: u32,
    /// The last of the READ requests that the work request was split into.
    ends: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Read,
    Atomic,
}

impl Requester {
    pub(super) fn new(ord: u16, extended: bool) -> Self {
        Self {
            ord: ord.into(),
            extended,
            retired: 0,
            cursor: Cursor::default(),
            next_send: MessageNumber::FIRST,
            next_request: MessageNumber::FIRST,
            next_atomic_response: MessageNumber::FIRST,
            outstanding: VecDeque::new(),
            failed: false,
        }
    }

    /// Returns true if there may be a segment to send.
    #[inline]
    pub(super) fn has_work(&self, qp: &QueuePair) -> bool {
        (may_begin_in(qp.state) || qp.state == QpState::Sqd) && qp.sends.get(self.cursor.work).is_some()
    }

    /// Returns true if some segments of a message have left, and others have not.
    #[inline]
    pub(super) fn is_within_message(&self) -> bool {
        self.cursor.is_within_message
    }

    /// Returns true if some segments of a READ response have arrived, and others have not.
    #[inline]
    pub(super) fn is_within_response(&self) -> bool {
        self.outstanding.front().is_some_and(|request| request.received > 0)
    }

    /// Returns the ready-to-receive message. It takes no request from the send queue (RFC 6581 section 9).
    pub(super) fn ready_to_receive(&mut self, message: RtrMessage) -> Outgoing {
        let (opcode, destination, body) = match message {
            RtrMessage::Send => (Opcode::Send, untagged(advance(&mut self.next_send)), Body::Empty),
            // Receivers ignore the STag of an empty message; siw sends 1.
            RtrMessage::Write => {
                (Opcode::Write, SegmentDestination::Tagged { stag: STag(1), offset: 0 }, Body::Empty)
            }
            RtrMessage::Read => {
                let number = self.await_response(Awaited::Read, None, (0, 0), true);
                let request = ReadRequest { sink: STag(number.0), ..ReadRequest::default() };
                (Opcode::ReadRequest, untagged(number), Body::ReadRequest(request.to_bytes()))
            }
        };
        Outgoing::Whole(Segment { is_last: true, opcode, destination }, body)
    }

    /// Adds a request to queue 1 that waits for its response; returns its number.
    fn await_response(
        &mut self,
        kind: Awaited,
        work: Option<u32>,
        (start, len): (u32, u32),
        ends: bool,
    ) -> MessageNumber {
        let number = advance(&mut self.next_request);
        self.outstanding.push_back(Outstanding { number, kind, work, start, len, received: 0, ends });
        number
    }

    /// Executes local requests, fails those that cannot be sent, and completes the finished ones.
    #[inline]
    pub(super) fn run<M: Memory>(&mut self, context: &mut Context<'_, M>) {
        while !self.failed
            && may_begin_in(context.qp.state)
            && let Some(work) = context.qp.sends.get(self.cursor.work)
            && work.progress == Progress::Posted
        {
            let progress = if work.is_local() {
                if !self.local_may_run(work) {
                    break;
                }
                let (accessor, operation) = (context.qp.accessor(), work.operation);
                let done = context.verbs.execute_local(accessor, &operation);
                done.map_or_else(Progress::Failed, |()| Progress::Done)
            } else if self.is_carried(context.qp, work) {
                break;
            } else {
                Progress::Failed(Status::LocalQpOperation)
            };
            if let Some(work) = context.qp.sends.get_mut(self.cursor.work) {
                work.progress = progress;
            }
            if progress == Progress::Done {
                self.cursor.work += 1;
            }
            self.retire(context);
        }
        if matches!(context.qp.sends.front(), Some(work) if matches!(work.progress, Progress::Failed(_)))
            && may_begin_in(context.qp.state)
        {
            self.retire(context);
        }
    }

    /// Returns true if a local request may be executed: an invalidation once all earlier requests are
    /// complete, a fenced bind once no READ or atomic is outstanding.
    fn local_may_run(&self, work: &SendWork) -> bool {
        match work.operation {
            Operation::LocalInvalidate(_) => self.cursor.work == 0,
            _ => !work.flags.contains(SendFlags::FENCE) || self.outstanding.is_empty(),
        }
    }

    /// Returns true if the connection has messages for the operation. Requests that are posted before the
    /// set-up are not checked earlier.
    #[inline]
    fn is_carried(&self, qp: &QueuePair, work: &SendWork) -> bool {
        is_carried(&work.operation, self.extended) && (!work.wants_data() || self.depth(qp) > 0)
    }

    #[inline]
    fn depth(&self, qp: &QueuePair) -> usize {
        self.ord.min(qp.settings.max_rd_atomic.into())
    }

    /// Returns the next segment to send.
    #[inline]
    pub(super) fn next(&self, qp: &QueuePair) -> Option<Outgoing> {
        let work = qp.sends.get(self.cursor.work)?;
        match (qp.state, work.progress) {
            (state, Progress::Posted | Progress::Begun) if may_begin_in(state) => {}
            (QpState::Sqd, Progress::Begun) => {}
            _ => return None,
        }
        if work.is_local() || !self.may_begin(qp, work) {
            return None;
        }
        match work.operation {
            Operation::Read(remote) => Some(self.read_request(qp, work, remote)),
            Operation::CompareSwap { .. } | Operation::FetchAdd { .. } => self.atomic_request(work),
            Operation::WriteWithImmediate(_, data) if self.cursor.data_has_left => {
                let is_solicited = work.flags.contains(SendFlags::SOLICITED);
                let opcode = if is_solicited { Opcode::ImmediateSolicited } else { Opcode::Immediate };
                let segment = Segment { is_last: true, opcode, destination: untagged(self.next_send) };
                Some(Outgoing::Whole(segment, Body::immediate(data)))
            }
            _ => self.data(work),
        }
    }

    #[inline]
    fn may_begin(&self, qp: &QueuePair, work: &SendWork) -> bool {
        let is_fenced = work.progress == Progress::Posted && work.flags.contains(SendFlags::FENCE);
        let waits = is_fenced && !self.outstanding.is_empty();
        !waits && (!work.wants_data() || self.outstanding.len() < self.depth(qp))
    }

    /// Returns the rest of a SEND or WRITE.
    #[inline]
    fn data(&self, work: &SendWork) -> Option<Outgoing> {
        let offset = self.cursor.sent;
        let message = self.next_send;
        let is_solicited = work.flags.contains(SendFlags::SOLICITED);
        let (opcode, destination) = match work.operation {
            Operation::Write(remote) | Operation::WriteWithImmediate(remote, _) => {
                let stag = STag(remote.rkey.0);
                (
                    Opcode::Write,
                    SegmentDestination::Tagged { stag, offset: remote.address.wrapping_add(offset.into()) },
                )
            }
            Operation::Send => {
                let opcode = if is_solicited { Opcode::SendSolicited } else { Opcode::Send };
                (opcode, SegmentDestination::Untagged { message, offset, invalidate: STag(0) })
            }
            Operation::SendWithInvalidate(key) => {
                let opcode =
                    if is_solicited { Opcode::SendSolicitedInvalidate } else { Opcode::SendInvalidate };
                (opcode, SegmentDestination::Untagged { message, offset, invalidate: STag(key.0) })
            }
            _ => return None,
        };
        let origin = Origin::Send { source: work.source, offset };
        Some(Outgoing::Data(Data { opcode, destination, origin, left: work.len - offset }))
    }

    /// Returns the READ request for the next buffer.
    fn read_request(&self, qp: &QueuePair, work: &SendWork, remote: Remote) -> Outgoing {
        let number = self.next_request;
        let request = ReadRequest {
            sink: STag(number.0),
            sink_offset: 0,
            len: next_buffer(qp, work, self.cursor.sent),
            source: STag(remote.rkey.0),
            source_offset: remote.address.wrapping_add(self.cursor.sent.into()),
        };
        let segment = Segment { is_last: true, opcode: Opcode::ReadRequest, destination: untagged(number) };
        Outgoing::Whole(segment, Body::ReadRequest(request.to_bytes()))
    }

    fn atomic_request(&self, work: &SendWork) -> Option<Outgoing> {
        let (remote, operation) = match work.operation {
            Operation::FetchAdd { remote, add } => (remote, AtomicOperation::FetchAdd { add, mask: 0 }),
            Operation::CompareSwap { remote, compare, swap } => {
                let (swap_mask, compare_mask) = (u64::MAX, u64::MAX);
                (remote, AtomicOperation::CompareSwap { swap, swap_mask, compare, compare_mask })
            }
            _ => return None,
        };
        let number = self.next_request;
        let (stag, offset) = (STag(remote.rkey.0), remote.address);
        let request = AtomicRequest { id: number.0, stag, offset, operation };
        let segment = Segment { is_last: true, opcode: Opcode::AtomicRequest, destination: untagged(number) };
        Some(Outgoing::Whole(segment, Body::AtomicRequest(request.to_bytes())))
    }

    /// Records that `len` bytes of a SEND or WRITE were sent.
    #[inline]
    pub(super) fn data_sent<M: Memory>(&mut self, len: usize, is_last: bool, context: &mut Context<'_, M>) {
        let Some(work) = context.qp.sends.get_mut(self.cursor.work) else { return };
        work.progress = Progress::Begun;
        self.cursor.sent += len as u32;
        self.cursor.is_within_message = true;
        if !is_last {
            return;
        }
        if matches!(work.operation, Operation::WriteWithImmediate(..)) {
            self.cursor.data_has_left = true;
            return;
        }
        if !matches!(work.operation, Operation::Write(_)) {
            self.next_send = self.next_send.next();
        }
        self.finish(Progress::Done, context);
    }

    /// Records that a message of one segment was sent.
    pub(super) fn whole_sent<M: Memory>(&mut self, opcode: Opcode, context: &mut Context<'_, M>) {
        let Some(work) = context.qp.sends.get(self.cursor.work) else { return };
        let serial = Some(self.retired.wrapping_add(self.cursor.work as u32));
        match opcode {
            Opcode::ReadRequest => {
                let (start, total) = (self.cursor.sent, work.len);
                let len = next_buffer(context.qp, work, start);
                let ends = start + len == total;
                self.await_response(Awaited::Read, serial, (start, len), ends);
                self.cursor.sent += len;
                if ends {
                    self.finish(Progress::Begun, context);
                } else if let Some(work) = context.qp.sends.get_mut(self.cursor.work) {
                    work.progress = Progress::Begun;
                }
            }
            Opcode::AtomicRequest => {
                self.await_response(Awaited::Atomic, serial, (0, work.len), true);
                self.finish(Progress::Begun, context);
            }
            _ => {
                self.next_send = self.next_send.next();
                self.finish(Progress::Done, context);
            }
        }
    }

    /// Moves the cursor to the next request: all segments of the current one were sent.
    #[inline]
    fn finish<M: Memory>(&mut self, progress: Progress, context: &mut Context<'_, M>) {
        if let Some(work) = context.qp.sends.get_mut(self.cursor.work) {
            work.progress = progress;
        }
        self.cursor = Cursor { work: self.cursor.work + 1, ..Cursor::default() };
        self.retire(context);
    }

    /// Fails the request at the cursor, which cannot be sent. It completes after all earlier requests. Within
    /// a message nothing else can be sent, so earlier requests are flushed.
    pub(super) fn request_failed<M: Memory>(&mut self, status: Status, context: &mut Context<'_, M>) {
        if self.is_within_message() {
            (0..self.cursor.work).for_each(|_| context.qp.complete_send(Status::Flushed, context.verbs));
            self.retired = self.retired.wrapping_add(self.cursor.work as u32);
            self.cursor.work = 0;
        }
        if let Some(work) = context.qp.sends.get_mut(self.cursor.work) {
            work.progress = Progress::Failed(status);
        }
        self.retire(context);
    }

    /// Completes the requests at the front of the queue that are done.
    #[inline]
    fn retire<M: Memory>(&mut self, context: &mut Context<'_, M>) {
        let Context { qp, verbs } = context;
        while let Some(work) = qp.sends.front() {
            let status = match work.progress {
                Progress::Done => Status::Success,
                Progress::Failed(status) => status,
                Progress::Posted | Progress::Begun => break,
            };
            qp.complete_send(status, verbs);
            self.retired = self.retired.wrapping_add(1);
            self.cursor.work = self.cursor.work.saturating_sub(1);
            if status != Status::Success {
                self.failed = true;
                return;
            }
        }
        self.check_drained(context);
    }

    /// Raises the drain event if the send queue was draining and no request is outstanding.
    pub(super) fn check_drained<M: Memory>(&mut self, context: &mut Context<'_, M>) {
        let Context { qp, verbs } = context;
        qp.check_drained(self.cursor.work > 0 || self.cursor.sent > 0 || self.is_within_message(), verbs);
    }

    /// Processes a segment of a READ response, or a part of one.
    #[inline]
    pub(super) fn read_response<M: Memory>(
        &mut self,
        segment: &Segment,
        payload: Arrived<'_>,
        context: &mut Context<'_, M>,
    ) -> Result<(), Fault> {
        let SegmentDestination::Tagged { stag, offset } = segment.destination else {
            return Err(TerminateCode::OPCODE.into());
        };
        let read = self.outstanding.front_mut().filter(|request| request.kind == Awaited::Read);
        let read = read.ok_or(TerminateCode::OPCODE)?;
        if stag.0 != read.number.0 {
            return Err(TerminateCode::TAGGED_STAG.into());
        }
        let left = (read.len - read.received) as usize;
        let is_last = payload.left() == left;
        if offset != u64::from(read.received) || payload.left() > left || segment.is_last != is_last {
            return Err(TerminateCode::TAGGED_BOUNDS.into());
        }
        let start = read.start + read.received;
        read.received += payload.bytes.len() as u32;
        let index = read.work.map(|work| work.wrapping_sub(self.retired) as usize);
        if let Some(index) = index {
            self.place(index, start, payload.bytes, context)?;
        }
        if is_last && payload.ends() {
            self.response_ends(index, context);
        }
        Ok(())
    }

    /// Processes an atomic response.
    pub(super) fn atomic_response<M: Memory>(
        &mut self,
        (message, offset): (MessageNumber, u32),
        payload: &[u8],
        context: &mut Context<'_, M>,
    ) -> Result<(), Fault> {
        let request = self.outstanding.front().filter(|request| request.kind == Awaited::Atomic);
        let request = request.ok_or(TerminateCode::OPCODE)?;
        if message != self.next_atomic_response {
            return Err(TerminateCode::MESSAGE_NUMBER.into());
        }
        let bytes =
            <&[u8; AtomicResponse::LEN]>::try_from(payload).map_err(|_| TerminateCode::UNSPECIFIED)?;
        let AtomicResponse { id, original_value } = AtomicResponse::from_bytes(bytes);
        if id != request.number.0 || offset != 0 {
            return Err(TerminateCode::MESSAGE_OFFSET.into());
        }
        self.next_atomic_response = message.next();
        let index = request.work.map(|work| work.wrapping_sub(self.retired) as usize);
        if let Some(index) = index {
            self.place(index, 0, &original_value.to_ne_bytes(), context)?;
        }
        self.response_ends(index, context);
        Ok(())
    }

    /// Copies a part of a response to the buffers of its request. If the buffers cannot be written, the
    /// request fails.
    #[inline]
    fn place<M: Memory>(
        &mut self,
        index: usize,
        start: u32,
        payload: &[u8],
        context: &mut Context<'_, M>,
    ) -> Result<(), Fault> {
        let Context { qp, verbs } = context;
        let Err(refusal) = qp.put_response(index, start, payload, verbs) else {
            verbs.counters.bytes_received += payload.len() as u64;
            return Ok(());
        };
        if let Some(work) = qp.sends.get_mut(index) {
            work.progress = Progress::Failed(Status::LocalProtection);
        }
        self.retire(context);
        Err(Fault::tagged(refusal))
    }

    fn response_ends<M: Memory>(&mut self, index: Option<usize>, context: &mut Context<'_, M>) {
        let ends = self.outstanding.pop_front().is_some_and(|request| request.ends);
        if let Some(work) = index.filter(|_| ends).and_then(|index| context.qp.sends.get_mut(index)) {
            work.progress = Progress::Done;
            self.retire(context);
        }
    }

    /// Forgets the outstanding requests. The caller flushes the send queue.
    pub(super) fn stop(&mut self, qp: &mut QueuePair) {
        self.outstanding.clear();
        self.cursor = Cursor::default();
        qp.drain = Drain::Running;
    }

    /// Returns true once after a request has completed in error.
    #[inline]
    pub(super) fn take_failure(&mut self) -> bool {
        std::mem::take(&mut self.failed)
    }
}

/// Returns true if requests may begin in this state.
const fn may_begin_in(state: QpState) -> bool {
    matches!(state, QpState::Rtr | QpState::Rts)
}

/// Returns true if iWARP has messages for an operation, including those of RFC 7306 if `extended`. Also
/// returns true for local requests, which need none.
pub(super) fn is_carried(operation: &Operation, extended: bool) -> bool {
    use Operation as O;
    match operation {
        O::Send | O::SendWithInvalidate(_) | O::Write(_) | O::Read(_) => true,
        O::WriteWithImmediate(..) | O::CompareSwap { .. } | O::FetchAdd { .. } => extended,
        O::LocalInvalidate(_) | O::BindWindow(_) => true,
        O::SendWithImmediate(_) | O::Flush { .. } | O::AtomicWrite(_) => false,
    }
}

/// Returns the number of bytes from byte `start` of a request's local data to the end of the buffer that
/// holds it.
fn next_buffer(qp: &QueuePair, work: &SendWork, start: u32) -> u32 {
    match qp.sends.pieces(work.source, start, work.len - start) {
        Pieces::Buffers(mut buffers) => buffers.next().map_or(0, |buffer| buffer.len),
        Pieces::Inline(..) => 0,
    }
}

fn advance(number: &mut MessageNumber) -> MessageNumber {
    std::mem::replace(number, number.next())
}
