//! Evaluated statements and values with their ranges over readings and samples.

use std::collections::HashMap;

use nichrome_sim::experiment::{Compared, Definition, Statement, Values};

/// The minimum and maximum.
pub(super) type Range = (f64, f64);

/// An evaluated statement with its ranges.
pub(super) struct Judged<'a> {
    pub(super) statement: Statement<'a>,
    /// Range over the paper's readings, including the default one.
    pub(super) readings: Option<Range>,
    /// Range over all samples of assumed parameters.
    pub(super) samples: Option<Range>,
}

/// A value of a series with its ranges.
pub(super) struct Place {
    pub(super) compared: Compared,
    pub(super) readings: Option<Range>,
    pub(super) samples: Option<Range>,
}

/// The values with other readings, and with samples of assumed parameters.
#[derive(Default)]
pub(super) struct Others {
    pub(super) readings: Vec<Values>,
    pub(super) samples: Vec<Values>,
}

/// Evaluates all statements with their ranges.
pub(super) fn judge<'a>(definition: &'a Definition, values: &Values, others: &Others) -> Vec<Judged<'a>> {
    let found = |values: &Values| -> Vec<Vec<f64>> {
        let statements = definition.judge(values);
        statements.into_iter().map(|statement| statement.found.into_iter().flatten().collect()).collect()
    };
    let spread = |all: &[Values], with: Option<&Values>| -> Vec<Option<Range>> {
        let mut ranges = vec![None; definition.expected.len()];
        if !all.is_empty() {
            for values in all.iter().chain(with) {
                for (range, numbers) in ranges.iter_mut().zip(found(values)) {
                    numbers.into_iter().for_each(|number| widen(range, number));
                }
            }
        }
        ranges
    };
    let readings = spread(&others.readings, Some(values));
    let samples = spread(&others.samples, None);
    let statements = definition.judge(values).into_iter().zip(readings).zip(samples);
    statements.map(|((statement, readings), samples)| Judged { statement, readings, samples }).collect()
}

/// Compares all values of all series with the paper's, with their ranges.
pub(super) fn places(definition: &Definition, values: &Values, others: &Others) -> Vec<Place> {
    let spread = |all: &[Values], with: Option<&Values>| {
        let mut ranges: HashMap<(&str, u64), Option<Range>> = HashMap::new();
        if !all.is_empty() {
            for name in definition.lines() {
                for x in &definition.x.values {
                    let others: Vec<f64> =
                        all.iter().filter_map(|values| values.get(definition, name, *x)).collect();
                    if others.is_empty() {
                        continue;
                    }
                    let range = ranges.entry((name, *x)).or_default();
                    let own = with.and_then(|values| values.get(definition, name, *x));
                    others.into_iter().chain(own).for_each(|number| widen(range, number));
                }
            }
        }
        ranges
    };
    let readings = spread(&others.readings, Some(values));
    let samples = spread(&others.samples, None);
    let columns = definition.x.values.len().max(1);
    let place = |(nth, compared): (usize, Compared)| {
        let key = definition.lines().nth(nth / columns).zip(definition.x.values.get(nth % columns).copied());
        let range =
            |ranges: &HashMap<_, Option<Range>>| key.and_then(|key| ranges.get(&key).copied().flatten());
        Place { readings: range(&readings), samples: range(&samples), compared }
    };
    definition.compare(values).into_iter().enumerate().map(place).collect()
}

fn widen(range: &mut Option<Range>, number: f64) {
    let (least, most) = range.unwrap_or((number, number));
    *range = Some((least.min(number), most.max(number)));
}
