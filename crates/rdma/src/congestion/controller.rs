//! The interface of congestion controllers.

use nichrome_wire::{Instant, SeqNumber};

/// The bounds of a queue pair's window, in packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendWindow {
    /// Initial window.
    pub initial: u32,
    /// Maximum window.
    pub max: u32,
    /// Maximum number of response packets of one READ request; longer READs are split. At most `initial`.
    pub read: u32,
}

impl Default for SendWindow {
    fn default() -> Self {
        Self { initial: 64, max: 256, read: 32 }
    }
}

/// Whether an acknowledged packet was ECN-marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Unmarked,
    Marked,
}

impl From<bool> for Mark {
    fn from(is_marked: bool) -> Self {
        if is_marked { Self::Marked } else { Self::Unmarked }
    }
}

/// An acknowledgement of packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledged {
    /// Sequence number of the last acknowledged packet.
    pub(crate) sequence: SeqNumber,
    /// Number of acknowledged packets.
    pub(crate) packets: u32,
    /// Sequence number of the next new packet.
    pub(crate) next: SeqNumber,
    pub(crate) mark: Mark,
    pub(crate) now: Instant,
}

/// Controls the window and the pace of a connection. Sequence numbers have 32 bits; transports shift shorter
/// ones left, so that they wrap around alike.
pub(crate) trait Controller {
    /// Returns the window: the maximum number of outstanding packets.
    fn window(&self) -> u32;

    /// Handles an acknowledgement.
    fn acknowledged(&mut self, ack: &Acknowledged);

    /// Handles the loss of packet `sequence`; `next` is the next new packet.
    fn lost(&mut self, sequence: SeqNumber, next: SeqNumber);

    /// Handles a retransmission timeout.
    fn timed_out(&mut self);

    /// Handles a CNP; `unacknowledged` is the oldest outstanding packet, `next` the next new packet.
    fn notified(&mut self, unacknowledged: SeqNumber, next: SeqNumber, now: Instant);

    /// Returns the earliest time of the next packet; `None` without pacing.
    fn departure(&self) -> Option<Instant> {
        None
    }

    /// Accounts for a packet of `bytes` bytes sent at `now`.
    fn sent(&mut self, bytes: usize, now: Instant) {
        let _ = (bytes, now);
    }

    /// Updates the time-dependent state.
    fn advance(&mut self, now: Instant) {
        let _ = now;
    }
}
