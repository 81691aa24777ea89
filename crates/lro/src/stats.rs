//! Counters that every profile keeps.

use std::fmt;
use std::marker::PhantomData;

use crate::reason::{DropReason, FlushReason, PassReason, Reason};

/// One counter for each reason of a kind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Counts<R> {
    counts: [u64; 24],
    kind: PhantomData<R>,
}

impl<R: Reason> Counts<R> {
    const FITS: () = assert!(R::ALL.len() <= 24);

    #[inline]
    pub(crate) fn count(&mut self, reason: R) {
        self.counts[reason.position()] += 1;
    }

    /// How often this reason occurred.
    pub fn get(&self, reason: R) -> u64 {
        self.counts[reason.position()]
    }

    /// All reasons together.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The reasons that occurred, by name, in a stable order.
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

/// What an engine has done since it was made. Every frame that came in is counted once more as passed, dropped, or a
/// segment of something flushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames received.
    pub packets_in: u64,
    /// Bytes of the frames received.
    pub bytes_in: u64,
    /// Packets handed to the host: aggregates and frames.
    pub packets_out: u64,
    /// Bytes of the packets handed to the host.
    pub bytes_out: u64,
    /// TCP payload bytes of the well-formed segments received.
    pub tcp_payload_bytes_in: u64,
    /// TCP payload bytes of the segments handed to the host.
    pub tcp_payload_bytes_out: u64,
    /// Packets handed to the host that were merged from two segments or more.
    pub aggregates: u64,
    /// Segments in those.
    pub segments_aggregated: u64,
    /// Acknowledgements sent to the wire (active ACK).
    pub acks_sent: u64,
    /// Why what was held was handed to the host.
    pub flushes: Counts<FlushReason>,
    /// Why frames were passed on untouched.
    pub passes: Counts<PassReason>,
    /// Why frames were dropped.
    pub drops: Counts<DropReason>,
}

impl Statistics {
    /// Segments per aggregate, 0 where there is no aggregate.
    pub fn mean_segments_per_aggregate(&self) -> f64 {
        if self.aggregates == 0 { 0.0 } else { self.segments_aggregated as f64 / self.aggregates as f64 }
    }
}
