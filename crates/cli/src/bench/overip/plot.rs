//! Figures as SVG pictures.

use plotters::prelude::*;

use super::bearer::Bearer;
use super::series::{Figure, Series};
use crate::chart::{self, Area, Axis, COLORS, Grid, HEADROOM, Painted, legend, short};

/// Size of a chart in pixels.
const SIZE: (u32, u32) = (640, 460);

/// Draws a figure with one chart per variant.
pub(super) fn draw(figure: &Figure) -> anyhow::Result<String> {
    let mut variants: Vec<&str> = Vec::new();
    for series in figure.series.iter().filter(|series| series.quantity == figure.y.quantity) {
        if !variants.contains(&series.variant) {
            variants.push(series.variant);
        }
    }
    let count = variants.len().max(1);
    chart::svg((SIZE.0 * count as u32, SIZE.1), |area| {
        let area = area.margin(8, 0, 0, 0).titled(figure.title, chart::font(20))?;
        let areas = area.split_evenly((1, count));
        areas.iter().zip(&variants).try_for_each(|(area, variant)| paint(area, figure, variant))
    })
}

fn paint(area: &Area<'_>, figure: &Figure, variant: &str) -> Painted {
    let is_shown = |series: &&Series| series.quantity == figure.y.quantity && series.variant == variant;
    let shown: Vec<&Series> = figure.series.iter().filter(is_shown).collect();
    let is_size = figure.x.quantity == "bytes";
    let place = |x: f64| if is_size { x.max(1.0).log2() } else { x };
    let points = || shown.iter().flat_map(|series| &series.points);
    let most_x = points().map(|point| place(point.x)).fold(1e-9, f64::max);
    let most_y = points().map(|point| point.y.high).fold(1e-9, f64::max);
    let size = |place: &f64| short(&place.exp2().round());
    let x = Axis::x(figure.x.label, most_x);
    let x = if is_size { Axis { format: &size, ..x } } else { x };
    let y = Axis::y(figure.y.label, most_y * HEADROOM, &short);
    let mut chart = chart::chart(area, variant, Grid::Horizontal, x, y)?;
    for (bearer, color) in Bearer::ALL.into_iter().zip(COLORS) {
        for series in shown.iter().filter(|series| series.transport == bearer) {
            let medians = series.points.iter().map(|point| (place(point.x), point.y.median));
            chart::line(&mut chart, bearer.name(), color, 3, medians)?;
            // The spread of the rounds.
            let spreads = series.points.iter().map(|point| {
                let x = place(point.x);
                PathElement::new(vec![(x, point.y.low), (x, point.y.high)], color)
            });
            chart.draw_series(spreads)?;
        }
    }
    legend(&mut chart, SeriesLabelPosition::UpperLeft)
}
