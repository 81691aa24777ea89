//! How long a program that polls an empty queue keeps its processor.
//!
//! A program that is restricted to one processor need not share it with the peer that it waits for. The
//! kernel reports which processor received the last packet of a socket, on loopback the sender's.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use nichrome_port::current_processor;
use nichrome_wire::Instant;

/// Longer than a peer on another processor takes to answer, shorter than a time slice. A shorter time would
/// let the scheduler leave both ends of a connection on one processor.
const SPIN: Duration = Duration::from_millis(1);

/// The time without traffic after which a driver's programs yield.
pub(crate) struct Spin {
    /// `None` if the process may use several processors.
    own: Option<OwnProcessor>,
}

/// The only processor that the process may use.
struct OwnProcessor {
    /// Time of the traffic after which `has_peer` was read, in nanoseconds.
    read_after: AtomicU64,
    /// The last packet came from a process on this processor, or from an unknown one.
    has_peer: AtomicBool,
}

impl Spin {
    pub(crate) fn new() -> Self {
        let is_pinned = thread::available_parallelism().is_ok_and(|processors| processors.get() == 1);
        let own = || OwnProcessor { read_after: AtomicU64::new(u64::MAX), has_peer: AtomicBool::new(true) };
        Self { own: is_pinned.then(own) }
    }

    /// Time without traffic after which a program that polls yields its processor: zero if its peer needs it.
    /// `busy_at` is the time of the last traffic. `incoming` returns the processor that received the last
    /// packet; it is called once for each `busy_at`.
    pub(crate) fn limit(&self, busy_at: Instant, incoming: impl FnOnce() -> Option<u32>) -> Duration {
        let Some(OwnProcessor { read_after, has_peer }) = &self.own else { return SPIN };
        if read_after.swap(busy_at.as_nanos(), Ordering::Relaxed) != busy_at.as_nanos() {
            has_peer.store(incoming().is_none_or(|of| of == current_processor()), Ordering::Relaxed);
        }
        if has_peer.load(Ordering::Relaxed) { Duration::ZERO } else { SPIN }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1);
    const LATER: Instant = Instant::from_nanos(2);

    fn pinned() -> Spin {
        let own = OwnProcessor { read_after: AtomicU64::new(u64::MAX), has_peer: AtomicBool::new(true) };
        Spin { own: Some(own) }
    }

    #[test]
    fn a_program_with_several_processors_spins() {
        assert_eq!(Spin { own: None }.limit(NOW, || None), SPIN);
    }

    #[test]
    fn a_pinned_program_spins_unless_its_peer_needs_the_processor() {
        // No processor has this number.
        let another = || Some(u32::MAX);
        assert_eq!(pinned().limit(NOW, another), SPIN);
        assert_eq!(pinned().limit(NOW, || None), Duration::ZERO);
    }

    #[test]
    fn the_peers_processor_is_read_once_after_traffic() {
        let spin = pinned();
        assert_eq!(spin.limit(NOW, || Some(u32::MAX)), SPIN);
        assert_eq!(spin.limit(NOW, || None), SPIN);
        assert_eq!(spin.limit(LATER, || None), Duration::ZERO);
    }
}
