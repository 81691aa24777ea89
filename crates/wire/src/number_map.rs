//! A hash map with locally assigned integer keys.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map for per-packet lookups. This machine assigns its keys, mostly consecutively, so the hash need not
/// resist chosen keys.
pub type NumberMap<K, T> = HashMap<K, T, BuildHasherDefault<NumberHasher>>;

/// Multiplies by 2⁶⁴ divided by the golden ratio, which spreads consecutive numbers over all bits.
#[derive(Clone, Copy, Debug, Default)]
pub struct NumberHasher(u64);

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        // The map indexes by the low bits, which a product mixes least.
        self.0 = (self.0 ^ number).wrapping_mul(GOLDEN).rotate_left(32);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn consecutive_numbers_have_places_of_their_own() {
        let hash = |number| {
            let mut hasher = NumberHasher::default();
            hasher.write_u32(number);
            hasher.finish()
        };
        let places: HashSet<u64> = (0..1000).map(|number| hash(0x123_456 + number) % 8192).collect();
        let tags: HashSet<u64> = (0..1000).map(|number| hash(0x123_456 + number) >> 57).collect();
        assert!(places.len() > 900 && tags.len() > 100, "{} {}", places.len(), tags.len());
        let mut map = NumberMap::default();
        map.insert(7u64, 'a');
        assert_eq!((map.get(&7), map.get(&8)), (Some(&'a'), None));
    }

    #[test]
    fn keys_of_two_parts_have_hashes_of_their_own() {
        let hash = |parts: [u8; 2]| {
            let mut hasher = NumberHasher::default();
            hasher.write(&parts);
            hasher.finish()
        };
        let hashes: HashSet<u64> = (0..=u16::MAX).map(|key| hash(key.to_be_bytes())).collect();
        assert_eq!(hashes.len(), 1 << 16);
    }
}
