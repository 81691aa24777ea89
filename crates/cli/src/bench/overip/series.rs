//! The values of figures: medians of rounds, with their spread.

use std::time::Duration;

use serde::Serialize;

use super::super::figures::{median, medians, significant};
use super::bearer::Bearer;

/// Median, minimum and maximum of rounds. The names of the fields are JSON keys.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Estimate {
    pub(super) median: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Estimate {
    /// Returns the estimate from the values of rounds; zeros without values.
    pub(super) fn of(rounds: &[f64]) -> Self {
        let least = rounds.iter().copied().reduce(f64::min).unwrap_or_default();
        let greatest = rounds.iter().copied().reduce(f64::max).unwrap_or_default();
        let [median, low, high] =
            [median(rounds.to_vec()), least, greatest].map(|value| significant(value, 5));
        Self { median, low, high }
    }
}

/// Returns the median of a round's times, in microseconds.
pub(super) fn median_us(times: &[Duration]) -> f64 {
    median(times.iter().map(|time| time.as_secs_f64() * 1e6).collect())
}

/// A measured point.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Point {
    pub(super) x: f64,
    #[serde(flatten)]
    pub(super) y: Estimate,
}

/// A line of a figure.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Series {
    pub(super) transport: Bearer,
    /// The quantity of the figure's y axis, or another one that the same runs measured.
    pub(super) quantity: &'static str,
    /// Distinguishes series of the same transport and quantity; may be empty.
    pub(super) variant: &'static str,
    /// Number of rounds that measured this series: at most the figure's.
    pub(super) rounds: usize,
    pub(super) points: Vec<Point>,
}

/// An axis.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Axis {
    /// JSON name of the quantity, with its unit.
    pub(super) quantity: &'static str,
    pub(super) label: &'static str,
}

/// A figure.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    /// The experiment's name, which the simulator uses too.
    pub(super) name: &'static str,
    /// The paper's figure.
    pub(super) paper: &'static str,
    pub(super) title: &'static str,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) rounds: usize,
    pub(super) series: Vec<Series>,
    /// Notes on effects that this machine cannot show, or shows differently.
    pub(super) notes: Vec<String>,
}

impl Figure {
    /// Returns a transport's series of the axis's quantity.
    pub(super) fn of(&self, transport: Bearer) -> Option<&Series> {
        self.variant(transport, "")
    }

    /// Describes the number of rounds whose medians the values are, and the variants with fewer rounds.
    pub(super) fn rounds_in_words(&self, several: &str) -> String {
        let fewer = self.series.iter().filter(|of| of.rounds < self.rounds);
        let mut variants: Vec<_> = fewer.map(|of| (of.variant, of.rounds)).collect();
        variants.sort_unstable();
        variants.dedup();
        let words = variants
            .iter()
            .map(|(variant, rounds)| format!("; {variant}: {}", medians(*rounds, "round", several)));
        medians(self.rounds, "round", several) + &words.collect::<String>()
    }

    /// Returns a variant of a transport's series.
    pub(super) fn variant(&self, transport: Bearer, variant: &str) -> Option<&Series> {
        self.series.iter().find(|series| {
            series.transport == transport
                && series.quantity == self.y.quantity
                && (variant.is_empty() || series.variant == variant)
        })
    }
}

/// The values of rounds during the measurement, by series and place on the axis.
pub(super) struct Grid {
    xs: Vec<f64>,
    lines: Vec<(Bearer, &'static str, &'static str, Vec<Vec<f64>>)>,
}

impl Grid {
    /// Creates an empty grid with these places.
    pub(super) fn new(xs: impl IntoIterator<Item = f64>) -> Self {
        Self { xs: xs.into_iter().collect(), lines: Vec::new() }
    }

