//! Losses that no later packet shows, between two ends of ours.
//!
//! The last packet of a burst, or the news of a gap, may be lost. The timer of the verbs is set by programs and is long;
//! where the peer repeats single packets, a few round trips without progress are enough to send the oldest packet again
//! (as RFC 8985 section 7 does for TCP). It costs one packet, and each next one comes after twice the time.

use nichrome_wire::Instant;
use nichrome_wire::rdma::Psn;

/// Round trips without progress before the oldest packet is sent again.
const ROUND_TRIPS: u64 = 4;

/// It is not sent again earlier than so many nanoseconds: programs do not always have the processor.
const FLOOR: u64 = 500_000;

/// How long answers take, and when the oldest packet is to be sent again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Probe {
    /// The peer repeats single packets: probes are of use.
    pub(super) useful: bool,
    /// A packet whose answer is being timed.
    timed: Option<(Psn, Instant)>,
    /// Smoothed round trip in nanoseconds (RFC 6298 section 2), once there is one.
    round_trip: Option<u64>,
    /// Probes since the last progress.
    sent: u32,
    pub(super) due: Option<Instant>,
}

impl Probe {
    /// A packet that asks for an acknowledgement was sent for the first time.
    #[inline]
    pub(super) fn packet_sent(&mut self, psn: Psn, now: Instant) {
        self.timed.get_or_insert((psn, now));
    }

    /// Something was repeated: what is acknowledged next may be either (Karn's rule).
    pub(super) fn repeated(&mut self) {
        self.timed = None;
    }

    /// All before `unacked` is acknowledged; whether anything is outstanding.
    #[inline]
    pub(super) fn progress(&mut self, unacked: Psn, outstanding: u32, now: Instant) {
        if let Some((psn, sent)) = self.timed
            && psn.before(unacked)
        {
            let sample = now.nanos_since(sent);
            let smoothed = self.round_trip.map_or(sample, |before| before - before / 8 + sample / 8);
            (self.round_trip, self.timed) = (Some(smoothed), None);
        }
        self.sent = 0;
        self.restart(outstanding, now);
    }

    /// Time without progress counts from now.
    #[inline]
    pub(super) fn restart(&mut self, outstanding: u32, now: Instant) {
        let wait = self.round_trip.map(|time| (ROUND_TRIPS * time).max(FLOOR) << self.sent.min(16));
        self.due = wait.filter(|_| self.useful && outstanding > 0).map(|wait| now.plus_nanos(wait));
    }

    /// A probe is to be sent.
    pub(super) fn fired(&mut self, outstanding: u32, now: Instant) {
        self.repeated();
        self.sent += 1;
        self.restart(outstanding, now);
    }
}
