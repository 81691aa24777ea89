//! Draws deviations of a [`Jitter`], which defines the distributions.

use crate::random::Random;
use crate::{Jitter, Samples};

/// A distribution of deviations in nanoseconds.
pub(crate) enum Sampler {
    Uniform { most: u64 },
    Normal { deviation: f64 },
    Pareto { deviation: f64 },
    ParetoNormal { deviation: f64 },
    Samples(Samples),
}

/// Where a Pareto number of shape 3 and minimum 1 is cut: netem's table ends at four of its units,
/// `4 · 3/4 + 1.5`.
const PARETO_CUT: f64 = 4.5;
/// The mean of the cut distribution: `1 + ∫ t⁻³ dt` from 1 to the cut.
const PARETO_MEAN: f64 = 1.0 + (1.0 - 1.0 / (PARETO_CUT * PARETO_CUT)) / 2.0;
/// The mean of its square: `1 + ∫ 2 t · t⁻³ dt` from 1 to the cut.
const PARETO_SQUARE: f64 = 1.0 + 2.0 * (1.0 - 1.0 / PARETO_CUT);

impl From<Jitter> for Sampler {
    fn from(jitter: Jitter) -> Self {
        match jitter {
            Jitter::Uniform(most) => Self::Uniform { most: most.nanos() },
            Jitter::Normal(scale) => Self::Normal { deviation: scale.nanos() as f64 },
            Jitter::Pareto(scale) => Self::Pareto { deviation: scale.nanos() as f64 },
            Jitter::ParetoNormal(scale) => Self::ParetoNormal { deviation: scale.nanos() as f64 },
            Jitter::Samples(samples) => Self::Samples(samples),
        }
    }
}

impl Sampler {
    /// Draws a deviation, in nanoseconds.
    #[inline]
    pub(crate) fn deviation(&self, random: &mut Random) -> i64 {
        match self {
            Self::Uniform { most } => random.below(2 * most + 1) as i64 - *most as i64,
            Self::Normal { deviation } => (deviation * random.normal()).round() as i64,
            Self::Pareto { deviation } => (deviation * pareto(random)).round() as i64,
            Self::ParetoNormal { deviation } => (deviation * pareto_normal(random)).round() as i64,
            Self::Samples(samples) => {
                let nth = random.below(samples.as_slice().len() as u64);
                samples.as_slice().get(nth as usize).map_or(0, |sample| sample.nanos() as i64)
            }
        }
    }
}

/// Draws a Pareto number of mean 0 and standard deviation 1.
fn pareto(random: &mut Random) -> f64 {
    let deviation = (PARETO_SQUARE - PARETO_MEAN * PARETO_MEAN).sqrt();
    ((1.0 / random.unit().cbrt()).min(PARETO_CUT) - PARETO_MEAN) / deviation
}

/// Draws a number, one part normal to three parts Pareto, of mean 0 and standard deviation 1.
fn pareto_normal(random: &mut Random) -> f64 {
    (random.normal() + 3.0 * pareto(random)) / 10.0_f64.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stage;

    const SCALE: f64 = 5e6;

    /// Returns mean, standard deviation, minimum and maximum of a million deviations, in units of the scale.
    fn moments(jitter: &str) -> (f64, f64, f64, f64) {
        let sampler = Sampler::from(jitter.parse::<Jitter>().unwrap());
        let mut random = Random::new(7, Stage::Delay);
        let deviations: Vec<f64> =
            (0..1_000_000).map(|_| sampler.deviation(&mut random) as f64 / SCALE).collect();
        let mean = deviations.iter().sum::<f64>() / 1e6;
        let square = deviations.iter().map(|deviation| (deviation - mean).powi(2)).sum::<f64>() / 1e6;
        let least = deviations.iter().copied().fold(f64::MAX, f64::min);
        (mean, square.sqrt(), least, deviations.iter().copied().fold(f64::MIN, f64::max))
    }

    #[test]
    fn every_distribution_has_mean_0_and_the_configured_deviation() {
        let uniform = 1.0 / 3.0_f64.sqrt();
        for (jitter, expected) in
            [("5ms", uniform), ("normal:5ms", 1.0), ("pareto:5ms", 1.0), ("pareto-normal:5ms", 1.0)]
        {
            let (mean, deviation, ..) = moments(jitter);
            assert!(mean.abs() < 0.005, "{jitter}: mean {mean}");
            assert!((deviation / expected - 1.0).abs() < 0.01, "{jitter}: deviation {deviation}");
        }
    }

    #[test]
    fn bounds_are_as_documented() {
        let (_, _, least, most) = moments("5ms");
        assert!((-1.0..-0.999).contains(&least) && (0.999..=1.0).contains(&most), "{least} {most}");
        let (_, _, least, most) = moments("pareto:5ms");
        assert!((-0.773..-0.771).contains(&least) && (4.90..4.92).contains(&most), "{least} {most}");
        let (_, _, least, most) = moments("normal:5ms");
        assert!(least < -4.0 && most > 4.0, "{least} {most}");
        // As with Pareto, the long tail is on the side of longer delays.
        let (_, _, least, most) = moments("pareto-normal:5ms");
        assert!(least > -3.0 && most > 4.5, "{least} {most}");
    }

    #[test]
    fn each_sample_is_as_likely() {
        let samples = Sampler::Samples(Samples::parse("1ms\n2ms\n2ms\n4ms").unwrap());
        let mut random = Random::new(7, Stage::Delay);
        let mut counts = [0; 5];
        (0..100_000).for_each(|_| counts[samples.deviation(&mut random) as usize / 1_000_000] += 1);
        let near = |count: i32, expected: i32| (count - expected).abs() < expected / 50;
        assert!(near(counts[1], 25_000) && near(counts[2], 50_000) && near(counts[4], 25_000), "{counts:?}");
    }
}
