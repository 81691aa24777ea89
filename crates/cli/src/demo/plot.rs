//! Throughput over the number of connections, as lro-npu's Figure 13 has it, and what it costs the host.

use plotters::prelude::*;

use super::summary::{Run, Summary, Traffic};
use crate::chart::{self, Area, GRID, INK, Painted, font, legend, plain, swatch};

const SIZE: (u32, u32) = (1200, 460);

/// How far the axis goes beyond the highest value: room for a legend of six lines.
const LEGEND_ROOM: f64 = 1.75;

const COLORS: [RGBColor; 6] = [
    RGBColor(0x9A, 0xA5, 0xB1),
    RGBColor(0x2A, 0x6F, 0x97),
    RGBColor(0xC2, 0x41, 0x0C),
    RGBColor(0xF5, 0x9E, 0x0B),
    RGBColor(0x4D, 0x7C, 0x0F),
    RGBColor(0x7C, 0x3A, 0xED),
];

/// Draws both charts.
pub(super) fn draw(summary: &Summary) -> anyhow::Result<String> {
    chart::svg(SIZE, |area| {
        area.fill(&WHITE)?;
        let area = area.margin(8, 0, 0, 0).titled("What receive offload is worth", font(24))?;
        let (left, right) = area.split_horizontally(SIZE.0 / 2);
        lines(&left, summary, "Throughput", "Gbit/s", |run| run.gbps)?;
        lines(&right, summary, "Host CPU", "seconds per gigabyte", |run| run.host_cpu_s_per_gb)?;
        area.present()?;
        Ok(())
    })
}

/// The bulk runs of each card, in the order in which the cards come.
fn series(summary: &Summary) -> Vec<(String, Vec<&Run>)> {
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
    let mut chart = ChartBuilder::on(area)
        .caption(caption, font(18))
        .margin(16)
        .x_label_area_size(48)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..most, 0.0..highest * LEGEND_ROOM)?;
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .x_labels(most as usize + 1)
        .x_label_formatter(&|at| plain(&at.exp2()))
        .x_desc("connections")
        .y_labels(6)
        .y_label_formatter(&plain)
        .y_desc(unit)
        .label_style(font(13))
        .axis_desc_style(font(14))
        .draw()?;
    for ((name, runs), color) in series.iter().zip(COLORS.into_iter().cycle()) {
        let points: Vec<_> = runs.iter().map(|run| (steps(run), value(run))).collect();
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)).point_size(3))?
            .label(name)
            .legend(move |at| swatch(at, color));
    }
    legend(&mut chart, SeriesLabelPosition::UpperRight)
}
