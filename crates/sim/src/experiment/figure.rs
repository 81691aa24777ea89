//! The results of an experiment, compared with the paper's statements.

use std::collections::HashMap;

use super::definition::{Definition, Point};
use super::parameters::Parameters;
use super::statement::{Claim, Expected, StatementKind, Subject};
use super::values::Values;

/// The runs of an experiment, deduplicated.
#[derive(Clone, Debug)]
pub struct Plan {
    /// All points, series by series.
    pub points: Vec<Point>,
    /// The parameters of each run, in order of first use.
    pub runs: Vec<Parameters>,
    /// The run of each point.
    pub run_of: Vec<usize>,
}

/// A value of a series, with the paper's statement about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// The series.
    pub series: String,
    /// The x value in the axis' unit.
    pub x: f64,
    /// The simulated value; `None` without measurements.
    pub value: Option<f64>,
    /// The unit.
    pub unit: String,
    /// The paper's statement, if any.
    pub claim: Option<Claim>,
    /// The kind of the statement.
    pub kind: Option<StatementKind>,
}

impl Compared {
    /// Returns the paper's number, which may be a bound.
    pub fn paper(&self) -> Option<f64> {
        self.claim.map(Claim::number)
    }

    /// Returns the relative deviation from the paper's number; `None` if that is a bound.
    pub fn deviation(&self) -> Option<f64> {
        let Claim::Value(paper, _) = self.claim? else { return None };
        let deviation = self.value? / paper - 1.0;
        Some(deviation).filter(|deviation| deviation.is_finite())
    }

    /// Returns true if the value agrees with the paper; `None` if undecidable.
    pub fn is_near(&self) -> Option<bool> {
        self.claim?.allows(self.value?)
    }
}

impl Definition {
    /// Returns the runs for all points.
    pub fn plan(&self) -> Plan {
        self.plan_of(self.points())
    }

    /// Returns the runs for these points.
    pub(super) fn plan_of(&self, points: Vec<Point>) -> Plan {
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

    /// Collects the values of a plan's points; `measured` returns a metric of a run.
    pub fn values(&self, plan: &Plan, measured: impl Fn(usize, &str) -> Option<f64>) -> Values {
        let mut values = Values::default();
        for (point, run) in plan.points.iter().zip(&plan.run_of) {
            if let Some(value) = measured(*run, self.series[point.series].metric.name) {
                values.add(point.series, point.x, value);
            }
        }
        values
    }

    /// Returns all values of all series with the paper's statements.
    pub fn compare(&self, values: &Values) -> Vec<Compared> {
        let place = |name: &str, x: u64| {
            let expected = self.expected_at(name, x);
            Compared {
                series: name.into(),
                x: self.x.number(x),
                value: values.get(self, name, x),
                unit: self.unit_of_line(name).unwrap_or_default().into(),
                claim: expected.map(|expected| expected.claim),
                kind: expected.map(|expected| expected.kind),
            }
        };
        self.lines().flat_map(|name| self.x.values.iter().map(move |x| place(name, *x))).collect()
    }

    /// Returns the paper's statement about a value; the first one in the file wins.
    fn expected_at(&self, name: &str, x: u64) -> Option<&Expected> {
        let is_about = |subject: &Subject| matches!(subject, Subject::At(places) if places.contains(&x));
        self.expected.iter().find(|expected| expected.series == name && is_about(&expected.subject))
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
        let compared = definition.compare(&definition.values(&plan, measured));
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
            (compared[3].value, compared[3].paper(), compared[3].deviation()),
            (Some(500.0), None, None)
        );
        let gains: Vec<_> =
            compared[6..].iter().map(|place| (place.value, place.paper(), place.is_near())).collect();
        assert_eq!(
            gains,
            [(Some(2.0), None, None), (Some(2.0), Some(2.5), Some(true)), (Some(2.0), Some(2.5), Some(true))]
        );
        assert_eq!(compared[7].deviation(), Some(-0.19999999999999996));
    }

    #[test]
    fn a_bound_is_no_value_to_deviate_from() {
        let (_, compared) = compared(
            &EXPERIMENT.replace("value = 1000\n", "least = 400\n").replace("tolerance = \"1%\"\n", ""),
        );
        assert_eq!((compared[0].paper(), compared[0].is_near()), (Some(400.0), Some(true)));
        assert_eq!((compared[0].value, compared[0].deviation()), (Some(1000.0), None));
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
