//! Throughput and host CPU over the number of connections, as in lro-npu's Figure 13.

use plotters::prelude::*;

use super::summary::{Run, Summary, Traffic};
use crate::chart::{self, Area, Axis, COLORS, Grid, Painted, legend, plain};

/// Ratio of an axis' maximum to the highest value: room for a legend of six lines.
const LEGEND_ROOM: f64 = 1.75;

/// Size of the dots, in pixels.
const DOTS: u32 = 3;

/// Draws both charts.
pub(super) fn draw(summary: &Summary) -> anyhow::Result<String> {
    chart::pair(
        "Effect of receive offload",
        50,
        |left| lines(left, summary, "Throughput", "Gbit/s", |run| run.gbps),
        |right| lines(right, summary, "Host CPU", "seconds per gigabyte", |run| run.host_cpu_s_per_gb),
    )
}

/// Returns the bulk runs of each card, in the order of the cards.
pub(super) fn series(summary: &Summary) -> Vec<(String, Vec<&Run>)> {
    let mut series: Vec<(String, Vec<&Run>)> = Vec::new();
    for run in summary.runs.iter().filter(|run| matches!(run.traffic, Traffic::Bulk { .. })) {
        let name = match run.active_ack {
            "off" => run.profile.to_owned(),
            mode => format!("{}, active ACK {mode}", run.profile),
        };
        match series.iter_mut().find(|(other, _)| *other == name) {
            Some((_, runs)) => runs.push(run),
            None => series.push((name, vec![run])),
        }
    }
    series
}

fn lines(area: &Area<'_>, summary: &Summary, caption: &str, unit: &str, value: fn(&Run) -> f64) -> Painted {
    let series = series(summary);
    let all = || series.iter().flat_map(|(_, runs)| runs);
    let highest = all().map(|run| value(run)).fold(0.1, f64::max);
    let steps = |run: &Run| (run.connections as f64).log2();
    let most = all().map(|run| steps(run)).fold(1.0, f64::max);
    let x =
        Axis { labels: most as usize + 1, format: &|at| plain(&at.exp2()), ..Axis::x("connections", most) };
    let y = Axis::y(unit, highest * LEGEND_ROOM, &plain);
    let mut chart = chart::chart(area, caption, Grid::Both, x, y)?;
    for ((name, runs), color) in series.iter().zip(COLORS.into_iter().cycle()) {
        chart::line(&mut chart, name, color, DOTS, runs.iter().map(|run| (steps(run), value(run))))?;
    }
    legend(&mut chart, SeriesLabelPosition::UpperRight)
}
