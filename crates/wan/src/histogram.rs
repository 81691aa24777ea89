//! How delays are distributed, in fixed memory.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::duration::LONGEST;

/// Delays from 0 to four hours, in nanoseconds, to one part in 10,000: 2 µs at 20 ms. Longer ones count as four hours
/// in the quantiles. Takes about 4 MB, of which only those pages are ever touched that delays fall into.
#[derive(Clone)]
pub struct DelayHistogram {
    quantiles: Histogram<u64>,
    sum: u128,
    max: u64,
}

/// Four hours: [`LONGEST`] in each stage that holds packets, and the queue.
const MOST: u64 = 4 * LONGEST.as_nanos() as u64;

const DIGITS: u8 = 4;

impl DelayHistogram {
    /// A histogram without delays.
    pub fn new() -> Self {
        match Histogram::new_with_bounds(1, MOST, DIGITS) {
            Ok(quantiles) => Self { quantiles, sum: 0, max: 0 },
            Err(_) => unreachable!("the bounds are constants within the range that the histogram documents"),
        }
    }

    /// Adds a delay.
    #[inline]
    pub fn record(&mut self, delay: Duration) {
        self.record_nanos(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX));
    }

    #[inline]
    pub(crate) fn record_nanos(&mut self, nanos: u64) {
        self.quantiles.saturating_record(nanos.min(MOST));
        self.sum += u128::from(nanos);
        self.max = self.max.max(nanos);
    }

    /// How many delays there are.
    pub fn count(&self) -> u64 {
        self.quantiles.len()
    }

    /// The mean, exactly; 0 where there are no delays.
    pub fn mean(&self) -> Duration {
        let mean = self.sum.checked_div(u128::from(self.count())).unwrap_or(0);
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// The longest, exactly; 0 where there are no delays.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// The delay that half of all do not exceed.
    pub fn p50(&self) -> Duration {
        self.quantile(0.5)
    }

    /// The delay that 99 % of all do not exceed.
    pub fn p99(&self) -> Duration {
        self.quantile(0.99)
    }

    /// The delay that the share `quantile` (0 to 1) of all do not exceed; 0 where there are no delays.
    pub fn quantile(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.quantiles.value_at_quantile(quantile).min(self.max))
    }

    /// How many delays are at most this long, to the histogram's precision.
    pub fn count_at_most(&self, delay: Duration) -> u64 {
        self.quantiles.count_between(0, u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Forgets every delay.
    pub fn clear(&mut self) {
        self.quantiles.clear();
        (self.sum, self.max) = (0, 0);
    }
}

impl Default for DelayHistogram {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for DelayHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayHistogram")
            .field("count", &self.count())
            .field("mean", &self.mean())
            .field("p50", &self.p50())
            .field("p99", &self.p99())
            .field("max", &self.max())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_one_part_in_ten_thousand() {
        let mut histogram = DelayHistogram::new();
        for micros in 1..=100_000 {
            histogram.record(Duration::from_micros(micros));
        }
        let near = |got: Duration, micros: u64| {
            got.abs_diff(Duration::from_micros(micros)).as_micros() as u64 * 10_000 <= micros
        };
        assert!(near(histogram.p50(), 50_000) && near(histogram.p99(), 99_000), "{histogram:?}");
        assert_eq!((histogram.count(), histogram.max()), (100_000, Duration::from_millis(100)));
        assert_eq!(histogram.mean(), Duration::from_nanos(50_000_500));
    }

    #[test]
    fn a_histogram_without_delays_is_zero() {
        let mut histogram = DelayHistogram::default();
        let zero = (0, Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let values = |h: &DelayHistogram| (h.count(), h.mean(), h.max(), h.p99());
        assert_eq!(values(&histogram), zero);
        histogram.record(Duration::MAX);
        assert_eq!((histogram.count(), histogram.max()), (1, Duration::from_nanos(u64::MAX)));
        assert_eq!(histogram.p50().as_secs(), 4 * 3600);
        histogram.clear();
        assert_eq!(values(&histogram), zero);
    }

    #[test]
    fn resolution_is_a_microsecond_or_better_below_ten_milliseconds() {
        let mut histogram = DelayHistogram::new();
        histogram.record(Duration::from_nanos(8_123_456));
        histogram.record(Duration::from_millis(500));
        assert!(histogram.p50().abs_diff(Duration::from_nanos(8_123_456)) < Duration::from_micros(1));
    }
}
