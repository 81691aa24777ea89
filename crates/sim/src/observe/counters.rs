//! Named counters.

use std::collections::BTreeMap;

/// Counters by name, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(BTreeMap<String, u64>);

impl Counters {
    /// Adds to a counter, which starts at 0.
    pub fn add(&mut self, name: &str, count: u64) {
        match self.0.get_mut(name) {
            Some(counter) => *counter += count,
            None => {
                self.0.insert(name.to_owned(), count);
            }
        }
    }

    /// Adds a component's counters under `part.name`.
    pub fn add_part(&mut self, part: &str, counts: impl IntoIterator<Item = (&'static str, u64)>) {
        for (name, count) in counts {
            self.add(&format!("{part}.{name}"), count);
        }
    }

    /// Returns a counter; 0 if it does not exist.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Iterates over all counters.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, count)| (name.as_str(), *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_same_name_are_added_up() {
        let mut counters = Counters::default();
        counters.add_part("link", [("packets", 3), ("dropped", 1)]);
        counters.add_part("link", [("packets", 4)]);
        let all: Vec<_> = counters.iter().collect();
        assert_eq!(all, [("link.dropped", 1), ("link.packets", 7)]);
        assert_eq!((counters.get("link.packets"), counters.get("link")), (7, 0));
    }
}
