//! The state of one connection (lro-npu IV.A, IV.E).

use std::mem;

use nichrome_wire::{Instant, SeqNumber, instant};

use super::config::{NpuConfig, Rules};
use super::reorder::ReorderList;
use crate::recycle::Pooled;
use crate::run::{PooledRun, Run};

/// The bits of `near_and_breaks` that count near segments.
const NEAR: u8 = 3;
/// The unit in which `near_and_breaks` counts intervals above the hold limit.
const BREAK: u8 = NEAR + 1;

/// Upper bound of the bytes in a packet whose end is unknown: the maximum length of an IP packet.
pub(crate) const MAX_OPAQUE_LEN: u32 = 65_535;

/// The state of one connection towards the host; the table's key is its flow.
pub(crate) struct ConnectionDescriptor<B> {
    /// The sequence number after the consecutive payload that was buffered or delivered.
    pub(crate) nextseq: SeqNumber,
    /// A second sequence number at which the stream may continue: the end of the stream, while nextseq
    /// follows old segments before it (late segments of a gap that was given up), or the end of a segment far
    /// ahead.
    pub(crate) frontier: Option<SeqNumber>,
    /// The buffered consecutive payload, which ends at nextseq. Its numbers of segments and bytes are fields
    /// of the paper's descriptor.
    pub(crate) run: Option<PooledRun<B>>,
    /// The segments behind a gap, if any.
    pub(crate) waiting: Option<Pooled<ReorderList<B>>>,
    /// Average inter-arrival time in nanoseconds: the mean of the last interval and the previous average.
    average_interval: u64,
    /// Number of intervals above the hold limit in a row, up to the last interval.
    pauses: u8,
    /// Number of intervals above the hold limit since the last interval between a tenth of that limit and the
    /// limit.
    train_pauses: u8,
    /// Two counters. Bits 0 and 1 ([`NEAR`]): number of segments that arrived within the hold limit of the
    /// segment before, the first segment included, at most 2. The other bits, in units of [`BREAK`]: number
    /// of intervals above the hold limit in a row; intervals of 0, within a burst, do not end the row.
    near_and_breaks: u8,
    /// Number of bursts in a row that arrived after the connection had timed out. Begins at
    /// [`Self::TIMEOUTS`]: a short connection then needs no timer, and its first segments reach the host
    /// earlier.
    timed_out: u8,
    pub(crate) last_arrival: Instant,
    /// True while the timer for the last burst's segments is not set.
    pub(crate) is_untimed: bool,
    /// When the held segments are due; if none is held, when the connection times out. Set after each burst
    /// with a segment of the connection.
    pub(crate) deadline: Instant,
    /// When the timer fires, or up to a tick later; [`Instant::MAX`] if it is not set.
    pub(crate) armed: Instant,
    /// The newest timestamp value delivered to the host, if there is one.
    newest_timestamp: u32,
    /// Number of further deliveries in a row with older timestamps after which `newest_timestamp` counts as
    /// forged; 0 if nothing with a timestamp was delivered.
    timestamp_trust: u8,
    continuation: Continuation,
    /// Number of segments that arrived at nextseq while it was before the frontier, since nextseq first moved
    /// back. Segments that join a run without being parsed are not counted, so this is approximately the
    /// number of runs.
    runs_behind: u8,
}

/// Where the stream continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Continuation {
    /// At the frontier if there is one, else at nextseq.
    Known,
    /// At nextseq or at the frontier. The frontier is the end of a single segment beyond the reorder window,
    /// which may be forged.
    Claimed,
    /// At the unknown end of a packet that was delivered at nextseq: a first fragment, or a packet that is
    /// not parsed.
    Opaque,
}

/// With the flow, a slot of the table takes two cache lines.
const _: () = assert!(size_of::<ConnectionDescriptor<Vec<u8>>>() <= 72);

