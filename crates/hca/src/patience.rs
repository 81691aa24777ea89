//! How long the driver's thread looks at the ports before it sleeps: longer while datagrams follow each other closely.
//!
//! To wake a thread costs the sender an interrupt of another processor, and the datagram waits until the thread runs. The target of
//! WRITEs would sleep and wake between any two bursts. So it looks for a while first, as KVM does before it halts (halt polling): the time
//! grows when a sleep was so short that looking would have spared it, and becomes nothing after a long one.

/// Nanoseconds of the first look and of the longest.
const SHORTEST: u64 = 10_000;
const LONGEST: u64 = 50_000;

/// The time to look at the ports before the next sleep.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    nanos: u64,
}

impl Patience {
    /// Nanoseconds.
    pub(crate) const fn nanos(&self) -> u64 {
        self.nanos
    }

    /// The thread has slept for this many nanoseconds.
    pub(crate) fn slept(&mut self, nanos: u64) {
        self.nanos = if nanos < LONGEST { (2 * self.nanos).clamp(SHORTEST, LONGEST) } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_with_short_sleeps_and_ends_with_a_long_one() {
        let mut patience = Patience::default();
        let times = (0..5).map(|_| {
            patience.slept(LONGEST - 1);
            patience.nanos()
        });
        assert_eq!(times.collect::<Vec<_>>(), [10_000, 20_000, 40_000, 50_000, 50_000]);
        patience.slept(LONGEST);
        assert_eq!(patience.nanos(), 0);
    }
}
