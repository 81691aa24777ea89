//! Aggregate sizes in doubling ranges: 1, 2, 3–4, 5–8, … 65 and more.

/// Upper bounds of all ranges but the last one.
const ENDS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// The number of packets with a number of segments in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: usize,
    /// `None` for the unbounded range.
    pub(super) last: Option<usize>,
    pub(super) packets: u64,
}

/// Sums packets by range; omits empty ranges at the end.
pub(super) fn in_ranges(sizes: impl Iterator<Item = (usize, u64)>) -> Vec<Range> {
    let firsts = [1].into_iter().chain(ENDS.iter().map(|end| end + 1));
    let lasts = ENDS.iter().copied().map(Some).chain([None]);
    let mut ranges: Vec<_> =
        firsts.zip(lasts).map(|(first, last)| Range { first, last, packets: 0 }).collect();
    for (segments, packets) in sizes {
        let index = ENDS.partition_point(|end| *end < segments);
        ranges[index].packets += packets;
    }
    let used = ranges.iter().rposition(|range| range.packets > 0).map_or(1, |last| last + 1);
    ranges.truncate(used);
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_in_its_range() {
        let ranges = in_ranges((1..=1023).map(|segments| (segments, segments as u64)));
        for range in &ranges {
            let sizes = range.first..=range.last.unwrap_or(1023);
            assert_eq!(range.packets, sizes.map(|size| size as u64).sum::<u64>(), "{range:?}");
        }
        let names: Vec<String> = ranges.iter().map(Range::name).collect();
        assert_eq!(names, ["1", "2", "3–4", "5–8", "9–16", "17–32", "33–64", "65+"]);
    }

    #[test]
    fn ranges_end_with_the_largest_size() {
        assert_eq!(in_ranges([(1, 5), (3, 1)].into_iter()).len(), 3);
        assert_eq!(in_ranges([].into_iter()).len(), 1);
    }
}
