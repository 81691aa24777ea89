//! When something is sent again, and when the peer is given up.
//!
//! A probe comes after a few round trips without an answer and costs one packet. The timeout is the queue pair's own, as
//! on RoCE: so long without progress, so many times, and the work fails.

use nichrome_wire::Instant;

use crate::core::queue_pair::Settings;

/// Round trips without an answer before a probe.
const ROUND_TRIPS: u64 = 4;

/// No probe earlier than so many nanoseconds: programs do not always have the processor.
const FLOOR: u64 = 500_000;

/// Before the round trip is known, it is taken to be so many nanoseconds.
const UNKNOWN: u64 = 250_000;

/// The retransmission timer of one kind of packet on one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RetransmissionTimer {
    /// Smoothed round trip in nanoseconds (RFC 6298 section 2), once there is one.
    round_trip: Option<u64>,
    /// Probes since the last progress.
    probes: u32,
    /// Timeouts since the last progress.
    timeouts: u8,
    probe: Option<Instant>,
    deadline: Option<Instant>,
}

/// What a timer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    /// The oldest packet once more.
    Probe,
    /// Everything once more.
    Timeout,
    /// The peer is given up.
    GivenUp,
}

/// What there is to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    Nothing,
    /// Something that packets of ours bring about as soon as they arrive.
    Answer,
    /// Something that takes its time: the peer is only looked after.
    Life,
}

impl RetransmissionTimer {
    /// A packet that was sent once was answered after so many nanoseconds.
    pub(super) fn sample(&mut self, nanos: u64) {
        self.round_trip = Some(self.round_trip.map_or(nanos, |before| before - before / 8 + nanos / 8));
    }

    /// Smoothed round trip in nanoseconds.
    pub(super) fn round_trip(&self) -> Option<u64> {
        self.round_trip
    }

    /// Nanoseconds without an answer before the first probe.
    pub(super) fn patience(&self) -> u64 {
        (ROUND_TRIPS * self.round_trip.unwrap_or(UNKNOWN)).max(FLOOR)
    }

    /// There is progress.
    pub(super) fn progress(&mut self, awaited: Awaited, settings: &Settings, now: Instant) {
        (self.probes, self.timeouts) = (0, 0);
        self.stop();
        self.start(awaited, settings, now);
    }

    /// Time without progress counts from now, unless it does already.
    pub(super) fn start(&mut self, awaited: Awaited, settings: &Settings, now: Instant) {
        match awaited {
            Awaited::Nothing => self.stop(),
            Awaited::Answer => {
                self.probe.get_or_insert(now.plus_nanos(self.patience() << self.probes.min(16)));
                self.start_deadline(settings, now);
            }
            Awaited::Life => {
                self.probe = None;
                self.start_deadline(settings, now);
            }
        }
    }

    /// As on RoCE: up to four times as long without progress (IBA 9.7.6.1.3); none where the timeout is 0.
    fn start_deadline(&mut self, settings: &Settings, now: Instant) {
        if self.deadline.is_none() && settings.timeout > 0 {
            let wait = 4096u64 << (settings.timeout + self.timeouts.min(2));
            self.deadline = Some(now.plus_nanos(wait));
        }
    }

    /// Nothing is waited for.
    pub(super) fn stop(&mut self) {
        (self.probe, self.deadline) = (None, None);
    }

    /// When time alone changes something.
    pub(super) fn due(&self) -> Option<Instant> {
        [self.probe, self.deadline].into_iter().flatten().min()
    }

    /// What is due; the timer has to be started again then.
    pub(super) fn expire(&mut self, settings: &Settings, now: Instant) -> Option<Expiry> {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.stop();
            if self.timeouts >= settings.retry_count {
                return Some(Expiry::GivenUp);
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
