//! Changes to an experiment from outside its file: `--set`, and the lists of a sweep.

use thiserror::Error;

use super::definition::{Definition, Parameter};
use super::document::joined;
use super::parameter::{ParameterSpec, Value, ValueError};
use super::statement::Subject;
use super::variant::Variant;

/// A parameter that cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SetError {
    /// Not `KEY=VALUE`.
    #[error("'{0}' is not a setting: expected KEY=VALUE, such as {1}")]
    Form(String, String),
    /// The model has no such parameter.
    #[error("there is no parameter '{key}': there are {allowed}")]
    Unknown {
        /// The key given.
        key: String,
        /// The known parameters.
        allowed: String,
    },
    /// The parameter differs between series.
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
        /// The reason.
        error: ValueError,
    },
    /// A repeated x value.
    #[error("{key}: there is a second '{value}'")]
    Twice {
        /// The parameter.
        key: &'static str,
        /// The value.
        value: String,
    },
}

/// A point that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PointError {
    /// Not `SERIES/X`.
    #[error("'{0}' is not a point: expected SERIES/X, such as '{1}'")]
    Form(String, String),
    /// No series has this name.
    #[error("there is no series '{name}': there are {allowed}")]
    Unknown {
        /// The name given.
        name: String,
        /// The known series.
        allowed: String,
    },
    /// The x value is invalid.
    #[error("{key}: {error}")]
    Place {
        /// The parameter of the axis.
        key: &'static str,
        /// The reason.
        error: ValueError,
    },
}

/// A parameter with a list of values.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The parameter.
    pub spec: &'static ParameterSpec,
    /// The values, at least one.
    pub values: Vec<Value>,
}

impl Definition {
    /// Applies a `KEY=VALUE` setting. The x axis' parameter takes several values separated by commas.
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

    /// Reduces the experiment to one point, `SERIES/X`: a measured series and any x value in the axis' unit.
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

    /// Returns the index of a series by name.
    pub fn series_of(&self, name: &str) -> Result<usize, PointError> {
        let names = || joined(self.series.iter().map(|series| series.name.as_str()));
        let unknown = || PointError::Unknown { name: name.into(), allowed: names() };
        self.series.iter().position(|series| series.name == name).ok_or_else(unknown)
    }

