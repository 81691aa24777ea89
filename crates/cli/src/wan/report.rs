//! The results of one direction of a live path.

use std::time::Duration;

use nichrome_wan::{DelayHistogram, Impairments, Stats};
use nichrome_wire::Instant;

use crate::bins::Bins;

/// Measurements outside the path engine: real departure times, and events at the devices.
#[derive(Clone, Default)]
pub(crate) struct Measured {
    /// Packets that the other device accepted.
    pub(crate) packets: u64,
    /// Bytes of these, including link headers.
    pub(crate) bytes: u64,
    /// Scheduled delay of these packets.
    pub(crate) scheduled: DelayHistogram,
    /// Delay of these packets, from the timestamp of reading to that of writing.
    pub(crate) delay: DelayHistogram,
    /// Measured minus scheduled delay of these packets.
    pub(crate) error: DelayHistogram,
    /// Frames that could not be segmented, and so did not enter the path.
    pub(crate) malformed: u64,
    /// Packets that the other device refused.
    pub(crate) refused: u64,
    /// ICMP errors sent for packets that exceeded the MTU.
    pub(crate) too_big_sent: u64,
    /// Packets missing in the capture because it was too slow.
    pub(crate) not_captured: u64,
    /// Bytes received and sent over time.
    pub(crate) bins: Bins,
    /// Time of the first packet's arrival and of the last one's departure.
    pub(crate) span: Option<(Instant, Instant)>,
}

impl Measured {
    /// Counts packets of `bytes` bytes in total that arrived at `now`.
    pub(crate) fn received(&mut self, bytes: usize, now: Instant) {
        self.bins.at(now).before += bytes as u64;
        self.span.get_or_insert((now, now)).1 = now;
    }

    /// Counts packets of `bytes` bytes in total that were written at `now`.
    pub(crate) fn sent(&mut self, packets: usize, bytes: usize, now: Instant) {
        self.packets += packets as u64;
        self.bytes += bytes as u64;
        self.bins.at(now).after += bytes as u64;
        self.span.get_or_insert((now, now)).1 = now;
    }

    /// Records the delay of a packet that was written at `now`.
    pub(crate) fn delayed(&mut self, arrived: Instant, due: Instant, now: Instant) {
        self.scheduled.record(due - arrived);
        self.delay.record(now - arrived);
        self.error.record(now - due);
    }
}

/// The results of a direction.
#[derive(Clone)]
pub(crate) struct Report {
    /// Current impairments.
    pub(crate) impairments: Impairments,
    pub(crate) stats: Stats,
    /// Packets in flight.
    pub(crate) in_flight: u64,
    pub(crate) measured: Measured,
    /// Time that the thread was runnable and waited for a CPU; `None` if unknown.
    pub(crate) waited: Option<Duration>,
}

impl Report {
    /// Returns the time from the first packet's arrival to the last one's departure.
    pub(crate) fn duration(&self) -> Duration {
        self.measured.span.map_or(Duration::ZERO, |(first, last)| last - first)
    }

    /// Returns the throughput in Gbit/s.
    pub(crate) fn gbps(&self) -> f64 {
        let seconds = self.duration().as_secs_f64();
        if seconds == 0.0 { 0.0 } else { self.measured.bytes as f64 * 8.0 / seconds / 1e9 }
    }
}
