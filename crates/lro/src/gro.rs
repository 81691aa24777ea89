//! The `gro` profile: lossless coalescing, so that the received packets can be re-created bit for bit.
//!
//! The rules are those of the Linux kernel's `tcp_gro_receive`: segments merge that are next in sequence and equal in
//! every header bit but the IPv4 identification (which is the same in all or goes up by one each), PSH and FIN (which
//! end the aggregate), lengths, checksums and the sequence number; all payloads are as long as the first but the last,
//! which may be shorter. Whatever cannot merge first flushes what its flow holds, and never overtakes it.
//!
//! | case | what happens |
//! |---|---|
//! | SYN, RST, URG, CWR, no payload | flow flushed, frame passed |
//! | PSH or FIN on data | appended, then the flow is flushed; passed where nothing is held |
//! | next in sequence, other header field | flow flushed, held anew |
//! | out of order, overlap, old sequence | flow flushed, held anew: the host sees the order of arrival |
//! | longer than the first, or no more room | flow flushed, held anew |
//! | wrong checksum | flow flushed, passed for the host to drop and count (or dropped, by configuration) |
//! | bytes after the IP packet, a checksum of 0xFFFF | flow flushed, passed: they could not be re-created |
//! | table full | the flow that was held longest is flushed for the new one |
//! | every aggregate in the driver's hands | frame passed |

use std::mem;
use std::vec::IntoIter;

use nichrome_wire::{Engine, Instant, TcpFlags};

use crate::burst::{self, Singles};
use crate::config::{BadChecksum, Config, ConfigError, Hold};
use crate::flow::FlowKey;
use crate::frame::{ChecksumStatus, Frame};
use crate::outbox::{Outbox, Output};
use crate::parse::{self, Parsed};
use crate::reason::{FlushReason, PassReason};
use crate::run::{Limits, Predicted, Run};
use crate::run_pool::RunPool;
use crate::segment::{self, Follower, Medium, Segment};
use crate::stats::Statistics;
use crate::table::{AgeList, ConnectionTable, Index};
use crate::template::Rule;

/// The lossless engine: see the [module](self).
pub struct Gro<B: AsRef<[u8]>> {
    medium: Medium,
    bad_checksum: BadChecksum,
    hold: Hold,
    limits: Limits,
    table: ConnectionTable<Box<Run<B>>>,
    ages: AgeList,
    pool: RunPool<B>,
    /// The flow that began to hold segments last has a place in the table, but is neither found there nor in the list of
    /// ages until another begins: most flows are flushed before.
    newest: Option<Index>,
    /// The flow, other than the newest, that held another segment last: the next is likely of either.
    predicted: Option<Index>,
    /// Flows that held segments when the last batch ended.
    last_batch: usize,
    /// Segments of this batch whose flows have nothing else in it and hold nothing.
    singles: Singles<B>,
    out: Outbox<B>,
    /// Room for a burst of one frame.
    single_burst: Vec<Frame<B>>,
}

