//! `nichrome coalesce --compare`: a capture through every profile with several hold times.

use std::fmt;
use std::time::Duration;

use comfy_table::{CellAlignment, Table, TableComponent, presets};
use nichrome_lro::verify::Verified;
use nichrome_lro::{DropReason, Hold, NetfpgaConfig, NpuConfig, PassReason, Profile, ProfileConfig};
use plotters::prelude::SeriesLabelPosition;
use serde::Serialize;

use super::card::RunResult;
use super::page::SEED;
use super::summary::Verification;
use crate::chart::{self, Axis, COLORS, Grid, HEADROOM, plain};
use crate::number::{Grouped, plural};
use crate::page::{self, Figure, Line, Page, Style};

/// Size of the figure, in pixels.
const SIZE: (u32, u32) = (900, 480);

/// Title of the axis of hold times.
const HOLD: &str = "maximum hold time";

/// From typical interrupt moderation to delays that people do not notice.
const HOLDS: [Duration; 4] = [
    Duration::from_micros(50),
    Duration::from_micros(200),
    Duration::from_millis(1),
    Duration::from_millis(5),
];

/// A card to compare.
#[derive(Clone, Copy)]
pub(super) struct Candidate {
    pub(super) config: ProfileConfig,
    /// Maximum time that it holds segments.
    hold: Duration,
}

/// Returns every profile with every hold time.
pub(super) fn candidates() -> impl Iterator<Item = Candidate> {
    let with = |profile, hold| match profile {
        Profile::Gro => ProfileConfig::Gro(Hold::For(hold)),
        Profile::Netfpga => ProfileConfig::Netfpga(NetfpgaConfig::with_timer(hold)),
        Profile::Npu => ProfileConfig::Npu(NpuConfig::with_hold(hold)),
    };
    let profiles = [Profile::Gro, Profile::Netfpga, Profile::Npu];
    profiles
        .into_iter()
        .flat_map(move |profile| HOLDS.map(|hold| Candidate { config: with(profile, hold), hold }))
}

/// The results of all candidates. `--json` prints it: names are stable.
#[derive(Default, Serialize)]
pub(super) struct Comparison {
    pub(super) packets_in: u64,
    /// Packets that `--filter` excluded; not in any other count.
    pub(super) filtered: u64,
    /// Packets whose link type is not supported; not in any other count.
    pub(super) skipped: u64,
    /// Packets that the capture's snap length cut.
    pub(super) snapped: u64,
    pub(super) runs: Vec<Run>,
    /// True if the input ended early.
    pub(super) truncated: bool,
}

/// The results of one candidate.
#[derive(Serialize)]
pub(super) struct Run {
    pub(super) profile: &'static str,
    /// Maximum time that segments are held.
    pub(super) hold_us: u64,
    pub(super) packets_out: u64,
    pub(super) aggregates: u64,
    pub(super) mean_segments_per_aggregate: f64,
    pub(super) drops: u64,
    /// Packets with a wrong checksum, passed or dropped.
    pub(super) bad_checksums: u64,
    pub(super) verified: Option<Verification>,
}

impl Comparison {
    /// Adds the result of a candidate.
    pub(super) fn add(&mut self, candidate: Candidate, done: &RunResult, verified: Option<Verified>) {
        let counters = &done.counters;
        let sums = &counters.sums;
        let dropped = [DropReason::IpChecksum, DropReason::TcpChecksum, DropReason::UdpChecksum];
        let dropped: u64 = dropped.map(|reason| counters.drops.get(reason)).iter().sum();
        (self.packets_in, self.filtered) = (sums.packets_in, counters.filtered);
        self.snapped = counters.snapped;
        self.runs.push(Run {
            profile: candidate.config.profile().name(),
            hold_us: candidate.hold.as_micros() as u64,
            packets_out: sums.packets_out,
            aggregates: sums.aggregates,
            mean_segments_per_aggregate: sums.mean_segments_per_aggregate(),
            drops: counters.drops.iter().map(|(_, count)| count).sum(),
            bad_checksums: counters.passes.get(PassReason::BadChecksum) + dropped,
            verified: verified.map(Verification::from),
        });
    }

    /// Returns the run with the fewest packets to the host, counting dropped ones too, since a drop is not a
    /// merge. On a tie returns the run with the shortest hold time.
    fn best(&self) -> Option<&Run> {
        self.runs.iter().min_by_key(|run| (run.not_merged(), run.hold_us))
    }

    /// Returns the share of packets that the host receives or the card drops, in percent.
    fn percent(&self, run: &Run) -> f64 {
        100.0 * run.not_merged() as f64 / self.packets_in.max(1) as f64
    }

    /// Returns true if an engine drops packets.
    fn has_drops(&self) -> bool {
        self.runs.iter().any(|run| run.drops > 0)
    }

