//! What an experiment came to, beside what the paper says.

use std::collections::HashMap;

use super::definition::{Definition, Expected, Point, Tolerance};
use super::parameters::Parameters;

/// The runs of an experiment: as few as its points need.
#[derive(Clone, Debug)]
pub struct Plan {
    /// All points, series by series.
    pub points: Vec<Point>,
    /// The parameters of each run, in the order in which points first need them.
    pub runs: Vec<Parameters>,
    /// For each point, its run.
    pub run_of: Vec<usize>,
}

/// A place of a line: ours, and the paper's where it says something.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// The name of the series, or of what is derived.
    pub series: String,
    /// The place on the axis, in its unit.
    pub x: f64,
    /// What came out; `None` where there was nothing to measure.
    pub value: Option<f64>,
    /// The unit of the value.
    pub unit: String,
    /// What the paper says.
    pub paper: Option<f64>,
    /// How far ours may be from it, where that is said.
    pub tolerance: Option<Tolerance>,
}

impl Compared {
    /// How far ours is from the paper's, as a part of the paper's.
    pub fn deviation(&self) -> Option<f64> {
        let deviation = self.value? / self.paper? - 1.0;
        Some(deviation).filter(|deviation| deviation.is_finite())
    }

    /// Whether ours is as near to the paper's as it should be, where that is said.
    pub fn is_near(&self) -> Option<bool> {
        Some(self.tolerance?.allows(self.value?, self.paper?))
    }
}

impl Definition {
    /// Which runs there are to be.
    pub fn plan(&self) -> Plan {
        let points = self.points();
        let mut places: HashMap<u64, usize> = HashMap::new();
        let mut runs: Vec<Parameters> = Vec::new();
        let mut run_of = Vec::new();
        for point in &points {
            let hash = point.parameters.hash(self.runner.name());
            let place = *places.entry(hash).or_insert(runs.len());
            if place == runs.len() {
                runs.push(point.parameters.clone());
            }
            run_of.push(place);
        }
        Plan { points, runs, run_of }
    }

    /// All places of all lines; `measured` says what a metric of one of the plan's runs was.
    pub fn compare(&self, plan: &Plan, measured: impl Fn(usize, &str) -> Option<f64>) -> Vec<Compared> {
        let value_of = |(point, run): (&Point, &usize)| measured(*run, self.series[point.series].metric.name);
        let values: Vec<Option<f64>> = plan.points.iter().zip(&plan.run_of).map(value_of).collect();
        let columns = self.x.values.len();
        let at = |series: usize, column: usize| values.get(series * columns + column).copied().flatten();
        let series = self.series.iter().enumerate().map(|(place, series)| {
            let line = (0..columns).map(|column| at(place, column)).collect();
            (series.name.as_str(), series.metric.unit, line)
        });
        let derived = self.derived.iter().map(|derived| {
            let [a, b] = derived.of;
            let value = |column| derived.rule.apply(at(a, column)?, at(b, column)?);
            (derived.name.as_str(), self.unit_of(derived), (0..columns).map(value).collect())
        });
        let lines = series.chain(derived);
        lines.flat_map(|(name, unit, values)| self.compare_line(name, unit, values)).collect()
    }

    fn compare_line(&self, name: &str, unit: &str, values: Vec<Option<f64>>) -> Vec<Compared> {
        let place = |(x, value): (&u64, Option<f64>)| {
            let expected = self.expected_at(name, *x);
            Compared {
                series: name.into(),
                x: self.x.number(*x),
                value,
                unit: unit.into(),
                paper: expected.map(|expected| expected.value),
                tolerance: expected.and_then(|expected| expected.tolerance),
            }
        };
        self.x.values.iter().zip(values).map(place).collect()
    }

    /// What the paper says of a place; what the file says first counts.
    fn expected_at(&self, name: &str, x: u64) -> Option<&Expected> {
        self.expected.iter().find(|expected| expected.series == name && expected.x.contains(&x))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{EXPERIMENT, LIBRARY};
    use super::super::{Outcome, run};
    use super::*;
    use crate::observe::Observer;

    fn compared(text: &str) -> (Plan, Vec<Compared>) {
        let definition = Definition::parse("share.toml", text, &LIBRARY).unwrap();
        let plan = definition.plan();
        let outcome = |parameters| run(definition.runner, parameters, 1, &mut Observer::default()).unwrap();
        let outcomes: Vec<_> = plan.runs.iter().map(outcome).collect();
        let measured = |run: usize, metric: &str| {
            let outcome: &Outcome = &outcomes[run];
            outcome.measurements.iter().find(|m| m.metric == metric).map(|m| m.value)
        };
        let compared = definition.compare(&plan, measured);
        (plan, compared)
    }

    #[test]
    fn ours_stands_beside_the_papers() {
        let (plan, compared) = compared(EXPERIMENT);
        assert_eq!((plan.points.len(), plan.runs.len()), (6, 6));
        let names: Vec<_> = compared.iter().map(|place| (place.series.as_str(), place.x)).collect();
        assert_eq!(
            names[..4],
            [("with offload", 1.0), ("with offload", 2.0), ("with offload", 4.0), ("without", 1.0)]
        );
        assert_eq!(
            (compared[0].value, compared[0].deviation(), compared[0].is_near()),
            (Some(1000.0), Some(0.0), Some(true))
        );
        assert_eq!(
            (compared[3].value, compared[3].paper, compared[3].deviation()),
            (Some(500.0), None, None)
        );
        let gains: Vec<_> =
            compared[6..].iter().map(|place| (place.value, place.paper, place.is_near())).collect();
        assert_eq!(
            gains,
            [(Some(2.0), None, None), (Some(2.0), Some(2.5), Some(true)), (Some(2.0), Some(2.5), Some(true))]
        );
        assert_eq!(compared[7].deviation(), Some(-0.19999999999999996));
    }

    #[test]
    fn two_metrics_of_the_same_parameters_share_their_runs() {
        let latency = "metric = \"latency\"\nset = { offload = true }";
        let text = EXPERIMENT.replace("metric = \"throughput\"\nset = { offload = false }", latency);
        let (plan, compared) = compared(&text.replace("1000\nunit", "990\nunit"));
        assert_eq!((plan.points.len(), plan.runs.len(), plan.run_of), (6, 3, vec![0, 1, 2, 0, 1, 2]));
        assert_eq!((compared[5].value, compared[5].unit.as_str()), (Some(48.0), "us"));
        assert_eq!(compared[0].is_near(), Some(false));
    }
}
