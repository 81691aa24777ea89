//! What the engine knows of one connection (lro-npu IV.A, IV.E).

use nichrome_wire::{Instant, SeqNumber, TcpFlags, instant};

use super::config::{NpuConfig, PshRule, Rules};
use super::reorder::ReorderList;
use crate::reason::FlushReason;
use crate::recycle::Pooled;
use crate::run::{PooledRun, Run};
use crate::segment::Segment;

/// The state of one connection towards the host; its four-tuple is the key of the table.
pub(crate) struct ConnectionDescriptor<B> {
    /// The sequence number after the consecutive payload that was buffered or handed on.
    pub(crate) nextseq: SeqNumber,
    /// Where the stream goes on, while old segments (a gap that was given up and is filled late) are behind it and
    /// nextseq follows them.
    pub(crate) frontier: Option<SeqNumber>,
    /// The consecutive payload that is buffered: it ends at nextseq. Its count and bytes are the paper's.
    pub(crate) run: Option<PooledRun<B>>,
    /// The segments beyond a gap; present only while there are any.
    pub(crate) waiting: Option<Pooled<ReorderList<B>>>,
    /// Nanoseconds between arrivals: the mean of the last interval and of what it was before.
    average_interval: u64,
    /// How many of the last intervals, one after another, were longer than anything is held.
    pauses: u8,
    /// How many intervals were longer than anything is held since one that was no pause between trains either.
    train_pauses: u8,
    /// Segments that have come without a pause before them, the first included; more than two count as two.
    near: u8,
    pub(crate) last_arrival: Instant,
    /// Whether the timer is not set yet to the segments that came last.
    pub(crate) untimed: bool,
    /// The newest timestamp value that the host was handed.
    pub(crate) newest_timestamp: Option<u32>,
}

impl<B: AsRef<[u8]>> ConnectionDescriptor<B> {
    /// A connection whose next byte is `nextseq`.
    pub(crate) fn new(nextseq: SeqNumber, now: Instant) -> Self {
        Self {
            nextseq,
            frontier: None,
            run: None,
            waiting: None,
            average_interval: 0,
            pauses: 0,
            train_pauses: 0,
            near: 0,
            last_arrival: now,
            untimed: false,
            newest_timestamp: None,
        }
    }

    /// Whether a segment at `seq` goes on at the frontier, or beyond it, instead of with the old segments.
    pub(crate) fn resumes_at_frontier(&self, seq: SeqNumber) -> bool {
        self.frontier.is_some_and(|frontier| !seq.before(frontier) && seq != self.nextseq)
    }

    /// Moves nextseq to the end of what was added there.
    #[inline]
    pub(crate) fn advance(&mut self, end: SeqNumber) {
        self.nextseq = end;
        if self.frontier.is_some_and(|frontier| !end.before(frontier)) {
            self.frontier = None;
        }
    }

    /// Moves on to at least `end`: everything before it was handed on, or given up.
    pub(crate) fn catch_up(&mut self, end: SeqNumber) {
        let furthest = self.frontier.take().unwrap_or(self.nextseq);
        self.nextseq = furthest.later(end);
    }

    /// Follows an old segment that was handed on and ended at `end`.
    pub(crate) fn rewind(&mut self, end: SeqNumber) {
        let frontier = self.frontier.unwrap_or(self.nextseq);
        if end.before(frontier) {
            self.frontier = Some(frontier);
            self.nextseq = end;
        }
    }

    /// Notes an arrival: average_interval = (average_interval + now − last_arrival) / 2 (IV.E). An interval of
    /// more than `pause` nanoseconds is a pause.
    #[inline]
    pub(crate) fn arrived(&mut self, now: Instant, pause: u64) {
        let interval = now.nanos_since(self.last_arrival);
        if interval > pause {
            self.pauses = self.pauses.saturating_add(1);
            self.train_pauses = self.train_pauses.saturating_add(1);
        } else {
            self.pauses = 0;
            self.near = (self.near + 1).min(2);
            if interval > pause / Timeouts::INTERVALS {
                self.train_pauses = 0;
            }
        }
        if interval <= pause || self.train_pauses <= Self::SPARSE {
            self.average_interval = self.average_interval / 2 + interval / 2;
        }
        self.last_arrival = now;
    }

    /// Notes `count` arrivals, 1 or more, at the same time: as [`ConnectionDescriptor::arrived`] for each of them.
    #[inline]
    pub(crate) fn arrived_together(&mut self, count: u32, now: Instant, pause: u64) {
        self.arrived(now, pause);
        if count > 1 {
            self.pauses = 0;
            self.near = 2;
        }
        self.average_interval = self.average_interval.checked_shr(count - 1).unwrap_or(0);
    }

