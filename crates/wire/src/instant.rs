//! The time base of engines.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time, in nanoseconds since an origin that the driver chooses: boot for live drivers, 1970 for
/// captures, 0 for simulations. Never decreases within one engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// The last representable point, 584 years after the origin.
    pub const MAX: Self = Self(u64::MAX);

    /// Returns the point `nanos` nanoseconds after the origin.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns nanoseconds since the origin.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time since `earlier`, in nanoseconds; 0 if `earlier` is later.
    #[inline]
    pub const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the point `nanos` nanoseconds after this one, at most [`Instant::MAX`].
    #[inline]
    pub const fn plus_nanos(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }
}

/// Converts a duration to nanoseconds, at most `u64::MAX`.
#[inline]
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Instant {
    type Output = Self;

    #[inline]
    fn add(self, duration: Duration) -> Self {
        self.plus_nanos(nanos(duration))
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// Returns the time since `earlier`; zero if `earlier` is later.
    #[inline]
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_saturates_instead_of_wrapping() {
        let late = Instant::MAX;
        assert_eq!(late + Duration::from_secs(1), late);
        assert_eq!(Instant::ZERO - late, Duration::ZERO);
        assert_eq!((Instant::ZERO + Duration::MAX), late);
    }

    #[test]
    fn displays_seconds_with_nanoseconds() {
        assert_eq!(Instant::from_nanos(1_000_000_042).to_string(), "1.000000042s");
    }

    #[test]
    fn the_time_between_two_points_is_never_negative() {
        let (early, late) = (Instant::from_nanos(3), Instant::from_nanos(10));
        assert_eq!((late.nanos_since(early), early.nanos_since(late)), (7, 0));
        assert_eq!((late - early, early - late), (Duration::from_nanos(7), Duration::ZERO));
    }
}
