//! Rates between two reports.

use std::collections::BTreeMap;

use super::super::report::{Counters, Report};
use crate::number::Grouped;

/// The interval between two reports of a card.
pub(super) struct Interval<'a> {
    pub(super) before: &'a Report,
    pub(super) after: &'a Report,
}

/// Rates of a queue, or of all.
pub(super) struct Rates<'a> {
    before: &'a Counters,
    after: &'a Counters,
    seconds: f64,
}

/// Heading and content of a column.
type Column = (&'static str, fn(&Rates<'_>) -> String);

pub(super) const COLUMNS: [Column; 9] = [
    ("in/s", |of| of.count("received")),
    ("Gb/s", |of| of.gbps("received_bytes")),
    ("to host/s", |of| of.count("to_host")),
    ("bytes each", |of| format!("{:.0}", of.bytes_per_packet())),
    ("from host/s", |of| of.count("from_host")),
    ("out/s", |of| of.count("transmitted")),
    ("Gb/s", |of| of.gbps("transmitted_bytes")),
    ("flows", |of| Grouped(of.after.connections).to_string()),
    ("lost/s", |of| grouped(of.lost().into_values().sum())),
];

impl<'a> Interval<'a> {
    pub(super) fn total(&self) -> Rates<'a> {
        self.rates(&self.before.total, &self.after.total)
    }

    pub(super) fn queues(&self) -> impl Iterator<Item = Rates<'a>> {
        let pairs = self.before.queues.iter().zip(&self.after.queues);
        pairs.map(|(before, after)| self.rates(before, after))
    }

    fn rates(&self, before: &'a Counters, after: &'a Counters) -> Rates<'a> {
        let seconds = (self.after.uptime_s - self.before.uptime_s).max(f64::MIN_POSITIVE);
        Rates { before, after, seconds }
    }
}

impl Rates<'_> {
    fn per_second(&self, counts: impl Fn(&Counters) -> u64) -> f64 {
        // A restarted card has lower counters.
        counts(self.after).saturating_sub(counts(self.before)) as f64 / self.seconds
    }

    fn count(&self, name: &str) -> String {
        grouped(self.per_second(|of| of.card.get(name)))
    }

    fn gbps(&self, name: &str) -> String {
        format!("{:.2}", self.per_second(|of| of.card.get(name)) * 8.0 / 1e9)
    }

    fn bytes_per_packet(&self) -> f64 {
        let packets = self.per_second(|of| of.card.get("to_host"));
        if packets == 0.0 { 0.0 } else { self.per_second(|of| of.card.get("to_host_bytes")) / packets }
    }

    /// Returns losses per second, by reason.
    pub(super) fn lost(&self) -> BTreeMap<String, f64> {
        self.changes(|of| of.lost().collect())
    }

    /// Returns flushes and passed frames per second, by reason.
    pub(super) fn reasons(&self) -> BTreeMap<String, f64> {
        self.changes(|of| {
            let flushes =
                of.engine.flush_reasons.iter().map(|(name, count)| (format!("flushed: {name}"), count));
            let passes = of.engine.passes.iter().map(|(name, count)| (format!("passed: {name}"), count));
            flushes.chain(passes).collect()
        })
    }

    /// Returns the counts that changed, per second.
    fn changes(&self, counts: impl Fn(&Counters) -> BTreeMap<String, u64>) -> BTreeMap<String, f64> {
        let before = counts(self.before);
        let change = |(name, after): (String, u64)| {
            let change = after.saturating_sub(before.get(&name).copied().unwrap_or(0));
            (change > 0).then(|| (name, change as f64 / self.seconds))
        };
        counts(self.after).into_iter().filter_map(change).collect()
    }
}

/// Formats a rate without fraction.
pub(super) fn grouped(rate: f64) -> String {
    Grouped(rate.round() as u64).to_string()
}
