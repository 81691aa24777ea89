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
    /// Creates the stream of `stage`. Streams are spaced by the golden ratio of 2⁶⁴, so that consecutive
    /// seeds may be used.
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
            if let Some((first, second)) = polar(x, y) {
                self.spare = Some(second);
                return first;
            }
        }
    }
}

/// Returns two standard normal numbers for a point within the unit circle; `None` for its centre and for
/// points outside.
fn polar(x: f64, y: f64) -> Option<(f64, f64)> {
    let square = x * x + y * y;
    let is_usable = square > 0.0 && square < 1.0;
    is_usable.then(|| {
        let factor = (-2.0 * square.ln() / square).sqrt();
        (x * factor, y * factor)
    })
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

    /// A stream whose next number is `number`. The generator multiplies its state by an odd constant, and its
    /// output is the exclusive or of the state's halves, rotated by the upper half's upper bits.
    fn stream_that_yields(number: u64) -> Random {
        const MULTIPLIER: u128 = 0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645;
        // Newton's iteration: each step doubles the number of low bits that are right.
        let inverse =
            (0..7).fold(1u128, |i, _| i.wrapping_mul(2u128.wrapping_sub(MULTIPLIER.wrapping_mul(i))));
        let state = u128::from(number ^ 1) << 64 | 1;
        let generator = Pcg64Mcg::new(state.wrapping_mul(inverse));
        Random { generator, spare: None }
    }

    #[test]
    fn the_generators_lowest_and_highest_numbers_keep_every_promise() {
        for number in [0, u64::MAX] {
            let stream = || stream_that_yields(number);
            assert_eq!(stream().generator.next_u64(), number);
            assert!(!stream().happens(Probability::NEVER.into()), "{number}");
            assert!(stream().happens(Probability::ALWAYS.into()), "{number}");
            assert!(stream().below(7) < 7, "{number}");
        }
        let unit = |number| stream_that_yields(number).unit();
        assert_eq!((unit(0), unit(u64::MAX)), (2f64.powi(-53), 1.0));
    }

    #[test]
    fn only_points_within_the_unit_circle_and_off_its_centre_yield_normal_numbers() {
        for (x, y) in [(0.0, 0.0), (1.0, 0.0), (0.0, -1.0), (0.8, -0.8)] {
            assert_eq!(polar(x, y), None, "({x}, {y})");
        }
        // A point on the circle of radius r moves to the radius √(-4 ln r), in its own direction.
        let (first, second) = polar(-0.3, 0.4).unwrap();
        assert!((first.hypot(second) - (-4.0 * 0.5f64.ln()).sqrt()).abs() < 1e-12);
        assert!((first / second + 0.75).abs() < 1e-12 && second > 0.0);
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
