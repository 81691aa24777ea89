//! The measured values of an experiment's points, and the values of its series.

use std::collections::HashMap;

use super::definition::Definition;

/// A series' maximum begins at the first value that is at least this share of the maximum.
const PLATEAU_SHARE: f64 = 0.95;

/// The measured values by series and x value; derived series are computed from them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values {
    measured: HashMap<(usize, u64), f64>,
}

/// The values of a series in x order.
pub(super) struct Line(Vec<(u64, Option<f64>)>);

impl Values {
    /// Adds the measured value of a point.
    pub fn add(&mut self, series: usize, x: u64, value: f64) {
        self.measured.insert((series, x), value);
    }

    /// Returns a series' value at `x`; `None` without measurements, or if the series does not exist.
    pub fn get(&self, definition: &Definition, line: &str, x: u64) -> Option<f64> {
        if let Some(series) = definition.series.iter().position(|series| series.name == line) {
            return self.measured.get(&(series, x)).copied();
        }
        let derived = definition.derived.iter().find(|derived| derived.name == line)?;
        let [a, b] = derived.of.map(|series| self.measured.get(&(series, x)).copied());
        derived.rule.apply(a?, b?)
    }

    pub(super) fn line(&self, definition: &Definition, name: &str) -> Line {
        let values = definition.x.values.iter();
        let mut line: Vec<_> = values.map(|x| (*x, self.get(definition, name, *x))).collect();
        line.sort_by_key(|(x, _)| *x);
        Line(line)
    }
}

impl Line {
    pub(super) fn maximum(&self) -> Option<f64> {
        self.0.iter().filter_map(|(_, value)| *value).max_by(f64::total_cmp)
    }

    /// Returns the first x value whose value is nearly the maximum.
    pub(super) fn maximum_begins(&self) -> Option<u64> {
        let least = self.maximum()? * PLATEAU_SHARE;
        self.0.iter().find(|(_, value)| value.is_some_and(|value| value >= least)).map(|(x, _)| *x)
    }

    /// Returns the decrease from the first to the last value, in percent.
    pub(super) fn fall(&self) -> Option<f64> {
        let [first, last] = [self.0.first()?.1?, self.0.last()?.1?];
        Some((first - last) / first.abs() * 100.0).filter(|fall| fall.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maximum_begins_where_the_line_is_nearly_there() {
        let line =
            Line(vec![(20, Some(1.3)), (40, None), (80, Some(3.9)), (160, Some(4.0)), (310, Some(0.9))]);
        assert_eq!((line.maximum(), line.maximum_begins()), (Some(4.0), Some(80)));
        assert_eq!(Line(vec![(1, None)]).maximum_begins(), None);
    }

    #[test]
    fn a_line_falls_from_its_first_number_to_its_last() {
        let fall = |values: &[Option<f64>]| Line(values.iter().map(|value| (0, *value)).collect()).fall();
        assert_eq!(fall(&[Some(4.0), Some(9.0), Some(1.0)]), Some(75.0));
        assert_eq!(fall(&[Some(2.0), Some(2.0)]), Some(0.0));
        assert_eq!([fall(&[Some(0.0), Some(1.0)]), fall(&[None, Some(1.0)])], [None, None]);
    }
}
