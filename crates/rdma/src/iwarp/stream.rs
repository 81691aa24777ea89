//! A queue pair's RDMAP stream: chooses the next segment to send, dispatches the peer's segments, and handles
//! errors.

use nichrome_wire::Instant;
use nichrome_wire::iwarp::{Opcode, Segment, SegmentDestination, TerminateCode, Terminated};

use super::arrival::{Arrived, Begun};
use super::context::Context;
use super::fault::{self, Fault, FaultKind, Faulty};
use super::link::Link;
use super::requester::Requester;
use super::responder::{Responder, SegmentOutcome};
use super::segment::{Data, Origin, Outgoing};
use super::shared::IwarpShared;
use super::terms::{RtrMessage, Terms};
use crate::core::access::Access;
use crate::core::attributes::QpState;
use crate::core::completion::Status;
use crate::core::event::Event;
use crate::core::memory::Memory;
use crate::core::protection::Refusal;
use crate::core::queue_pair::{QueuePair, Receives};
use crate::core::verbs::Verbs;
use crate::net::StreamShutdown;

/// Bytes of free buffer in which any message of one segment fits, with markers.
const SMALLEST_ROOM: usize = 96;

/// Maximum number of responses sent before a waiting request (siw: SIW_IRQ_MAXBURST_SQ_ACTIVE).
const RESPONSE_BURST: u8 = 4;

/// A queue pair with its RDMAP stream.
pub(crate) struct Stream {
    pub(super) qp: QueuePair,
    /// `None` before the connection is set up.
    pub(super) link: Option<Link>,
    /// The peer has RFC 7306.
    pub(super) extended: bool,
    pub(super) requester: Requester,
    responder: Responder,
    /// Responses that have left since the last request.
    burst: u8,
    /// A message is in the stream for which no receive is posted.
    pub(super) is_starved: bool,
}

/// The result of building a segment.
enum Built {
    /// The FPDU has `len` bytes.
    Placed { len: usize, payload_len: usize },
    /// The buffer is full.
    Full,
    /// Its memory cannot be accessed.
    Refused(Refusal),
}

/// The part that provides the next segment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sender {
    Link,
    Requester,
    Responder,
}

impl Stream {
    /// Puts a queue pair on a stream with these terms. Without terms, the queue pair is on hold until the
    /// negotiation has ended.
    pub(crate) fn new(mut qp: QueuePair, terms: Option<&Terms>, shared: &IwarpShared) -> Box<Self> {
        qp.on_hold = terms.is_none();
        let (ird, ord, extended) =
            terms.map_or((0, 0, false), |terms| (terms.ird, terms.ord, terms.extended));
        Box::new(Self {
            qp,
            link: terms.map(Link::new),
            extended,
            requester: Requester::new(ord, extended),
            responder: Responder::new(ird, extended, shared.config.without_receive),
            burst: 0,
            is_starved: false,
        })
    }

    /// Returns the next segment to send, and its sender.
    #[inline]
    fn next(&mut self, now: Instant) -> Option<(Sender, Outgoing)> {
        let Self { qp, link, requester, responder, burst, .. } = self;
        let link = link.as_mut()?;
        link.opening.begin(now);
        if let Some(terminate) = link.take_terminate() {
            return Some((Sender::Link, terminate));
        }
        if !link.may_send() || qp.state == QpState::Err {
            return None;
        }
        let request = |requester: &Requester, qp| Some((Sender::Requester, requester.next(qp)?));
        let response = |responder: &Responder| Some((Sender::Responder, responder.responses.next()?));
        // A message's segments leave without others between them.
        if requester.is_within_message() {
            return request(requester, qp);
        }
        if let Some(message) = link.opening.take_message(now) {
            return Some((Sender::Link, requester.ready_to_receive(message)));
        }
        let responses_first = responder.responses.is_within_message() || *burst < RESPONSE_BURST;
        if responses_first {
            response(responder).or_else(|| request(requester, qp))
        } else {
            request(requester, qp).or_else(|| response(responder))
        }
    }

