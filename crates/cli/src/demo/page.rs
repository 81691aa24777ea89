//! The results of the demonstration as an HTML page.

use super::plot::series;
use super::run::SEED;
use super::summary::{Run, Summary};
use crate::page::{Axis, Figure, Line, Page, Scale, Style};

/// Returns the page.
pub(super) fn page(summary: &Summary) -> anyhow::Result<Page> {
    let mut page = Page::new("Effect of receive offload").with("seed", SEED.to_string());
    let series = series(summary);
    let mut figure = |title: &str, unit: &str, value: fn(&Run) -> f64| {
        let line = |(name, runs): &(String, Vec<&Run>)| {
            Line::new(name, Style::Line, runs.iter().map(|run| (run.connections as f64, value(run))))
        };
        page.figure(&Figure {
            title: title.into(),
            x: Axis::new("connections", Scale::Log2),
            y: Axis::linear(unit),
            lines: series.iter().map(line).collect(),
        })
    };
    figure("Throughput", "Gbit/s", |run| run.gbps)?;
    figure("Host CPU", "seconds per gigabyte", |run| run.host_cpu_s_per_gb)?;
    figure("Length of a packet to the host, mean", "bytes", |run| run.bytes_per_packet)?;
    page.report(summary)?;
    Ok(page)
}
