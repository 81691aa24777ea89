//! The stream below a queue pair: FPDUs in and out, and the end of the stream.

use nichrome_wire::iwarp::{MessageNumber, Opcode, Segment, TerminateCode};

use super::fault;
use super::framing::{FpduReader, FpduWriter};
use super::segment::{Body, Outgoing, untagged};
use super::terms::{Role, RtrMessage, Terms};
use crate::net::StreamShutdown;

/// The stream beneath a queue pair.
pub(super) struct Link {
    pub(super) writer: FpduWriter,
    pub(super) reader: FpduReader,
    pub(super) stage: Stage,
    /// No FPDU may be sent before the initiator's first (RFC 5044 section 7.1.3).
    is_silent: bool,
    /// The ready-to-receive message to send.
    rtr_out: Option<RtrMessage>,
    /// The ready-to-receive message that the peer is to send.
    rtr_in: Option<RtrMessage>,
    /// An FPDU has arrived.
    has_received: bool,
    /// The payload of the TERMINATE to send.
    terminate: Option<Vec<u8>>,
}

/// How far a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Open,
    /// The driver is to end it, behind a TERMINATE if there is one.
    Ending(StreamShutdown),
    /// The driver or the peer has ended it.
    Ended,
}

impl Link {
    pub(super) fn new(terms: &Terms) -> Self {
        let is_initiator = terms.role == Role::Initiator;
        Self {
            writer: FpduWriter::new(terms),
            reader: FpduReader::new(terms),
            stage: Stage::Open,
            is_silent: !is_initiator,
            rtr_out: terms.rtr.filter(|_| is_initiator),
            rtr_in: terms.rtr.filter(|_| !is_initiator),
            has_received: false,
            terminate: None,
        }
    }

    /// Returns true if the requester may send.
    #[inline]
    pub(super) fn may_send(&self) -> bool {
        self.stage == Stage::Open && !self.is_silent
    }

    /// Returns true if the link itself has something to send.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        self.rtr_out.is_some() || self.terminate.is_some() || matches!(self.stage, Stage::Ending(_))
    }

    /// An FPDU has arrived. Returns true if it is the first.
    #[inline]
    pub(super) fn received(&mut self) -> bool {
        self.is_silent = false;
        !std::mem::replace(&mut self.has_received, true)
    }

    /// Takes the ready-to-receive message that the first FPDU must be.
    pub(super) fn take_expected_rtr(&mut self) -> Option<RtrMessage> {
        self.rtr_in.take()
    }

    /// Takes the ready-to-receive message to send.
    #[inline]
    pub(super) fn take_rtr(&mut self) -> Option<RtrMessage> {
        self.rtr_out.take()
    }

    /// The TERMINATE to send.
    pub(super) fn take_terminate(&mut self) -> Option<Outgoing> {
        let payload = self.terminate.take()?;
        let (opcode, place) = (Opcode::Terminate, untagged(MessageNumber::FIRST));
        Some(Outgoing::Whole(Segment { is_last: true, opcode, place }, Body::Terminate(payload)))
    }

    /// Ends an open stream.
    pub(super) fn end(&mut self, how: StreamShutdown) {
        if self.stage == Stage::Open {
            self.stage = Stage::Ending(how);
            self.rtr_out = None;
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

    /// The stream has ended.
    pub(super) fn ended(&mut self) {
        self.stage = Stage::Ended;
        (self.terminate, self.rtr_out) = (None, None);
    }
}

/// Whether a first segment is this ready-to-receive message.
pub(super) fn is_ready_to_receive(message: RtrMessage, segment: &Segment, payload: &[u8]) -> bool {
    let opcode = match message {
        RtrMessage::Send => Opcode::Send,
        RtrMessage::Write => Opcode::Write,
        // Its length is in the READ request, and any length is harmless.
        RtrMessage::Read => return segment.opcode == Opcode::ReadRequest,
    };
    segment.opcode == opcode && segment.is_last && payload.is_empty()
}
