//! Changes to an experiment from outside of its file: `--set`, and the lists of a sweep.

use thiserror::Error;

use super::definition::{Definition, Parameter};
use super::document::joined;
use super::parameter::{ParameterSpec, Value, ValueError};
use super::statement::Subject;
use super::variant::Variant;

/// Why a parameter cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SetError {
    /// Not `KEY=VALUE`.
    #[error("'{0}' is no setting: KEY=VALUE is, such as {1}")]
    Form(String, String),
    /// The model has no such parameter.
    #[error("there is no parameter '{key}': there are {allowed}")]
    Unknown {
        /// What was given.
        key: String,
        /// The parameters that there are.
        allowed: String,
    },
    /// It is what tells series apart.
    #[error("{key} differs from series to series: change it in the experiment's file")]
    BySeries {
        /// The parameter.
        key: &'static str,
    },
    /// The parameter cannot have this value.
    #[error("{key}: {error}")]
    Value {
        /// The parameter.
        key: &'static str,
        /// Why not.
        error: ValueError,
    },
    /// A place of the axis is there twice.
    #[error("{key}: there is a second '{value}'")]
    Twice {
        /// The parameter.
        key: &'static str,
        /// The place.
        value: String,
    },
}

/// Why there is no such point.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PointError {
    /// Not `SERIES/X`.
    #[error("'{0}' is no point: SERIES/X is, such as '{1}'")]
    Form(String, String),
    /// Nothing of this name is measured.
    #[error("there is no series '{name}': there are {allowed}")]
    Unknown {
        /// What was given.
        name: String,
        /// The series that there are.
        allowed: String,
    },
    /// The axis has no such place.
    #[error("{key}: {error}")]
    Place {
        /// The parameter of the axis.
        key: &'static str,
        /// Why not.
        error: ValueError,
    },
}

/// A parameter and the values that it is to have, each in its turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Which one.
    pub spec: &'static ParameterSpec,
    /// What it is set to: one value or more.
    pub values: Vec<Value>,
}

impl Definition {
    /// Does what `KEY=VALUE` says. What varies along the axis takes several values with commas between them.
    pub fn set(&mut self, text: &str) -> Result<(), SetError> {
        let form = || {
            let spec = self.x.parameter;
            let example = self.x.values.first().map_or_else(String::new, |x| spec.show(Value::Quantity(*x)));
            SetError::Form(text.into(), format!("{}={example}", spec.key))
        };
        let (key, value) = text.split_once('=').ok_or_else(form)?;
        let spec = self.settable(key.trim())?;
        let is_axis = spec.key == self.x.parameter.key;
        let texts: Vec<&str> = if is_axis { value.split(',').collect() } else { vec![value] };
        let parse = |text: &str| {
            self.value(spec, text.trim()).map_err(|error| SetError::Value { key: spec.key, error })
        };
        let mut values = Vec::new();
        for text in texts {
            let value = parse(text)?;
            if values.contains(&value) {
                return Err(SetError::Twice { key: spec.key, value: text.trim().into() });
            }
            values.push(value);
        }
        self.apply(&Setting { spec, values });
        Ok(())
    }

    /// Leaves one point, `SERIES/X`: a series that is measured and any place on the axis, in its unit.
    pub fn select(&mut self, point: &str) -> Result<(), PointError> {
        let form = || {
            let series = self.series.first().map_or("", |series| &series.name);
            let x = self.x.values.first().map_or(0.0, |x| self.x.number(*x));
            PointError::Form(point.into(), format!("{series}/{x}"))
        };
        let (name, x) = point.rsplit_once('/').ok_or_else(form)?;
        let spec = self.x.parameter;
        let x = self.value(spec, x.trim()).map_err(|error| PointError::Place { key: spec.key, error })?;
        let series = self.series_of(name)?;
        self.series = vec![self.series[series].clone()];
        self.derived.clear();
        self.expected
            .retain(|expected| expected.series == name && matches!(expected.subject, Subject::At(_)));
        self.apply(&Setting { spec, values: vec![x] });
        Ok(())
    }

    /// The place of the series of this name.
    pub fn series_of(&self, name: &str) -> Result<usize, PointError> {
        let names = || joined(self.series.iter().map(|series| series.name.as_str()));
        let unknown = || PointError::Unknown { name: name.into(), allowed: names() };
        self.series.iter().position(|series| series.name == name).ok_or_else(unknown)
    }

