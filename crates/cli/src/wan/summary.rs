//! The results of a path. `--json` prints them: names are stable.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use comfy_table::{CellAlignment, Table, TableComponent, presets};
use nichrome_wan::Stats;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::in_force::in_force;
use super::report::{Measured, Report};
use crate::impairment_options::ImpairmentOptions;
use crate::number::Grouped;
use crate::side::Side;

/// Both directions.
#[derive(Serialize, Deserialize)]
pub(crate) struct Summary {
    /// Seed of all random choices.
    pub(crate) seed: u64,
    pub(crate) to_right: DirectionSummary,
    pub(crate) to_left: DirectionSummary,
    /// Packets of both directions missing in the capture because it was too slow.
    pub(crate) not_captured: u64,
}

/// One direction. Times are in microseconds, from the timestamp of reading a packet at one end to that of
/// writing it at the other.
#[derive(Serialize, Deserialize)]
pub(crate) struct DirectionSummary {
    /// Current impairments, by the names of their options.
    pub(crate) impairments: Map<String, Value>,
    /// Packets that entered the path.
    pub(crate) packets: u64,
    /// Bytes of these, including link headers.
    pub(crate) bytes: u64,
    pub(crate) packets_delivered: u64,
    pub(crate) bytes_delivered: u64,
    /// Packets not delivered, by reason.
    pub(crate) drops: Map<String, Value>,
    /// Packets in flight: neither delivered nor dropped.
    pub(crate) in_flight: u64,
    /// ICMP errors sent for packets that exceeded the path's MTU.
    pub(crate) too_big_sent: u64,
    /// The former name of `too_big_sent`, kept for one release.
    told_too_big: u64,
    /// Packets that exceeded the path's MTU and were fragmented.
    pub(crate) fragmented: u64,
    /// Resulting fragments.
    pub(crate) fragments: u64,
    pub(crate) duplicated: u64,
    pub(crate) corrupted: u64,
    pub(crate) reordered: u64,
    pub(crate) ce_marked: u64,
    /// Omitted if no packet was delivered.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) delays: Option<DelaySummary>,
    /// Delays drawn by `--delay` and `--jitter`; omitted without jitter.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) jitter: Option<JitterSummary>,
    /// Time that the direction was runnable and waited for a CPU: the machine's part of the error. Omitted if
    /// the kernel does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waited_us: Option<f64>,
    /// Throughput from the first packet to the last one.
    pub(crate) gbps: f64,
    pub(crate) duration_s: f64,
}

/// Delays of the delivered packets, in microseconds.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct DelaySummary {
    /// Mean scheduled delay.
    pub(crate) delay_asked_us: f64,
    pub(crate) delay_p50_us: f64,
    pub(crate) delay_p99_us: f64,
    pub(crate) delay_max_us: f64,
    /// Measured minus scheduled delay of each packet.
    pub(crate) delay_error_p50_us: f64,
    pub(crate) delay_error_p99_us: f64,
    pub(crate) delay_error_max_us: f64,
}

impl DelaySummary {
    fn new(Measured { scheduled, delay, error, .. }: &Measured) -> Option<Self> {
        (delay.count() > 0).then(|| Self {
            delay_asked_us: micros(scheduled.mean()),
            delay_p50_us: micros(delay.p50()),
            delay_p99_us: micros(delay.p99()),
            delay_max_us: micros(delay.max()),
            delay_error_p50_us: micros(error.p50()),
            delay_error_p99_us: micros(error.p99()),
            delay_error_max_us: micros(error.max()),
        })
    }
}

/// Delays drawn by jitter, and the extra delay to keep packets in order, in microseconds.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct JitterSummary {
    pub(crate) delay_drawn_mean_us: f64,
    pub(crate) delay_drawn_p50_us: f64,
    pub(crate) delay_drawn_p99_us: f64,
    pub(crate) delay_drawn_max_us: f64,
    /// Mean extra delay.
    pub(crate) kept_in_order_mean_us: f64,
}

