//! The ready-to-receive message of peer-to-peer mode: the initiator's first FPDU (RFC 6581 section 9).
//!
//! siw of Linux 6.1 does not notice bytes that arrive while its program is still in `rdma_accept`, until more arrive. The message is
//! on its way by then, and often the program's first. An empty WRITE changes nothing at the peer, so it is repeated a few times while
//! the peer is silent.

use nichrome_wire::Instant;
use nichrome_wire::iwarp::{Opcode, Segment};

use super::terms::{Role, RtrMessage, Terms};

/// Nanoseconds before each repetition.
const WAITS: [u64; 3] = [50_000_000, 200_000_000, 800_000_000];

/// The ready-to-receive message of one end.
pub(super) struct ReadyToReceive {
    /// The message to send.
    outgoing: Option<RtrMessage>,
    /// The message that the peer is to send.
    expected: Option<RtrMessage>,
    /// Times that it was sent.
    sent: usize,
    /// When it is repeated.
    due: Option<Instant>,
}

impl ReadyToReceive {
    pub(super) fn new(terms: &Terms) -> Self {
        let is_initiator = terms.role == Role::Initiator;
        Self {
            outgoing: terms.rtr.filter(|_| is_initiator),
            expected: terms.rtr.filter(|_| !is_initiator),
            sent: 0,
            due: None,
        }
    }

    #[inline]
    pub(super) fn is_to_be_sent(&self) -> bool {
        self.outgoing.is_some()
    }

    /// Takes the message to send at `now`.
    #[inline]
    pub(super) fn take(&mut self, now: Instant) -> Option<RtrMessage> {
        let message = self.outgoing.take()?;
        let wait = WAITS.get(self.sent).filter(|_| message == RtrMessage::Write);
        self.due = wait.map(|nanos| now.plus_nanos(*nanos));
        self.sent += 1;
        Some(message)
    }

    /// Takes the message that the peer's first FPDU must be.
    pub(super) fn take_expected(&mut self) -> Option<RtrMessage> {
        self.expected.take()
    }

    /// An FPDU has arrived.
    #[inline]
    pub(super) fn peer_heard(&mut self) {
        self.due = None;
        if self.sent > 0 {
            self.outgoing = None;
        }
    }

    /// When [`ReadyToReceive::handle_timeout`] is to be called.
    #[inline]
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.due.take_if(|due| *due <= now).is_some() {
            self.outgoing = Some(RtrMessage::Write);
        }
    }

    /// The stream ends.
    pub(super) fn clear(&mut self) {
        (self.outgoing, self.due) = (None, None);
    }
}

impl RtrMessage {
    /// Whether a first segment is this message.
    pub(super) fn is(self, segment: &Segment, payload: &[u8]) -> bool {
        let opcode = match self {
            Self::Send => Opcode::Send,
            Self::Write => Opcode::Write,
            // Its length is in the READ request, and any length is harmless.
            Self::Read => return segment.opcode == Opcode::ReadRequest,
        };
        segment.opcode == opcode && segment.is_last && payload.is_empty()
    }
}