    /// The parameter of this key, where it may be set for all series.
    pub(super) fn settable(&self, key: &str) -> Result<&'static ParameterSpec, SetError> {
        let specs = self.runner.parameters();
        let allowed = || joined(specs.iter().map(|spec| spec.key));
        let unknown = || SetError::Unknown { key: key.into(), allowed: allowed() };
        let spec = specs.iter().find(|spec| spec.key == key).ok_or_else(unknown)?;
        let by_series = self.series.iter().any(|series| series.set.iter().any(|(set, _)| set.key == key));
        if by_series { Err(SetError::BySeries { key: spec.key }) } else { Ok(spec) }
    }

    /// A parameter's value; of the axis, a number alone is in its unit.
    pub(super) fn value(&self, spec: &ParameterSpec, text: &str) -> Result<Value, ValueError> {
        let parsed = spec.parse(text);
        let is_axis = spec.key == self.x.parameter.key;
        if is_axis { spec.parse_with_unit(text, &self.x.unit).or(parsed) } else { parsed }
    }

    /// Gives a parameter its value, or the axis its places.
    pub(super) fn apply(&mut self, setting: &Setting) {
        let Setting { spec, values } = setting;
        if spec.key == self.x.parameter.key {
            let number = |value: &Value| match value {
                Value::Quantity(number) => Some(*number),
                _ => None,
            };
            self.x.values = values.iter().filter_map(number).collect();
            return self.drop_statements_of_other_places();
        }
        for value in values {
            let source = "set for this run".into();
            self.parameters.retain(|parameter| parameter.spec.key != spec.key);
            self.parameters.push(Parameter { spec, value: *value, source, range: None });
        }
    }

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

    /// Leaves the statements, and of each the places, that the axis still has.
    fn drop_statements_of_other_places(&mut self) {
        let Self { x, expected, .. } = self;
        expected.retain_mut(|expected| match &mut expected.subject {
            Subject::At(places) => {
                places.retain(|place| x.values.contains(place));
                !places.is_empty()
            }
            _ => true,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{EXPERIMENT, LIBRARY};
    use super::*;

    fn definition() -> Definition {
        Definition::parse("share.toml", EXPERIMENT, &LIBRARY).unwrap()
    }

    #[test]
    fn a_setting_is_for_all_series_or_for_the_axis() {
        let mut definition = definition();
        definition.set("setup=7us").unwrap();
        definition.set("flows = 8, 16").unwrap();
        let points = definition.points();
        assert_eq!(points.iter().map(|point| point.x).collect::<Vec<_>>(), [8, 16, 8, 16]);
        assert_eq!(definition.expected, []);
        assert!(points.iter().all(|point| point.parameters.nanos("setup") == Ok(7000)));
    }

    #[test]
    fn a_reading_changes_what_series_leave_open() {
        let definition = definition();
        let spec = |key| definition.settable(key).unwrap();
        let set = vec![(spec("setup"), Value::Quantity(5_000))];
        let varied = definition.with(&Variant { name: "short".into(), source: "ours".into(), set });
        let nanos: Vec<_> = varied.points().iter().map(|point| point.parameters.nanos("setup")).collect();
        assert_eq!(nanos, vec![Ok(5_000); 6]);
    }

    #[test]
    fn one_point_can_be_selected() {
        let mut definition = definition();
        definition.select("without/3").unwrap();
        let points = definition.points();
        assert_eq!((points.len(), points[0].x), (1, 3));
        assert_eq!(points[0].parameters.flag("offload"), Ok(false));
        assert_eq!(definition.lines().collect::<Vec<_>>(), ["without"]);
    }

    #[test]
    fn what_is_no_point_is_told() {
        for (point, told) in [
            ("without", "'without' is no point: SERIES/X is, such as 'with offload/1'"),
            ("gain/1", "there is no series 'gain': there are with offload, without"),
            ("without/1,2", "flows: there is no unit ',2' for it: this is a number of flows"),
            ("without/2000", "flows: 2000 is out of range: it is from 1 to 1000"),
        ] {
            assert_eq!(definition().select(point).unwrap_err().to_string(), told);
        }
    }

    #[test]
    fn what_cannot_be_set_is_told() {
        for (text, told) in [
            ("setup", "'setup' is no setting: KEY=VALUE is, such as flows=1"),
            ("set-up=7us", "there is no parameter 'set-up': there are flows, offload, rate, setup, arbiter"),
            ("offload=true", "offload differs from series to series: change it in the experiment's file"),
            ("setup=7", "setup: it needs a unit: a time is in ns, us, ms, s, min"),
            ("flows=1,,2", "flows: '' is no number: digits, with a point where it is not whole"),
            ("flows=1,8,1flows", "flows: there is a second '1flows'"),
            ("flows=2000", "flows: 2000 is out of range: it is from 1 to 1000"),
            ("setup=7us,8us", "setup: there is no unit 'us,8us' for it: a time is in ns, us, ms, s, min"),
        ] {
            assert_eq!(definition().set(text).unwrap_err().to_string(), told);
        }
    }
}
