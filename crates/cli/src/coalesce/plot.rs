//! The figure: aggregate sizes, and packets over time, as SVG.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::sizes::{self, Range};
use super::tally::Tally;
use crate::bins::Bin;
use crate::chart::{
    self, Area, Axis, Grid, HEADROOM, POINTS, Painted, font, legend, short, swatch, time_unit,
};
use crate::number::Grouped;

/// Color of counts before coalescing.
const BEFORE: RGBColor = RGBColor(0x9A, 0xA5, 0xB1);
/// Color of counts after coalescing.
const AFTER: RGBColor = RGBColor(0xC2, 0x41, 0x0C);
/// Draws both charts below a title.
pub(super) fn draw(title: &str, tally: &Tally) -> anyhow::Result<String> {
    chart::pair(title, 45, |left| sizes(left, tally), |right| over_time(right, tally))
}

/// The histogram of aggregate sizes.
fn sizes(area: &Area<'_>, tally: &Tally) -> Painted {
    let ranges = sizes::in_ranges(tally.sizes.iter().map(|(segments, packets)| (*segments, *packets)));
    let most = ranges.iter().map(|range| range.packets).max().unwrap_or(0).max(1);
    let x = Axis {
        description: "segments in the packet".into(),
        range: -0.5..ranges.len() as f64 - 0.5,
        labels: ranges.len(),
        format: &|at| name_at(&ranges, *at),
    };
    let y = Axis::y("packets", most as f64 * HEADROOM, &short);
    let mut chart = chart::chart(area, "Packets to the host by size", Grid::Horizontal, x, y)?;
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
            .label("without TCP payload")
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
        .label("others")
        .legend(|at| swatch(at, AFTER));
    chart.draw_series(ranges.iter().enumerate().map(|(at, range)| count(at, range.packets)))?;
    if without_payload > 0 {
        legend(&mut chart, SeriesLabelPosition::UpperRight)?;
    }
    Ok(())
}

/// Returns the label of the range at an axis position.
fn name_at(ranges: &[Range], at: f64) -> String {
    let whole = (at - at.round()).abs() < 1e-6 && at > -0.5;
    ranges.get(at.round().max(0.0) as usize).filter(|_| whole).map_or_else(String::new, Range::name)
}

/// Draws packets per second before and after.
fn over_time(area: &Area<'_>, tally: &Tally) -> Painted {
    let (bins, width) = tally.bins.at_most(POINTS);
    let span = (bins.len().max(1)) as f64 * width;
    let most = bins.iter().map(|bin| bin.before.max(bin.after)).max().unwrap_or(0).max(1) as f64 / width;
    let (unit, scale) = time_unit(span);
    let x = Axis::x(format!("time from the first packet ({unit})"), span * scale);
    let y = Axis::y("packets per second", most * HEADROOM, &short);
    let mut chart = chart::chart(area, "Packets over time", Grid::Horizontal, x, y)?;
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

/// Returns the outline of the bins as a closed polygon on the axis.
fn steps(bins: &[Bin], width: f64, height: impl Fn(&Bin) -> f64) -> Vec<(f64, f64)> {
    let mut points = vec![(0.0, 0.0)];
    for (at, bin) in bins.iter().enumerate() {
        let (left, height) = (at as f64 * width, height(bin));
        points.extend([(left, height), (left + width, height)]);
    }
    points.push((bins.len() as f64 * width, 0.0));
    points
}
