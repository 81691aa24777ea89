//! Sums of several engines' counters.

use nichrome_lro::{Counts, PassReason, Reason, Statistics};
use serde::ser::{Serialize, Serializer};

/// Non-zero counts by name, in the order of their reasons.
#[derive(Clone, Debug)]
pub(super) struct NonZeroCounts(Vec<(&'static str, u64)>);

impl NonZeroCounts {
    fn of<R: Reason>() -> Self {
        Self(R::ALL.iter().map(|reason| (reason.name(), 0)).collect())
    }

    fn add<R: Reason>(&mut self, counts: &Counts<R>) {
        for ((_, sum), reason) in self.0.iter_mut().zip(R::ALL) {
            *sum += counts.get(*reason);
        }
    }

    fn increment(&mut self, reason: impl Reason) {
        let counts = self.0.iter_mut().filter(|(name, _)| *name == reason.name());
        counts.for_each(|(_, count)| *count += 1);
    }

    /// Returns the count of a reason.
    pub(super) fn get(&self, reason: impl Reason) -> u64 {
        self.iter().find(|(name, _)| *name == reason.name()).map_or(0, |(_, count)| count)
    }

    /// Iterates over the non-zero counts.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().copied().filter(|(_, count)| *count > 0)
    }
}

impl Serialize for NonZeroCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// The totals of all engines of a run.
pub(super) struct Counters {
    /// Plain counters; the counts by reason are not included.
    pub(super) sums: Statistics,
    pub(super) flushes: NonZeroCounts,
    pub(super) passes: NonZeroCounts,
    pub(super) drops: NonZeroCounts,
    /// Packets that `--filter` excluded.
    pub(super) filtered: u64,
    /// Packets that the capture's snap length cut.
    pub(super) snapped: u64,
    /// Engines that were flushed and replaced: there were more interfaces than engines.
    pub(super) replaced_engines: u64,
}

impl Counters {
    pub(super) fn new() -> Self {
        use nichrome_lro::{DropReason, FlushReason};
        Self {
            sums: Statistics::default(),
            flushes: NonZeroCounts::of::<FlushReason>(),
            passes: NonZeroCounts::of::<PassReason>(),
            drops: NonZeroCounts::of::<DropReason>(),
            filtered: 0,
            snapped: 0,
            replaced_engines: 0,
        }
    }

    /// Counts a packet of this length that is passed without an engine: it is not IP.
    pub(super) fn pass_by(&mut self, bytes: u64) {
        let sums = &mut self.sums;
        for (sum, count) in [
            (&mut sums.packets_in, 1),
            (&mut sums.packets_out, 1),
            (&mut sums.bytes_in, bytes),
            (&mut sums.bytes_out, bytes),
        ] {
            *sum += count;
        }
        self.passes.increment(PassReason::NotTcp);
    }

    /// Adds an engine's counters.
    pub(super) fn add(&mut self, engine: &Statistics) {
        let sums = &mut self.sums;
        for (sum, count) in [
            (&mut sums.packets_in, engine.packets_in),
            (&mut sums.bytes_in, engine.bytes_in),
            (&mut sums.packets_out, engine.packets_out),
            (&mut sums.bytes_out, engine.bytes_out),
            (&mut sums.tcp_payload_bytes_in, engine.tcp_payload_bytes_in),
            (&mut sums.tcp_payload_bytes_out, engine.tcp_payload_bytes_out),
            (&mut sums.aggregates, engine.aggregates),
            (&mut sums.segments_aggregated, engine.segments_aggregated),
            (&mut sums.acks_sent, engine.acks_sent),
        ] {
            *sum += count;
        }
        self.flushes.add(&engine.flushes);
        self.passes.add(&engine.passes);
        self.drops.add(&engine.drops);
    }
}
