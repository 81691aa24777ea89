//! Sets of places in a stream.

use std::collections::BTreeMap;
use std::ops::Range;

/// A place in a stream: sequence numbers unwrapped, so that they do not repeat.
pub(super) type Place = i64;

/// Disjoint ranges of places, start to end, that do not touch.
#[derive(Default)]
pub(super) struct Ranges(BTreeMap<Place, Place>);

impl Ranges {
    /// Adds a range; returns the parts that were not present.
    pub(super) fn cover(&mut self, range: Range<Place>) -> Vec<Range<Place>> {
        let mut new = Vec::new();
        let (mut start, mut end, mut at) = (range.start, range.end, range.start);
        if range.is_empty() {
            return new;
        }
        let before = self.0.range(..range.start).next_back().map(|(start, end)| (*start, *end));
        let within = self.0.range(range.start..=range.end).map(|(start, end)| (*start, *end));
        let touching: Vec<_> =
            before.into_iter().chain(within).filter(|(_, end)| *end >= range.start).collect();
        for (from, to) in touching {
            if from > at {
                new.push(at..from);
            }
            at = at.max(to);
            (start, end) = (start.min(from), end.max(to));
            self.0.remove(&from);
        }
        if at < range.end {
            new.push(at..range.end);
        }
        self.0.insert(start, end);
        new
    }

    /// Returns true if a whole range is present.
    pub(super) fn covers(&self, range: &Range<Place>) -> bool {
        let before = self.0.range(..=range.start).next_back();
        range.is_empty() || before.is_some_and(|(_, end)| *end >= range.end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_are_a_set_of_places(steps in proptest::collection::vec((-30..30i64, 0..20i64), 1..40)) {
            let mut ranges = Ranges::default();
            let mut places = std::collections::BTreeSet::new();
            for (start, len) in steps {
                let range = start..start + len;
                prop_assert_eq!(ranges.covers(&range), range.clone().all(|place| places.contains(&place)));
                let new = ranges.cover(range.clone());
                prop_assert!(new.iter().all(|part| !part.is_empty()));
                let new: Vec<Place> = new.into_iter().flatten().collect();
                let expected: Vec<Place> = range.filter(|place| places.insert(*place)).collect();
                prop_assert_eq!(new, expected);
            }
        }
    }
}
