//! The timestamps of a pcapng interface (draft-ietf-opsawg-pcapng, section 4.2: if_tsresol and if_tsoffset).

use nichrome_wire::Instant;

/// The unit of an interface's timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tick {
    /// A multiple of one nanosecond.
    Nanos(u64),
    /// A fraction of one nanosecond.
    PerNano(u128),
    /// A fraction of one second: 2 to the power of minus this, at most 127.
    SecondShifted(u8),
}

impl Tick {
    /// The default without an if_tsresol option.
    pub(super) const MICROSECOND: Self = Self::Nanos(1000);

    /// Decodes an if_tsresol option: a negative power of ten, or of two if the top bit is set.
    pub(super) fn from_tsresol(tsresol: u8) -> Self {
        let exponent = tsresol & 0x7F;
        if tsresol & 0x80 != 0 {
            return Self::SecondShifted(exponent);
        }
        match exponent {
            0..=9 => Self::Nanos(10u64.pow(9 - u32::from(exponent))),
            // A tick too short for a u128: 2⁶⁴ of them are less than a nanosecond.
            _ => Self::PerNano(10u128.checked_pow(u32::from(exponent) - 9).unwrap_or(u128::MAX)),
        }
    }

    /// Converts ticks to nanoseconds, rounded down.
    #[inline]
    fn nanos(self, ticks: u64) -> u128 {
        let ticks = u128::from(ticks);
        match self {
            Self::Nanos(nanos) => ticks * u128::from(nanos),
            Self::PerNano(per_nano) => ticks / per_nano,
            Self::SecondShifted(shift) => (ticks * 1_000_000_000) >> shift,
        }
    }
}

/// How an interface counts time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    pub(super) tick: Tick,
    /// The if_tsoffset option: seconds to add.
    pub(super) offset: i64,
}

impl Clock {
    /// Converts a timestamp. Times before 1970 become 1970; times beyond the range of `Instant` become its
    /// maximum.
    #[inline]
    pub(super) fn time(self, ticks: u64) -> Instant {
        let nanos = self.tick.nanos(ticks).cast_signed() + i128::from(self.offset) * 1_000_000_000;
        Instant::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nanos(tsresol: u8, offset: i64, ticks: u64) -> u64 {
        Clock { tick: Tick::from_tsresol(tsresol), offset }.time(ticks).as_nanos()
    }

    #[test]
    fn decimal_resolutions() {
        assert_eq!(nanos(0, 0, 7), 7_000_000_000);
        assert_eq!(nanos(3, 0, 7), 7_000_000);
        assert_eq!(nanos(6, 0, 7), 7_000);
        assert_eq!(nanos(9, 0, 7), 7);
        assert_eq!(nanos(12, 0, 7_999), 7);
        assert_eq!(nanos(28, 0, u64::MAX), 1);
        assert_eq!(nanos(29, 0, u64::MAX), 0);
        assert_eq!(nanos(127, 0, u64::MAX), 0);
    }

    #[test]
    fn binary_resolutions() {
        assert_eq!(nanos(0x80, 0, 7), 7_000_000_000);
        assert_eq!(nanos(0x80 | 1, 0, 3), 1_500_000_000);
        assert_eq!(nanos(0x80 | 10, 0, 1024 + 512), 1_500_000_000);
        assert_eq!(nanos(0x80 | 32, 0, (5 << 32) + 1), 5_000_000_000);
        assert_eq!(nanos(0x80 | 127, 0, u64::MAX), 0);
    }

    #[test]
    fn the_offset_is_added_in_seconds() {
        assert_eq!(nanos(6, 1_000_000_000, 1), 1_000_000_000_000_001_000);
        assert_eq!(nanos(9, -1, 1_500_000_000), 500_000_000);
    }

    #[test]
    fn times_out_of_range_saturate() {
        assert_eq!(nanos(9, -2, 1_500_000_000), 0);
        assert_eq!(nanos(0, 0, u64::MAX), u64::MAX);
        assert_eq!(nanos(9, 1, u64::MAX), u64::MAX);
        assert_eq!(nanos(9, i64::MIN, 0), 0);
        assert_eq!(nanos(0, i64::MAX, u64::MAX), u64::MAX);
    }

    proptest! {
        #[test]
        fn later_ticks_are_never_earlier(tsresol: u8, offset: i64, a: u64, b: u64) {
            let (early, late) = (a.min(b), a.max(b));
            prop_assert!(nanos(tsresol, offset, early) <= nanos(tsresol, offset, late));
        }
    }
}
