//! Probes: retransmit the oldest packet after a few round trips without an answer, between two ends of this
//! crate.
//!
//! The last packet of a burst, or a NAK, may be lost, and no later packet shows it. The retransmission timer
//! is set by programs and is long; with a peer that accepts single retransmissions, the requester retransmits
//! the oldest packet after a few round trips without progress (as RFC 8985 section 7 does for TCP). A probe
//! costs one packet, for a READ also its responses from there on. The wait doubles with each probe.

use nichrome_wire::Instant;
use nichrome_wire::rdma::Psn;

/// Round trips without progress before a probe.
const ROUND_TRIPS: u64 = 4;

/// Minimum nanoseconds before a probe: the peer's program may be waiting for a processor.
const FLOOR: u64 = 500_000;

/// The round-trip time, and when the next probe is due.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Probe {
    /// The peer offers selective repeat.
    pub(super) useful: bool,
    /// A packet whose answer is being timed.
    timed: Option<(Psn, Instant)>,
    /// Smoothed round trip in nanoseconds (RFC 6298 section 2), once there is one.
    round_trip: Option<u64>,
    /// Probes since a packet was last acknowledged without a probe. Each doubles the wait (RFC 6298 section
    /// 5).
    sent: u32,
    /// A packet that was first sent after the last probe.
    unprobed: Option<Psn>,
    pub(super) due: Option<Instant>,
}

impl Probe {
    /// Records the first transmission of a packet that requests an acknowledgement.
    #[inline]
    pub(super) fn packet_sent(&mut self, psn: Psn, now: Instant) {
        self.timed.get_or_insert((psn, now));
        self.unprobed.get_or_insert(psn);
    }

    /// Records a retransmission: the next acknowledgement may be of either copy (Karn's rule).
    pub(super) fn repeated(&mut self) {
        self.timed = None;
    }

    /// Records that all packets before `unacked` are acknowledged, and `outstanding` packets are not.
    #[inline]
    pub(super) fn progress(&mut self, unacked: Psn, outstanding: u32, now: Instant) {
        if let Some((psn, sent)) = self.timed
            && psn.before(unacked)
        {
            let sample = now.nanos_since(sent);
            let smoothed = self.round_trip.map_or(sample, |before| before - before / 8 + sample / 8);
            (self.round_trip, self.timed) = (Some(smoothed), None);
        }
        if self.unprobed.is_some_and(|psn| psn.before(unacked)) {
            (self.unprobed, self.sent) = (None, 0);
        }
        self.restart(outstanding, now);
    }

    /// Restarts the probe timer.
    #[inline]
    pub(super) fn restart(&mut self, outstanding: u32, now: Instant) {
        let wait = self.round_trip.map(|time| (ROUND_TRIPS * time).max(FLOOR) << self.sent.min(16));
        self.due = wait.filter(|_| self.useful && outstanding > 0).map(|wait| now.plus_nanos(wait));
    }

    /// Records that a probe is sent.
    pub(super) fn fired(&mut self, outstanding: u32, now: Instant) {
        self.repeated();
        self.unprobed = None;
        self.sent += 1;
        self.restart(outstanding, now);
    }
}
