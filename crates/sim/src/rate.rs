//! Data rates. Integer arithmetic only, so that all machines get the same results.

use std::fmt;
use std::num::NonZeroU64;

use nichrome_wire::Instant;

/// Bit-nanoseconds per byte at 1 bit per second.
const BIT_NANOS_PER_BYTE: u128 = 8 * 1_000_000_000;

/// A rate in bits per second, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(NonZeroU64);

impl Rate {
    /// 1 Gb/s.
    pub const GIGABIT: Self = Self::at_least_one(1_000_000_000);
    /// 10 Gb/s.
    pub const TEN_GIGABIT: Self = Self::at_least_one(10_000_000_000);
    /// 100 Gb/s.
    pub const HUNDRED_GIGABIT: Self = Self::at_least_one(100_000_000_000);

    /// Creates a rate; `None` for 0.
    pub const fn new(bits_per_second: u64) -> Option<Self> {
        match NonZeroU64::new(bits_per_second) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    const fn at_least_one(bits_per_second: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(bits_per_second - 1))
    }

    /// Returns bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.0.get()
    }

    /// Returns the transmission time of `bytes` bytes in nanoseconds, rounded up.
    pub fn nanos(self, bytes: u64) -> u64 {
        let parts = u128::from(bytes) * BIT_NANOS_PER_BYTE;
        u64::try_from(parts.div_ceil(u128::from(self.0.get()))).unwrap_or(u64::MAX)
    }

    /// Returns the whole bytes sent in `nanos` nanoseconds.
    pub fn bytes(self, nanos: u64) -> u64 {
        let bits = u128::from(nanos) * u128::from(self.0.get());
        u64::try_from(bits / BIT_NANOS_PER_BYTE).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Rate {
    /// Formats in the largest unit of which the rate has at least one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0.get();
        let units = [(1_000_000_000, "Gb/s"), (1_000_000, "Mb/s"), (1000, "kb/s")];
        match units.into_iter().find(|(scale, _)| bits >= *scale) {
            Some((scale, unit)) => write!(f, "{} {unit}", bits as f64 / scale as f64),
            None => write!(f, "{bits} b/s"),
        }
    }
}

/// Transmits pieces one after another at a rate. Fractions of a nanosecond carry over while busy, so that
/// rounding errors do not accumulate.
#[derive(Clone, Debug)]
pub struct Pacer {
    rate: Rate,
    busy_until: Instant,
    /// Fraction of a nanosecond, in units of `1 / rate`.
    remainder: u64,
}

impl Pacer {
    /// Creates an idle pacer.
    pub fn new(rate: Rate) -> Self {
        Self { rate, busy_until: Instant::ZERO, remainder: 0 }
    }

    /// Returns the rate.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Returns when transmission of a piece that arrives at `now` begins.
    #[inline]
    pub fn begins(&self, now: Instant) -> Instant {
        now.max(self.busy_until)
    }

    /// Returns when transmission of a piece that arrives at `now` ends, rounded down to nanoseconds.
    #[inline]
    pub fn send(&mut self, bytes: u64, now: Instant) -> Instant {
        let begins = self.begins(now);
        let carried = if begins == self.busy_until { self.remainder } else { 0 };
        let (rate, parts) = (self.rate.0.get(), bytes.checked_mul(BIT_NANOS_PER_BYTE as u64));
        let (nanos, remainder) = match parts.and_then(|parts| parts.checked_add(carried)) {
            Some(parts) => (parts / rate, parts % rate),
            // More than 2.3 GB at once: the fraction is negligible.
            None => (self.rate.nanos(bytes), 0),
        };
        self.remainder = remainder;
        self.busy_until = begins.plus_nanos(nanos);
        self.busy_until
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_frame_takes_its_bits() {
        assert_eq!(Rate::TEN_GIGABIT.nanos(1538), 1231);
        assert_eq!(Rate::GIGABIT.nanos(84), 672);
        assert_eq!(Rate::GIGABIT.bytes(672), 84);
        assert_eq!(Rate::new(0), None);
    }

    #[test]
    fn a_rate_is_shown_in_its_unit() {
        let shown = |bits| Rate::new(bits).unwrap().to_string();
        assert_eq!(shown(6_000_000_000), "6 Gb/s");
        assert_eq!(shown(913_300_000), "913.3 Mb/s");
        assert_eq!(shown(999), "999 b/s");
    }

    #[test]
    fn more_than_a_pacer_counts_exactly_does_not_overflow() {
        let mut pacer = Pacer::new(Rate::GIGABIT);
        assert_eq!(pacer.send(1 << 40, Instant::ZERO).as_nanos(), 8 << 40);
        assert_eq!(pacer.send(u64::MAX, Instant::ZERO), Instant::MAX);
    }

    proptest! {
        /// The total time of back-to-back pieces is exactly the time of all their bits.
        #[test]
        fn a_busy_pacer_is_exact(
            rate in 1..=1_000_000_000_000u64,
            pieces in prop::collection::vec(0..=65_535u64, 1..200),
        ) {
            let mut pacer = Pacer::new(Rate::new(rate).unwrap());
            let mut bytes = 0u128;
            for piece in pieces {
                let through = pacer.send(piece, Instant::ZERO);
                bytes += u128::from(piece);
                prop_assert_eq!(u128::from(through.as_nanos()), bytes * BIT_NANOS_PER_BYTE / u128::from(rate));
            }
        }

        #[test]
        fn nanos_and_bytes_are_each_others_inverse(rate in 1..=1_000_000_000_000u64, bytes in 0..1_000_000u64) {
            let rate = Rate::new(rate).unwrap();
            let nanos = rate.nanos(bytes);
            prop_assert!(rate.bytes(nanos) >= bytes);
            prop_assert!(nanos == 0 || rate.bytes(nanos - 1) < bytes.max(1));
        }
    }
}
