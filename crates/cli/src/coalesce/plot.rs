//! The sizes of aggregates, and packets over time, as one SVG picture.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::sizes::{self, Range};
use super::tally::Tally;
use crate::bins::Bin;
use crate::chart::{
    self, Area, GRID, HEADROOM, INK, POINTS, Painted, font, legend, plain, short, swatch, time_unit,
};
use crate::number::Grouped;

const SIZE: (u32, u32) = (1200, 460);
/// Before coalescing.
const BEFORE: RGBColor = RGBColor(0x9A, 0xA5, 0xB1);
/// After it.
const AFTER: RGBColor = RGBColor(0xC2, 0x41, 0x0C);
/// Draws both charts below a title.
pub(super) fn draw(title: &str, tally: &Tally) -> anyhow::Result<String> {
    chart::svg(SIZE, |area| paint(area, title, tally))
}

fn paint(area: &Area<'_>, title: &str, tally: &Tally) -> Painted {
    area.fill(&WHITE)?;
    let area = area.margin(8, 0, 0, 0).titled(title, font(24))?;
    let (left, right) = area.split_horizontally(SIZE.0 * 45 / 100);
    sizes(&left, tally)?;
    over_time(&right, tally)?;
    area.present()?;
    Ok(())
}

/// The histogram of aggregate sizes.
fn sizes(area: &Area<'_>, tally: &Tally) -> Painted {
    let ranges = sizes::in_ranges(tally.sizes.iter().map(|(segments, packets)| (*segments, *packets)));
    let most = ranges.iter().map(|range| range.packets).max().unwrap_or(0).max(1);
    let mut chart = ChartBuilder::on(area)
        .caption("Packets to the host by size", font(18))
        .margin(16)
        .x_label_area_size(48)
        .y_label_area_size(64)
        .build_cartesian_2d(-0.5..ranges.len() as f64 - 0.5, 0.0..most as f64 * HEADROOM)?;
    let name = |at: &f64| name_at(&ranges, *at);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .x_labels(ranges.len())
        .x_label_formatter(&name)
        .x_desc("segments in the packet")
        .y_labels(6)
        .y_label_formatter(&short)
        .y_desc("packets")
        .label_style(font(13))
        .axis_desc_style(font(14))
        .draw()?;
    let bar = |at: usize, from: u64, to: u64, color: RGBColor| {
        let at = at as f64;
        Rectangle::new([(at - 0.4, from as f64), (at + 0.4, to as f64)], color.filled())
    };
    let count = |at: usize, packets: u64| {
        let style = font(13).pos(Pos::new(HPos::Center, VPos::Bottom));
        Text::new(Grouped(packets).to_string(), (at as f64, packets as f64 + most as f64 * 0.01), style)
    };
    let without_payload = tally.without_payload;
    if without_payload > 0 {
        chart
            .draw_series([bar(0, 0, without_payload, BEFORE)])?
            .label("without payload: nothing to merge")
            .legend(|at| swatch(at, BEFORE));
    }
    let base = |at: usize| if at == 0 { without_payload } else { 0 };
    chart
        .draw_series(
            ranges
                .iter()
                .enumerate()
                .map(|(at, range)| bar(at, base(at).min(range.packets), range.packets, AFTER)),
        )?
        .label("with payload")
        .legend(|at| swatch(at, AFTER));
    chart.draw_series(ranges.iter().enumerate().map(|(at, range)| count(at, range.packets)))?;
    if without_payload > 0 {
        legend(&mut chart, SeriesLabelPosition::UpperRight)?;
    }
    Ok(())
}

/// The name of the range at a place on the axis.
fn name_at(ranges: &[Range], at: f64) -> String {
    let whole = (at - at.round()).abs() < 1e-6 && at > -0.5;
    ranges.get(at.round().max(0.0) as usize).filter(|_| whole).map_or_else(String::new, Range::name)
}

/// Packets per second before and after.
fn over_time(area: &Area<'_>, tally: &Tally) -> Painted {
    let (bins, width) = tally.bins.at_most(POINTS);
    let span = (bins.len().max(1)) as f64 * width;
    let most = bins.iter().map(|bin| bin.before.max(bin.after)).max().unwrap_or(0).max(1) as f64 / width;
    let (unit, scale) = time_unit(span);
    let mut chart = ChartBuilder::on(area)
        .caption("Packets over time", font(18))
        .margin(16)
        .x_label_area_size(48)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..span * scale, 0.0..most * HEADROOM)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .x_labels(8)
        .x_label_formatter(&plain)
        .x_desc(format!("time from the first packet ({unit})"))
        .y_labels(6)
        .y_label_formatter(&short)
        .y_desc("packets per second")
        .label_style(font(13))
        .axis_desc_style(font(14))
        .draw()?;
    for (label, color, count) in [
        ("before", BEFORE, (|bin: &Bin| bin.before) as fn(&Bin) -> u64),
        ("after", AFTER, |bin: &Bin| bin.after),
    ] {
        let steps = steps(&bins, width * scale, |bin| count(bin) as f64 / width);
        let outline = steps.clone();
        chart.draw_series([Polygon::new(steps, color.mix(0.25))])?;
        chart
            .draw_series([PathElement::new(outline, color.stroke_width(2))])?
            .label(label)
            .legend(move |at| swatch(at, color));
    }
    legend(&mut chart, SeriesLabelPosition::UpperRight)
}

/// The outline of bins, from the axis and back to it.
fn steps(bins: &[Bin], width: f64, height: impl Fn(&Bin) -> f64) -> Vec<(f64, f64)> {
    let mut points = vec![(0.0, 0.0)];
    for (at, bin) in bins.iter().enumerate() {
        let (left, height) = (at as f64 * width, height(bin));
        points.extend([(left, height), (left + width, height)]);
    }
    points.push((bins.len() as f64 * width, 0.0));
    points
}