impl<B: AsRef<[u8]>> Gro<B> {
    /// An engine that holds segments for `hold`; all its memory is reserved here.
    ///
    /// # Errors
    /// A value of `config` is out of its range.
    pub fn new(config: &Config, hold: Hold) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            medium: config.medium,
            bad_checksum: config.bad_checksum.unwrap_or(BadChecksum::Pass),
            hold,
            limits: config.limits(),
            // Few flows hold something at the same time, and few chains stay in the nearest cache.
            table: ConnectionTable::new(config.max_connections, config.max_connections / 4, config.seed),
            ages: AgeList::new(config.max_connections),
            pool: RunPool::new(config.max_aggregates, config.max_segments),
            newest: None,
            predicted: None,
            last_batch: 0,
            singles: Singles::new(),
            out: Outbox::new(config.max_connections + 4),
            single_burst: Vec::with_capacity(1),
        })
    }

    /// What the engine has done so far.
    pub fn statistics(&self) -> &Statistics {
        &self.out.stats
    }

    /// Flows that hold segments now; where nothing is held longer than a batch, at the end of the last batch.
    pub fn connections(&self) -> usize {
        match self.hold {
            Hold::Batch => self.last_batch,
            Hold::For(_) => self.table.len(),
        }
    }

    /// Hands on everything that is held.
    pub fn drain(&mut self) {
        self.flush_all(FlushReason::Drain);
    }

    /// The flow's place where it holds segments.
    #[inline(always)]
    fn find(&self, flow: FlowKey) -> Option<Index> {
        if let Some(newest) = self.newest
            && self.table.flow(newest) == Some(&flow)
        {
            return Some(newest);
        }
        if self.table.len() == usize::from(self.newest.is_some()) {
            return None;
        }
        self.table.find(self.table.hash(&flow), &flow)
    }

    /// The fields of a frame that joins what `index` holds; `None` where it does not, or its checksum is wrong.
    #[inline(never)]
    fn joining(&mut self, index: Index, frame: &Frame<B>) -> Option<Follower> {
        let run = self.table.get_mut(index)?;
        let bytes = frame.bytes();
        if !run.template().matches(bytes) {
            return None;
        }
        let follower = Follower::read(bytes, run.layout)?;
        let joins = why_not(run, &follower, self.limits).is_none()
            && follower.payload_len > 0
            && !follower.trailer
            && has_usual_checksums(frame, follower.usual_checksums)
            && segment::verify(frame, run.layout, follower.payload_len).is_ok();
        joins.then_some(follower)
    }

    /// Appends the first of these frames, which joins.
    #[inline]
    fn join(&mut self, index: Index, frames: &mut IntoIter<Frame<B>>, follower: &Follower) {
        let (Some(frame), Some(run)) = (frames.next(), self.table.get_mut(index)) else { return };
        self.out.stats.tcp_payload_bytes_in += u64::from(follower.payload_len);
        run.follow(frame, follower);
        let short = follower.payload_len < run.mss;
        if self.newest != Some(index) {
            self.predicted = Some(index);
        }
        if let Some(reason) = ended_by(follower.flags).or(short.then_some(FlushReason::ShortSegment)) {
            self.flush(index, reason);
        }
    }

    /// Which of these frames, from the first on, a likely flow expects; `None` where not the first.
    #[inline]
    fn predict(&mut self, frames: &[Frame<B>]) -> Option<(Index, Predicted)> {
        let first = frames.first()?.bytes();
        let likely = |index: &Index| self.table.peek(*index).is_some_and(|run| run.may_be_next(first));
        let index = self.newest.filter(likely).or_else(|| self.predicted.filter(likely))?;
        let predicted = self.table.get_mut(index)?.predicts(frames);
        (predicted.count > 0).then_some((index, predicted))
    }

    /// Appends frames that were predicted.
    #[inline]
    fn join_predicted(&mut self, index: Index, predicted: Predicted, frames: &mut IntoIter<Frame<B>>) {
        let Some(run) = self.table.get_mut(index) else { return };
        self.out.stats.tcp_payload_bytes_in += predicted.count as u64 * u64::from(run.first_len);
        run.follow_predicted(frames, predicted);
        if let Some(reason) = ended_by(predicted.flags) {
            self.flush(index, reason);
        }
    }

    /// Takes these frames, of which the `alone` are held without being looked for. What one is and where it goes is seen
    /// where it lies, so that it is moved once.
    #[inline(never)]
    fn receive_frames(&mut self, frames: &mut Vec<Frame<B>>, alone: u64, now: Instant) {
        let mut burst = mem::take(frames).into_iter();
        while !burst.as_slice().is_empty() {
            if alone != 0 && self.receive_single(&mut burst, alone) {
                continue;
            }
            match self.predict(burst.as_slice()) {
                Some((index, predicted)) => self.join_predicted(index, predicted, &mut burst),
                None => self.receive_unpredicted(&mut burst, now),
            }
        }
        *frames = burst::emptied(burst);
    }

    /// Takes the first of these frames if it is `alone` and a usual one that can be held.
    #[inline(never)]
    fn receive_single(&mut self, frames: &mut IntoIter<Frame<B>>, alone: u64) -> bool {
        let Some((frame, behind)) = frames.as_slice().split_first() else { return false };
        if alone >> behind.len() & 1 == 0 {
            return false;
        }
        let Some(segment) = parse::parse_usual(frame.bytes(), self.medium) else { return false };
        if barrier(&segment, frame).is_some()
            || segment::verify(frame, segment.layout, segment.payload_len).is_err()
        {
            return false;
        }
        self.singles.hold(frames.next(), segment.payload_len);
        true
    }

    /// Which of these frames are alone; none where that does not pay, since the last batch was of few flows.
    #[inline]
    fn alone(&self, frames: &[Frame<B>]) -> u64 {
        /// A batch of fewer may be a part of one.
        const LEAST: usize = 8;
        let pays = self.last_batch > frames.len() / 2 && frames.len() >= LEAST && self.hold == Hold::Batch;
        if pays && self.table.len() == 0 { burst::alone(frames, self.medium) } else { 0 }
    }

    /// Holds what was held by itself as the first segment of its flow: the batch goes on.
    #[cold]
    fn hold_singles(&mut self, now: Instant) {
        let mut frames = self.singles.take();
        self.receive_frames(&mut frames, 0, now);
        self.singles.give_back(frames);
    }

    /// Takes the first of these frames, which was not predicted; of those behind it, those that carry it on.
    fn receive_unpredicted(&mut self, frames: &mut IntoIter<Frame<B>>, now: Instant) {
        let Some(frame) = frames.as_slice().first() else { return };
        if let Some((flow, layout)) = parse::usual_pure_ack(frame.bytes(), self.medium)
            && segment::verify(frame, layout, 0).is_ok()
        {
            return self.pass_behind(flow, frames, PassReason::PureAck);
        }
        match parse::parse_usual(frame.bytes(), self.medium) {
            Some(segment) => self.receive_segment(frames, &segment, now),
            None => self.receive_unusual(frames, now),
        }
    }

    #[cold]
    fn receive_unusual(&mut self, frames: &mut IntoIter<Frame<B>>, now: Instant) {
        let Some(frame) = frames.as_slice().first() else { return };
        match &parse::parse_any(frame.bytes(), self.medium) {
            Parsed::Tcp(segment) => self.receive_segment(frames, segment, now),
            Parsed::Barrier { flow, reason, .. } => self.pass_behind(*flow, frames, *reason),
            Parsed::Other(reason) => self.pass(frames, 0, *reason),
        }
    }

    /// Takes the first of these frames, a segment.
    #[inline(always)]
    fn receive_segment(&mut self, frames: &mut IntoIter<Frame<B>>, segment: &Segment, now: Instant) {
        let Some(frame) = frames.as_slice().first() else { return };
        let held = self.find(segment.flow);
        if let Some(index) = held
            && let Some(follower) = self.joining(index, frame)
        {
            return self.join(index, frames, &follower);
        }
        self.out.stats.tcp_payload_bytes_in += u64::from(segment.payload_len);
        let verified = segment::verify(frame, segment.layout, segment.payload_len);
        let barrier =
            verified.is_err().then_some(PassReason::BadChecksum).or_else(|| barrier(segment, frame));
        if let Some(index) = held {
            let reason = barrier.map_or_else(|| self.why_flushed(index, frame), |_| FlushReason::Barrier);
            self.flush(index, reason);
        }
        match (verified, barrier) {
            (Err(reason), _) if self.bad_checksum == BadChecksum::Drop => {
                frames.next().into_iter().for_each(|frame| self.out.drop(frame, reason));
            }
            (_, Some(reason)) => self.pass(frames, segment.payload_len, reason),
            _ => self.hold(frames, segment, now),
        }
    }

    /// Passes the first of these frames.
    #[inline]
    fn pass(&mut self, frames: &mut IntoIter<Frame<B>>, payload_len: u32, reason: PassReason) {
        if let Some(frame) = frames.next() {
            self.out.pass(frame, payload_len, reason);
        }
    }

    /// Passes the first of these frames, which has no payload to be merged, after what its flow holds.
    #[inline(always)]
    fn pass_behind(&mut self, flow: FlowKey, frames: &mut IntoIter<Frame<B>>, reason: PassReason) {
        if let Some(index) = self.find(flow) {
            self.flush(index, FlushReason::Barrier);
        }
        self.pass(frames, 0, reason);
    }

    /// Why a frame of the same flow, which can be held itself, does not join.
    #[inline(never)]
    fn why_flushed(&mut self, index: Index, frame: &Frame<B>) -> FlushReason {
        let Some(run) = self.table.get_mut(index) else { return FlushReason::UnequalField };
        let follower = Follower::read(frame.bytes(), run.layout);
        match follower.filter(|_| run.template().matches(frame.bytes())) {
            Some(follower) => why_not(run, &follower, self.limits).unwrap_or(FlushReason::UnequalField),
            None => FlushReason::UnequalField,
        }
    }

    /// Holds the first of these frames, the first segment of a flow, and those that carry it on.
    #[inline(always)]
    fn hold(&mut self, frames: &mut IntoIter<Frame<B>>, segment: &Segment, now: Instant) {
        if self.table.is_full()
            && let Some((oldest, _)) = self.oldest()
        {
            self.flush(oldest, FlushReason::Evicted);
        }
        let Some(frame) = frames.next() else { return };
        let mut run = match self.pool.start(frame, segment, Rule::Lossless, self.limits, now) {
            Ok(run) => run,
            Err(frame) => return self.out.pass(frame, segment.payload_len, PassReason::PoolEmpty),
        };
        if frames.as_slice().first().is_some_and(|next| run.may_be_next(next.bytes())) {
            let predicted = run.predicts(frames.as_slice());
            self.out.stats.tcp_payload_bytes_in += predicted.count as u64 * u64::from(run.first_len);
            run.follow_predicted(frames, predicted);
            if let Some(reason) = ended_by(predicted.flags) {
                return self.pool.finish(run, reason, &mut self.out);
            }
        }
        if let Ok(index) = self.table.place(segment.flow, run)
            && let Some(before) = self.newest.replace(index)
        {
            self.keep(before);
        }
    }

    /// Puts a flow that is not the newest any more where it is found.
    #[inline]
    fn keep(&mut self, index: Index) {
        if let (Some(flow), Some(run)) = (self.table.flow(index), self.table.peek(index)) {
            self.ages.push(index, run.since);
            self.table.chain(index, self.table.hash(flow));
        }
    }

    /// The flow that has held something longest, and since when.
    #[inline]
    fn oldest(&self) -> Option<(Index, Instant)> {
        self.ages.oldest().or_else(|| {
            let newest = self.newest?;
            Some((newest, self.table.peek(newest)?.since))
        })
    }

    /// Hands on what a flow holds.
    #[inline]
    fn flush(&mut self, index: Index, reason: FlushReason) {
        if let Some(run) = self.remove(index) {
            self.pool.finish(run, reason, &mut self.out);
        }
    }

    /// Takes what a flow holds out of the table.
    #[inline]
    fn remove(&mut self, index: Index) -> Option<Box<Run<B>>> {
        if self.newest == Some(index) {
            self.newest = None;
            return self.table.take(index);
        }
        if self.predicted == Some(index) {
            self.predicted = None;
        }
        self.ages.remove(index);
        self.table.remove(index)
    }

    fn flush_all(&mut self, reason: FlushReason) {
        if !self.singles.is_empty() {
            self.singles.flush(reason, &mut self.out);
        }
        while let Some((oldest, _)) = self.oldest() {
            self.flush(oldest, reason);
        }
    }
}

