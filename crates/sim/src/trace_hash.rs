//! The trace hash: equal for runs with equal events at equal times.

/// A number that identifies an event: its kind, target and content.
pub trait Fingerprint {
    /// Returns a number that is equal on every machine: independent of memory addresses and hash seeds.
    fn fingerprint(&self) -> u64;
}

impl Fingerprint for u64 {
    fn fingerprint(&self) -> u64 {
        *self
    }
}

/// A hash of a sequence of numbers: each is mixed in by a 64 × 64 bit multiplication whose halves are folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceHash(u64);

/// Odd, with as many ones as zeros, without a pattern: the fractional part of π.
const MULTIPLIER: u64 = 0x243F_6A88_85A3_08D3;

impl Default for TraceHash {
    fn default() -> Self {
        Self(MULTIPLIER)
    }
}

impl TraceHash {
    /// Mixes in a number.
    #[inline]
    pub fn add(&mut self, number: u64) {
        let product = u128::from(self.0.rotate_left(29) ^ number) * u128::from(MULTIPLIER);
        self.0 = (product as u64 ^ (product >> 64) as u64).wrapping_add(number);
    }

    /// Mixes in bytes and their length.
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        self.add(bytes.len() as u64);
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.add(word.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)));
        }
        let rest = words.remainder();
        self.add(rest.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)));
    }

    /// Returns the hash so far.
    pub fn value(self) -> u64 {
        self.0
    }

    /// Hashes a few numbers: the fingerprint of an event with several fields.
    #[inline]
    pub fn of(numbers: &[u64]) -> u64 {
        let mut hash = Self::default();
        for number in numbers {
            hash.add(*number);
        }
        hash.value()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_hash_is_the_same_everywhere() {
        let mut hash = TraceHash::default();
        hash.add(1);
        hash.add_bytes(b"nichrome sim");
        // Computed with the arithmetic of another language.
        assert_eq!(hash.value(), 5_842_556_669_577_500_910);
    }

    #[test]
    fn order_and_length_count() {
        let hashes = [&[1, 2][..], &[2, 1], &[1, 2, 0], &[], &[0], &[0, 0]].map(TraceHash::of);
        assert_eq!(hashes.into_iter().collect::<HashSet<_>>().len(), hashes.len());
    }

    #[test]
    fn small_numbers_do_not_collide() {
        let hashes: HashSet<_> =
            (0..1000).flat_map(|a| (0..100).map(move |b| TraceHash::of(&[a, b]))).collect();
        assert_eq!(hashes.len(), 100_000);
    }
}
