//! Other settings of an experiment: readings of what a paper leaves open, and samples of what is assumed.

use super::definition::{Definition, Parameter};
use super::figure::Plan;
use super::parameter::{ParameterSpec, Value};
use super::statement::Subject;

/// A change of several parameters at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// What it is.
    pub name: String,
    /// Where it is from.
    pub source: String,
    /// What is set.
    pub set: Vec<(&'static ParameterSpec, Value)>,
}

impl Definition {
    /// The experiment with a variant's parameters; series and the axis keep what they set themselves.
    pub fn with(&self, variant: &Variant) -> Self {
        let mut definition = self.clone();
        for (spec, value) in &variant.set {
            definition.parameters.retain(|parameter| parameter.spec.key != spec.key);
            let source = variant.source.clone();
            definition.parameters.push(Parameter { spec, value: *value, source, range: None });
        }
        definition
    }

    /// The runs that the paper's statements need.
    pub fn plan_of_statements(&self) -> Plan {
        let mut needed: Vec<(usize, Option<&[u64]>)> = Vec::new();
        for expected in &self.expected {
            let (places, other) = match &expected.subject {
                Subject::At(places) => (Some(&places[..]), None),
                Subject::MaximumOver(other) => (None, Some(other.as_str())),
                Subject::Maximum | Subject::MaximumBegins => (None, None),
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

    /// The series that a line follows from.
    fn series_behind(&self, line: &str) -> Vec<usize> {
        let derived = self.derived.iter().find(|derived| derived.name == line);
        let series = self.series.iter().position(|series| series.name == line);
        derived.map_or_else(|| series.into_iter().collect(), |derived| derived.of.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{EXPERIMENT, LIBRARY};
    use super::*;

    #[test]
    fn a_reading_changes_what_series_leave_open() {
        let definition = Definition::parse("share.toml", EXPERIMENT, &LIBRARY).unwrap();
        let spec = |key| definition.settable(key).unwrap();
        let set = vec![(spec("setup"), Value::Quantity(5_000))];
        let varied = definition.with(&Variant { name: "short".into(), source: "ours".into(), set });
        let nanos: Vec<_> = varied.points().iter().map(|point| point.parameters.nanos("setup")).collect();
        assert_eq!(nanos, vec![Ok(5_000); 6]);
    }

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