/// Why a segment with these flags is the last of its aggregate.
#[inline]
fn ended_by(flags: TcpFlags) -> Option<FlushReason> {
    if !flags.intersects(TcpFlags::PSH | TcpFlags::FIN) {
        None
    } else if flags.contains(TcpFlags::FIN) {
        Some(FlushReason::Fin)
    } else {
        Some(FlushReason::Psh)
    }
}

/// Why a segment with an equal header does not join the run; `None` where it does.
#[inline]
fn why_not<B: AsRef<[u8]>>(run: &Run<B>, follower: &Follower, limits: Limits) -> Option<FlushReason> {
    if follower.seq != run.end {
        Some(FlushReason::OutOfOrder)
    } else if follower.payload_len > run.mss {
        Some(FlushReason::LongSegment)
    } else if run.len_on_ip() + follower.payload_len > limits.bytes {
        Some(FlushReason::MaxLength)
    } else if run.segments() >= limits.segments as usize {
        Some(FlushReason::MaxSegments)
    } else if run.identification_with(follower).is_none() {
        Some(FlushReason::UnequalField)
    } else {
        None
    }
}

/// Whether the checksums of a frame would be re-created as they are.
#[inline]
fn has_usual_checksums<B>(frame: &Frame<B>, usual: bool) -> bool {
    usual || frame.checksum == ChecksumStatus::Unfinished
}

