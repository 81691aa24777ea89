//! The results of a run as an HTML page.

use super::sizes::{self, Range};
use super::summary::Summary;
use super::tally::Tally;
use crate::bins::Bin;
use crate::chart::{POINTS, time_unit};
use crate::page::{Axis, Figure, Line, Page, Style};

/// The seed in the origin of this command's pages.
pub(super) const SEED: &str = "none: nothing in it is random";

/// Returns the page of one run.
pub(super) fn of_summary(title: &str, tally: &Tally, summary: &Summary) -> anyhow::Result<Page> {
    let mut page = Page::new(title).with("seed", SEED);
    page.figure(&sizes(tally))?;
    page.figure(&over_time(tally))?;
    page.report(summary)?;
    Ok(page)
}

/// Returns the histogram of packets to the host by number of segments.
fn sizes(tally: &Tally) -> Figure {
    let ranges = sizes::in_ranges(tally.sizes.iter().map(|(segments, packets)| (*segments, *packets)));
    let bars = (0..).map(f64::from).zip(ranges.iter().map(|range| range.packets as f64));
    Figure {
        title: "Packets to the host by size".into(),
        x: Axis::named("segments in the packet", ranges.iter().map(Range::name)),
        y: Axis::linear("packets"),
        lines: vec![Line::new("packets", Style::Bars, bars)],
    }
}

/// Returns packets per second over time, before and after coalescing.
fn over_time(tally: &Tally) -> Figure {
    let (bins, width) = tally.bins.at_most(POINTS);
    let (unit, scale) = time_unit(bins.len().max(1) as f64 * width);
    let line = |name, count: fn(&Bin) -> u64| {
        // A final point ends the last step at the end of its interval.
        let rates = bins.iter().map(|bin| count(bin) as f64 / width).chain([0.0]);
        let places = (0..).map(|at| f64::from(at) * width * scale);
        Line::new(name, Style::Steps, places.zip(rates))
    };
    Figure {
        title: "Packets over time".into(),
        x: Axis::linear(format!("time from the first packet ({unit})")),
        y: Axis::linear("packets per second"),
        lines: vec![line("before", |bin| bin.before), line("after", |bin| bin.after)],
    }
}

#[cfg(test)]
mod tests {
    use nichrome_wire::Instant;
    use serde_json::{json, to_value};

    use super::*;

    #[test]
    fn an_interval_has_a_beginning_and_an_end() {
        let mut tally = Tally::new(false);
        tally.bins.at(Instant::from_nanos(7)).before += 2;
        let figure = to_value(over_time(&tally)).unwrap();
        assert_eq!(figure["lines"][0]["points"], json!([[0.0, 2e6, null, null], [1.0, 0.0, null, null]]));
    }
}
