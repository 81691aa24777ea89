//! What a congestion controller is.

use nichrome_wire::{Instant, SeqNumber};

/// How many packets a queue pair has outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendWindow {
    /// Packets outstanding at first.
    pub initial: u32,
    /// Packets outstanding at most.
    pub max: u32,
    /// Packets that one READ request asks for at most; longer READs are split. No more than `initial`.
    pub read: u32,
}

impl Default for SendWindow {
    fn default() -> Self {
        Self { initial: 64, max: 256, read: 32 }
    }
}

/// Whether an acknowledged packet met congestion.
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
    /// The last packet that it acknowledges.
    pub(crate) sequence: SeqNumber,
    /// How many packets it acknowledges.
    pub(crate) packets: u32,
    /// The packet that is sent next for the first time.
    pub(crate) next: SeqNumber,
    pub(crate) mark: Mark,
    pub(crate) now: Instant,
}

/// Decides how many packets are outstanding and when they leave. Packets have serial numbers of 32 bits; shorter ones are
/// shifted to the top.
pub(crate) trait Controller {
    /// Packets that may be outstanding.
    fn window(&self) -> u32;

    fn acknowledged(&mut self, ack: &Acknowledged);

    /// The packet `sequence` was lost while `next` was to be sent next.
    fn lost(&mut self, sequence: SeqNumber, next: SeqNumber);

    /// The retransmission timer expired.
    fn timed_out(&mut self);

    /// A congestion notification arrived while `unacknowledged` was the oldest packet outstanding.
    fn notified(&mut self, unacknowledged: SeqNumber, next: SeqNumber, now: Instant);

    /// The next packet leaves no earlier; `None` where packets are not paced.
    fn departure(&self) -> Option<Instant> {
        None
    }

    /// A packet of `bytes` bytes left at `now`.
    fn sent(&mut self, bytes: usize, now: Instant) {
        let _ = (bytes, now);
    }

    /// Updates what depends on time alone.
    fn advance(&mut self, now: Instant) {
        let _ = now;
    }
}