    /// Builds the next segments; returns their length in bytes, and true if more are ready than fit.
    pub(super) fn fill<M: Memory>(
        &mut self,
        buffer: &mut [u8],
        shared: &mut IwarpShared,
        verbs: &mut Verbs<M>,
    ) -> (usize, bool) {
        let mut filled = 0;
        loop {
            let Self { qp, requester, .. } = self;
            requester.run(&mut Context { qp, verbs });
            self.check_failure(verbs);
            if buffer.len() - filled < SMALLEST_ROOM {
                return (filled, self.has_segments());
            }
            let Some((sender, next)) = self.next(verbs.now) else { return (filled, false) };
            match self.build(&next, buffer, filled, shared, verbs) {
                Built::Placed { len, payload_len } => {
                    filled += len;
                    self.sent(sender, &next, payload_len, verbs);
                }
                Built::Full => return (filled, true),
                Built::Refused(refusal) => self.refused(sender, refusal, verbs),
            }
        }
    }

    /// Builds a segment behind the first `filled` bytes of the buffer.
    #[inline]
    fn build<M: Memory>(
        &mut self,
        next: &Outgoing,
        buffer: &mut [u8],
        filled: usize,
        shared: &mut IwarpShared,
        verbs: &Verbs<M>,
    ) -> Built {
        let Self { qp, link, .. } = self;
        let Some(Link { writer, .. }) = link else { return Built::Full };
        let (total, free) = (buffer.len(), &mut buffer[filled..]);
        let (built, payload_len) = match next {
            Outgoing::Data(data) => {
                let header = data.segment(0).header_len();
                let payload_len = writer.payload_len(header, data.left as usize, free.len(), total);
                let Some(payload_len) = payload_len else { return Built::Full };
                let fill = |into: &mut [u8]| copy_payload(data, into, qp, verbs);
                (
                    writer.write(&data.segment(payload_len), payload_len, free, &mut shared.marked, fill),
                    payload_len,
                )
            }
            Outgoing::Whole(segment, body) => {
                let bytes = body.bytes();
                let fill = |into: &mut [u8]| {
                    into.copy_from_slice(bytes);
                    Ok(())
                };
                (writer.write(segment, bytes.len(), free, &mut shared.marked, fill), bytes.len())
            }
        };
        match built {
            Ok(len) => Built::Placed { len, payload_len },
            Err(refusal) => Built::Refused(refusal),
        }
    }

    /// Updates the sender's state after a segment was sent.
    #[inline]
    fn sent<M: Memory>(&mut self, sender: Sender, sent: &Outgoing, payload_len: usize, verbs: &mut Verbs<M>) {
        verbs.counters.sent += 1;
        let Self { qp, requester, responder, burst, .. } = self;
        if let Outgoing::Data(data) = sent {
            verbs.counters.bytes_sent += payload_len as u64;
            let is_last = payload_len == data.left as usize;
            match sender {
                Sender::Responder => {
                    responder.responses.data_sent(payload_len, is_last);
                    *burst = burst.saturating_add(u8::from(is_last));
                }
                _ => {
                    *burst = 0;
                    requester.data_sent(payload_len, is_last, &mut Context { qp, verbs });
                }
            }
        }
        if let Outgoing::Whole(segment, _) = sent {
            match sender {
                Sender::Requester => requester.whole_sent(segment.opcode, &mut Context { qp, verbs }),
                Sender::Responder => responder.responses.atomic_sent(),
                Sender::Link => {
                    verbs.counters.terminates_sent += u64::from(segment.opcode == Opcode::Terminate);
                }
            }
        }
    }

    /// Handles a next segment whose memory cannot be accessed.
    fn refused<M: Memory>(&mut self, sender: Sender, refusal: Refusal, verbs: &mut Verbs<M>) {
        let Self { qp, link, requester, responder, .. } = self;
        if sender != Sender::Responder {
            return requester.request_failed(Status::LocalProtection, &mut Context { qp, verbs });
        }
        let (fault, payload) = responder.responses.read_failed(refusal);
        if let Some(link) = link {
            link.end_by_terminate(payload);
        }
        self.raise(fault, verbs);
        self.stop(verbs);
    }

