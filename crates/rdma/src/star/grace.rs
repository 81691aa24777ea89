//! The time between the peer's Close and the failure of the requests that it leaves unanswered.
//!
//! A program that has received all that it waits for destroys its queue pairs one by one. Its peer may still
//! wait for answers on one while a request on another, which is never answered, fails. With InfiniBand that
//! takes the timeouts and retries; a Close must not be faster than the answers on the program's other
//! connections.

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
