//! Packets or bytes over time in bounded memory.

use nichrome_wire::Instant;

/// Maximum number of bins, about twice as many as a plotted line needs.
const BINS: usize = 1024;

/// Received and sent counts of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bin {
    pub(crate) before: u64,
    pub(crate) after: u64,
}

impl Bin {
    fn plus(self, other: Self) -> Self {
        Self { before: self.before + other.before, after: self.after + other.after }
    }
}

/// Counts in intervals of equal width. The width doubles when the span exceeds the maximum number of bins.
#[derive(Clone)]
pub(crate) struct Bins {
    start: Option<Instant>,
    /// Width in nanoseconds.
    width: u64,
    bins: Vec<Bin>,
}

impl Default for Bins {
    fn default() -> Self {
        Self { start: None, width: 1000, bins: Vec::new() }
    }
}

impl Bins {
    /// Returns the bin of a time, which must not precede the time of the first call.
    pub(crate) fn at(&mut self, time: Instant) -> &mut Bin {
        let since = time.nanos_since(*self.start.get_or_insert(time));
        while since / self.width >= BINS as u64 {
            self.bins = merged(&self.bins, 2);
            self.width *= 2;
        }
        let index = (since / self.width) as usize;
        if index >= self.bins.len() {
            self.bins.resize(index + 1, Bin::default());
        }
        &mut self.bins[index]
    }

    /// Returns at most `most` bins, and their width in seconds.
    pub(crate) fn at_most(&self, most: usize) -> (Vec<Bin>, f64) {
        let together = self.bins.len().div_ceil(most).max(1);
        (merged(&self.bins, together), self.width as f64 * together as f64 / 1e9)
    }
}

/// Sums every `together` bins.
fn merged(bins: &[Bin], together: usize) -> Vec<Bin> {
    let sum = |bins: &[Bin]| bins.iter().copied().fold(Bin::default(), Bin::plus);
    bins.chunks(together).map(sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_grow_with_the_time_and_lose_nothing() {
        let mut bins = Bins::default();
        for millis in 0..10_000 {
            bins.at(Instant::from_nanos(5_000_000_000 + millis * 1_000_000)).before += 1;
        }
        assert!(bins.bins.len() <= BINS);
        let (shown, width) = bins.at_most(100);
        assert!(shown.len() <= 100 && shown.len() > 50);
        assert_eq!(shown.iter().map(|bin| bin.before).sum::<u64>(), 10_000);
        assert!((width * shown.len() as f64 - 10.0).abs() < 0.3, "{width}");
    }

    #[test]
    fn the_end_of_time_has_a_bin() {
        let mut bins = Bins::default();
        bins.at(Instant::ZERO).after += 1;
        bins.at(Instant::MAX).after += 1;
        assert_eq!(bins.bins.iter().map(|bin| bin.after).sum::<u64>(), 2);
        assert!(bins.bins.len() <= BINS);
        assert_eq!(Bins::default().at_most(10).0, []);
    }
}
