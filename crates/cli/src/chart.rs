//! What all pictures have in common.

use anyhow::{Context, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

pub(crate) const INK: RGBColor = RGBColor(0x33, 0x33, 0x33);
pub(crate) const GRID: RGBColor = RGBColor(0xE4, 0xE4, 0xE4);
/// How far the axes go beyond the highest value: room for the legend.
pub(crate) const HEADROOM: f64 = 1.25;
/// The most points of a line.
pub(crate) const POINTS: usize = 120;

/// A part of a picture.
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Whether it could be painted.
pub(crate) type Painted = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// A picture of so many points, as SVG.
pub(crate) fn svg(size: (u32, u32), paint: impl FnOnce(&Area<'_>) -> Painted) -> anyhow::Result<String> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    paint(&area).map_err(|error| anyhow!("{error}")).context("cannot draw the plot")?;
    drop(area);
    Ok(svg)
}

/// Text of this size.
pub(crate) fn font(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

pub(crate) fn swatch((x, y): (i32, i32), color: RGBColor) -> Rectangle<(i32, i32)> {
    Rectangle::new([(x, y - 5), (x + 14, y + 5)], color.filled())
}

pub(crate) type Chart<'a, 'b> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;

pub(crate) fn legend<'a, 'b: 'a>(chart: &mut Chart<'a, 'b>, position: SeriesLabelPosition) -> Painted {
    chart
        .configure_series_labels()
        .position(position)
        .background_style(WHITE.mix(0.9))
        .label_font(font(13))
        .draw()?;
    Ok(())
}

/// The unit for a time of so many seconds, and how many of them make a second.
pub(crate) fn time_unit(seconds: f64) -> (&'static str, f64) {
    match seconds {
        s if s < 2e-3 => ("µs", 1e6),
        s if s < 2.0 => ("ms", 1e3),
        s if s < 7200.0 => ("s", 1.0),
        s if s < 200_000.0 => ("h", 1.0 / 3600.0),
        _ => ("days", 1.0 / 86_400.0),
    }
}

/// A number without zeros after its point.
pub(crate) fn plain(number: &f64) -> String {
    let rounded = (number * 100.0).round() / 100.0;
    format!("{rounded}")
}

/// A number with k or M for thousands or millions.
pub(crate) fn short(number: &f64) -> String {
    match *number {
        n if n >= 1e6 => format!("{}M", plain(&(n / 1e6))),
        n if n >= 1e4 => format!("{}k", plain(&(n / 1e3))),
        n => plain(&n),
    }
}