    /// Returns the title of the axis of percentages.
    fn percent_title(&self) -> &'static str {
        if self.has_drops() {
            "packets to the host and dropped ones, in percent"
        } else {
            "packets to the host, in percent"
        }
    }
}

impl Run {
    /// Returns the packets that the host receives or the card drops.
    fn not_merged(&self) -> u64 {
        self.packets_out + self.drops
    }

    /// Formats the hold time.
    fn hold(&self) -> String {
        format!("{:?}", Duration::from_micros(self.hold_us))
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_style(TableComponent::HeaderLines, '─');
        let (dropped, share) = match self.has_drops() {
            true => (Some("dropped"), "both, of all"),
            false => (None, "of all"),
        };
        let names = ["profile", "hold", "packets to the host"].into_iter().chain(dropped);
        table.set_header(names.chain([share, "aggregates", "mean segments"]));
        for run in &self.runs {
            let mean = match run.mean_segments_per_aggregate {
                0.0 => "–".into(),
                mean => format!("{mean:.1}"),
            };
            let [packets, drops, aggregates] =
                [run.packets_out, run.drops, run.aggregates].map(|n| Grouped(n).to_string());
            let share = format!("{:.1} %", self.percent(run));
            let cells =
                [run.profile.to_owned(), run.hold(), packets].into_iter().chain(dropped.map(|_| drops));
            table.add_row(cells.chain([share, aggregates, mean]));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(f, "{}\n", table.trim_fmt())?;
        if self.filtered > 0 {
            writeln!(f, "filtered out: {}", plural(self.filtered, "packet", "packets"))?;
        }
        if self.snapped > 0 {
            let cut = plural(self.snapped, "packet", "packets");
            writeln!(f, "cut short: {cut} by the snap length: capture with 'tcpdump -s 0'")?;
        }
        let bad_checksums = self.runs.iter().map(|run| run.bad_checksums).max().unwrap_or(0);
        if bad_checksums > 0 {
            let wrong = plural(bad_checksums, "packet", "packets");
            writeln!(
                f,
                "wrong checksums: {wrong}, not coalesced: captured on a sender with checksum offload?"
            )?;
        }
        if let Some(best) = self.best() {
            let packets = plural(self.packets_in, "packet", "packets");
            let dropped = if self.has_drops() { ", dropped ones included" } else { "" };
            writeln!(
                f,
                "the fewest packets{dropped}: {}, held for at most {}: {:.1} % of {packets}",
                best.profile,
                best.hold(),
                self.percent(best)
            )?;
        }
        if let Some(Verification { frames, flows, .. }) = self.runs.last().and_then(|run| run.verified) {
            let [frames, flows] = [plural(frames, "frame", "frames"), plural(flows, "flow", "flows")];
            let engines = plural(self.runs.len() as u64, "engine", "engines");
            writeln!(f, "verified: {frames} of {flows} were delivered by each of {engines}")?;
        }
        Ok(())
    }
}

impl Comparison {
    /// Builds the page: shares of packets over hold times, and all runs.
    pub(super) fn page(&self, title: &str) -> anyhow::Result<Page> {
        let line = |runs: &[Run]| {
            let points = (0..).map(f64::from).zip(runs.iter().map(|run| self.percent(run)));
            Line::new(runs.first().map_or("", |run| run.profile), Style::Line, points)
        };
        let mut page = Page::new(title).with("seed", SEED);
        page.figure(&Figure {
            title: "Packets to the host".into(),
            x: page::Axis::named(HOLD, HOLDS.map(|hold| format!("{hold:?}"))),
            y: page::Axis::linear(self.percent_title()),
            lines: self.runs.chunks(HOLDS.len()).map(line).collect(),
        })?;
        page.report(self)?;
        Ok(page)
    }

    /// Draws the share of packets over the hold time.
    ///
    /// # Errors
    /// Drawing fails.
    pub(super) fn draw(&self, title: &str) -> anyhow::Result<String> {
        chart::svg(SIZE, |area| {
            let name = |at: &f64| {
                let hold = HOLDS.get(at.round().max(0.0) as usize).filter(|_| at.fract() == 0.0);
                hold.map_or_else(String::new, |hold| format!("{hold:?}"))
            };
            let x = Axis {
                description: HOLD.into(),
                range: 0.0..(HOLDS.len() - 1) as f64,
                labels: HOLDS.len(),
                format: &name,
            };
            let y = Axis::y(self.percent_title(), 100.0 * HEADROOM, &plain);
            let mut chart = chart::chart(area, title, Grid::Horizontal, x, y)?;
            for (runs, color) in self.runs.chunks(HOLDS.len()).zip(COLORS.into_iter().skip(1)) {
                let points = (0..).map(f64::from).zip(runs.iter().map(|run| self.percent(run)));
                chart::line(&mut chart, runs.first().map_or("", |run| run.profile), color, 3, points)?;
            }
            chart::legend(&mut chart, SeriesLabelPosition::UpperRight)
        })
    }
}