impl<B: AsRef<[u8]>> ConnectionDescriptor<B> {
    /// The state before the first segment. The table copies this constant to the slot, and [`Self::begin`]
    /// sets the fields that differ. Built on the stack field by field, a descriptor would be copied in larger
    /// words than it was written, which stalls store forwarding.
    pub(crate) const BLANK: Self = Self {
        nextseq: SeqNumber(0),
        frontier: None,
        run: None,
        waiting: None,
        average_interval: 0,
        pauses: 0,
        train_pauses: 0,
        near_and_breaks: 0,
        timed_out: Self::TIMEOUTS,
        last_arrival: Instant::ZERO,
        is_untimed: false,
        deadline: Instant::MAX,
        armed: Instant::MAX,
        newest_timestamp: 0,
        timestamp_trust: 0,
        continuation: Continuation::Known,
        runs_behind: 0,
    };

    /// Creates the state of a connection whose next byte is `nextseq`.
    pub(crate) fn new(nextseq: SeqNumber, now: Instant) -> Self {
        Self { nextseq, last_arrival: now, ..Self::BLANK }
    }

    /// Initializes the blank state for a connection whose next byte is `nextseq`.
    #[inline(always)]
    pub(crate) fn begin(&mut self, nextseq: SeqNumber, now: Instant) {
        (self.nextseq, self.last_arrival) = (nextseq, now);
    }

    /// Records an arrival at `at`, before the connection took its descriptor. `at` is accurate to
    /// `resolution` nanoseconds; the connection does not time out earlier than that after `at`.
    #[inline]
    pub(crate) fn arrived_before(&mut self, at: Instant, resolution: u64, timeouts: &Timeouts) {
        self.last_arrival = at;
        self.deadline = timeouts.first_deadline(at).max(at.plus_nanos(resolution));
        self.near_and_breaks = 1;
    }

    /// Returns true if a segment at `seq` shows that the stream continues at the frontier: it is at or after
    /// the frontier, and does not extend the old segments at nextseq. A claimed frontier needs a segment that
    /// is more than `window` bytes ahead of nextseq and within `window` bytes of the frontier.
    pub(crate) fn resumes_at_frontier(&self, seq: SeqNumber, window: u32) -> bool {
        self.frontier.is_some_and(|frontier| match self.continuation {
            Continuation::Claimed => {
                is_beyond(seq, self.nextseq, window) && seq.since(frontier).unsigned_abs() <= window
            }
            Continuation::Known | Continuation::Opaque => !seq.before(frontier) && seq != self.nextseq,
        })
    }

    /// Moves nextseq to the frontier: the stream continues there.
    pub(crate) fn resume(&mut self) {
        if let Some(frontier) = self.frontier.take() {
            self.nextseq = frontier;
            self.continuation = Continuation::Known;
        }
    }

    /// Gives up the frontier if a segment at `seq`, which does not continue there, refutes it: if the
    /// frontier was only claimed, or if it is more than `window` bytes ahead of nextseq and
    /// [`Self::RUNS_BEHIND`] runs have begun before it.
    pub(crate) fn doubt_frontier(&mut self, seq: SeqNumber, window: u32) {
        let Some(frontier) = self.frontier else { return };
        if seq == self.nextseq {
            self.runs_behind = self.runs_behind.saturating_add(1);
        }
        let is_refuted = self.runs_behind >= Self::RUNS_BEHIND && is_beyond(frontier, self.nextseq, window);
        if self.continuation == Continuation::Claimed || is_refuted {
            self.frontier = None;
            self.continuation = Continuation::Known;
        }
    }

    /// Returns the end of the stream; ignores a claimed frontier.
    fn stream_end(&self) -> SeqNumber {
        self.frontier.filter(|_| self.continuation != Continuation::Claimed).unwrap_or(self.nextseq)
    }

    /// Returns true if the end of the stream is 0 to `bytes` bytes after `seq`.
    pub(crate) fn has_passed(&self, seq: SeqNumber, bytes: u32) -> bool {
        u32::try_from(self.stream_end().since(seq)).is_ok_and(|passed| passed <= bytes)
    }

    /// Returns true if the stream ends with the bytes from `seq` to `end`: no byte before them is missing,
    /// none after them was received.
    pub(crate) fn is_whole_with(&self, seq: SeqNumber, end: SeqNumber) -> bool {
        let known = self.stream_end();
        self.waiting.is_none() && !seq.after(known) && !end.before(known)
    }

