//! Which end sends the first FPDU of a connection.
//!
//! In peer-to-peer mode it is the initiator's ready-to-receive message (RFC 6581 section 9). siw of Linux 6.1
//! overlooks bytes that arrive while its program is still in `rdma_accept`, until more bytes arrive: these
//! are this message, and often the program's first one. An empty WRITE changes nothing at the peer, so the
//! initiator sends further ones while the peer is silent, at most four.
//!
//! In client-server mode a responder waits for the initiator's first FPDU (RFC 5044 section 7.1.3). siw
//! always connects in this mode, and does not wait itself, so some programs that run between two hosts with
//! siw let the server send first. A responder therefore waits for at most 100 ms. On most paths the initiator
//! has processed the Reply by then; on every path TCP delivers the Reply before the FPDUs.

use nichrome_wire::Instant;
use nichrome_wire::iwarp::{Opcode, Segment};

use super::terms::{Role, RtrMessage, Terms};

/// Nanoseconds before each further empty WRITE.
const REPETITIONS: [u64; 4] = [5_000_000, 50_000_000, 200_000_000, 800_000_000];

/// Nanoseconds for which a responder waits in client-server mode.
const LONGEST_SILENCE: u64 = 100_000_000;

/// The first FPDUs of one end.
pub(super) struct Opening {
    /// No FPDU may be sent.
    is_silent: bool,
    /// A responder whose wait has not begun.
    is_to_wait: bool,
    /// The ready-to-receive message to send.
    outgoing: Option<RtrMessage>,
    /// The ready-to-receive message that the peer is to send.
    expected: Option<RtrMessage>,
    /// Times that the message was sent.
    sent: usize,
    /// The end of the responder's wait, or the time of the next empty WRITE.
    due: Option<Instant>,
}

impl Opening {
    pub(super) fn new(terms: &Terms) -> Self {
        let is_initiator = terms.role == Role::Initiator;
        Self {
            is_silent: !is_initiator,
            is_to_wait: !is_initiator && terms.rtr.is_none(),
            outgoing: terms.rtr.filter(|_| is_initiator),
            expected: terms.rtr.filter(|_| !is_initiator),
            sent: 0,
            due: None,
        }
    }

    #[inline]
    pub(super) fn may_send(&self) -> bool {
        !self.is_silent
    }

    /// Returns true if the wait has not begun, or a message is to be sent.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        self.is_to_wait || self.outgoing.is_some()
    }

    /// Begins a responder's wait, if it has not begun.
    #[inline]
    pub(super) fn begin(&mut self, now: Instant) {
        if std::mem::take(&mut self.is_to_wait) {
            self.due = Some(now.plus_nanos(LONGEST_SILENCE));
        }
    }

    /// Takes the ready-to-receive message to send at `now`.
    #[inline]
    pub(super) fn take_message(&mut self, now: Instant) -> Option<RtrMessage> {
        let message = self.outgoing.take()?;
        let wait = REPETITIONS.get(self.sent).filter(|_| message == RtrMessage::Write);
        self.due = wait.map(|nanos| now.plus_nanos(*nanos));
        self.sent += 1;
        Some(message)
    }

    /// Takes the ready-to-receive message that the peer's first FPDU must be.
    pub(super) fn take_expected(&mut self) -> Option<RtrMessage> {
        self.expected.take()
    }

    /// Records that an FPDU of the peer has arrived: ends the wait and the repetitions.
    #[inline]
    pub(super) fn peer_fpdu_received(&mut self) {
        (self.is_silent, self.is_to_wait, self.due) = (false, false, None);
        if self.sent > 0 {
            self.outgoing = None;
        }
    }

    /// Returns the deadline of the next timer.
    #[inline]
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.due.take_if(|due| *due <= now).is_some() {
            let was_silent = std::mem::take(&mut self.is_silent);
            self.outgoing = (!was_silent).then_some(RtrMessage::Write);
        }
    }

    /// Stops the wait and the messages, because the stream ends.
    pub(super) fn end(&mut self) {
        (self.is_to_wait, self.outgoing, self.due) = (false, None, None);
    }
}

impl RtrMessage {
    /// Returns true if the peer's first segment is this message.
    pub(super) fn is(self, segment: &Segment, payload: &[u8]) -> bool {
        let opcode = match self {
            Self::Send => Opcode::Send,
            Self::Write => Opcode::Write,
            // The length is in the READ request, and any length is harmless.
            Self::Read => return segment.opcode == Opcode::ReadRequest,
        };
        segment.opcode == opcode && segment.is_last && payload.is_empty()
    }
}
