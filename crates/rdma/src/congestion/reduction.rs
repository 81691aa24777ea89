//! The last reduction of a window: losses and marks of packets before it belong to the same congestion event.

use nichrome_wire::SeqNumber;

/// Distance behind a reduction, in sequence numbers, at which it is forgotten. No packet before it is
/// outstanding then; at twice the distance, packets would seem to be before it again.
const OUTDATED: i32 = 1 << 30;

/// The last reduction of a window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reduction {
    /// The next new packet at that time.
    until: Option<SeqNumber>,
}

impl Reduction {
    /// Records a reduction; `next` is the next new packet.
    pub(super) fn record(&mut self, next: SeqNumber) {
        self.until = Some(next);
    }

    /// Forgets the last reduction.
    pub(super) fn forget(&mut self) {
        self.until = None;
    }

    /// Returns true if packet `sequence` was sent before the last reduction.
    pub(super) fn covers(&self, sequence: SeqNumber) -> bool {
        self.until.is_some_and(|until| sequence.before(until))
    }

    /// Returns true if all packets before `next` were sent before the last reduction.
    pub(super) fn covers_all(&self, next: SeqNumber) -> bool {
        self.until == Some(next)
    }

    /// Handles the acknowledgement of packet `sequence`.
    #[inline]
    pub(super) fn acknowledged(&mut self, sequence: SeqNumber) {
        if self.until.is_some_and(|until| sequence.since(until) >= OUTDATED) {
            self.forget();
        }
    }
}
