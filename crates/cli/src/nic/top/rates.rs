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
    /// `None`: the card was started after the first report.
    before: Option<&'a Counters>,
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
        self.rates(Some(&self.before.total), &self.after.total)
    }

    pub(super) fn queues(&self) -> impl Iterator<Item = Rates<'a>> {
        let queues = self.after.queues.iter().enumerate();
        queues.map(|(number, after)| self.rates(self.before.queues.get(number), after))
    }

    fn rates(&self, before: Option<&'a Counters>, after: &'a Counters) -> Rates<'a> {
        // A restarted card may have the same process ID: a container assigns the same IDs each time.
        let is_same =
            self.before.card.pid == self.after.card.pid && self.before.uptime_s <= self.after.uptime_s;
        let since = if is_same { self.before.uptime_s } else { 0.0 };
        let seconds = (self.after.uptime_s - since).max(f64::MIN_POSITIVE);
        Rates { before: before.filter(|_| is_same), after, seconds }
    }
}

impl Rates<'_> {
    fn per_second(&self, counts: impl Fn(&Counters) -> u64) -> f64 {
        counts(self.after).saturating_sub(self.before.map_or(0, &counts)) as f64 / self.seconds
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
        let before = self.before.map(&counts).unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns the report of a card with a queue for each of these numbers of received frames.
    fn report(pid: u32, uptime_s: f64, received: &[u64]) -> Report {
        let counters = |received: u64| {
            let engine = json!({"flush_reasons": {}, "passes": {}, "drops": {"duplicate": received}});
            json!({"received": received, "connections": 0, "wire": {}, "engine": engine})
        };
        let report = json!({
            "wire": "w0", "host": "h0", "backend": "packet", "profile": "gro", "host_queues": 1, "pid": pid,
            "uptime_s": uptime_s, "not_captured": 0, "total": counters(received.iter().sum()),
            "queues": received.iter().map(|received| counters(*received)).collect::<Value>(),
        });
        serde_json::from_value(report).unwrap()
    }

    /// Returns the received frames a second of all queues, and of each.
    fn received(before: &Report, after: &Report) -> (String, Vec<String>) {
        let interval = Interval { before, after };
        (interval.total().count("received"), interval.queues().map(|queue| queue.count("received")).collect())
    }

    #[test]
    fn rates_are_changes_by_time() {
        let (before, after) = (report(7, 10.0, &[100, 40]), report(7, 12.0, &[300, 40]));
        assert_eq!(received(&before, &after), ("100".into(), vec!["100".into(), "0".into()]));
        assert_eq!(Interval { before: &before, after: &after }.total().lost()["engine duplicate"], 100.0);
    }

    #[test]
    fn the_rates_of_a_card_that_was_started_meanwhile_are_those_since_its_start() {
        let after = report(8, 0.5, &[60, 10]);
        for before in [report(7, 0.1, &[50]), report(8, 1000.0, &[50])] {
            assert_eq!(received(&before, &after), ("140".into(), vec!["120".into(), "20".into()]));
            assert_eq!(Interval { before: &before, after: &after }.total().lost()["engine duplicate"], 140.0);
        }
    }
}