    /// Returns a parameter by key, if it may be set for all series.
    pub(super) fn settable(&self, key: &str) -> Result<&'static ParameterSpec, SetError> {
        let specs = self.runner.parameters();
        let allowed = || joined(specs.iter().map(|spec| spec.key));
        let unknown = || SetError::Unknown { key: key.into(), allowed: allowed() };
        let spec = specs.iter().find(|spec| spec.key == key).ok_or_else(unknown)?;
        let by_series = self.series.iter().any(|series| series.set.iter().any(|(set, _)| set.key == key));
        if by_series { Err(SetError::BySeries { key: spec.key }) } else { Ok(spec) }
    }

    /// Parses a parameter's value; a bare number for the x axis is in the axis' unit.
    pub(super) fn value(&self, spec: &ParameterSpec, text: &str) -> Result<Value, ValueError> {
        let parsed = spec.parse(text);
        let is_axis = spec.key == self.x.parameter.key;
        if is_axis { spec.parse_with_unit(text, &self.x.unit).or(parsed) } else { parsed }
    }

    /// Sets a parameter's value, or the x values, and removes the parameter from all readings.
    pub(super) fn apply(&mut self, setting: &Setting) {
        let Setting { spec, values } = setting;
        self.remove_from_readings(spec.key);
        if spec.key == self.x.parameter.key {
            let number = |value: &Value| match value {
                Value::Quantity(number) => Some(*number),
                _ => None,
            };
            let before = std::mem::replace(&mut self.x.values, values.iter().filter_map(number).collect());
            return self.drop_statements_of_other_places(&before);
        }
        for value in values {
            let source = "set for this run".into();
            self.parameters.retain(|parameter| parameter.spec.key != spec.key);
            self.parameters.push(Parameter { spec, value: *value, source, range: None });
        }
    }

    /// Removes a parameter from all readings, and readings that set nothing else.
    fn remove_from_readings(&mut self, key: &str) {
        self.readings.retain_mut(|reading| {
            let before = reading.set.len();
            reading.set.retain(|(spec, _)| spec.key != key);
            if reading.set.len() < before {
                reading.name += &format!(", {key} as set");
            }
            !reading.set.is_empty()
        });
    }

    /// Returns the experiment with a variant's parameters. Values set by a series or the axis are unchanged.
    pub fn with(&self, variant: &Variant) -> Self {
        let mut definition = self.clone();
        for (spec, value) in &variant.set {
            definition.parameters.retain(|parameter| parameter.spec.key != spec.key);
            let source = variant.source.clone();
            definition.parameters.push(Parameter { spec, value: *value, source, range: None });
        }
        definition
    }

    /// Removes statements about x values that the axis no longer has, and, unless the axis still has the
    /// range and all values of `before`, those about the whole axis.
    fn drop_statements_of_other_places(&mut self, before: &[u64]) {
        let Self { x, expected, .. } = self;
        let range = |values: &[u64]| (values.iter().min().copied(), values.iter().max().copied());
        let is_whole =
            range(&x.values) == range(before) && before.iter().all(|place| x.values.contains(place));
        expected.retain_mut(|expected| match &mut expected.subject {
            Subject::At(places) => {
                places.retain(|place| x.values.contains(place));
                !places.is_empty()
            }
            Subject::Maximum | Subject::MaximumOver(_) | Subject::MaximumBegins | Subject::Fall => is_whole,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::statement::Expected;
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
    fn a_statement_about_the_whole_axis_needs_all_its_values() {
        let subjects = |setting: &str| {
            let mut definition = definition();
            let [expected, ..] = &definition.expected[..] else { panic!("no statement") };
            let of = |subject| Expected { subject, ..expected.clone() };
            let over = Subject::MaximumOver("without".into());
            let whole = [Subject::Maximum, over, Subject::MaximumBegins, Subject::Fall];
            definition.expected = whole.map(of).into();
            definition.set(setting).unwrap();
            definition.expected.len()
        };
        let all = ["flows=4,2,1", "flows=1,2,3,4"].map(subjects);
        let others = ["flows=1", "flows=1,4", "flows=1,2,4,8"].map(subjects);
        assert_eq!((all, others), ([4; 2], [0; 3]));
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
    fn a_setting_outweighs_the_readings() {
        let readings = "
[[reading]]\nname = \"short\"\nset = { setup = \"5us\" }\nsource = \"ours\"
[[reading]]\nname = \"fair\"\nset = { setup = \"5us\", arbiter = \"round-robin\" }\nsource = \"ours\"
[[reading]]\nname = \"slow\"\nset = { rate = \"1Mb/s\" }\nsource = \"ours\"\n";
        let text = EXPERIMENT.replace("[parameters]", &format!("{readings}[parameters]"));
        let mut definition = Definition::parse("share.toml", &text, &LIBRARY).unwrap();
        definition.set("setup=7us").unwrap();
        let readings: Vec<_> = definition
            .readings
            .iter()
            .map(|reading| {
                let keys: Vec<_> = reading.set.iter().map(|(spec, _)| spec.key).collect();
                (reading.name.as_str(), keys)
            })
            .collect();
        assert_eq!(readings, [("fair, setup as set", vec!["arbiter"]), ("slow", vec!["rate"])]);
        for reading in &definition.readings {
            let points = definition.with(reading).points();
            assert!(points.iter().all(|point| point.parameters.nanos("setup") == Ok(7000)));
        }
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
    fn unknown_points_are_rejected_with_the_reason() {
        for (point, message) in [
            ("without", "'without' is not a point: expected SERIES/X, such as 'with offload/1'"),
            ("gain/1", "there is no series 'gain': there are with offload, without"),
            ("without/1,2", "flows: unknown unit ',2': this is a number of flows"),
            ("without/2000", "flows: 2000 is out of range: expected 1 to 1000"),
        ] {
            assert_eq!(definition().select(point).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn what_cannot_be_set_is_told() {
        for (text, message) in [
            ("setup", "'setup' is not a setting: expected KEY=VALUE, such as flows=1"),
            ("set-up=7us", "there is no parameter 'set-up': there are flows, offload, rate, setup, arbiter"),
            ("offload=true", "offload differs from series to series: change it in the experiment's file"),
            ("setup=7", "setup: the unit is missing: a time is in ns, us, ms, s, min"),
            ("flows=1,,2", "flows: '' is not a number: expected digits, optionally with a decimal point"),
            ("flows=1,8,1flows", "flows: there is a second '1flows'"),
            ("flows=2000", "flows: 2000 is out of range: expected 1 to 1000"),
            ("setup=7us,8us", "setup: unknown unit 'us,8us': a time is in ns, us, ms, s, min"),
        ] {
            assert_eq!(definition().set(text).unwrap_err().to_string(), message);
        }
    }
}
