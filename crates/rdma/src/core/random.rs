//! Seeded cryptographic random numbers.

use std::fmt;

use siphasher::{sip, sip128};

/// A deterministic random sequence: SipHash-2-4 of a counter. The key is the hash of a purpose under the
/// seed, so none of the numbers can be computed from others without the seed.
#[derive(Clone)]
pub struct RandomNumbers {
    hasher: sip::SipHasher24,
    count: u64,
}

impl fmt::Debug for RandomNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RandomNumbers").field("count", &self.count).finish_non_exhaustive()
    }
}

impl RandomNumbers {
    /// Starts the sequence of `seed` for `purpose`. The sequences of one seed for different purposes are
    /// independent.
    pub fn new(seed: u128, purpose: &str) -> Self {
        let of_purpose = sip128::SipHasher24::new_with_key(&seed.to_le_bytes());
        let key = of_purpose.hash(purpose.as_bytes()).as_bytes();
        Self { hasher: sip::SipHasher24::new_with_key(&key), count: 0 }
    }

    fn next_u64(&mut self) -> u64 {
        let number = self.hasher.hash(&self.count.to_le_bytes());
        self.count += 1;
        number
    }

    /// Returns the next number, uniform in `0..2³²`.
    pub fn next_u32(&mut self) -> u32 {
        self.next_u64() as u32
    }

    /// Returns the next number, uniform in `0..bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u32) -> u32 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(seed: u128, purpose: &str) -> Vec<u32> {
        let mut numbers = RandomNumbers::new(seed, purpose);
        (0..1000).map(|_| numbers.next_u32()).collect()
    }

    #[test]
    fn a_sequence_follows_from_all_of_its_seed_and_its_purpose() {
        let one = sequence(1, "keys");
        assert_eq!(one, sequence(1, "keys"));
        for other in [sequence(2, "keys"), sequence(1 | 1 << 127, "keys"), sequence(1, "numbers")] {
            assert!(one.iter().zip(&other).all(|(one, other)| one != other));
        }
    }

    #[test]
    fn numbers_below_a_bound_reach_all_of_its_range() {
        let mut numbers = RandomNumbers::new(3, "keys");
        let mut seen = [false; 10];
        (0..200).for_each(|_| seen[numbers.below(10) as usize] = true);
        assert_eq!((seen, numbers.below(0)), ([true; 10], 0));
    }
}