    /// Returns true if there is a segment to send.
    #[inline]
    pub(super) fn has_segments(&self) -> bool {
        let Self { qp, link, requester, responder, .. } = self;
        let Some(link) = link else { return false };
        let is_running = link.may_send() && qp.state != QpState::Err;
        link.has_work() || is_running && (!responder.responses.is_empty() || requester.has_work(qp))
    }

    /// Processes a segment of the peer, or a part of one of a SEND, WRITE or READ response.
    #[inline]
    fn process<M: Memory>(
        &mut self,
        segment: &Segment,
        payload: Arrived<'_>,
        verbs: &mut Verbs<M>,
    ) -> Result<SegmentOutcome, Fault> {
        let Self { qp, requester, responder, .. } = self;
        let context = &mut Context { qp, verbs };
        match (segment.opcode, segment.destination) {
            (Opcode::Write, _) if !requester.is_within_response() => {
                responder.write(segment, payload, context)
            }
            (Opcode::ReadResponse, _) if !responder.is_within_write() => {
                requester.read_response(segment, payload, context)?;
                Ok(SegmentOutcome::Processed)
            }
            (Opcode::Write | Opcode::ReadResponse, _) => Err(TerminateCode::OPCODE.into()),
            (
                Opcode::Send
                | Opcode::SendInvalidate
                | Opcode::SendSolicited
                | Opcode::SendSolicitedInvalidate,
                _,
            ) => responder.send(segment, payload, context),
            (Opcode::ReadRequest, _) => responder.read(segment, payload.bytes, context),
            (Opcode::Immediate | Opcode::ImmediateSolicited, _) => {
                responder.immediate(segment, payload.bytes, context)
            }
            (Opcode::AtomicRequest, _) => responder.atomic(segment, payload.bytes, context),
            (Opcode::AtomicResponse, SegmentDestination::Untagged { message, offset, .. }) => {
                requester.atomic_response((message, offset), payload.bytes, context)?;
                Ok(SegmentOutcome::Processed)
            }
            (Opcode::AtomicResponse | Opcode::Terminate, _) => Err(TerminateCode::OPCODE.into()),
        }
    }

    /// Handles the peer's first segment. Returns true if it is the ready-to-receive message as a SEND, which
    /// takes no receive.
    fn begin<M: Memory>(
        &mut self,
        segment: &Segment,
        payload: &[u8],
        verbs: &mut Verbs<M>,
    ) -> Result<bool, Fault> {
        if self.qp.state == QpState::Rtr {
            verbs.events.push_back(Event::Established(self.qp.handle));
        }
        match self.link.as_mut().and_then(|link| link.opening.take_expected()) {
            None => Ok(false),
            Some(message) if !message.is(segment, payload) => Err(TerminateCode::RTR.into()),
            Some(RtrMessage::Send) => {
                self.responder.skip_send();
                Ok(true)
            }
            Some(RtrMessage::Write | RtrMessage::Read) => Ok(false),
        }
    }

    /// Parses and processes a DDP segment.
    #[inline]
    pub(super) fn process_ulpdu<M: Memory>(
        &mut self,
        ulpdu: &[u8],
        verbs: &mut Verbs<M>,
    ) -> Result<SegmentOutcome, Fault> {
        let (segment, payload) = Segment::parse(ulpdu).map_err(|error| Fault::segment(error, ulpdu))?;
        if segment.opcode == Opcode::Terminate {
            self.terminated(payload, verbs);
            return Ok(SegmentOutcome::Processed);
        }
        let is_first = self.link.as_mut().is_some_and(Link::received);
        if is_first && self.begin(&segment, payload, verbs)? {
            return Ok(SegmentOutcome::Processed);
        }
        self.process(&segment, Arrived::last(payload), verbs)
    }

    /// Places the bytes that have arrived of the segment at the front of `stream`; returns the number of
    /// bytes consumed.
    #[inline]
    pub(super) fn place_front<M: Memory>(&mut self, stream: &[u8], verbs: &mut Verbs<M>) -> usize {
        let first = self.link.as_ref().and_then(|link| link.first_part(stream));
        let Some((begun, payload)) = first else { return 0 };
        match self.place_part(begun, payload, verbs) {
            0 => 0,
            taken => stream.len() - payload.len() + taken,
        }
    }

