//! The retransmission timer.
//!
//! A probe retransmits one packet after a few round trips without an answer. The timeout and retry count are
//! the queue pair's, as on RoCE: without progress for all of them, the work fails.

use nichrome_wire::Instant;

use crate::core::counters::Counters;
use crate::core::queue_pair::Settings;

/// Round trips without an answer before a probe.
const ROUND_TRIPS: u64 = 4;

/// Shortest time before a probe, in nanoseconds: covers the peer's scheduling delays.
const FLOOR: u64 = 500_000;

/// The round trip that is assumed before the first sample, in nanoseconds: on a new connection packets may
/// wait behind those of many others, and a probe would be one more.
const UNKNOWN: u64 = 2_000_000;

/// The retransmission timer of one kind of packet on one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RetransmissionTimer {
    /// Smoothed round trip in nanoseconds (RFC 6298 section 2); `None` before the first sample.
    round_trip: Option<u64>,
    /// Variation of the round trip in nanoseconds (RFC 6298 section 2).
    variation: u64,
    /// Probes since the last progress.
    probes: u32,
    /// Timeouts since the last progress.
    timeouts: u8,
    probe: Option<Instant>,
    deadline: Option<Instant>,
}

/// The action that an expired timer requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    /// Retransmit the oldest packet.
    Probe,
    /// Retransmit all packets.
    Timeout,
    /// The retries are used up: the work fails.
    Exhausted,
}

impl Expiry {
    pub(super) fn count(self, counters: &mut Counters) {
        match self {
            Self::Probe => counters.probes += 1,
            Self::Timeout | Self::Exhausted => counters.timeouts += 1,
        }
    }
}

/// The event that the timer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    Nothing,
    /// An immediate answer to a packet: probes and timeouts.
    Answer,
    /// A sign of life while the peer works: timeouts only.
    Liveness,
}

impl RetransmissionTimer {
    /// Adds a round-trip sample in nanoseconds.
    pub(super) fn sample(&mut self, nanos: u64) {
        let Some(before) = self.round_trip else {
            (self.round_trip, self.variation) = (Some(nanos), nanos / 2);
            return;
        };
        self.variation = self.variation - self.variation / 4 + before.abs_diff(nanos) / 4;
        self.round_trip = Some(before - before / 8 + nanos / 8);
    }

    /// Two round trips and four times their variation, in nanoseconds.
    pub(super) fn spread(&self) -> u64 {
        self.round_trip.map_or(2 * UNKNOWN, |round_trip| 2 * round_trip + 4 * self.variation)
    }

    /// Smoothed round trip in nanoseconds.
    pub(super) fn round_trip(&self) -> Option<u64> {
        self.round_trip
    }

    /// Returns the nanoseconds without an answer until the first probe.
    pub(super) fn patience(&self) -> u64 {
        (ROUND_TRIPS * self.round_trip.unwrap_or(UNKNOWN)).max(FLOOR)
    }

    /// Resets the retry counts and restarts the timer.
    pub(super) fn progress(&mut self, awaited: Awaited, settings: &Settings, now: Instant) {
        (self.probes, self.timeouts) = (0, 0);
        self.stop();
        self.start(awaited, settings, now);
    }

    /// Starts the timer unless it runs.
    pub(super) fn start(&mut self, awaited: Awaited, settings: &Settings, now: Instant) {
        match awaited {
            Awaited::Nothing => self.stop(),
            Awaited::Answer => {
                self.probe.get_or_insert(now.plus_nanos(self.patience() << self.probes.min(16)));
                self.start_deadline(settings, now);
            }
            Awaited::Liveness => {
                self.probe = None;
                self.start_deadline(settings, now);
            }
        }
    }

    /// Starts the timeout; 0 disables it.
    fn start_deadline(&mut self, settings: &Settings, now: Instant) {
        if self.deadline.is_none() && settings.timeout > 0 {
            let wait = settings.retry_timeout(self.timeouts);
            self.deadline = Some(now.plus_nanos(wait));
        }
    }

    pub(super) fn stop(&mut self) {
        (self.probe, self.deadline) = (None, None);
    }

    /// Returns the deadline of the probe or timeout.
    pub(super) fn due(&self) -> Option<Instant> {
        [self.probe, self.deadline].into_iter().flatten().min()
    }

    /// Returns the timeout that is due. The caller restarts the timer.
    pub(super) fn expire(&mut self, settings: &Settings, now: Instant) -> Option<Expiry> {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.stop();
            if self.timeouts >= settings.retry_count {
                return Some(Expiry::Exhausted);
            }
            self.timeouts += 1;
            return Some(Expiry::Timeout);
        }
        let due = self.probe.is_some_and(|probe| probe <= now);
        if due {
            self.probe = None;
            self.probes += 1;
        }
        due.then_some(Expiry::Probe)
    }
}