impl JitterSummary {
    fn new(stats: &Stats) -> Option<Self> {
        let Stats { drawn, kept_in_order, .. } = stats;
        (drawn.count() > 0).then(|| Self {
            delay_drawn_mean_us: micros(drawn.mean()),
            delay_drawn_p50_us: micros(drawn.p50()),
            delay_drawn_p99_us: micros(drawn.p99()),
            delay_drawn_max_us: micros(drawn.max()),
            kept_in_order_mean_us: micros(kept_in_order.mean()),
        })
    }
}

impl Summary {
    /// Builds the summary from the reports of the directions to the left and to the right, and the number of
    /// packets that the kernel dropped unread at the left and right end.
    pub(crate) fn new(seed: u64, [to_left, to_right]: &[Report; 2], unread: [u64; 2]) -> Self {
        Self {
            seed,
            to_right: DirectionSummary::new(to_right, *Side::Left.of(&unread)),
            to_left: DirectionSummary::new(to_left, *Side::Right.of(&unread)),
            not_captured: to_left.measured.not_captured + to_right.measured.not_captured,
        }
    }
}

impl DirectionSummary {
    fn new(report: &Report, unread: u64) -> Self {
        let Report { impairments, stats, in_flight, measured, waited } = report;
        let impairments = in_force(impairments);
        let others =
            [("malformed", measured.malformed), ("refused_by_device", measured.refused), ("unread", unread)];
        let drops = stats.drops.named().chain(others).filter(|(_, count)| *count > 0);
        Self {
            impairments: impairments.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            packets: stats.packets_in,
            bytes: stats.bytes_in,
            packets_delivered: measured.packets,
            bytes_delivered: measured.bytes,
            drops: drops.map(|(name, count)| (name.to_owned(), count.into())).collect(),
            in_flight: *in_flight,
            too_big_sent: measured.too_big_sent,
            told_too_big: measured.too_big_sent,
            fragmented: stats.fragmented,
            fragments: stats.fragments,
            duplicated: stats.duplicated,
            corrupted: stats.corrupted,
            reordered: stats.reordered,
            ce_marked: stats.ce_marked,
            delays: DelaySummary::new(measured),
            jitter: JitterSummary::new(stats),
            waited_us: waited.map(micros),
            gbps: report.gbps(),
            duration_s: report.duration().as_secs_f64(),
        }
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e3
}

/// A row of the table: label and value.
type Line<T> = (&'static str, fn(&DirectionSummary) -> T);

const COUNTS: [Line<u64>; 3] =
    [("packets", |of| of.packets), ("bytes", |of| of.bytes), ("delivered", |of| of.packets_delivered)];

/// Omitted if 0 in both directions.
const RARE_COUNTS: [Line<u64>; 8] = [
    ("in flight", |of| of.in_flight),
    ("ICMP too big sent", |of| of.too_big_sent),
    ("fragmented", |of| of.fragmented),
    ("fragments", |of| of.fragments),
    ("duplicated", |of| of.duplicated),
    ("corrupted", |of| of.corrupted),
    ("reordered", |of| of.reordered),
    ("CE marked", |of| of.ce_marked),
];

/// Rows in microseconds, with jitter only.
const JITTER_TIMES: [Line<Option<f64>>; 5] = [
    ("jitter drawn, mean", |of| of.jitter.map(|jitter| jitter.delay_drawn_mean_us)),
    ("              p50", |of| of.jitter.map(|jitter| jitter.delay_drawn_p50_us)),
    ("              p99", |of| of.jitter.map(|jitter| jitter.delay_drawn_p99_us)),
    ("              max", |of| of.jitter.map(|jitter| jitter.delay_drawn_max_us)),
    ("kept in order, mean", |of| of.jitter.map(|jitter| jitter.kept_in_order_mean_us)),
];

/// Rows in microseconds.
const TIMES: [Line<Option<f64>>; 7] = [
    ("scheduled delay, mean", |of| of.delays.map(|delays| delays.delay_asked_us)),
    ("measured delay, p50", |of| of.delays.map(|delays| delays.delay_p50_us)),
    ("                p99", |of| of.delays.map(|delays| delays.delay_p99_us)),
    ("                max", |of| of.delays.map(|delays| delays.delay_max_us)),
    ("error, p50", |of| of.delays.map(|delays| delays.delay_error_p50_us)),
    ("       p99", |of| of.delays.map(|delays| delays.delay_error_p99_us)),
    ("       max", |of| of.delays.map(|delays| delays.delay_error_max_us)),
];

impl Summary {
    const fn directions(&self) -> [&DirectionSummary; 2] {
        [&self.to_right, &self.to_left]
    }

    /// Builds a row of the table.
    fn row(&self, name: &str, value: impl Fn(&DirectionSummary) -> String) -> [String; 3] {
        let [right, left] = self.directions().map(value);
        [name.to_owned(), right, left]
    }

    /// Returns the names of the impairments of either direction, in option order.
    fn impairments(&self) -> Vec<&String> {
        let mut names: Vec<_> = self.directions().into_iter().flat_map(|of| of.impairments.keys()).collect();
        names.sort_by_key(|name| ImpairmentOptions::place(name));
        names.dedup();
        names
    }

    /// Returns the drop reasons of either direction.
    fn reasons(&self) -> BTreeSet<&String> {
        self.directions().into_iter().flat_map(|of| of.drops.keys()).collect()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_style(TableComponent::HeaderLines, '─');
        table.set_header(["", "to the right", "to the left"]);
        table.add_rows(self.impairments().into_iter().map(|name| {
            let value = |of: &DirectionSummary| {
                of.impairments.get(name).and_then(Value::as_str).unwrap_or("–").into()
            };
            self.row(&format!("--{name}"), value)
        }));
        let rare = RARE_COUNTS.into_iter().filter(|(_, of)| self.directions().into_iter().any(|d| of(d) > 0));
        table.add_rows(
            COUNTS
                .into_iter()
                .chain(rare)
                .map(|(name, of)| self.row(name, |direction| Grouped(of(direction)).to_string())),
        );
        table.add_rows(self.reasons().into_iter().map(|reason| {
            let count = |of: &DirectionSummary| of.drops.get(reason).and_then(Value::as_u64).unwrap_or(0);
            self.row(&format!("dropped: {reason}"), |of| Grouped(count(of)).to_string())
        }));
        let times = |(name, of): Line<Option<f64>>| {
            self.row(name, |direction| of(direction).map_or_else(|| "–".to_owned(), time))
        };
        if self.directions().into_iter().any(|of| of.jitter.is_some()) {
            table.add_rows(JITTER_TIMES.into_iter().map(times));
        }
        table.add_rows(TIMES.into_iter().map(times));
        if self.directions().into_iter().any(|of| of.waited_us.is_some()) {
            table.add_row(times(("waited for a processor", |of| of.waited_us)));
        }
        let throughput =
            |of: &DirectionSummary| if of.packets_delivered == 0 { "–".to_owned() } else { rate(of.gbps) };
        table.add_row(self.row("throughput", throughput));
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(f, "{}", table.trim_fmt())?;
        if self.not_captured > 0 {
            writeln!(f, "{} packets are not in the capture: it was too slow", Grouped(self.not_captured))?;
        }
        write!(f, "seed {}", self.seed)
    }
}

/// Formats a time in microseconds or milliseconds.
fn time(micros: f64) -> String {
    if micros < 1000.0 { format!("{micros:.1} µs") } else { format!("{:.3} ms", micros / 1e3) }
}

/// Formats a rate with a suitable unit.
fn rate(gbps: f64) -> String {
    match gbps {
        rate if rate >= 1.0 => format!("{rate:.2} Gbit/s"),
        rate if rate >= 1e-3 => format!("{:.2} Mbit/s", rate * 1e3),
        rate => format!("{:.2} kbit/s", rate * 1e6),
    }
}
