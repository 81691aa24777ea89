//! Variation of assumed parameters: one at a time, and all together.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};

use super::definition::{Definition, Extent, Parameter};
use super::parameter::{ParameterSpec, Value};
use super::variant::Variant;

/// Ratio of a range's ends above which it is sampled logarithmically.
const MAGNITUDES: f64 = 10.0;

/// An uncertain parameter, or the reading of the paper's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Factor {
    /// The parameter's key, or `reading`.
    pub name: String,
    /// The variants: the ends of the range or the choices other than the value, or the readings.
    pub ends: Vec<Variant>,
}

impl Definition {
    /// Returns all uncertain parameters by key, then the reading.
    pub fn factors(&self) -> Vec<Factor> {
        let mut factors: Vec<Factor> =
            self.assumed().map(|(parameter, extent)| ends(parameter, extent)).collect();
        if !self.readings.is_empty() {
            factors.push(Factor { name: "reading".into(), ends: self.readings.clone() });
        }
        factors
    }

    /// Returns `count` samples of all factors by a Latin hypercube: each range is divided into `count` parts,
    /// and each part occurs in one sample. Ranges of more than a factor of 10 are divided logarithmically.
    pub fn samples(&self, count: usize, seed: u64) -> Vec<Variant> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let name = |nth: usize| format!("sample {}", nth + 1);
        let source = "sampled from the ranges of what is assumed";
        let mut samples: Vec<Variant> = (0..count)
            .map(|nth| Variant { name: name(nth), source: source.into(), set: Vec::new() })
            .collect();
        for (parameter, extent) in self.assumed() {
            for (sample, place) in samples.iter_mut().zip(places(count, &mut random)) {
                sample.set.push((parameter.spec, at(extent, place)));
            }
        }
        if !self.readings.is_empty() {
            for (sample, place) in samples.iter_mut().zip(places(count, &mut random)) {
                // Index 0 is the experiment's own reading.
                let nth = (place * (self.readings.len() + 1) as f64) as usize;
                if let Some(reading) = nth.checked_sub(1).and_then(|nth| self.readings.get(nth)) {
                    sample.set.extend(reading.set.iter().copied());
                }
            }
        }
        samples
    }

    /// Iterates over the parameters with a range, except for the x axis' and those that every series sets.
    fn assumed(&self) -> impl Iterator<Item = (&Parameter, &Extent)> {
        let is_open = |spec: &ParameterSpec| {
            spec.key != self.x.parameter.key
                && !self.series.iter().all(|series| series.set.iter().any(|(set, _)| set.key == spec.key))
        };
        let open = self.parameters.iter().filter(move |parameter| is_open(parameter.spec));
        open.filter_map(|parameter| Some((parameter, &parameter.range.as_ref()?.extent)))
    }
}

fn ends(parameter: &Parameter, extent: &Extent) -> Factor {
    let values = match extent {
        Extent::Between(least, most) => vec![Value::Quantity(*least), Value::Quantity(*most)],
        Extent::OneOf(choices) => choices.clone(),
    };
    let others = values.into_iter().filter(|value| *value != parameter.value);
    let end = |value| Variant {
        name: format!("{} = {}", parameter.spec.key, parameter.spec.show(value)),
        source: "an end of its range".into(),
        set: vec![(parameter.spec, value)],
    };
    Factor { name: parameter.spec.key.into(), ends: others.map(end).collect() }
}

/// Returns one random position in each of `count` equal parts of [0, 1), shuffled.
fn places(count: usize, random: &mut Pcg64Mcg) -> Vec<f64> {
    let part = |nth: usize, random: &mut Pcg64Mcg| (nth as f64 + unit(random)) / count as f64;
    let mut places: Vec<f64> = (0..count).map(|nth| part(nth, random)).collect();
    for nth in (1..count).rev() {
        places.swap(nth, (random.next_u64() % (nth as u64 + 1)) as usize);
    }
    places
}

/// Returns a random number in [0, 1).
fn unit(random: &mut Pcg64Mcg) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Returns the parameter value at a position of its range.
fn at(extent: &Extent, place: f64) -> Value {
    match extent {
        Extent::OneOf(choices) => choices[(place * choices.len() as f64) as usize % choices.len()],
        Extent::Between(least, most) => {
            let (from, to) = (*least as f64, *most as f64);
            let number = if from > 0.0 && to / from > MAGNITUDES {
                // f64::powf is the C library's, whose last bit differs from machine to machine.
                from * libm::pow(to / from, place)
            } else {
                from + (to - from) * place
            };
            Value::Quantity((number.round() as u64).clamp(*least, *most))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{EXPERIMENT, LIBRARY};
    use super::*;

    fn definition() -> Definition {
        let range = "source = \"fitted to the gain\", range = [6, 20], reason = \"as other cards\"";
        let text = EXPERIMENT.replace("source = \"fitted to the gain\"", range);
        let arbiter = "arbiter = { value = \"stack\", source = \"ours\", range = [\"stack\", \"round-robin\"], reason = \"both are built\" }\n";
        Definition::parse("share.toml", &(text + arbiter), &LIBRARY).unwrap()
    }

    #[test]
    fn one_factor_at_a_time_goes_to_its_ends() {
        let factors = definition().factors();
        let names: Vec<Vec<&str>> =
            factors.iter().map(|factor| factor.ends.iter().map(|end| end.name.as_str()).collect()).collect();
        assert_eq!(names, [vec!["arbiter = round-robin"], vec!["setup = 6us", "setup = 20us"]]);
    }

    #[test]
    fn every_part_of_every_range_is_in_one_sample() {
        let definition = definition();
        let samples = definition.samples(14, 1);
        assert_eq!(samples, definition.samples(14, 1));
        assert_ne!(samples, definition.samples(14, 2));
        let setups = samples.iter().map(|sample| match sample.set[1].1 {
            Value::Quantity(nanos) => nanos,
            other => panic!("{other}"),
        });
        let mut parts: Vec<u64> = setups.map(|nanos| (nanos - 6000) / 1000).collect();
        parts.sort_unstable();
        assert_eq!(parts, (0..14).collect::<Vec<_>>());
        let stacks = samples.iter().filter(|sample| sample.set[0].1 == Value::Choice("stack")).count();
        assert_eq!(stacks, 7);
    }

    #[test]
    fn the_c_library_has_no_part_in_a_sample() {
        // glibc's pow is 1 above at this place.
        assert_eq!(at(&Extent::Between(1, 1 << 53), 0.992), Value::Quantity(6_713_562_742_504_944));
    }

    #[test]
    fn wide_ranges_are_sampled_by_magnitude() {
        let extent = Extent::Between(10, 1000);
        assert_eq!([0.0, 0.5, 1.0].map(|place| at(&extent, place)), [10, 100, 1000].map(Value::Quantity));
    }
}
