//! A histogram of delays in fixed memory.

use std::fmt;
use std::time::Duration;

use crate::duration::LONGEST;

/// A histogram of delays from 0 to four hours with a resolution of 1 in 16,384 (1.2 µs at 20 ms). Quantiles
/// count longer delays as four hours. Reserves about 4 MB of address space, of which only touched pages use
/// memory. A copy has the buckets from the shortest to the longest delay only: observing a live path then
/// delays its packets less.
pub struct DelayHistogram {
    /// Number of delays per bucket, from `first` on.
    counts: Vec<u64>,
    /// The first bucket in `counts`.
    first: usize,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

/// The maximum, four hours: [`LONGEST`] in each stage that delays packets, and in the queue.
const MAX_NANOS: u64 = 4 * LONGEST.as_nanos() as u64;

/// Buckets per power of two, as a power of two.
const PRECISION: u32 = 14;

/// Returns the bucket of a delay: one per nanosecond below 2 · 2^[`PRECISION`] ns, above that one for each
/// value of the leading `PRECISION` + 1 bits.
#[inline]
const fn place(nanos: u64) -> usize {
    let shift = (u64::BITS - nanos.leading_zeros()).saturating_sub(PRECISION + 1);
    ((shift as usize) << PRECISION) + (nanos >> shift) as usize
}

/// Number of buckets.
const PLACES: usize = place(MAX_NANOS) + 1;

/// Returns the rank of a quantile among `count` values. A share such as 0.14 is not exact in binary, so a
/// product within rounding error of an integer is rounded to it.
fn rank_of(count: u64, quantile: f64) -> f64 {
    let product = count as f64 * quantile;
    let whole = product.round();
    if (product - whole).abs() <= whole * f64::EPSILON { whole } else { product.ceil() }
}

/// Returns the longest delay of a bucket.
const fn longest_at(place: usize) -> u64 {
    let shift = (place >> PRECISION).saturating_sub(1);
    let leading = place - (shift << PRECISION);
    ((leading as u64 + 1) << shift) - 1
}

impl DelayHistogram {
    /// Creates an empty histogram.
    pub fn new() -> Self {
        Self { counts: vec![0; PLACES], first: 0, count: 0, sum: 0, min: u64::MAX, max: 0 }
    }

    /// Adds a delay.
    #[inline]
    pub fn record(&mut self, delay: Duration) {
        self.record_nanos(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX));
    }

    #[inline]
    pub(crate) fn record_nanos(&mut self, nanos: u64) {
        self.record_many(nanos, 1);
    }

    /// Records `count` delays of `nanos` nanoseconds; `count` is at least 1.
    #[inline]
    pub(crate) fn record_many(&mut self, nanos: u64, count: u64) {
        let place = place(nanos.min(MAX_NANOS));
        if !(self.first..self.first + self.counts.len()).contains(&place) {
            self.add_all_buckets();
        }
        self.counts[place - self.first] += count;
        self.count += count;
        self.sum += u128::from(nanos) * u128::from(count);
        self.min = self.min.min(nanos);
        self.max = self.max.max(nanos);
    }

    /// Allocates the buckets that a copy omits.
    #[cold]
    fn add_all_buckets(&mut self) {
        let mut counts = vec![0; PLACES];
        counts[self.first..][..self.counts.len()].copy_from_slice(&self.counts);
        (self.counts, self.first) = (counts, 0);
    }

