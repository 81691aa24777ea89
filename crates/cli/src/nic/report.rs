//! The counters of a card. `--json` prints them: names are stable.

use std::collections::BTreeMap;
use std::iter::Sum;
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use nichrome_lro::{Counts, Reason, Statistics};
use nichrome_nic::{QueueStats, Remote};
use nichrome_port::WireStats;
use serde::{Deserialize, Serialize};

/// The properties of a card.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Identity {
    pub(super) wire: String,
    pub(super) host: String,
    /// Backend of the wire: `packet`, `xdp (native)`, `xdp (generic)` or `tap`.
    pub(super) backend: String,
    pub(super) profile: String,
    pub(super) host_queues: usize,
    pub(super) pid: u32,
}

/// The properties and counters of a card.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Report {
    #[serde(flatten)]
    pub(super) card: Identity,
    /// Time since the card's start, in seconds.
    pub(super) uptime_s: f64,
    /// Packets missing in the captures.
    pub(super) not_captured: u64,
    pub(super) total: Counters,
    pub(super) queues: Vec<Counters>,
}

/// Counts by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct CounterMap(BTreeMap<String, u64>);

/// Counters of one queue, or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counters {
    #[serde(flatten)]
    pub(super) card: CounterMap,
    /// Current flows of its engine.
    pub(super) connections: u64,
    /// The kernel's counters.
    pub(super) wire: CounterMap,
    pub(super) engine: EngineCounters,
}

/// Counters of an engine, with the names of `nichrome coalesce --json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EngineCounters {
    #[serde(flatten)]
    pub(super) plain: CounterMap,
    pub(super) flush_reasons: CounterMap,
    pub(super) passes: CounterMap,
    pub(super) drops: CounterMap,
}

impl CounterMap {
    fn of<'a>(counts: impl IntoIterator<Item = (&'a str, u64)>) -> Self {
        Self(counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect())
    }

    fn reasons<R: Reason>(counts: &Counts<R>) -> Self {
        Self::of(counts.named())
    }

    /// Returns a count by name; 0 if it does not exist.
    pub(super) fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Iterates over all counts.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, count)| (name.as_str(), *count))
    }
}

impl AddAssign<&Self> for CounterMap {
    fn add_assign(&mut self, other: &Self) {
        for (name, count) in &other.0 {
            *self.0.entry(name.clone()).or_default() += count;
        }
    }
}

impl Counters {
    fn new(stats: &QueueStats) -> Self {
        Self {
            card: CounterMap::of(stats.named()),
            connections: stats.connections,
            wire: CounterMap::of(wire_counts(&stats.wire)),
            engine: EngineCounters {
                plain: CounterMap::of(engine_counts(&stats.engine)),
                flush_reasons: CounterMap::reasons(&stats.engine.flushes),
                passes: CounterMap::reasons(&stats.engine.passes),
                drops: CounterMap::reasons(&stats.engine.drops),
            },
        }
    }

    /// Iterates over lost packets by reason.
    pub(super) fn lost(&self) -> impl Iterator<Item = (String, u64)> {
        const LOST: [&str; 6] = [
            "distribution_dropped",
            "receive_malformed",
            "host_refused",
            "delivery_dropped",
            "transmit_malformed",
            "transmit_refused",
        ];
        const WIRE_LOST: [&str; 4] =
            ["receive_dropped", "receive_ring_full", "transmit_invalid", "transmit_dropped"];
        let card = LOST.map(|name| (name.to_owned(), self.card.get(name)));
        let wire = WIRE_LOST.map(|name| (format!("wire {name}"), self.wire.get(name)));
        let engine = self.engine.drops.iter().map(|(name, count)| (format!("engine {name}"), count));
        wire.into_iter().chain(card).chain(engine).filter(|(_, count)| *count > 0)
    }
}

impl<'a> Sum<&'a Counters> for Counters {
    fn sum<I: Iterator<Item = &'a Self>>(queues: I) -> Self {
        queues.fold(Self::default(), |mut sum, queue| {
            sum.card += &queue.card;
            sum.connections += queue.connections;
            sum.wire += &queue.wire;
            sum.engine.plain += &queue.engine.plain;
            sum.engine.flush_reasons += &queue.engine.flush_reasons;
            sum.engine.passes += &queue.engine.passes;
            sum.engine.drops += &queue.engine.drops;
            sum
        })
    }
}

fn wire_counts(wire: &WireStats) -> [(&'static str, u64); 7] {
    [
        ("receive_dropped", wire.receive_dropped),
        ("receive_ring_full", wire.receive_ring_full),
        ("fill_ring_empty", wire.fill_ring_empty),
        ("receive_invalid", wire.receive_invalid),
        ("freezes", wire.freezes),
        ("transmit_invalid", wire.transmit_invalid),
        ("transmit_dropped", wire.transmit_dropped),
    ]
}

fn engine_counts(engine: &Statistics) -> [(&'static str, u64); 9] {
    [
        ("packets_in", engine.packets_in),
        ("bytes_in", engine.bytes_in),
        ("packets_out", engine.packets_out),
        ("bytes_out", engine.bytes_out),
        ("tcp_payload_bytes_in", engine.tcp_payload_bytes_in),
        ("tcp_payload_bytes_out", engine.tcp_payload_bytes_out),
        ("aggregates", engine.aggregates),
        ("segments_aggregated", engine.segments_aggregated),
        ("acks_sent", engine.acks_sent),
    ]
}

/// Requests counters of a running card, from any thread.
#[derive(Clone)]
pub(super) struct Reporter {
    card: Identity,
    since: Instant,
    remote: Remote,
    not_captured: Arc<AtomicU64>,
}

impl Reporter {
    pub(super) fn new(card: Identity, remote: Remote, not_captured: Arc<AtomicU64>) -> Self {
        Self { card, since: Instant::now(), remote, not_captured }
    }

    /// Returns the card's counters; `None` once it has ended.
    pub(super) fn report(&self) -> Option<Report> {
        Some(self.of(&self.remote.stats()?))
    }

    /// Builds the report from the workers' counters.
    pub(super) fn of(&self, stats: &[QueueStats]) -> Report {
        let queues: Vec<Counters> = stats.iter().map(Counters::new).collect();
        Report {
            card: self.card.clone(),
            uptime_s: self.since.elapsed().as_secs_f64(),
            not_captured: self.not_captured.load(Ordering::Relaxed),
            total: queues.iter().sum(),
            queues,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_the_sum_of_the_queues_name_by_name() {
        let queue = |received, drops| Counters {
            card: CounterMap::of([("received", received), ("to_host", 1)]),
            engine: EngineCounters { drops: CounterMap::of(drops), ..EngineCounters::default() },
            ..Counters::default()
        };
        let queues = [queue(3, vec![("tcp_checksum", 2)]), queue(4, vec![("duplicate", 1)])];
        let total: Counters = queues.iter().sum();
        assert_eq!(total.card, CounterMap::of([("received", 7), ("to_host", 2)]));
        let lost: Vec<_> = total.lost().collect();
        assert_eq!(lost, [("engine duplicate".to_owned(), 1), ("engine tcp_checksum".to_owned(), 2)]);
    }

    #[test]
    fn counters_survive_being_sent() {
        let counters = Counters::new(&QueueStats { received: 5, ..QueueStats::default() });
        let text = serde_json::to_string(&counters).unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap()["received"], 5);
        assert_eq!(serde_json::from_str::<Counters>(&text).unwrap(), counters);
    }
}
