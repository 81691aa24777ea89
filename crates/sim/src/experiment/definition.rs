//! An experiment as its file defines it.

use std::fmt;

use super::dimension::Dimension;
use super::parameter::{ParameterSpec, Value};
use super::parameters::Parameters;
use super::runner::{MetricSpec, Runner};
use super::statement::Expected;
use super::variant::Variant;

/// An experiment. Every parameter of its model has a value: that of `[x]`, that of a series, or that of `[parameters]`.
#[derive(Clone)]
pub struct Definition {
    /// Lower case, words joined by `-`.
    pub name: String,
    /// What is measured over what.
    pub title: String,
    /// The paper and the figure or section.
    pub paper: String,
    /// The model.
    pub runner: &'static dyn Runner,
    /// The seed where no other is given.
    pub seed: u64,
    /// What varies along a series.
    pub x: XAxis,
    /// How values of a unit are drawn, where the file says so.
    pub y: Vec<YAxis>,
    /// What is measured, and what it is measured with.
    pub series: Vec<Series>,
    /// What follows from two series.
    pub derived: Vec<Derived>,
    /// What the paper says.
    pub expected: Vec<Expected>,
    /// Other readings of the paper's settings.
    pub readings: Vec<Variant>,
    /// What holds wherever neither `x` nor a series says otherwise, in the order of the keys.
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

/// What varies along a series.
#[derive(Clone, Debug, PartialEq)]
pub struct XAxis {
    /// The parameter that varies.
    pub parameter: &'static ParameterSpec,
    /// What it measures.
    pub dimension: Dimension,
    /// The unit of what is shown.
    pub unit: String,
    /// What stands below the axis.
    pub label: String,
    /// How it is divided.
    pub scale: Scale,
    /// Numbers of the dimension's base unit, in the order in which they are run.
    pub values: Vec<u64>,
}

/// How values of a unit are drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YAxis {
    /// The unit.
    pub unit: String,
    /// What stands beside the axis.
    pub label: String,
    /// How it is divided.
    pub scale: Scale,
}

/// How an axis is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    #[default]
    Linear,
    /// By powers of two.
    Log2,
    /// By powers of ten.
    Log10,
}

/// A line of the figure: one metric, measured with some parameters set.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// What is shown.
    pub metric: &'static MetricSpec,
    /// What is set for it.
    pub set: Vec<(&'static ParameterSpec, Value)>,
    /// Where what is set is from; numbers have one.
    pub source: Option<String>,
}

/// A line that follows from two others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derived {
    /// Its name.
    pub name: String,
    /// How it follows.
    pub rule: Rule,
    /// The places of the two series.
    pub of: [usize; 2],
}

/// How a line follows from two others, `[a, b]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// a / b.
    Ratio,
    /// a − b.
    Difference,
    /// By how many percent b is less than a.
    Reduction,
}

/// A parameter's value and where it is from.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Which one.
    pub spec: &'static ParameterSpec,
    /// Its value.
    pub value: Value,
    /// A paper's sentence, a data sheet, or what it is fitted to.
    pub source: String,
    /// What else it could be, where it is assumed or fitted.
    pub range: Option<Range>,
}

/// What an assumed parameter could be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// How far.
    pub extent: Extent,
    /// Why so far and not further.
    pub reason: String,
}

/// How far a parameter's value could be away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// From the first number of base units to the second.
    Between(u64, u64),
    /// One of these.
    OneOf(Vec<Value>),
}

/// One point of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The place of the series.
    pub series: usize,
    /// The place on the axis, in its base unit.
    pub x: u64,
    /// What its run is told.
    pub parameters: Parameters,
}

impl Definition {
    /// All points, series by series.
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

    /// The names of all lines, derived ones last.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        let series = self.series.iter().map(|series| series.name.as_str());
        series.chain(self.derived.iter().map(|derived| derived.name.as_str()))
    }

    /// The unit of a line; `None` where there is no line of this name.
    pub fn unit_of_line(&self, name: &str) -> Option<&str> {
        let series = self.series.iter().find(|series| series.name == name).map(|series| series.metric.unit);
        let derived = || self.derived.iter().find(|derived| derived.name == name);
        series.or_else(|| derived().map(|derived| self.unit_of(derived)))
    }

    /// The unit of a derived line.
    pub fn unit_of(&self, derived: &Derived) -> &str {
        match derived.rule {
            Rule::Ratio => "times",
            Rule::Difference => self.series[derived.of[0]].metric.unit,
            Rule::Reduction => "%",
        }
    }
}

impl XAxis {
    /// A place on the axis in its unit.
    pub fn number(&self, x: u64) -> f64 {
        self.dimension.in_unit(x, &self.unit).unwrap_or(x as f64)
    }

    /// The label with the unit; what is counted is in the label.
    pub fn caption(&self) -> String {
        match self.dimension {
            Dimension::Count(_) => self.label.clone(),
            _ => with_unit(&self.label, &self.unit),
        }
    }
}

/// A label with its unit in parentheses behind it, unless it is in it or there is none.
pub fn with_unit(label: &str, unit: &str) -> String {
    let parentheses = format!("({unit})");
    if unit.is_empty() || label.contains(&parentheses) {
        label.into()
    } else {
        format!("{label} {parentheses}")
    }
}

impl Rule {
    /// What follows from the two; `None` where it is no number.
    pub fn apply(self, a: f64, b: f64) -> Option<f64> {
        let value = match self {
            Self::Ratio => a / b,
            Self::Difference => a - b,
            Self::Reduction => (1.0 - b / a) * 100.0,
        };
        Some(value).filter(|value| value.is_finite())
    }
}
