//! What a direction of a live path has done.

use std::time::Duration;

use nichrome_wan::{DelayHistogram, Impairments, Stats};
use nichrome_wire::Instant;

use crate::bins::Bins;

/// What the path itself does not know: how late packets really left, and what happened at the devices.
#[derive(Clone, Default)]
pub(crate) struct Given {
    /// From each packet's stamp when it was read to that after it was written.
    pub(crate) delay: DelayHistogram,
    /// How much later than asked that is.
    pub(crate) error: DelayHistogram,
    /// Frames that cannot be cut, so that they were never on a wire.
    pub(crate) malformed: u64,
    /// Packets that the other device did not take.
    pub(crate) refused: u64,
    /// Answers to those whose packets were too long.
    pub(crate) told: u64,
    /// Packets that the capture was too slow for.
    pub(crate) not_captured: u64,
    /// Bytes that came in and went out over time.
    pub(crate) bins: Bins,
    /// When the first packet arrived and the last one left.
    pub(crate) span: Option<(Instant, Instant)>,
}

impl Given {
    /// Counts packets of `bytes` bytes together, which arrived at `now`.
    pub(crate) fn received(&mut self, bytes: usize, now: Instant) {
        self.bins.at(now).before += bytes as u64;
        self.span.get_or_insert((now, now)).1 = now;
    }

    /// Counts a packet that was written at `now`.
    pub(crate) fn sent(&mut self, bytes: usize, now: Instant) {
        self.bins.at(now).after += bytes as u64;
        self.span.get_or_insert((now, now)).1 = now;
    }

    /// Counts the delay of a packet that was written at `now`.
    pub(crate) fn delayed(&mut self, arrived: Instant, due: Instant, now: Instant) {
        self.delay.record(now - arrived);
        self.error.record(now - due);
    }
}

/// All that is known of a direction.
#[derive(Clone)]
pub(crate) struct Report {
    /// What is asked of it now.
    pub(crate) impairments: Impairments,
    pub(crate) stats: Stats,
    /// Packets on their way.
    pub(crate) in_flight: u64,
    pub(crate) given: Given,
    /// How long it was ready to run and had to wait for a processor; `None` where that is not known.
    pub(crate) waited: Option<Duration>,
}

impl Report {
    /// From the first packet's arrival to the last one's leaving.
    pub(crate) fn duration(&self) -> Duration {
        self.given.span.map_or(Duration::ZERO, |(first, last)| last - first)
    }

    /// Bytes that left per time, in Gbit/s.
    pub(crate) fn gbps(&self) -> f64 {
        let seconds = self.duration().as_secs_f64();
        if seconds == 0.0 { 0.0 } else { self.stats.bytes_out as f64 * 8.0 / seconds / 1e9 }
    }
}
