//! The stream below a queue pair: FPDUs in and out, and the end of the stream.

use nichrome_wire::iwarp::{MessageNumber, Opcode, Segment, TerminateCode};

use super::arrival::Begun;
use super::fault;
use super::framing::{FpduReader, FpduWriter};
use super::opening::Opening;
use super::segment::{Body, Outgoing, untagged};
use super::terms::Terms;
use crate::net::StreamShutdown;

/// The stream beneath a queue pair.
pub(super) struct Link {
    pub(super) writer: FpduWriter,
    pub(super) reader: FpduReader,
    /// The segment of which the first part was consumed, and the rest has not arrived.
    pub(super) begun: Option<Begun>,
    pub(super) stage: Stage,
    pub(super) opening: Opening,
    /// An FPDU has arrived.
    has_received: bool,
    /// The payload of the TERMINATE to send.
    terminate: Option<Vec<u8>>,
}

/// The stage of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Open,
    /// The driver must end it, behind the queued TERMINATE if there is one.
    Ending(StreamShutdown),
    /// The driver or the peer has ended it.
    Ended,
}

impl Link {
    pub(super) fn new(terms: &Terms) -> Self {
        Self {
            writer: FpduWriter::new(terms),
            reader: FpduReader::new(terms),
            begun: None,
            stage: Stage::Open,
            opening: Opening::new(terms),
            has_received: false,
            terminate: None,
        }
    }

    /// Returns true if the requester may send.
    #[inline]
    pub(super) fn may_send(&self) -> bool {
        self.stage == Stage::Open && self.opening.may_send()
    }

    /// Returns true if the link itself has something to send.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        self.opening.has_work() || self.terminate.is_some() || matches!(self.stage, Stage::Ending(_))
    }

    /// Returns true if the driver must end the stream, and nothing is to be sent before.
    pub(super) fn ends(&self) -> bool {
        matches!(self.stage, Stage::Ending(_)) && self.terminate.is_none()
    }

    /// Returns the segment at the front of the stream, and the bytes behind its header, if its payload can be
    /// placed while it arrives. The first segment of a connection is processed as a whole: it may be the
    /// ready-to-receive message.
    pub(super) fn first_part<'a>(&self, stream: &'a [u8]) -> Option<(Begun, &'a [u8])> {
        let is_open = self.stage == Stage::Open && self.has_received;
        if is_open && self.reader.is_plain() { Begun::first(stream) } else { None }
    }

    /// Records that an FPDU has arrived. Returns true if it is the first.
    #[inline]
    pub(super) fn received(&mut self) -> bool {
        self.opening.peer_fpdu_received();
        !std::mem::replace(&mut self.has_received, true)
    }

    /// Takes the TERMINATE to send.
    pub(super) fn take_terminate(&mut self) -> Option<Outgoing> {
        let payload = self.terminate.take()?;
        let (opcode, destination) = (Opcode::Terminate, untagged(MessageNumber::FIRST));
        Some(Outgoing::Whole(Segment { is_last: true, opcode, destination }, Body::Terminate(payload)))
    }

    /// Ends an open stream.
    pub(super) fn end(&mut self, how: StreamShutdown) {
        if self.stage == Stage::Open {
            self.stage = Stage::Ending(how);
            self.opening.end();
        }
    }

    /// Ends an open stream by a TERMINATE with this payload.
    pub(super) fn end_by_terminate(&mut self, payload: Vec<u8>) {
        if self.stage == Stage::Open {
            self.end(StreamShutdown::Orderly);
            self.terminate = Some(payload);
        }
    }

    /// Ends an open stream by a TERMINATE for a failure of this end.
    pub(super) fn end_by_failure(&mut self) {
        self.end_by_terminate(fault::terminate(TerminateCode::CATASTROPHIC, None));
    }

    /// Drops a TERMINATE that was not sent.
    pub(super) fn give_up_terminate(&mut self) {
        self.terminate = None;
    }

    /// Records that the stream has ended.
    pub(super) fn ended(&mut self) {
        self.stage = Stage::Ended;
        self.terminate = None;
        self.opening.end();
    }
}