    /// Records a segment from `seq` to `end` that was delivered alone. If it is more than `window` bytes
    /// ahead, it may be forged: its end is only a claimed frontier, until another segment near it confirms
    /// the claim.
    pub(crate) fn passed(&mut self, (seq, end): (SeqNumber, SeqNumber), timestamp: Option<u32>, window: u32) {
        if self.resumes_at_frontier(seq, window) {
            self.resume();
        }
        let known = self.stream_end();
        if is_beyond(seq, known, window) {
            (self.nextseq, self.frontier, self.continuation) = (known, Some(end), Continuation::Claimed);
        } else {
            (self.nextseq, self.frontier, self.continuation) = (known.later(end), None, Continuation::Known);
            self.delivered(timestamp);
        }
    }

    /// Records a packet at `seq` that was delivered alone and whose end is unknown.
    pub(crate) fn passed_opaque(&mut self, seq: SeqNumber) {
        if seq == self.nextseq && self.frontier.is_none() {
            self.continuation = Continuation::Opaque;
        }
    }

    /// Moves nextseq to a segment at `seq`, ahead of it, if the bytes between may have been in a delivered
    /// packet whose end is unknown. Returns true if it did.
    pub(crate) fn skip_opaque(&mut self, seq: SeqNumber) -> bool {
        let is_behind = self.continuation == Continuation::Opaque
            && self.waiting.is_none()
            && !is_beyond(seq, self.nextseq, MAX_OPAQUE_LEN);
        if is_behind {
            self.nextseq = seq;
        }
        is_behind
    }

    /// Moves nextseq to `end`, the end of the segments added there.
    #[inline]
    pub(crate) fn advance(&mut self, end: SeqNumber) {
        self.nextseq = end;
        self.continuation = Continuation::Known;
        if self.frontier.is_some_and(|frontier| !end.before(frontier)) {
            self.frontier = None;
        }
    }

    /// Moves nextseq to at least `end`: every byte before it was delivered or given up.
    pub(crate) fn catch_up(&mut self, end: SeqNumber) {
        let furthest = self.frontier.take().unwrap_or(self.nextseq);
        self.nextseq = furthest.later(end);
    }

    /// Moves nextseq back to `end`, the end of an old segment that was delivered.
    pub(crate) fn rewind(&mut self, end: SeqNumber) {
        let frontier = self.frontier.unwrap_or(self.nextseq);
        if end.before(frontier) {
            self.frontier = Some(frontier);
            self.nextseq = end;
            self.continuation = Continuation::Known;
        }
    }

    /// Resets the number of runs before the frontier.
    pub(crate) fn reset_runs_behind(&mut self) {
        self.runs_behind = 0;
    }

    /// Records an arrival: average_interval = (average_interval + now − last_arrival) / 2 (IV.E). An interval
    /// above the hold limit is a pause.
    #[inline(always)]
    pub(crate) fn arrived(&mut self, now: Instant, timeouts: &Timeouts) {
        self.arrived_together(1, now, timeouts);
    }

    /// Records `count` arrivals, 1 or more, at the same time: as [`ConnectionDescriptor::arrived`] for each.
    #[inline(always)]
    pub(crate) fn arrived_together(&mut self, count: u32, now: Instant, timeouts: &Timeouts) {
        let interval = now.nanos_since(self.last_arrival);
        if interval == 0 {
            return self.arrived_again(count);
        }
        self.last_arrival = now;
        self.timed_out = if now < self.deadline { 0 } else { self.timed_out.saturating_add(1) };
        let mut average = self.average_interval / 2 + interval / 2;
        if interval <= timeouts.pause {
            self.pauses = 0;
            if interval > timeouts.train_pause {
                self.train_pauses = 0;
            }
            self.near_and_breaks &= NEAR;
            self.note_near(count);
        } else {
            self.pauses = if count > 1 { 0 } else { self.pauses.saturating_add(1) };
            self.train_pauses = self.train_pauses.saturating_add(1);
            if self.train_pauses > Self::SPARSE {
                average = self.average_interval;
            }
            let near = self.near_and_breaks & NEAR;
            self.near_and_breaks = (self.near_and_breaks - near).saturating_add(BREAK) & !NEAR | near;
            self.note_near(count - 1);
        }
        self.average_interval = average.checked_shr(count - 1).unwrap_or(0);
    }

