//! The state of one connection (lro-npu IV.A, IV.E).

use std::mem;

use nichrome_wire::{Instant, SeqNumber, instant};

use super::config::{NpuConfig, Rules};
use super::reorder::ReorderList;
use crate::recycle::Pooled;
use crate::run::{PooledRun, Run};

/// The bits of `near_and_breaks` that count near segments.
const NEAR: u8 = 3;
/// One interval above the hold limit in `near_and_breaks`.
const BREAK: u8 = NEAR + 1;

/// Maximum bytes of a packet whose end is not known: an IP packet has fewer.
pub(crate) const MAX_OPAQUE_LEN: u32 = 65_535;

/// The state of one connection towards the host; the table's key is its flow.
pub(crate) struct ConnectionDescriptor<B> {
    /// The sequence number after the consecutive payload that was buffered or delivered.
    pub(crate) nextseq: SeqNumber,
    /// Where the stream may go on, beside nextseq: its end, while nextseq follows old segments before it
    /// (late segments of a gap that was given up), or the end of a segment far ahead.
    pub(crate) frontier: Option<SeqNumber>,
    /// The buffered consecutive payload, which ends at nextseq. Count and bytes are the paper's.
    pub(crate) run: Option<PooledRun<B>>,
    /// The segments behind a gap, if any.
    pub(crate) waiting: Option<Pooled<ReorderList<B>>>,
    /// Average inter-arrival time in nanoseconds: the mean of the last interval and the previous average.
    average_interval: u64,
    /// Number of consecutive last intervals above the hold limit.
    pauses: u8,
    /// Number of intervals above the hold limit since the last one between a tenth of that limit and the
    /// limit.
    train_pauses: u8,
    /// In the two lowest bits ([`NEAR`]) the number of segments within the hold limit of the one before, the
    /// first included, at most 2. Above, in steps of [`BREAK`], the number of intervals above the hold limit
    /// in a row, those of 0 within a burst aside.
    near_and_breaks: u8,
    /// How often in a row the connection had timed out when its next segments arrived. Begins at
    /// [`Self::TIMEOUTS`]: a short connection needs no timer, and its first segments arrive earlier.
    timed_out: u8,
    pub(crate) last_arrival: Instant,
    /// The timer is not set yet for segments of the last burst.
    pub(crate) is_untimed: bool,
    /// Until when it may hold what it holds, or when it times out: as of the last burst with a segment of it.
    pub(crate) deadline: Instant,
    /// The timer fires by then, a tick late at most; [`Instant::MAX`] without a timer.
    pub(crate) armed: Instant,
    /// The newest timestamp value delivered to the host, if there is one.
    newest_timestamp: u32,
    /// Number of deliveries in a row with older ones after which it counts as forged; 0 if there is none.
    timestamp_trust: u8,
    lead: Lead,
    /// Number of segments before the frontier that were at nextseq, since it first moved back. Those that
    /// join a run by the short way do not count, so that it is about that of runs.
    runs_behind: u8,
}

/// What is known of where the stream goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lead {
    /// At the frontier, else at nextseq.
    Known,
    /// At nextseq, or at the frontier: a single segment beyond the reorder window ended there. It may be
    /// forged.
    Claimed,
    /// After a packet at nextseq whose end is not known: a first fragment, or one that is not parsed.
    Opaque,
}

/// A slot of the table, with the flow, is two cache lines.
const _: () = assert!(size_of::<ConnectionDescriptor<Vec<u8>>>() <= 72);