    /// Whether segments have lately come so far apart that the next will not find the last one held. Trains, however
    /// far apart, have short intervals between the long ones.
    #[inline]
    pub(crate) fn is_sparse(&self) -> bool {
        self.pauses >= Self::SPARSE && self.run.is_none() && self.waiting.is_none()
    }

    /// Whether a segment that comes now begins a run: nothing is held, it is next, and its connection is not sparse.
    #[inline]
    pub(crate) fn begins_with(&self, segment: &Segment, now: Instant, pause: u64) -> bool {
        let pauses = self.pauses.saturating_add(u8::from(now.nanos_since(self.last_arrival) > pause));
        self.run.is_none()
            && self.waiting.is_none()
            && self.frontier.is_none()
            && segment.seq == self.nextseq
            && pauses < Self::SPARSE
    }

    /// Holds a run that a segment has begun; gives why it ends at once, if it does.
    #[inline]
    pub(crate) fn hold(
        &mut self,
        mut run: PooledRun<B>,
        segment: &Segment,
        psh: PshRule,
    ) -> Option<FlushReason> {
        if self.is_older(segment) {
            run.only_timestamp = run.newest_timestamp;
        }
        let ended = ended_by(&run, segment.flags, psh);
        self.run = Some(run);
        ended
    }

    /// Whether only one segment has come, or each after a pause.
    pub(crate) fn is_single(&self) -> bool {
        self.near < 2
    }

    /// So many long intervals one after another make a connection sparse; so many between trains count for the average.
    const SPARSE: u8 = 2;

    /// Whether a segment's timestamp is older than one that the host was handed.
    pub(crate) fn is_older(&self, segment: &Segment) -> bool {
        match (segment.timestamps, self.newest_timestamp) {
            (Some(new), Some(newest)) => SeqNumber(new.value).before(SeqNumber(newest)),
            _ => false,
        }
    }

    /// Notes that segments go to the host, the newest of which has this timestamp value.
    #[inline]
    pub(crate) fn delivered(&mut self, timestamp: Option<u32>) {
        self.newest_timestamp = match (self.newest_timestamp, timestamp) {
            (Some(old), Some(new)) => Some(SeqNumber(old).later(SeqNumber(new)).0),
            (old, new) => new.or(old),
        };
    }
}

/// Why a run ends with the segment that was just added, which has these flags.
#[inline]
pub(super) fn ended_by<B: AsRef<[u8]>>(run: &Run<B>, flags: TcpFlags, psh: PshRule) -> Option<FlushReason> {
    if run.is_full() {
        Some(FlushReason::MaxLength)
    } else if psh == PshRule::End && flags.contains(TcpFlags::PSH) {
        Some(FlushReason::Psh)
    } else {
        None
    }
}

/// When a connection's timers are due.
#[derive(Clone, Copy)]
pub(crate) struct Timeouts {
    floor: u64,
    pub(crate) ceiling: u64,
    /// The shortest interval that is a pause: longer than anything is held. The paper has none.
    pub(crate) pause: u64,
    reorder_hold: u64,
}

impl Timeouts {
    /// A connection has timed out after this many average intervals without a segment (IV.E).
    const INTERVALS: u64 = 10;

    pub(crate) fn new(config: &NpuConfig) -> Self {
        let [floor, ceiling, reorder_hold] =
            [config.floor, config.ceiling, config.reorder_hold].map(instant::nanos);
        let pause = if config.rules == Rules::Paper { u64::MAX } else { ceiling };
        Self { floor: floor.min(ceiling), ceiling, pause, reorder_hold }
    }

    /// When the run is due, if there is one.
    #[inline]
    pub(crate) fn run_deadline<B>(&self, descriptor: &ConnectionDescriptor<B>) -> Option<Instant> {
        let run = descriptor.run.as_ref()?;
        let quiet =
            descriptor.average_interval.saturating_mul(Self::INTERVALS).clamp(self.floor, self.ceiling);
        let by_quiet = descriptor.last_arrival.plus_nanos(quiet);
        Some(by_quiet.min(run.since.plus_nanos(self.ceiling)))
    }

    /// When the gap is given up, if there is one.
    #[inline]
    pub(crate) fn gap_deadline<B>(&self, descriptor: &ConnectionDescriptor<B>) -> Option<Instant> {
        Some(descriptor.waiting.as_ref()?.since.plus_nanos(self.reorder_hold))
    }

    /// When either is due.
    #[inline]
    pub(crate) fn deadline<B>(&self, descriptor: &ConnectionDescriptor<B>) -> Option<Instant> {
        match (self.run_deadline(descriptor), self.gap_deadline(descriptor)) {
            (Some(run), Some(gap)) => Some(run.min(gap)),
            (run, gap) => run.or(gap),
        }
    }
}