    /// Returns the number of delays.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the exact mean; 0 if empty.
    pub fn mean(&self) -> Duration {
        let mean = self.sum.checked_div(u128::from(self.count())).unwrap_or(0);
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// Returns the exact maximum; 0 if empty.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// Returns the median.
    pub fn p50(&self) -> Duration {
        self.quantile(0.5)
    }

    /// Returns the 99th percentile.
    pub fn p99(&self) -> Duration {
        self.quantile(0.99)
    }

    /// Returns the delay that the share `quantile` (0 to 1) of all delays does not exceed; 0 if empty.
    pub fn quantile(&self, quantile: f64) -> Duration {
        let rank = (rank_of(self.count, quantile) as u64).clamp(1, self.count.max(1));
        let mut until = 0;
        let reaches = |count: &u64| {
            until += count;
            until >= rank
        };
        let nanos = self.counts.iter().position(reaches).map_or(0, |at| longest_at(self.first + at));
        Duration::from_nanos(nanos.min(self.max))
    }

    /// Returns the number of delays of at most this length, to the histogram's resolution.
    pub fn count_at_most(&self, delay: Duration) -> u64 {
        let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        let until = place(nanos.min(MAX_NANOS)) + 1;
        self.counts.iter().take(until.saturating_sub(self.first)).sum()
    }

    /// Removes all delays.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.count, self.sum, self.min, self.max) = (0, 0, u64::MAX, 0);
    }
}

impl Clone for DelayHistogram {
    fn clone(&self) -> Self {
        let used = place(self.min.min(MAX_NANOS))..place(self.max.min(MAX_NANOS)) + 1;
        let counts = if self.count == 0 {
            &[][..]
        } else {
            &self.counts[used.start - self.first..used.end - self.first]
        };
        Self { counts: counts.to_vec(), first: used.start, ..*self }
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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn places_follow_each_other_without_gaps() {
        let mut next = 0;
        for at in 0..=place(MAX_NANOS) {
            assert_eq!((place(next), place(longest_at(at))), (at, at));
            next = longest_at(at) + 1;
        }
        assert!(next > MAX_NANOS);
    }

    proptest! {
        /// Equals the quantile of the sorted delays, rounded up by at most one part in 16,384.
        #[test]
        fn quantiles_are_those_of_the_sorted_delays(
            mut delays in proptest::collection::vec((0u32..44).prop_flat_map(|bits| 0..=1u64 << bits), 1..200),
            permille in 1u32..=1000,
            copies in proptest::collection::vec(0..200usize, 0..3),
        ) {
            let mut histogram = DelayHistogram::new();
            for (nth, delay) in delays.iter().enumerate() {
                if copies.contains(&nth) {
                    histogram = histogram.clone();
                }
                histogram.record_nanos(*delay);
            }
            let histogram = if copies.contains(&delays.len()) { histogram.clone() } else { histogram };
            delays.sort_unstable();
            let rank = (delays.len() * permille as usize).div_ceil(1000);
            let (exact, got) = (delays[rank - 1], histogram.quantile(f64::from(permille) / 1000.0));
            prop_assert!((exact..=exact + exact / 16_384).contains(&(got.as_nanos() as u64)), "{exact} {got:?}");
            let at_most = delays.partition_point(|delay| place(*delay) <= place(exact)) as u64;
            prop_assert_eq!(histogram.count_at_most(Duration::from_nanos(exact)), at_most);
        }
    }

    #[test]
    fn a_share_that_is_rounded_up_does_not_change_the_rank() {
        let mut histogram = DelayHistogram::new();
        (1..=100).for_each(|nanos| histogram.record_nanos(nanos));
        for percent in 1..=100 {
            assert_eq!(histogram.quantile(percent as f64 / 100.0), Duration::from_nanos(percent));
        }
    }

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

    /// A running path copies its histograms for each report, between two packets.
    #[test]
    fn a_copy_costs_as_much_as_the_range_of_the_delays() {
        let mut histogram = DelayHistogram::new();
        (5000..5500).for_each(|micros| histogram.record(Duration::from_micros(micros)));
        let allocated = allocation_counter::measure(|| drop(histogram.clone()));
        assert!(allocated.bytes_total < 32 << 10, "{allocated:?}");
    }

    #[test]
    fn a_histogram_without_delays_is_zero() {
        let mut histogram = DelayHistogram::default().clone();
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
