//! How long a thread polls for an event before it sleeps: longer while datagrams follow each other closely.
//!
//! To wake a thread costs the sender an interrupt of another processor, and the datagram waits until the
//! thread runs. The thread of a target of WRITEs would sleep and wake between any two bursts. So it polls for
//! a while first, as KVM does before it halts a virtual CPU (halt polling). The polling time grows after a
//! wait that longer polling would have covered, and drops to 0 after a long wait.

use std::sync::atomic::{AtomicU64, Ordering};

/// The first polling time and the longest, in nanoseconds.
const SHORTEST: u64 = 10_000;
const LONGEST: u64 = 200_000;

/// The time to poll before the next sleep.
#[derive(Debug, Default)]
pub struct PollTime {
    nanos: AtomicU64,
}

impl PollTime {
    /// Nanoseconds to poll; 0 at first and after a long wait.
    pub fn nanos(&self) -> u64 {
        self.nanos.load(Ordering::Relaxed)
    }

    /// Records that the event came after `nanos` nanoseconds of polling and sleeping.
    pub fn waited(&self, nanos: u64) {
        let next = if nanos < LONGEST { (2 * self.nanos()).clamp(SHORTEST, LONGEST) } else { 0 };
        self.nanos.store(next, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_with_short_sleeps_and_ends_with_a_long_one() {
        let poll_time = PollTime::default();
        let times = (0..7).map(|_| {
            poll_time.waited(LONGEST - 1);
            poll_time.nanos()
        });
        assert_eq!(times.collect::<Vec<_>>(), [10_000, 20_000, 40_000, 80_000, 160_000, 200_000, 200_000]);
        poll_time.waited(LONGEST);
        assert_eq!(poll_time.nanos(), 0);
    }
}
