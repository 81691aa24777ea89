//! Evaluates the paper's statements.

use super::definition::Definition;
use super::figure::Plan;
use super::statement::{Expected, Statement, Subject};
use super::values::{Line, Values};

impl Definition {
    /// Returns the runs that the paper's statements need.
    pub fn plan_of_statements(&self) -> Plan {
        let mut needed: Vec<(usize, Option<&[u64]>)> = Vec::new();
        for expected in &self.expected {
            let (places, other) = match &expected.subject {
                Subject::At(places) => (Some(&places[..]), None),
                Subject::MaximumOver(other) => (None, Some(other.as_str())),
                Subject::Maximum | Subject::MaximumBegins | Subject::Fall => (None, None),
            };
            for name in [Some(expected.series.as_str()), other].into_iter().flatten() {
                needed.extend(self.series_behind(name).into_iter().map(|series| (series, places)));
            }
        }
        let is_needed = |series: usize, x: u64| {
            let serves = |(other, places): &(usize, Option<&[u64]>)| {
                *other == series && places.is_none_or(|places| places.contains(&x))
            };
            needed.iter().any(serves)
        };
        self.plan_of(self.points().into_iter().filter(|point| is_needed(point.series, point.x)).collect())
    }

    /// Returns the measured series of this name, or the two that a derived series is computed from.
    fn series_behind(&self, line: &str) -> Vec<usize> {
        let derived = self.derived.iter().find(|derived| derived.name == line);
        let series = self.series.iter().position(|series| series.name == line);
        derived.map_or_else(|| series.into_iter().collect(), |derived| derived.of.to_vec())
    }

    /// Evaluates every statement of the paper.
    pub fn judge<'a>(&'a self, values: &Values) -> Vec<Statement<'a>> {
        let judge = |expected: &'a Expected| {
            let line = |name: &str| values.line(self, name);
            let found = match &expected.subject {
                Subject::At(places) => {
                    places.iter().map(|x| values.get(self, &expected.series, *x)).collect()
                }
                Subject::Maximum => vec![line(&expected.series).maximum()],
                Subject::MaximumOver(other) => vec![ratio(&line(&expected.series), &line(other))],
                Subject::MaximumBegins => {
                    vec![line(&expected.series).maximum_begins().map(|x| self.x.number(x))]
                }
                Subject::Fall => vec![line(&expected.series).fall()],
            };
            Statement { expected, found }
        };
        self.expected.iter().map(judge).collect()
    }
}

fn ratio(line: &Line, other: &Line) -> Option<f64> {
    Some(line.maximum()? / other.maximum()?).filter(|ratio| ratio.is_finite())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{EXPERIMENT, LIBRARY};
    use super::*;

    #[test]
    fn statements_need_their_places_only() {
        let text = EXPERIMENT.replacen(
            "series = \"with offload\"\nvalue",
            "series = \"with offload\"\nx = 4\nvalue",
            1,
        );
        let plan = Definition::parse("share.toml", &text, &LIBRARY).unwrap().plan_of_statements();
        let places: Vec<_> = plan.points.iter().map(|point| (point.series, point.x)).collect();
        assert_eq!(places, [(0, 2), (0, 4), (1, 2), (1, 4)]);
    }
}