    /// Records `count` arrivals at the time of the last one: as [`ConnectionDescriptor::arrived`] for each.
    #[inline(always)]
    pub(crate) fn arrived_again(&mut self, count: u32) {
        self.pauses = 0;
        self.note_near(count);
        self.average_interval = self.average_interval.checked_shr(count).unwrap_or(0);
    }

    /// Counts segments within the hold limit of the one before.
    #[inline(always)]
    fn note_near(&mut self, count: u32) {
        let near = self.near_and_breaks & NEAR;
        if near < 2 {
            let near = u32::from(near).saturating_add(count).min(2) as u8;
            self.near_and_breaks = self.near_and_breaks & !NEAR | near;
        }
    }

    /// Returns true if nothing is held and the last intervals were above the hold limit: a segment held now
    /// would time out before the next one arrives. Trains of segments have short intervals between the long
    /// ones, and are not sparse.
    #[inline]
    pub(crate) fn is_sparse(&self) -> bool {
        self.pauses >= Self::SPARSE && self.run.is_none() && self.waiting.is_none()
    }

    /// Returns true if the connection has timed out before each of its last bursts, and no segment waits
    /// behind a gap. The engine then delivers its run at the end of the receive batch: another segment is
    /// unlikely to arrive before the timeout.
    #[inline(always)]
    pub(crate) fn times_out_between_bursts(&self) -> bool {
        self.timed_out >= Self::TIMEOUTS && self.waiting.is_none()
    }

    /// Returns true if the descriptor can be released: the last [`Self::TIMEOUTS`] intervals between bursts
    /// were above the hold limit, and the end of the stream is certain. The connection must hold nothing, and
    /// [time out between bursts](Self::times_out_between_bursts).
    #[inline(always)]
    pub(crate) fn may_be_released(&self) -> bool {
        self.near_and_breaks >= Self::TIMEOUTS * BREAK
            && self.frontier.is_none()
            && self.continuation == Continuation::Known
    }

    /// Returns true if a segment at `seq` that arrives now starts a run: nothing is held, it is next in
    /// sequence, and the connection is not sparse.
    #[inline(always)]
    pub(crate) fn begins_at(&self, seq: SeqNumber, now: Instant, pause: u64) -> bool {
        let pauses = self.pauses.saturating_add(u8::from(now.nanos_since(self.last_arrival) > pause));
        self.run.is_none()
            && self.waiting.is_none()
            && self.frontier.is_none()
            && seq == self.nextseq
            && pauses < Self::SPARSE
    }

    /// Limits the timestamps of a run that a segment has started: see [`Run::only_timestamp`].
    #[inline]
    pub(crate) fn limit_timestamps(&self, run: &mut Run<B>) {
        if self.is_older(run.newest_timestamp) {
            run.only_timestamp = run.newest_timestamp;
        }
    }

    /// Stores a new run.
    #[inline(always)]
    pub(crate) fn hold(&mut self, run: PooledRun<B>) {
        debug_assert!(self.run.is_none());
        // The place holds None: forgetting it saves a test and a drop.
        mem::forget(self.run.replace(run));
    }

    /// Takes the run for delivery, and records its timestamp as delivered.
    #[inline(always)]
    pub(crate) fn take_run(&mut self) -> Option<PooledRun<B>> {
        let run = self.run.take()?;
        self.delivered(run.newest_timestamp);
        Some(run)
    }

    /// Returns the number of frames that are held.
    pub(crate) fn frames(&self) -> usize {
        let run = self.run.as_ref().map_or(0, |run| run.segments());
        run + self.waiting.as_ref().map_or(0, |list| list.len())
    }

