//! Random numbers. Each stage has its own stream, so that one stage does not affect the choices of another.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};

use crate::{Probability, Stage};

/// A stage's random number stream.
pub(crate) struct Random {
    generator: Pcg64Mcg,
    /// The second of the two normal numbers that the polar method yields at a time.
    spare: Option<f64>,
}

/// A probability, scaled to 2⁶⁴.
#[derive(Clone, Copy)]
pub(crate) struct Chance(u128);

impl From<Probability> for Chance {
    fn from(probability: Probability) -> Self {
        Self(probability.of_two_to_the_64())
    }
}

impl Random {
    /// Creates the stream of `stage`. Streams are spaced by the golden ratio of 2⁶⁴, so that consecutive seeds may be
    /// used.
    pub(crate) fn new(seed: u64, stage: Stage) -> Self {
        let apart = (stage as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self { generator: Pcg64Mcg::seed_from_u64(seed.wrapping_add(apart)), spare: None }
    }

    #[inline]
    pub(crate) fn happens(&mut self, chance: Chance) -> bool {
        u128::from(self.generator.next_u64()) < chance.0
    }

    /// Returns a number below `bound`; 0 if `bound` is 0.
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.generator.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number in (0, 1].
    #[inline]
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.generator.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Returns a standard normal number, by Marsaglia's polar method.
    pub(crate) fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let (x, y) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                let factor = (-2.0 * square.ln() / square).sqrt();
                self.spare = Some(y * factor);
                return x * factor;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_and_always_are_certain() {
        let mut random = Random::new(1, Stage::Loss);
        assert!((0..10_000).all(|_| !random.happens(Probability::NEVER.into())));
        assert!((0..10_000).all(|_| random.happens(Probability::ALWAYS.into())));
    }

    #[test]
    fn streams_differ_by_stage_and_by_seed() {
        let first = |seed, stage| Random::new(seed, stage).below(u64::MAX);
        let mut numbers: Vec<_> =
            (0..100).flat_map(|seed| Stage::ALL.map(|stage| first(seed, stage))).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 700);
    }

    #[test]
    fn numbers_are_within_their_range() {
        let mut random = Random::new(2, Stage::Delay);
        assert!((0..10_000).all(|_| random.below(7) < 7));
        assert!((0..10_000).map(|_| random.unit()).all(|unit| unit > 0.0 && unit <= 1.0));
        assert_eq!(random.below(0), 0);
    }
}