impl<B: AsRef<[u8]>> ConnectionDescriptor<B> {
    /// The state before the first segment. Copied from the program's constants into its place, and then
    /// [begun](Self::begin): built on the stack from single fields, it would be copied in words that were not
    /// written as such, which stalls store forwarding.
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
        lead: Lead::Known,
        runs_behind: 0,
    };

    /// Creates the state of a connection whose next byte is `nextseq`.
    pub(crate) fn new(nextseq: SeqNumber, now: Instant) -> Self {
        Self { nextseq, last_arrival: now, ..Self::BLANK }
    }

    /// Turns the blank state into that of a connection whose next byte is `nextseq`.
    #[inline(always)]
    pub(crate) fn begin(&mut self, nextseq: SeqNumber, now: Instant) {
        (self.nextseq, self.last_arrival) = (nextseq, now);
    }

    /// Records an arrival before the one that it begins with, known to `resolution` nanoseconds. Within these
    /// it has not timed out.
    #[inline]
    pub(crate) fn arrived_before(&mut self, at: Instant, resolution: u64, timeouts: &Timeouts) {
        self.last_arrival = at;
        self.deadline = timeouts.first_deadline(at).max(at.plus_nanos(resolution));
        self.near_and_breaks = 1;
    }

    /// Returns true if a segment at `seq` is at or after the frontier, and does not extend the old segments.
    /// Another segment more than `window` bytes ahead confirms a claim if it is at most as far from there.
    pub(crate) fn resumes_at_frontier(&self, seq: SeqNumber, window: u32) -> bool {
        self.frontier.is_some_and(|frontier| match self.lead {
            Lead::Claimed => {
                is_beyond(seq, self.nextseq, window) && seq.since(frontier).unsigned_abs() <= window
            }
            Lead::Known | Lead::Opaque => !seq.before(frontier) && seq != self.nextseq,
        })
    }

    /// Moves nextseq to the frontier, where the stream goes on.
    pub(crate) fn resume(&mut self) {
        if let Some(frontier) = self.frontier.take() {
            self.nextseq = frontier;
            self.lead = Lead::Known;
        }
    }

    /// Gives up the frontier if a segment at `seq`, which is not there, shows that the stream is elsewhere:
    /// if it was only claimed, or if it is more than `window` bytes ahead and many runs began before it.
    pub(crate) fn doubt_frontier(&mut self, seq: SeqNumber, window: u32) {
        let Some(frontier) = self.frontier else { return };
        if seq == self.nextseq {
            self.runs_behind = self.runs_behind.saturating_add(1);
        }
        let is_refuted = self.runs_behind >= Self::RUNS_BEHIND && is_beyond(frontier, self.nextseq, window);
        if self.lead == Lead::Claimed || is_refuted {
            self.frontier = None;
            self.lead = Lead::Known;
        }
    }

    /// Returns the end of the stream, without what is only claimed.
    fn stream_end(&self) -> SeqNumber {
        self.frontier.filter(|_| self.lead != Lead::Claimed).unwrap_or(self.nextseq)
    }

    /// Returns true if the stream goes on from `seq`, by `bytes` bytes at most.
    pub(crate) fn has_passed(&self, seq: SeqNumber, bytes: u32) -> bool {
        u32::try_from(self.stream_end().since(seq)).is_ok_and(|passed| passed <= bytes)
    }

    /// Returns true if the stream ends with the bytes from `seq` to `end`: no byte before them is missing,
    /// none after them was received.
    pub(crate) fn is_whole_with(&self, seq: SeqNumber, end: SeqNumber) -> bool {
        let known = self.stream_end();
        self.waiting.is_none() && !seq.after(known) && !end.before(known)
    }

    /// Records a segment from `seq` to `end` that was delivered by itself. One more than `window` bytes ahead
    /// changes nothing unless the segment before it was near to it: it may be forged.
    pub(crate) fn passed(&mut self, (seq, end): (SeqNumber, SeqNumber), timestamp: Option<u32>, window: u32) {
        if self.resumes_at_frontier(seq, window) {
            self.resume();
        }
        let known = self.stream_end();
        if is_beyond(seq, known, window) {
            (self.nextseq, self.frontier, self.lead) = (known, Some(end), Lead::Claimed);
        } else {
            (self.nextseq, self.frontier, self.lead) = (known.later(end), None, Lead::Known);
            self.delivered(timestamp);
        }
    }

    /// Records a packet at `seq` that was delivered by itself and whose end is not known.
    pub(crate) fn passed_opaque(&mut self, seq: SeqNumber) {
        if seq == self.nextseq && self.frontier.is_none() {
            self.lead = Lead::Opaque;
        }
    }

    /// Moves nextseq to a segment at `seq`, ahead of it, if the bytes between were in a packet whose end is
    /// not known.
    pub(crate) fn skip_opaque(&mut self, seq: SeqNumber) -> bool {
        let is_behind = self.lead == Lead::Opaque
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
        self.lead = Lead::Known;
        if self.frontier.is_some_and(|frontier| !end.before(frontier)) {
            self.frontier = None;
        }
    }

    /// Moves nextseq to at least `end`: all before it was delivered or given up.
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
            self.lead = Lead::Known;
        }
    }

    /// Counts the runs before the frontier anew.
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

    /// Returns true if nothing is held and recent intervals are above the hold limit, so that the next
    /// segment would not find this one. Trains of segments have short intervals between the long ones, and
    /// are not sparse.
    #[inline]
    pub(crate) fn is_sparse(&self) -> bool {
        self.pauses >= Self::SPARSE && self.run.is_none() && self.waiting.is_none()
    }

    /// Returns true if the connection has timed out before each of its last bursts, and no segment waits
    /// behind a gap. The end of the receive batch delivers its run: another segment is not likely to arrive
    /// before the timeout.
    #[inline(always)]
    pub(crate) fn times_out_between_bursts(&self) -> bool {
        self.timed_out >= Self::TIMEOUTS && self.waiting.is_none()
    }

    /// Returns true if the connection needs no descriptor any longer: its last bursts came further apart than
    /// the hold limit, and it has [timed out](Self::times_out_between_bursts) before each. Nothing that it
    /// holds may be left.
    #[inline(always)]
    pub(crate) fn may_be_forgotten(&self) -> bool {
        self.near_and_breaks >= Self::TIMEOUTS * BREAK && self.frontier.is_none() && self.lead == Lead::Known
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
        // Forgetting the place's None saves a test and a drop.
        mem::forget(self.run.replace(run));
    }

    /// Takes the run, which is delivered now.
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

    /// Number of runs before the frontier that show that the stream is not there: a retransmission of a large
    /// window has fewer.
    const RUNS_BEHIND: u8 = 16;

    /// Number of deliveries in a row with older timestamps that show that the newest one was forged:
    /// reordering has fewer.
    const OLDER_DELIVERIES: u8 = 16;

    /// Number of consecutive pauses that make a connection sparse; number of pauses between trains that count
    /// for the average.
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
    /// ones.
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
    /// A longer interval, up to the hold limit, is none between trains.
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

    /// Returns the earlier of both deadlines.
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
        /// Arrivals at the same time count as one by one, whatever pauses came before.
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
