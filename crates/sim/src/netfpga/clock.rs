//! Clock cycles as time.

use std::num::NonZeroU64;

/// A clock frequency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock(NonZeroU64);

impl Clock {
    /// Creates a clock; `None` for 0 Hz.
    pub(super) fn new(hertz: u64) -> Option<Self> {
        NonZeroU64::new(hertz).map(Self)
    }

    /// Returns the duration of `cycles` cycles in nanoseconds, rounded to nearest.
    pub(super) fn nanos(self, cycles: u64) -> u64 {
        let hertz = u128::from(self.0.get());
        let nanos = (u128::from(cycles) * 1_000_000_000 + hertz / 2) / hertz;
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}