/// Why a segment can neither join nor be held: what its flow holds goes first, then it.
#[inline]
fn barrier<B>(segment: &Segment, frame: &Frame<B>) -> Option<PassReason> {
    if let Some(reason) = segment.control() {
        Some(reason)
    } else if segment.trailer {
        Some(PassReason::Trailer)
    } else if !has_usual_checksums(frame, segment.usual_checksums) {
        Some(PassReason::UnusualChecksum)
    } else if segment.flags.contains(TcpFlags::FIN) {
        Some(PassReason::Fin)
    } else if segment.flags.contains(TcpFlags::PSH) {
        Some(PassReason::Psh)
    } else {
        None
    }
}

impl<B: AsRef<[u8]>> Engine for Gro<B> {
    type Input = Frame<B>;
    type Output = Output<B>;

    #[inline]
    fn receive(&mut self, frame: Frame<B>, now: Instant) {
        let mut burst = mem::take(&mut self.single_burst);
        burst.push(frame);
        self.receive_batch(&mut burst, now);
        self.single_burst = burst;
    }

    fn receive_batch(&mut self, frames: &mut Vec<Frame<B>>, now: Instant) {
        self.out.received(frames);
        if !self.singles.is_empty() {
            self.hold_singles(now);
        }
        let alone = self.alone(frames);
        self.receive_frames(frames, alone, now);
    }

    fn end_of_batch(&mut self, _now: Instant) {
        if self.hold == Hold::Batch {
            self.last_batch = self.table.len() + self.singles.len();
            self.flush_all(FlushReason::EndOfBatch);
        }
    }

    #[inline]
    fn poll(&mut self) -> Option<Output<B>> {
        self.out.pop()
    }

    #[inline]
    fn poll_all(&mut self, outputs: &mut Vec<Output<B>>) {
        self.out.pop_all(outputs);
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        let Hold::For(hold) = self.hold else { return None };
        self.oldest().map(|(_, since)| since + hold)
    }

    fn handle_timeout(&mut self, now: Instant) {
        let Hold::For(hold) = self.hold else { return };
        while let Some((oldest, _)) = self.oldest().filter(|(_, since)| *since + hold <= now) {
            self.flush(oldest, FlushReason::Timeout);
        }
    }
}