    /// Places the next part of a segment, which begins at the front of `stream`; returns the number of bytes
    /// consumed.
    pub(super) fn place_part<M: Memory>(
        &mut self,
        begun: Begun,
        stream: &[u8],
        verbs: &mut Verbs<M>,
    ) -> usize {
        let Some(part) = begun.part(stream) else { return 0 };
        match self.process(&part.segment, part.payload, verbs) {
            Ok(SegmentOutcome::Processed) => {}
            Ok(SegmentOutcome::NoReceive) => {
                self.is_starved = true;
                return 0;
            }
            Err(fault) => {
                let (front, len) = begun.header();
                self.fail(fault, Some(Faulty { front, len }), verbs);
                return stream.len();
            }
        }
        if let Some(link) = &mut self.link {
            link.begun = part.next;
        }
        if part.next.is_none() {
            self.segment_complete(verbs);
        }
        part.len
    }

    /// Counts a segment that was processed completely.
    #[inline]
    pub(super) fn segment_complete<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        verbs.counters.received += 1;
        // A READ response also completes the requests behind its request, one of which may have failed.
        self.check_failure(verbs);
    }

    /// Handles a TERMINATE of the peer. As in siw, requests that are not complete are flushed.
    fn terminated<M: Memory>(&mut self, payload: &[u8], verbs: &mut Verbs<M>) {
        if Terminated::from_bytes(payload).is_none() {
            verbs.counters.dropped_malformed += 1;
        }
        verbs.counters.terminates_received += 1;
        if let Some(link) = &mut self.link {
            link.end(StreamShutdown::Orderly);
        }
        self.stop(verbs);
    }

    /// Ends the connection by a TERMINATE for an error of the peer, in the segment `faulty` if it is known.
    pub(super) fn fail<M: Memory>(&mut self, fault: Fault, faulty: Option<Faulty<'_>>, verbs: &mut Verbs<M>) {
        if let Some(link) = &mut self.link {
            link.end_by_terminate(fault::terminate(fault.code, faulty));
        }
        self.raise(fault, verbs);
        self.stop(verbs);
    }

    /// Counts an error of the peer, and raises its event.
    fn raise<M: Memory>(&self, fault: Fault, verbs: &mut Verbs<M>) {
        fault.count(&mut verbs.counters);
        if self.qp.state != QpState::Err {
            let handle = self.qp.handle;
            let event = match fault.kind {
                FaultKind::Access => Event::QpAccessError(handle),
                _ => Event::QpRequestError(handle),
            };
            verbs.events.push_back(event);
        }
    }

    /// Moves the queue pair to ERROR if a request has completed in error.
    #[inline]
    pub(super) fn check_failure<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        if self.requester.take_failure() {
            if let Some(link) = &mut self.link {
                link.end_by_failure();
            }
            self.stop(verbs);
        }
    }

    /// Moves the queue pair to ERROR and flushes its queues.
    pub(super) fn stop<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        let Self { qp, requester, responder, .. } = self;
        let entered = qp.state != QpState::Err;
        qp.state = QpState::Err;
        requester.stop(qp);
        responder.stop();
        qp.flush(verbs);
        if entered && matches!(qp.receives, Receives::Shared(_)) {
            verbs.events.push_back(Event::LastReceiveReached(qp.handle));
        }
    }

    /// Returns true if requests or responses are incomplete.
    pub(super) fn is_busy(&self) -> bool {
        self.qp.sends.len() > 0 || !self.responder.responses.is_empty()
    }
}

/// Copies the payload of the next segment of a message.
#[inline]
fn copy_payload<M: Memory>(
    data: &Data,
    into: &mut [u8],
    qp: &QueuePair,
    verbs: &Verbs<M>,
) -> Result<(), Refusal> {
    match data.origin {
        Origin::Send { source, offset } => {
            verbs.gather(qp.domain, qp.sends.pieces(source, offset, into.len() as u32), into)
        }
        Origin::Remote { .. } if into.is_empty() => Ok(()),
        Origin::Remote { rkey, address } => {
            let len = into.len() as u64;
            let at = verbs.protection.remote(qp.accessor(), rkey, address, len, Access::REMOTE_READ)?;
            verbs.memory.read(at, into).map_err(|_| Refusal::Bounds)
        }
    }
}