    /// Returns true if only one segment has arrived, or each after a pause.
    pub(crate) fn is_single(&self) -> bool {
        self.near_and_breaks & NEAR < 2
    }

    /// Number of timeouts in a row after which the next one is expected. With fewer, connections with loss
    /// and reordering merge less (`nichrome sim run lro-npu-reorder`).
    const TIMEOUTS: u8 = 4;

    /// Number of runs before the frontier that refute it: the retransmission of a large window has fewer.
    const RUNS_BEHIND: u8 = 16;

    /// Number of deliveries in a row with older timestamps after which the newest one counts as forged:
    /// reordering causes fewer.
    const OLDER_DELIVERIES: u8 = 16;

    /// Number of consecutive pauses that make a connection sparse; maximum number of pauses between trains
    /// that count for the average interval.
    const SPARSE: u8 = 2;

    /// Returns true if a timestamp value is older than one delivered to the host.
    #[inline]
    pub(crate) fn is_older(&self, timestamp: Option<u32>) -> bool {
        match (timestamp, self.newest_timestamp()) {
            (Some(new), Some(newest)) => SeqNumber(new).before(SeqNumber(newest)),
            _ => false,
        }
    }

    /// Records a delivery whose newest timestamp value is `timestamp`. A sender never continues with older
    /// values, so [`Self::OLDER_DELIVERIES`] older ones in a row replace the newest.
    #[inline]
    pub(crate) fn delivered(&mut self, timestamp: Option<u32>) {
        let Some(value) = timestamp else { return };
        if self.is_older(timestamp) && self.timestamp_trust > 1 {
            self.timestamp_trust -= 1;
        } else {
            (self.newest_timestamp, self.timestamp_trust) = (value, Self::OLDER_DELIVERIES);
        }
    }

    /// Returns the newest timestamp value delivered to the host.
    #[inline]
    pub(crate) fn newest_timestamp(&self) -> Option<u32> {
        (self.timestamp_trust > 0).then_some(self.newest_timestamp)
    }
}

/// Returns true if `seq` is more than `window` bytes after `from`.
fn is_beyond(seq: SeqNumber, from: SeqNumber, window: u32) -> bool {
    u32::try_from(seq.since(from)).is_ok_and(|ahead| ahead > window)
}

/// The timeouts of connections.
#[derive(Clone, Copy)]
pub(crate) struct Timeouts {
    floor: u64,
    pub(crate) ceiling: u64,
    /// The hold limit: a longer interval is a pause. The paper's rules have none.
    pub(crate) pause: u64,
    /// A tenth of the hold limit. Intervals between this and the hold limit show that segments do not come in
    /// trains.
    train_pause: u64,
    reorder_hold: u64,
}

impl Timeouts {
    /// A connection times out after this many average intervals without a segment (IV.E).
    const INTERVALS: u64 = 10;

    pub(crate) fn new(config: &NpuConfig) -> Self {
        let [floor, ceiling, reorder_hold] =
            [config.floor, config.ceiling, config.reorder_hold].map(instant::nanos);
        let pause = if config.rules == Rules::Paper { u64::MAX } else { ceiling };
        Self { floor: floor.min(ceiling), ceiling, pause, train_pause: pause / Self::INTERVALS, reorder_hold }
    }

    /// Returns when a connection times out whose first segments arrived at `since`.
    #[inline]
    pub(crate) fn first_deadline(&self, since: Instant) -> Instant {
        since.plus_nanos(self.floor)
    }

    /// Returns when the connection times out, whether or not it holds something.
    #[inline]
    pub(crate) fn quiet_deadline<B>(&self, descriptor: &ConnectionDescriptor<B>) -> Instant {
        let quiet =
            descriptor.average_interval.saturating_mul(Self::INTERVALS).clamp(self.floor, self.ceiling);
        descriptor.last_arrival.plus_nanos(quiet)
    }

    /// Returns the deadline of the run, if there is one.
    #[inline]
    pub(crate) fn run_deadline<B>(&self, descriptor: &ConnectionDescriptor<B>) -> Option<Instant> {
        let since = descriptor.run.as_ref()?.since;
        Some(self.quiet_deadline(descriptor).min(since.plus_nanos(self.ceiling)))
    }

