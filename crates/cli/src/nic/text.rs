//! A card's counters as a table with columns for the total and for each queue.

use std::collections::BTreeSet;
use std::fmt;

use comfy_table::{CellAlignment, Table, TableComponent, presets};

use super::report::{CounterMap, Counters, Report};
use crate::number::{Grouped, plural};

/// A row: its label and the name of the counter.
type Line = (&'static str, &'static str);

const USUAL: [Line; 8] = [
    ("received, frames", "received"),
    ("  bytes", "received_bytes"),
    ("to the host, packets", "to_host"),
    ("  bytes", "to_host_bytes"),
    ("from the host, frames", "from_host"),
    ("  bytes", "from_host_bytes"),
    ("sent, packets", "transmitted"),
    ("  bytes", "transmitted_bytes"),
];

/// Rows that are omitted if 0.
const RARE: [Line; 5] = [
    ("to other workers", "distributed"),
    ("with pending offloads", "receive_unfinished"),
    ("  packets after segmentation", "receive_finished"),
    ("aggregates passed as segments", "taken_apart"),
    ("ACKs not sent", "acks_dropped"),
];

/// A formatted report.
pub(super) struct Text<'a>(pub(super) &'a Report);

impl Text<'_> {
    /// Iterates over the total and, if there are several, the queues.
    fn columns(&self) -> impl Iterator<Item = &Counters> {
        let queues = if self.0.queues.len() > 1 { &self.0.queues[..] } else { &[] };
        std::iter::once(&self.0.total).chain(queues)
    }

    fn row(&self, name: &str, value: impl Fn(&Counters) -> String) -> Vec<String> {
        std::iter::once(name.to_owned()).chain(self.columns().map(value)).collect()
    }

    fn counts(&self, lines: &[Line]) -> Vec<Vec<String>> {
        let row = |(name, key): &Line| self.row(name, |of| Grouped(of.card.get(key)).to_string());
        lines.iter().map(row).collect()
    }

    /// Returns a row for each name that occurs.
    fn named(&self, what: &str, of: impl Fn(&Counters) -> &CounterMap) -> Vec<Vec<String>> {
        let names: BTreeSet<&str> = of(&self.0.total).iter().map(|(name, _)| name).collect();
        let row = |name: &&str| {
            self.row(&format!("{what}: {name}"), |queue| Grouped(of(queue).get(name)).to_string())
        };
        names.iter().map(row).collect()
    }

    fn lost(&self) -> Vec<Vec<String>> {
        let count = |of: &Counters, reason: &str| {
            let found = of.lost().find(|(name, _)| name == reason);
            Grouped(found.map_or(0, |(_, count)| count)).to_string()
        };
        let row = |(reason, _): (String, u64)| self.row(&format!("lost: {reason}"), |of| count(of, &reason));
        self.0.total.lost().map(row).collect()
    }
}

/// Returns the mean length of packets to the host, in bytes.
pub(super) fn bytes_per_packet(of: &Counters) -> f64 {
    of.card.get("to_host_bytes") as f64 / of.card.get("to_host").max(1) as f64
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { card, uptime_s, not_captured, total, .. } = self.0;
        writeln!(
            f,
            "{} on {} by {}, profile {}, up for {uptime_s:.1} s",
            card.host, card.wire, card.backend, card.profile
        )?;
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_style(TableComponent::HeaderLines, '─');
        let queues = (0..self.columns().count() - 1).map(|nth| format!("queue {nth}"));
        table.set_header(["".into(), "total".into()].into_iter().chain(queues));
        table.add_rows(self.counts(&USUAL));
        table.add_row(self.row("bytes a packet to the host", |of| format!("{:.0}", bytes_per_packet(of))));
        table.add_row(self.row("flows now", |of| Grouped(of.connections).to_string()));
        let rare: Vec<Line> = RARE.into_iter().filter(|(_, key)| total.card.get(key) > 0).collect();
        table.add_rows(self.counts(&rare));
        table.add_rows(self.named("flushed", |of| &of.engine.flush_reasons));
        table.add_rows(self.named("passed", |of| &of.engine.passes));
        table.add_rows(self.lost());
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(f, "{}", table.trim_fmt())?;
        if *not_captured > 0 {
            writeln!(f, "{} missing in the captures", plural(*not_captured, "packet is", "packets are"))?;
        }
        Ok(())
    }
}
