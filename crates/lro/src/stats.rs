//! The counters of the engines.

use std::fmt;
use std::marker::PhantomData;

use crate::reason::{DropReason, FlushReason, PassReason, Reason};

/// One counter per reason.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Counts<R> {
    counts: [u64; 24],
    kind: PhantomData<R>,
}

impl<R: Reason> Counts<R> {
    const FITS: () = assert!(R::ALL.len() <= 24);

    #[inline]
    pub(crate) fn count(&mut self, reason: R) {
        self.count_several(reason, 1);
    }

    #[inline]
    pub(crate) fn count_several(&mut self, reason: R, times: u64) {
        self.counts[reason.position()] += times;
    }

    /// Returns how often a reason occurred.
    pub fn get(&self, reason: R) -> u64 {
        self.counts[reason.position()]
    }

    /// Returns the sum over all reasons.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the reasons that occurred, by name, in a stable order.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        R::ALL.iter().map(|reason| (reason.name(), self.get(*reason))).filter(|(_, count)| *count > 0)
    }
}

impl<R: Reason> Default for Counts<R> {
    fn default() -> Self {
        let () = Self::FITS;
        Self { counts: [0; 24], kind: PhantomData }
    }
}

impl<R: Reason> fmt::Debug for Counts<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.named()).finish()
    }
}

/// The counters of an engine since its creation. Every received frame is also counted once as passed, as
/// dropped, or as a segment of a flushed packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames received.
    pub packets_in: u64,
    /// Packets handed to the host: aggregates and frames.
    pub packets_out: u64,
    /// Bytes of the frames received.
    pub bytes_in: u64,
    /// Bytes of the packets handed to the host.
    pub bytes_out: u64,
    /// TCP payload bytes of the well-formed segments received.
    pub tcp_payload_bytes_in: u64,
    /// TCP payload bytes of the segments handed to the host.
    pub tcp_payload_bytes_out: u64,
    /// Acknowledgements sent to the wire (active ACK).
    pub acks_sent: u64,
    /// Packets handed to the host that were merged from two segments or more.
    pub aggregates: u64,
    /// Segments in these aggregates.
    pub segments_aggregated: u64,
    /// Why held segments were delivered to the host.
    pub flushes: Counts<FlushReason>,
    /// Why frames passed unchanged.
    pub passes: Counts<PassReason>,
    /// Why frames were dropped.
    pub drops: Counts<DropReason>,
}

impl Statistics {
    /// Returns the mean number of segments per aggregate; 0 without aggregates.
    pub fn mean_segments_per_aggregate(&self) -> f64 {
        if self.aggregates == 0 { 0.0 } else { self.segments_aggregated as f64 / self.aggregates as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reasons_that_occurred_are_named() {
        let mut passes = Counts::<PassReason>::default();
        for reason in [PassReason::Fragment, PassReason::NotTcp, PassReason::NotTcp] {
            passes.count(reason);
        }
        let mut named: Vec<_> = passes.named().collect();
        named.sort_by_key(|(_, count)| *count);
        assert_eq!(named, [(PassReason::Fragment.name(), 1), (PassReason::NotTcp.name(), 2)]);
        assert_eq!(passes.total(), 3);
    }

    #[test]
    fn the_mean_is_per_aggregate() {
        let statistics = Statistics { aggregates: 4, segments_aggregated: 10, ..Statistics::default() };
        assert_eq!(statistics.mean_segments_per_aggregate(), 2.5);
        assert_eq!(Statistics::default().mean_segments_per_aggregate(), 0.0);
    }
}