    /// Returns when the gap is given up, if there is one.
    #[inline]
    pub(crate) fn gap_deadline<B>(&self, descriptor: &ConnectionDescriptor<B>) -> Option<Instant> {
        Some(descriptor.waiting.as_ref()?.since.plus_nanos(self.reorder_hold))
    }

    /// Returns the earlier deadline of run and gap.
    #[inline]
    pub(crate) fn deadline<B>(&self, descriptor: &ConnectionDescriptor<B>) -> Option<Instant> {
        match (self.run_deadline(descriptor), self.gap_deadline(descriptor)) {
            (Some(run), Some(gap)) => Some(run.min(gap)),
            (run, gap) => run.or(gap),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Arrivals recorded together give the state of arrivals recorded one by one, whatever pauses came
        /// before.
        #[test]
        fn arrivals_together_are_arrivals_one_by_one(
            steps in proptest::collection::vec((0u64..2_000_000, 1u32..70, 0u64..2_000_000), 1..50),
        ) {
            let timeouts = Timeouts::new(&NpuConfig::default());
            let mut now = Instant::ZERO;
            let [mut together, mut singly] = [(); 2].map(|()| ConnectionDescriptor::<Vec<u8>>::new(SeqNumber(0), now));
            let mut deadline = Instant::MAX;
            for (interval, count, timeout) in steps {
                now = now.plus_nanos(interval);
                together.deadline = deadline;
                singly.deadline = deadline;
                deadline = now.plus_nanos(timeout);
                together.arrived_together(count, now, &timeouts);
                (0..count).for_each(|_| singly.arrived(now, &timeouts));
                let state = |descriptor: &ConnectionDescriptor<Vec<u8>>| {
                    let ConnectionDescriptor { average_interval, pauses, train_pauses, near_and_breaks, timed_out, last_arrival, .. } = *descriptor;
                    (average_interval, pauses, train_pauses, near_and_breaks, timed_out, last_arrival)
                };
                prop_assert_eq!(state(&together), state(&singly));
            }
        }
    }

    #[test]
    fn an_interval_of_a_tenth_of_the_hold_limit_is_within_a_train() {
        let timeouts = Timeouts::new(&NpuConfig::default());
        for (interval, pauses) in [(100_000, 1), (100_001, 0), (1_000_000, 0), (1_000_001, 2)] {
            let mut descriptor = ConnectionDescriptor::<Vec<u8>>::new(SeqNumber(0), Instant::ZERO);
            let pause = Instant::ZERO.plus_nanos(2_000_000);
            descriptor.arrived(pause, &timeouts);
            descriptor.arrived(pause.plus_nanos(interval), &timeouts);
            assert_eq!(descriptor.train_pauses, pauses, "{interval}");
        }
    }

    #[test]
    fn a_connection_has_timed_out_from_its_deadline_on() {
        let timeouts = Timeouts::new(&NpuConfig::default());
        for (interval, timed_out) in [(0, 1), (49_999, 0), (50_000, 2), (50_001, 2)] {
            let mut descriptor = ConnectionDescriptor::<Vec<u8>>::new(SeqNumber(0), Instant::ZERO);
            descriptor.timed_out = 1;
            descriptor.deadline = Instant::ZERO.plus_nanos(50_000);
            descriptor.arrived(Instant::ZERO.plus_nanos(interval), &timeouts);
            assert_eq!(descriptor.timed_out, timed_out, "{interval}");
        }
    }

    #[test]
    fn the_newest_timestamp_is_kept_whatever_is_delivered_after_it() {
        let mut descriptor = ConnectionDescriptor::<Vec<u8>>::new(SeqNumber(0), Instant::ZERO);
        assert_eq!(descriptor.newest_timestamp(), None);
        for (delivered, newest) in [(Some(5), 5), (None, 5), (Some(4), 5), (Some(6), 6), (Some(6), 6)] {
            descriptor.delivered(delivered);
            assert_eq!(descriptor.newest_timestamp(), Some(newest));
        }
    }
}
