//! Numbers of queue pairs, and of shared receive queues of XRC domains.

use nichrome_wire::rdma::QpNumber;

use super::random::RandomNumbers;

/// The mapping of indices to numbers: index 0 has a random number of the range `first..first + count`, the
/// following indices the following numbers, modulo the range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpNumbers {
    first: u32,
    count: u32,
    /// Offset of index 0 from `first`.
    start: u32,
}

impl QpNumbers {
    /// Derives the number of index 0 from `seed`. `first + count` is below 2²⁴.
    pub(crate) fn new(first: u32, count: u32, seed: u128, purpose: &'static str) -> Self {
        let start = RandomNumbers::new(seed, purpose).below(count);
        Self { first, count, start }
    }

    /// Returns the number of the queue pair at `index`, which is below `count`.
    pub(crate) fn number_of(&self, index: u32) -> QpNumber {
        let offset = self.start + index;
        let offset = if offset < self.count { offset } else { offset - self.count };
        QpNumber::new(self.first + offset).unwrap_or_default()
    }

    /// Returns the index of the queue pair with this number; `None` outside the range.
    #[inline]
    pub(crate) fn index_of(&self, number: QpNumber) -> Option<u32> {
        let offset = number.value().checked_sub(self.first).filter(|offset| *offset < self.count)?;
        Some(if offset < self.start { offset + self.count - self.start } else { offset - self.start })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_index_has_a_number_of_the_range_and_each_number_its_index() {
        for (seed, first, count) in [(0, 2, 1), (1, 0x11, 7), (2, 0x11, 1000), (3, 0xFF_F000, 0xFFE)] {
            let numbers = QpNumbers::new(first, count, seed, "tests");
            let mut all: Vec<u32> = (0..count).map(|index| numbers.number_of(index).value()).collect();
            for (index, number) in (0..).zip(&all) {
                assert_eq!(numbers.index_of(QpNumber::new(*number).unwrap()), Some(index));
            }
            all.sort_unstable();
            assert!(all.into_iter().eq(first..first + count));
            for outside in [0, 1, first - 1, first + count, 0xFF_FFFF] {
                assert_eq!(numbers.index_of(QpNumber::new(outside).unwrap()), None, "{outside:#x}");
            }
        }
    }

    #[test]
    fn the_first_number_is_random_and_follows_from_the_seed() {
        let first = |seed| QpNumbers::new(0x11, 1 << 20, seed, "tests").number_of(0);
        let mut seen: Vec<_> = (0..100).map(first).collect();
        assert!(seen.iter().zip(0..).all(|(number, seed)| *number == first(seed)));
        seen.sort_unstable();
        seen.dedup();
        assert!(seen.len() > 98);
    }
}
