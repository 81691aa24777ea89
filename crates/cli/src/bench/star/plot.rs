//! The figure: card memory and operation rate of the server by number of connections.

use plotters::prelude::*;

use super::super::transport::Transport;
use super::point::{Point, TRANSPORTS};
use crate::chart::{self, Area, Axis, COLORS, Grid, HEADROOM, Painted, legend, short};

/// Draws the figure as SVG.
pub(super) fn draw(points: &[Point]) -> anyhow::Result<String> {
    chart::pair(
        "A server with many connections",
        50,
        |left| {
            paint(left, "Connection state on its card", "bytes (powers of ten)", points, |point| {
                (point.card_state_bytes as f64).max(1.0).log10()
            })
        },
        |right| {
            paint(right, "8-byte WRITEs to it", "operations per second", points, |point| point.messages_per_s)
        },
    )
}

fn paint(
    area: &Area<'_>,
    caption: &str,
    description: &str,
    points: &[Point],
    value: fn(&Point) -> f64,
) -> Painted {
    let place = |point: &Point| f64::from(point.connections).log10();
    let most = |of: &dyn Fn(&Point) -> f64| points.iter().map(of).fold(1.0, f64::max);
    let connections = |place: &f64| short(&10f64.powf(*place).round());
    let x = Axis { format: &connections, labels: 6, ..Axis::x("connections", most(&place)) };
    let y = Axis::y(description, most(&value) * HEADROOM, &short);
    let mut chart = chart::chart(area, caption, Grid::Horizontal, x, y)?;
    for (Transport { name, .. }, color) in TRANSPORTS.into_iter().zip(COLORS.into_iter().skip(1)) {
        let line = points.iter().filter(|point| point.transport == name);
        chart::line(&mut chart, name, color, 3, line.map(|point| (place(point), value(point))))?;
    }
    legend(&mut chart, SeriesLabelPosition::UpperLeft)
}
