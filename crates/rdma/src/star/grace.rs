//! The time between the peer's Close and the failure of the requests that it leaves unanswered.
//!
//! A program that has received all its messages destroys its queue pairs one by one. Its peer may still wait
//! for answers on one connection while a request on a closed one can no longer be answered. On InfiniBand,
//! such a request fails only after the timeouts and retries; here, it must not fail before the answers on the
//! program's other connections have arrived.

use nichrome_wire::Instant;

/// Nanoseconds: enough to retransmit the answers on all of a program's queue pairs several times.
const GRACE: u64 = 500_000_000;

/// When the requests on a closed connection fail; `None` while there are none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Grace(Option<Instant>);

impl Grace {
    /// Starts the time unless it runs.
    pub(super) fn begin(&mut self, now: Instant) {
        self.0.get_or_insert(now.plus_nanos(GRACE));
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.0
    }

    /// Returns true if the time has run out, once.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        self.0.take_if(|due| *due <= now).is_some()
    }
}