    /// Adds a round's value at the place with this number.
    pub(super) fn add(
        &mut self,
        (transport, quantity, variant): (Bearer, &'static str, &'static str),
        place: usize,
        value: f64,
    ) {
        let is_its =
            |line: &&mut (Bearer, &str, &str, _)| (line.0, line.1, line.2) == (transport, quantity, variant);
        let places = self.xs.len();
        let values = match self.lines.iter_mut().find(is_its) {
            Some((.., values)) => values,
            None => {
                self.lines.push((transport, quantity, variant, vec![Vec::new(); places]));
                let Some((.., values)) = self.lines.last_mut() else { return };
                values
            }
        };
        if let Some(values) = values.get_mut(place) {
            values.push(value);
        }
    }

    /// Returns the series, grouped by quantity.
    pub(super) fn finish(self) -> Vec<Series> {
        let Self { xs, lines } = self;
        let of_line =
            |(transport, quantity, variant, values): (Bearer, &'static str, &'static str, Vec<Vec<f64>>)| {
                let rounds = values.iter().map(Vec::len).max().unwrap_or(0);
                let measured = xs.iter().zip(values).filter(|(_, values)| !values.is_empty());
                let points = measured.map(|(x, values)| Point { x: *x, y: Estimate::of(&values) }).collect();
                Series { transport, quantity, variant, rounds, points }
            };
        let mut series: Vec<Series> = lines.into_iter().map(of_line).collect();
        let first_of =
            |quantity: &str, series: &[Series]| series.iter().position(|of| of.quantity == quantity);
        let order: Vec<_> = series.iter().map(|of| first_of(of.quantity, &series)).collect();
        let mut keyed: Vec<_> = order.into_iter().zip(series.drain(..)).collect();
        keyed.sort_by_key(|(key, of)| (*key, Bearer::ALL.iter().position(|bearer| *bearer == of.transport)));
        keyed.into_iter().map(|(_, of)| of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_has_the_median_and_the_ends() {
        let estimate = Estimate::of(&[3.0, 1.0, 2.0]);
        assert_eq!(estimate, Estimate { median: 2.0, low: 1.0, high: 3.0 });
        assert_eq!(Estimate::of(&[]), Estimate { median: 0.0, low: 0.0, high: 0.0 });
        assert_eq!(Estimate::of(&[123.456_78]).median, 123.46);
    }

    #[test]
    fn values_of_rounds_become_series_by_quantity() {
        let mut grid = Grid::new([1.0, 2.0]);
        for round in [5.0, 7.0, 6.0] {
            grid.add((Bearer::Roce, "us", ""), 0, round);
            grid.add((Bearer::Roce, "gbps", ""), 1, round);
            grid.add((Bearer::Iwarp, "us", ""), 1, round);
        }
        let series = grid.finish();
        let names: Vec<_> = series.iter().map(|of| (of.transport, of.quantity, of.points.len())).collect();
        assert_eq!(names, [(Bearer::Iwarp, "us", 1), (Bearer::Roce, "us", 1), (Bearer::Roce, "gbps", 1)]);
        assert_eq!(series[0].points[0], Point { x: 2.0, y: Estimate { median: 6.0, low: 5.0, high: 7.0 } });
    }

    #[test]
    fn variants_with_fewer_rounds_are_named() {
        let mut grid = Grid::new([1.0, 2.0]);
        for (round, (variant, place)) in
            [("short", 0), ("short", 0), ("short", 1), ("long", 0), ("long", 1)].into_iter().enumerate()
        {
            grid.add((Bearer::Roce, "ratio", variant), place, round as f64);
            grid.add((Bearer::Star, "ratio", variant), place, round as f64);
        }
        let axis = Axis { quantity: "ratio", label: "" };
        let (name, series) = ("overlap", grid.finish());
        let mut figure =
            Figure { name, paper: "5", title: "", x: axis, y: axis, rounds: 2, series, notes: vec![] };
        assert_eq!(figure.rounds_in_words("rounds"), "medians of 2 rounds; long: one round");
        figure.rounds = 1;
        assert_eq!(figure.rounds_in_words("rounds"), "one round");
    }
}
