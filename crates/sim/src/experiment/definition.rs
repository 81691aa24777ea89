//! A parsed experiment.

use std::fmt;
use std::path::PathBuf;

use super::dimension::Dimension;
use super::parameter::{ParameterSpec, Value};
use super::parameters::Parameters;
use super::runner::{MetricSpec, Runner};
use super::statement::Expected;
use super::variant::Variant;

/// An experiment. `[x]`, the series, or `[parameters]` give a value to every parameter of the model.
#[derive(Clone)]
pub struct Definition {
    /// Lower case, words joined by `-`.
    pub name: String,
    /// The title: what is measured over what.
    pub title: String,
    /// The paper and its figure or section.
    pub paper: String,
    /// The model.
    pub runner: &'static dyn Runner,
    /// The default seed.
    pub seed: u64,
    /// The x axis.
    pub x: XAxis,
    /// Optional y axes, by unit.
    pub y: Vec<YAxis>,
    /// The measured series.
    pub series: Vec<Series>,
    /// Series computed from two others.
    pub derived: Vec<Derived>,
    /// The paper's statements.
    pub expected: Vec<Expected>,
    /// Alternative readings of the paper's settings.
    pub readings: Vec<Variant>,
    /// The files that `include` names, without built-in ones.
    pub included: Vec<PathBuf>,
    /// Values for all points unless `x` or a series sets them, ordered by key.
    pub parameters: Vec<Parameter>,
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition")
            .field("name", &self.name)
            .field("title", &self.title)
            .field("paper", &self.paper)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// The x axis: the parameter that varies along a series.
#[derive(Clone, Debug, PartialEq)]
pub struct XAxis {
    /// The parameter.
    pub parameter: &'static ParameterSpec,
    /// The parameter's dimension.
    pub dimension: Dimension,
    /// The displayed unit.
    pub unit: String,
    /// The axis label.
    pub label: String,
    /// Linear or logarithmic.
    pub scale: Scale,
    /// The values in the dimension's base unit, in run order.
    pub values: Vec<u64>,
}

/// The y axis of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YAxis {
    /// The unit.
    pub unit: String,
    /// The axis label.
    pub label: String,
    /// Linear or logarithmic.
    pub scale: Scale,
}

/// The scale of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Linear.
    #[default]
    Linear,
    /// Logarithmic, base 2.
    Log2,
    /// Logarithmic, base 10.
    Log10,
}

/// A series of the figure: a metric with some parameters set.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// The metric.
    pub metric: &'static MetricSpec,
    /// The parameters that it sets.
    pub set: Vec<(&'static ParameterSpec, Value)>,
    /// The source of its settings; mandatory for numbers.
    pub source: Option<String>,
}

/// A series computed from two others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derived {
    /// Its name.
    pub name: String,
    /// The formula.
    pub rule: Rule,
    /// The indices of the two series.
    pub of: [usize; 2],
}

/// The formula for two series `[a, b]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// a / b.
    Ratio,
    /// a − b.
    Difference,
    /// (a − b) / a, in percent.
    Reduction,
}

/// A parameter's value with its source.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// The parameter.
    pub spec: &'static ParameterSpec,
    /// Its value.
    pub value: Value,
    /// The source: a paper's sentence, a data sheet, or the number that it is fitted to.
    pub source: String,
    /// The plausible range of an assumed or fitted value.
    pub range: Option<Range>,
}

/// The plausible range of an assumed or fitted parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The extent.
    pub extent: Extent,
    /// The reason for the extent.
    pub reason: String,
}

/// The extent of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// A closed interval in base units.
    Between(u64, u64),
    /// A set of choices.
    OneOf(Vec<Value>),
}

/// A point of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The index of the series.
    pub series: usize,
    /// The x value in its base unit.
    pub x: u64,
    /// The parameters of its run.
    pub parameters: Parameters,
}

impl Definition {
    /// Returns all points, series by series.
    pub fn points(&self) -> Vec<Point> {
        let of_series = |series| self.x.values.iter().map(move |x| self.point(series, *x));
        (0..self.series.len()).flat_map(of_series).collect()
    }

    fn point(&self, series: usize, x: u64) -> Point {
        let mut parameters = Parameters::new();
        for parameter in &self.parameters {
            parameters.set(parameter.spec, parameter.value);
        }
        for (spec, value) in &self.series[series].set {
            parameters.set(spec, *value);
        }
        parameters.set(self.x.parameter, Value::Quantity(x));
        Point { series, x, parameters }
    }

    /// Iterates over the names of all series, derived ones last.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        let series = self.series.iter().map(|series| series.name.as_str());
        series.chain(self.derived.iter().map(|derived| derived.name.as_str()))
    }

    /// Returns the unit of a series by name, if it exists.
    pub fn unit_of_line(&self, name: &str) -> Option<&str> {
        let series = self.series.iter().find(|series| series.name == name).map(|series| series.metric.unit);
        let derived = || self.derived.iter().find(|derived| derived.name == name);
        series.or_else(|| derived().map(|derived| self.unit_of(derived)))
    }

    /// Returns the unit of a derived series.
    pub fn unit_of(&self, derived: &Derived) -> &str {
        match derived.rule {
            Rule::Ratio => "times",
            Rule::Difference => self.series[derived.of[0]].metric.unit,
            Rule::Reduction => "%",
        }
    }
}

impl XAxis {
    /// Converts an x value to the displayed unit.
    pub fn number(&self, x: u64) -> f64 {
        self.dimension.in_unit(x, &self.unit).unwrap_or(x as f64)
    }

    /// Returns the x axis label with its unit; counts have none.
    pub fn caption(&self) -> String {
        match self.dimension {
            Dimension::Count(_) => self.label.clone(),
            _ => with_unit(&self.label, &self.unit),
        }
    }
}

/// Appends the unit in parentheses to a label, unless it is empty or in the label already.
pub fn with_unit(label: &str, unit: &str) -> String {
    let parentheses = format!("({unit})");
    if unit.is_empty() || label.contains(&parentheses) {
        label.into()
    } else {
        format!("{label} {parentheses}")
    }
}

impl Rule {
    /// Applies the formula; `None` if the result is not finite.
    pub fn apply(self, a: f64, b: f64) -> Option<f64> {
        let value = match self {
            Self::Ratio => a / b,
            Self::Difference => a - b,
            Self::Reduction => (1.0 - b / a) * 100.0,
        };
        Some(value).filter(|value| value.is_finite())
    }
}
