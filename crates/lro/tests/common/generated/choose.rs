//! Sources of choices: random numbers, or bytes of a test case.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};

/// A source of choices. Callers list the simplest alternative first: shrinking leads to it.
pub trait Choose {
    /// A number from 0 to `bound` − 1.
    fn below(&mut self, bound: u32) -> u32;

    /// Returns true if the source is used up: all further numbers are 0.
    fn is_exhausted(&self) -> bool {
        false
    }

    /// Returns true with a probability of `percent`.
    fn chance(&mut self, percent: u32) -> bool {
        self.below(100) >= 100 - percent
    }

    /// One of these.
    fn one_of<T: Copy>(&mut self, these: &[T]) -> T {
        these[self.below(these.len() as u32) as usize]
    }
}

/// Choices from a random number generator with a seed; never used up.
pub struct Seeded(Pcg64Mcg);

impl Seeded {
    pub fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }
}

impl Choose for Seeded {
    fn below(&mut self, bound: u32) -> u32 {
        ((u64::from(self.0.next_u32()) * u64::from(bound)) >> 32) as u32
    }
}

/// Choices from bytes, until they are used up.
pub struct Bytes<'a>(pub &'a [u8]);

impl Choose for Bytes<'_> {
    fn below(&mut self, bound: u32) -> u32 {
        let width = if bound <= 1 << 8 { 1 } else { 4 };
        let mut number = [0; 4];
        for place in number.iter_mut().take(width) {
            if let Some((first, rest)) = self.0.split_first() {
                (*place, self.0) = (*first, rest);
            }
        }
        u32::from_le_bytes(number) % bound.max(1)
    }

    fn is_exhausted(&self) -> bool {
        self.0.is_empty()
    }
}
