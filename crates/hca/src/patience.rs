//! How long a thread looks for what it waits for before it sleeps: longer while datagrams follow each other
//! closely.
//!
//! To wake a thread costs the sender an interrupt of another processor, and the datagram waits until the
//! thread runs. The target of WRITEs would sleep and wake between any two bursts. So it looks for a while
//! first, as KVM does before it halts (halt polling): the time grows when a sleep was so short that looking
//! would have spared it, and becomes nothing after a long one.

use std::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds of the first look and of the longest.
const SHORTEST: u64 = 10_000;
const LONGEST: u64 = 200_000;

/// The time to look before the next sleep.
#[derive(Debug, Default)]
pub struct Patience {
    nanos: AtomicU64,
}

impl Patience {
    /// Nanoseconds; 0 at first and after a long sleep.
    pub fn nanos(&self) -> u64 {
        self.nanos.load(Ordering::Relaxed)
    }

    /// It took this many nanoseconds, looking and sleeping, until it came.
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
        let patience = Patience::default();
        let times = (0..7).map(|_| {
            patience.waited(LONGEST - 1);
            patience.nanos()
        });
        assert_eq!(times.collect::<Vec<_>>(), [10_000, 20_000, 40_000, 80_000, 160_000, 200_000, 200_000]);
        patience.waited(LONGEST);
        assert_eq!(patience.nanos(), 0);
    }
}
