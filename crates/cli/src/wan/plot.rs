//! Measured delays, and throughput over time, as SVG.

use plotters::prelude::*;

use super::report::{Measured, Report};
use crate::bins::Bin;
use crate::chart::{self, Area, Axis, Grid, HEADROOM, POINTS, Painted, legend, plain, short, time_unit};

/// The two directions, the one to the left first.
const DIRECTIONS: [(&str, RGBColor); 2] =
    [("to the left", RGBColor(0x9A, 0xA5, 0xB1)), ("to the right", RGBColor(0xC2, 0x41, 0x0C))];

/// Share of packets that the delay axis covers.
const SHOWN: f64 = 0.9999;

/// Draws both charts. Reports: direction to the left first.
pub(super) fn draw(reports: &[Report; 2]) -> anyhow::Result<String> {
    chart::pair(
        "Measured delay and throughput",
        50,
        |left| delays(left, reports),
        |right| throughput(right, reports),
    )
}

/// Draws the cumulative distribution of delays.
fn delays(area: &Area<'_>, reports: &[Report; 2]) -> Painted {
    let longest = |report: &Report| report.measured.delay.quantile(SHOWN).as_secs_f64();
    let most = reports.iter().map(longest).fold(1e-6, f64::max);
    let (unit, scale) = time_unit(most);
    let x = Axis::x(format!("delay ({unit})"), most * scale * 1.05);
    let y = Axis::y("packets with at most that (%)", 100.0, &plain);
    let mut chart = chart::chart(area, "Measured delay", Grid::Both, x, y)?;
    for (report, (name, color)) in reports.iter().zip(DIRECTIONS) {
        let point = |permille: u32| {
            let share = f64::from(permille) / 1000.0;
            (report.measured.delay.quantile(share).as_secs_f64() * scale, share * 100.0)
        };
        if report.measured.delay.count() > 0 {
            chart::line(&mut chart, name, color, 0, (0..=1000).map(point))?;
        }
    }
    legend(&mut chart, SeriesLabelPosition::LowerRight)
}

/// Returns the throughput of both directions over time: seconds since the first packet of either, and Mbit/s.
fn over_time(measured: [&Measured; 2]) -> [Vec<(f64, f64)>; 2] {
    let begun = |measured: &Measured| measured.span.map(|(first, _)| first);
    let first = measured.into_iter().filter_map(begun).min().unwrap_or_default();
    measured.map(|measured| {
        let (bins, width) = measured.bins.at_most(POINTS);
        let start = begun(measured).map_or(0.0, |begun| (begun - first).as_secs_f64());
        let mbps = |bin: &Bin| bin.after as f64 * 8.0 / width / 1e6;
        bins.iter().enumerate().map(|(at, bin)| (start + at as f64 * width, mbps(bin))).collect()
    })
}

/// Draws the throughput over time.
fn throughput(area: &Area<'_>, reports: &[Report; 2]) -> Painted {
    let lines = over_time(reports.each_ref().map(|report| &report.measured));
    let most = |of: fn(&(f64, f64)) -> f64| lines.iter().flatten().map(of).fold(1e-3, f64::max);
    let (span, highest) = (most(|point| point.0), most(|point| point.1));
    let (unit, scale) = time_unit(span);
    let x = Axis::x(format!("time from the first packet ({unit})"), span * scale);
    let y = Axis::y("Mbit/s delivered", highest * HEADROOM, &short);
    let mut chart = chart::chart(area, "Throughput", Grid::Horizontal, x, y)?;
    for (line, (name, color)) in lines.into_iter().zip(DIRECTIONS) {
        chart::line(&mut chart, name, color, 0, line.into_iter().map(|(time, mbps)| (time * scale, mbps)))?;
    }
    legend(&mut chart, SeriesLabelPosition::UpperRight)
}

#[cfg(test)]
mod tests {
    use nichrome_wire::Instant;

    use super::*;

    #[test]
    fn both_directions_have_the_time_of_the_first_packet_as_their_origin() {
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let [mut left, mut right] = [Measured::default(), Measured::default()];
        left.received(1000, at(5000));
        left.sent(1, 1000, at(5100));
        right.received(1000, at(7000));
        right.sent(1, 1000, at(7100));
        let [left, right] = over_time([&left, &right]);
        let ends = |line: &[(f64, f64)]| [line[0].0, line[line.len() - 1].0];
        let expected = [[0.0, 0.1], [2.0, 2.1]];
        for (found, expected) in [ends(&left), ends(&right)].concat().into_iter().zip(expected.concat()) {
            assert!((found - expected).abs() < 0.01, "{left:?} {right:?}");
        }
        assert_eq!(over_time([&Measured::default(), &Measured::default()]), [vec![], vec![]]);
    }
}
