//! A figure of a page: the numbers that its script draws.

use serde::Serialize;
use serde_json::to_string;

/// A figure.
#[derive(Serialize)]
pub(crate) struct Figure {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) lines: Vec<Line>,
}

/// An axis.
#[derive(Serialize)]
pub(crate) struct Axis {
    label: String,
    scale: Scale,
    /// What stands at 0, 1, 2 and so on instead of numbers.
    names: Vec<String>,
}

/// How numbers are spread along an axis.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scale {
    Linear,
    Log2,
    Log10,
}

/// How a line is drawn.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Style {
    Line,
    Steps,
    Bars,
    Marks,
}

/// Points with a name for the legend.
#[derive(Serialize)]
pub(crate) struct Line {
    name: String,
    style: Style,
    /// Place, value, and from where to where the value goes.
    points: Vec<(f64, f64, Option<f64>, Option<f64>)>,
}

impl Axis {
    /// An axis for numbers.
    pub(crate) fn new(label: impl Into<String>, scale: Scale) -> Self {
        Self { label: label.into(), scale, names: Vec::new() }
    }

    /// A linear axis.
    pub(crate) fn linear(label: impl Into<String>) -> Self {
        Self::new(label, Scale::Linear)
    }

    /// An axis with a name at each whole number.
    pub(crate) fn named(label: impl Into<String>, names: impl IntoIterator<Item = String>) -> Self {
        Self { names: names.into_iter().collect(), ..Self::linear(label) }
    }
}

impl Line {
    /// Points of (place, value).
    pub(crate) fn new(
        name: impl Into<String>,
        style: Style,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        let points = points.into_iter().map(|(x, y)| (x, y, None, None)).collect();
        Self { name: name.into(), style, points }
    }

    /// Points of (place, value, and the range of values).
    pub(crate) fn with_ranges(
        name: impl Into<String>,
        points: impl IntoIterator<Item = (f64, f64, Option<(f64, f64)>)>,
    ) -> Self {
        let ends = |(x, y, range): (f64, f64, Option<(f64, f64)>)| {
            (x, y, range.map(|(low, _)| low), range.map(|(_, high)| high))
        };
        Self { name: name.into(), style: Style::Line, points: points.into_iter().map(ends).collect() }
    }
}

impl Figure {
    /// An element that the page's script fills.
    pub(super) fn html(&self) -> serde_json::Result<String> {
        // Nothing in the numbers ends the element that they are in.
        let data = to_string(self)?.replace('<', "\\u003c");
        Ok(format!("<div class=\"figure\"><script type=\"application/json\">{data}</script></div>\n"))
    }
}
