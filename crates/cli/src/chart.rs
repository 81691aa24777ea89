//! The parts that all SVG figures share.

use std::ops::Range;

use anyhow::{Context, anyhow};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

const SIZE: (u32, u32) = (1200, 460);
pub(crate) const INK: RGBColor = RGBColor(0x33, 0x33, 0x33);
pub(crate) const GRID: RGBColor = RGBColor(0xE4, 0xE4, 0xE4);
/// Ratio of an axis' maximum to the highest value: room for the legend.
pub(crate) const HEADROOM: f64 = 1.25;
/// Maximum points of a line.
pub(crate) const POINTS: usize = 120;

/// Colors of lines, in order.
pub(crate) const COLORS: [RGBColor; 6] = [
    RGBColor(0x9A, 0xA5, 0xB1),
    RGBColor(0x2A, 0x6F, 0x97),
    RGBColor(0xC2, 0x41, 0x0C),
    RGBColor(0xF5, 0x9E, 0x0B),
    RGBColor(0x4D, 0x7C, 0x0F),
    RGBColor(0x7C, 0x3A, 0xED),
];

/// A part of a figure.
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A drawing error.
pub(crate) type PaintError = Box<dyn std::error::Error + Send + Sync>;

/// The result of drawing.
pub(crate) type Painted = Result<(), PaintError>;

/// Draws a figure as SVG.
pub(crate) fn svg(size: (u32, u32), paint: impl FnOnce(&Area<'_>) -> Painted) -> anyhow::Result<String> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    let painted = area.fill(&WHITE).map_err(PaintError::from).and_then(|()| {
        paint(&area)?;
        area.present()?;
        Ok(())
    });
    painted.map_err(|error| anyhow!("{error}")).context("cannot draw the plot")?;
    drop(area);
    Ok(svg.replace(is_not_xml, "\u{FFFD}"))
}

/// Returns true for characters that XML 1.0 (section 2.2) excludes; titles with names of files may have them.
fn is_not_xml(c: char) -> bool {
    matches!(c, '\0'..='\u{8}' | '\u{B}' | '\u{C}' | '\u{E}'..='\u{1F}' | '\u{FFFE}' | '\u{FFFF}')
}

/// Draws a title above two charts as SVG. The left one has `left_percent` of the width.
pub(crate) fn pair(
    title: &str,
    left_percent: u32,
    left: impl FnOnce(&Area<'_>) -> Painted,
    right: impl FnOnce(&Area<'_>) -> Painted,
) -> anyhow::Result<String> {
    svg(SIZE, |area| {
        let area = area.margin(8, 0, 0, 0).titled(title, font(24))?;
        let (left_area, right_area) = area.split_horizontally(SIZE.0 * left_percent / 100);
        left(&left_area)?;
        right(&right_area)
    })
}

/// Returns a text style of this size.
pub(crate) fn font(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

/// The description of an axis, by default from 0.
pub(crate) struct Axis<'a> {
    pub(crate) description: String,
    pub(crate) range: Range<f64>,
    /// Approximate number of labels.
    pub(crate) labels: usize,
    pub(crate) format: &'a dyn Fn(&f64) -> String,
}

impl<'a> Axis<'a> {
    /// Creates a horizontal axis.
    pub(crate) fn x(description: impl Into<String>, to: f64) -> Self {
        Self { description: description.into(), range: 0.0..to, labels: 8, format: &plain }
    }

    /// Creates a vertical axis.
    pub(crate) fn y(description: impl Into<String>, to: f64, format: &'a dyn Fn(&f64) -> String) -> Self {
        Self { description: description.into(), range: 0.0..to, labels: 6, format }
    }
}

/// Grid lines behind a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grid {
    Both,
    /// Horizontal lines only.
    Horizontal,
}

pub(crate) type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Creates an empty chart.
pub(crate) fn chart<'a, 'b>(
    area: &'a Area<'b>,
    caption: &str,
    grid: Grid,
    x: Axis<'_>,
    y: Axis<'_>,
) -> Result<Chart<'a, 'b>, PaintError> {
    let mut chart = ChartBuilder::on(area)
        .caption(caption, font(18))
        .margin(16)
        .x_label_area_size(48)
        .y_label_area_size(64)
        .build_cartesian_2d(x.range, y.range)?;
    let mut mesh = chart.configure_mesh();
    if grid == Grid::Horizontal {
        mesh.disable_x_mesh();
    }
    mesh.bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .x_labels(x.labels)
        .x_label_formatter(&x.format)
        .x_desc(x.description)
        .y_labels(y.labels)
        .y_label_formatter(&y.format)
        .y_desc(y.description)
        .label_style(font(13))
        .axis_desc_style(font(14))
        .draw()?;
    Ok(chart)
}

/// Draws a line through `points` with dots of `dots` pixels, and its legend entry.
pub(crate) fn line<'a, 'b: 'a>(
    chart: &mut Chart<'a, 'b>,
    name: &str,
    color: RGBColor,
    dots: u32,
    points: impl IntoIterator<Item = (f64, f64)>,
) -> Painted {
    chart
        .draw_series(LineSeries::new(points, color.stroke_width(2)).point_size(dots))?
        .label(name)
        .legend(move |at| swatch(at, color));
    Ok(())
}

pub(crate) fn swatch((x, y): (i32, i32), color: RGBColor) -> Rectangle<(i32, i32)> {
    Rectangle::new([(x, y - 5), (x + 14, y + 5)], color.filled())
}

pub(crate) fn legend<'a, 'b: 'a>(chart: &mut Chart<'a, 'b>, position: SeriesLabelPosition) -> Painted {
    chart
        .configure_series_labels()
        .position(position)
        .background_style(WHITE.mix(0.9))
        .label_font(font(13))
        .draw()?;
    Ok(())
}

/// Returns the unit for a time of `seconds`, and its number per second.
pub(crate) fn time_unit(seconds: f64) -> (&'static str, f64) {
    match seconds {
        s if s < 2e-3 => ("µs", 1e6),
        s if s < 2.0 => ("ms", 1e3),
        s if s < 7200.0 => ("s", 1.0),
        s if s < 200_000.0 => ("h", 1.0 / 3600.0),
        _ => ("days", 1.0 / 86_400.0),
    }
}

/// Formats a number without trailing zeros.
pub(crate) fn plain(number: &f64) -> String {
    let rounded = (number * 100.0).round() / 100.0;
    format!("{rounded}")
}

/// Formats a number with k or M for thousands or millions.
pub(crate) fn short(number: &f64) -> String {
    match *number {
        n if n >= 1e6 => format!("{}M", plain(&(n / 1e6))),
        n if n >= 1e4 => format!("{}k", plain(&(n / 1e3))),
        n => plain(&n),
    }
}
