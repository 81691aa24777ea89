//! A figure of a page: data that the page's script draws.

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
    /// Labels at 0, 1, 2 and so on instead of numbers; empty for numbers.
    names: Vec<String>,
}

/// The scale of an axis.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scale {
    Linear,
    Log2,
    Log10,
}

/// The style in which a line is drawn.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Style {
    Line,
    Steps,
    Bars,
    Marks,
}

/// A series of points, with its name in the legend.
#[derive(Serialize)]
pub(crate) struct Line {
    name: String,
    style: Style,
    /// Position, value, and minimum and maximum of the value if it has a range.
    points: Vec<(f64, f64, Option<f64>, Option<f64>)>,
}

impl Axis {
    /// Creates an axis of numbers.
    pub(crate) fn new(label: impl Into<String>, scale: Scale) -> Self {
        Self { label: label.into(), scale, names: Vec::new() }
    }

    /// Creates a linear axis.
    pub(crate) fn linear(label: impl Into<String>) -> Self {
        Self::new(label, Scale::Linear)
    }

    /// Creates an axis with a name at each whole number.
    pub(crate) fn named(label: impl Into<String>, names: impl IntoIterator<Item = String>) -> Self {
        Self { names: names.into_iter().collect(), ..Self::linear(label) }
    }
}

impl Line {
    /// Creates a line through points (position, value).
    pub(crate) fn new(
        name: impl Into<String>,
        style: Style,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        let points = points.into_iter().map(|(x, y)| (x, y, None, None)).collect();
        Self { name: name.into(), style, points }
    }

    /// Creates a line through points (position, value, and the value's minimum and maximum).
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
    /// Returns an HTML element with the figure's data, in which the page's script draws.
    pub(super) fn html(&self) -> serde_json::Result<String> {
        // `<` is escaped, so that no text in the data ends the script element.
        let data = to_string(self)?.replace('<', "\\u003c");
        Ok(format!("<div class=\"figure\"><script type=\"application/json\">{data}</script></div>\n"))
    }
}
