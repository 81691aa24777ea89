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
//! | TCP within IP or PPP over Ethernet, where `Config::tunnels` says so | as without the tunnel, whose header must be equal but for length, checksum, and an identification that is the same in all or goes up by one each |
//! | UDP datagrams, where `Config::udp` says so | coalesced by rules of their own: see `datagrams.rs` |

use std::fmt;
use std::mem;
use std::vec::IntoIter;

use nichrome_wire::{Engine, Instant, TcpFlags};

use crate::burst::{self, Singles};
use crate::config::{BadChecksum, Config, ConfigError, Hold};
use crate::datagram;
use crate::datagrams::Datagrams;
use crate::flow::{FlowKey, KeyHasher};
use crate::frame::Frame;
use crate::lossless;
use crate::mask::{Masks, Rule};
use crate::outbox::{Outbox, Output};
use crate::parse::{self, Parsed};
use crate::reason::{FlushReason, PassReason};
use crate::recent::{Nth, Recent};
use crate::run::{Limits, PooledRun, Run};
use crate::run_pool::RunPool;
use crate::segment::{self, FirstSegment, Follower, Medium, Segment};
use crate::stats::Statistics;
use crate::table::{AgeList, ConnectionTable, Index};
use crate::usual;

/// The lossless engine: see the [module](self).
pub struct Gro<B: AsRef<[u8]>> {
    medium: Medium,
    /// Whether segments in tunnels are coalesced.
    tunnels: bool,
    bad_checksum: BadChecksum,
    hold: Hold,
    limits: Limits,
    max_connections: usize,
    hasher: KeyHasher,
    masks: Masks,
    /// The flows that began to hold segments last. Most flows are flushed while they are here.
    recent: Recent<B>,
    /// The flows that began to hold segments before those.
    table: ConnectionTable<PooledRun<B>>,
    ages: AgeList,
    pool: RunPool<B>,
    /// UDP datagrams that are held, where they are coalesced.
    datagrams: Option<Box<Datagrams<B>>>,
    /// Flows that held segments when the last batch ended.
    last_batch: usize,
    /// Segments of this batch whose flows have nothing else in it and hold nothing.
    singles: Singles<B>,
    out: Outbox<B>,
    /// Room for a burst of one frame.
    single_burst: Vec<Frame<B>>,
}

impl<B: AsRef<[u8]>> fmt::Debug for Gro<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gro")
            .field("hold", &self.hold)
            .field("max_connections", &self.max_connections)
            .finish_non_exhaustive()
    }
}

/// Where a flow that holds segments is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Recent(Nth),
    Table(Index),
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
            tunnels: config.tunnels,
            bad_checksum: config.bad_checksum.unwrap_or(BadChecksum::Pass),
            hold,
            limits: config.limits(),
            max_connections: config.max_connections,
            hasher: KeyHasher::new(config.seed),
            masks: Masks::new(Rule::Lossless),
            recent: Recent::new(),
            // Few flows hold something at the same time, and few chains stay in the nearest cache.
            table: ConnectionTable::new(config.max_connections, config.max_connections / 4, config.seed),
            ages: AgeList::new(config.max_connections),
            pool: RunPool::new(config.max_aggregates, config.max_segments),
            datagrams: config.udp.then(|| Box::new(Datagrams::new(config))),
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
            Hold::For(_) => self.held() + self.held_datagrams(),
        }
    }

    /// Hands on everything that is held.
    pub fn drain(&mut self) {
        self.flush_all(FlushReason::Drain);
    }

    /// TCP flows that hold segments.
    #[inline]
    fn held(&self) -> usize {
        self.recent.len() + self.table.len()
    }

    /// UDP flows that hold datagrams.
    #[inline]
    fn held_datagrams(&self) -> usize {
        self.datagrams.as_ref().map_or(0, |datagrams| datagrams.len())
    }

    /// Where a flow holds segments.
    #[inline(always)]
    fn find(&self, hash: u32, flow: &FlowKey) -> Option<Place> {
        if let Some(nth) = self.recent.find(hash, flow) {
            return Some(Place::Recent(nth));
        }
        if self.table.len() == 0 {
            return None;
        }
        self.table.find(hash, flow).map(Place::Table)
    }

    /// What a flow holds.
    #[inline(always)]
    fn run_mut(&mut self, place: Place) -> Option<&mut Run<B>> {
        match place {
            Place::Recent(nth) => self.recent.get_mut(nth),
            Place::Table(index) => self.table.get_mut(index).map(|run| &mut **run),
        }
    }

    /// The fields of a frame that joins what `place` holds, or why it does not: its checksum may be wrong, too.
    #[inline(never)]
    fn joining(&mut self, place: Place, frame: &Frame<B>) -> Result<Follower, FlushReason> {
        let run = match place {
            Place::Recent(nth) => self.recent.get(nth),
            Place::Table(index) => self.table.peek(index).map(|run| &**run),
        };
        let Some(run) = run else { return Err(FlushReason::UnequalField) };
        let (bytes, layout) = (frame.bytes(), run.layout);
        let follower = Follower::read(bytes, layout)
            .filter(|_| self.masks.of(layout).matches(run.first(), bytes))
            .ok_or(FlushReason::UnequalField)?;
        if let Some(reason) = lossless::why_not(run, &follower, self.limits) {
            return Err(reason);
        }
        let joins = follower.payload_len > 0
            && !follower.trailer
            && lossless::has_usual_checksums(frame, follower.usual_checksums)
            && segment::verify(frame, layout, follower.payload_len).is_ok();
        if joins { Ok(follower) } else { Err(FlushReason::UnequalField) }
    }

    /// Appends the first of these frames, which joins.
    #[inline]
    fn join(&mut self, place: Place, frames: &mut IntoIter<Frame<B>>, follower: &Follower) {
        let Some(frame) = frames.next() else { return };
        self.out.stats.tcp_payload_bytes_in += u64::from(follower.payload_len);
        let Some(run) = self.run_mut(place) else { return };
        run.follow(frame, follower.idents, follower.payload_len, follower.flags);
        let short = follower.payload_len < run.mss;
        if let Some(reason) =
            lossless::ended_by(follower.flags).or(short.then_some(FlushReason::ShortSegment))
        {
            self.flush(place, reason);
        }
    }

    /// Appends those of these frames, from the first on, that the flow at `place` expects; returns whether it does.
    #[inline(never)]
    fn join_expected(&mut self, place: Place, frames: &mut IntoIter<Frame<B>>) -> bool {
        let run = match place {
            Place::Recent(nth) => self.recent.get_mut(nth),
            Place::Table(index) => self.table.get_mut(index).map(|run| &mut **run),
        };
        let next = frames.as_slice().first();
        let Some(run) = run.filter(|run| next.is_some_and(|next| run.may_be_next(next.bytes()))) else {
            return false;
        };
        let (bytes, ends) = run.add_train(self.masks.of(run.layout), frames);
        self.out.stats.tcp_payload_bytes_in += u64::from(bytes);
        if let Some(reason) = lossless::ended_by(ends) {
            self.flush(place, reason);
        }
        bytes > 0
    }

    /// As [`Gro::join_expected`], of a recent flow, if that began with a usual frame.
    #[inline(always)]
    fn join_usual(&mut self, nth: Nth, frames: &mut IntoIter<Frame<B>>) -> bool {
        let is_usual = self.recent.get(nth).is_some_and(|run| usual::is_layout(run.layout));
        is_usual && self.join_run(nth, frames)
    }

    /// As [`Gro::join_usual`], of a flow that began with a usual frame.
    #[inline(always)]
    fn join_run(&mut self, nth: Nth, frames: &mut IntoIter<Frame<B>>) -> bool {
        let Some(run) = self.recent.get_mut(nth) else { return false };
        let (mut bytes, mut ends) = (0, TcpFlags::NONE);
        if run.may_be_train(frames.as_slice()) {
            (bytes, ends) = run.add_train(self.masks.of(run.layout), frames);
        } else if let Some(frame) = frames.as_slice().first()
            && let Some(flags) = run.expects_usual(frame)
        {
            run.add_expected(frames, flags);
            (bytes, ends) = (run.first_len, flags);
        }
        self.out.stats.tcp_payload_bytes_in += u64::from(bytes);
        if let Some(reason) = lossless::ended_by(ends) {
            self.flush(Place::Recent(nth), reason);
        }
        bytes > 0
    }

    /// Holds the first of these frames, of which `first` says what it is, as the first segment of a recent flow.
    #[inline(always)]
    fn hold_usual(
        &mut self,
        frames: &mut IntoIter<Frame<B>>,
        hash: u32,
        flow: FlowKey,
        first: FirstSegment,
        now: Instant,
    ) -> bool {
        if !self.recent.has_room() || self.recent.len() >= self.max_connections {
            return false;
        }
        let Some(mut run) = self.pool.take() else { return false };
        let Some(frame) = frames.next() else { return false };
        self.out.stats.tcp_payload_bytes_in += u64::from(first.payload_len);
        run.start_with(frame, first, self.limits, now);
        if let Some(nth) = self.recent.push(hash, flow, run)
            && let Some(run) = self.recent.get(nth)
            && frames.as_slice().first().is_some_and(|next| run.may_be_next_usual(next))
        {
            self.join_run(nth, frames);
        }
        true
    }

    /// Flushes what a recent flow holds and holds the first of these frames, if that is a usual segment of the same flow with
    /// another ACK number or window.
    #[inline(never)]
    fn hold_instead(
        &mut self,
        nth: Nth,
        frames: &mut IntoIter<Frame<B>>,
        hash: u32,
        flow: FlowKey,
        now: Instant,
    ) -> bool {
        let (Some(frame), Some(run)) = (frames.as_slice().first(), self.recent.get(nth)) else {
            return false;
        };
        let Some(segment) = usual::first_segment(frame.bytes()) else { return false };
        if (segment.ack, segment.window) == (run.ack, run.window)
            || self.recent.flow(nth) != Some(&flow)
            || segment::verify(frame, segment.layout, segment.payload_len).is_err()
        {
            return false;
        }
        if self.replace_single(nth, frames, segment, now) {
            return true;
        }
        self.flush(Place::Recent(nth), FlushReason::UnequalField);
        self.hold_usual(frames, hash, flow, segment, now)
    }

    /// Hands on the segment that a recent flow holds alone since now, and holds the first of these frames in its place: no flow
    /// has held something for less long.
    #[inline(always)]
    fn replace_single(
        &mut self,
        nth: Nth,
        frames: &mut IntoIter<Frame<B>>,
        first: FirstSegment,
        now: Instant,
    ) -> bool {
        let limits = self.limits;
        let Some(run) = self.recent.get_mut(nth).filter(|run| run.segments() == 1 && run.since == now) else {
            return false;
        };
        let Some(frame) = frames.next() else { return false };
        let payload_len = run.bytes;
        let alone = run.start_again(frame, first, limits, now);
        self.out.stats.tcp_payload_bytes_in += u64::from(first.payload_len);
        if let Some(alone) = alone {
            self.out.flush_frame(alone, payload_len, FlushReason::UnequalField);
        }
        true
    }

    /// Takes these frames. What one is and where it goes is seen where it lies, so that it is moved once.
    #[inline(never)]
    fn receive_frames(&mut self, frames: &mut Vec<Frame<B>>, alone: u64, now: Instant) {
        let mut burst = mem::take(frames).into_iter();
        while !burst.as_slice().is_empty() {
            if alone != 0 && self.receive_single(&mut burst, alone) {
                continue;
            }
            let Some(first) = burst.as_slice().first() else { break };
            let head = first.bytes().first_chunk().filter(|_| self.medium == Medium::Ethernet);
            let Some(head) = head else {
                self.receive_unusual(&mut burst, now);
                continue;
            };
            // Of a frame that is not usual, what is hashed is no flow, but equal for those that are alike.
            let flow = usual::flow(head);
            let hash = self.hasher.hash(&flow);
            if let Some(nth) = self.recent.likely(hash) {
                if self.join_usual(nth, &mut burst) || self.hold_instead(nth, &mut burst, hash, flow, now) {
                    continue;
                }
            } else if self.table.len() == 0
                // No flow with this hash holds anything.
                && let Some(segment) = usual::first_segment(first.bytes())
                && segment::verify(first, segment.layout, segment.payload_len).is_ok()
                && self.hold_usual(&mut burst, hash, flow, segment, now)
            {
                continue;
            }
            self.receive_known(&mut burst, now);
        }
        *frames = burst::emptied(burst);
    }

    /// Takes the first of these frames if it is `alone` and a usual one that can be held.
    #[inline(always)]
    fn receive_single(&mut self, frames: &mut IntoIter<Frame<B>>, alone: u64) -> bool {
        let Some((frame, behind)) = frames.as_slice().split_first() else { return false };
        if alone >> behind.len() & 1 == 0 {
            return false;
        }
        let Some(segment) = usual::first_segment(frame.bytes()) else { return false };
        if segment::verify(frame, segment.layout, segment.payload_len).is_err() {
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
        if pays && self.held() == 0 && self.medium == Medium::Ethernet {
            burst::alone(frames, self.medium)
        } else {
            0
        }
    }

    /// Holds what was held by itself as the first segment of its flow: the batch goes on.
    #[cold]
    fn hold_singles(&mut self, now: Instant) {
        let mut frames = self.singles.take();
        self.receive_frames(&mut frames, 0, now);
        self.singles.give_back(frames);
    }

    /// Takes the first of these frames, whose flow may hold something.
    #[inline(never)]
    fn receive_known(&mut self, frames: &mut IntoIter<Frame<B>>, now: Instant) {
        let Some(frame) = frames.as_slice().first() else { return };
        match parse::parse_usual(frame.bytes(), self.medium) {
            Some(segment) => self.receive_segment(frames, self.hasher.hash(&segment.flow), &segment, now),
            None => self.receive_unusual(frames, now),
        }
    }

    /// Takes the first of these frames, which is not a usual one.
    #[inline(never)]
    fn receive_unusual(&mut self, frames: &mut IntoIter<Frame<B>>, now: Instant) {
        let Some(frame) = frames.as_slice().first() else { return };
        let parsed = parse::parse_any(frame.bytes(), self.medium);
        match parsed {
            Parsed::Other(PassReason::NotTcp) => self.receive_not_tcp(frames, now),
            parsed => self.receive_parsed(frames, &parsed, now),
        }
    }

    /// Takes the first of these frames, which is `parsed`.
    fn receive_parsed(&mut self, frames: &mut IntoIter<Frame<B>>, parsed: &Parsed, now: Instant) {
        match parsed {
            Parsed::Tcp(segment) => {
                let hash = self.hasher.hash(&segment.flow);
                self.receive_segment(frames, hash, segment, now);
            }
            Parsed::Barrier { flow, reason, .. } => {
                if let Some(place) = self.find(self.hasher.hash(flow), flow) {
                    self.flush(place, FlushReason::Barrier);
                }
                self.pass(frames, 0, *reason);
            }
            Parsed::Other(reason) => self.pass(frames, 0, *reason),
        }
    }

    /// Takes the first of these frames, which may be a UDP datagram, or a TCP segment in a tunnel.
    fn receive_not_tcp(&mut self, frames: &mut IntoIter<Frame<B>>, now: Instant) {
        let Some(frame) = frames.as_slice().first() else { return };
        if let Some(datagrams) = &mut self.datagrams
            && let Some(packet) = datagram::read(frame.bytes(), self.medium)
        {
            return datagrams.receive(frames, &packet, now, &mut self.pool, &mut self.out);
        }
        let parsed = match self.tunnels {
            true => parse::parse_tunneled(frame.bytes(), self.medium),
            false => Parsed::Other(PassReason::NotTcp),
        };
        self.receive_parsed(frames, &parsed, now);
    }

    /// Takes the first of these frames, a segment.
    fn receive_segment(
        &mut self,
        frames: &mut IntoIter<Frame<B>>,
        hash: u32,
        segment: &Segment,
        now: Instant,
    ) {
        if let Some(place) = self.find(hash, &segment.flow) {
            let is_usual = usual::is_layout(segment.layout) && matches!(place, Place::Recent(_));
            if !is_usual && self.join_expected(place, frames) {
                return;
            }
            let Some(frame) = frames.as_slice().first() else { return };
            match self.joining(place, frame) {
                Ok(follower) => return self.join(place, frames, &follower),
                Err(_) if lossless::why_not_held(segment, frame).is_some() => {
                    self.flush(place, FlushReason::Barrier);
                }
                Err(reason) => self.flush(place, reason),
            }
        }
        self.receive_first(frames, hash, segment, now);
    }

    /// Takes the first of these frames, a segment of a flow that holds nothing.
    fn receive_first(&mut self, frames: &mut IntoIter<Frame<B>>, hash: u32, segment: &Segment, now: Instant) {
        let Some(frame) = frames.as_slice().first() else { return };
        self.out.stats.tcp_payload_bytes_in += u64::from(segment.payload_len);
        match lossless::why_not_held(segment, frame) {
            None => self.hold(frames, hash, segment, now),
            Some(reason) => self.pass_or_drop(frames, segment, reason),
        }
    }

    /// Passes the first of these frames, which cannot be held, or drops it for its checksum.
    #[inline(never)]
    fn pass_or_drop(&mut self, frames: &mut IntoIter<Frame<B>>, segment: &Segment, reason: PassReason) {
        let Some(frame) = frames.as_slice().first() else { return };
        if reason == PassReason::BadChecksum
            && self.bad_checksum == BadChecksum::Drop
            && let Err(reason) = segment::verify(frame, segment.layout, segment.payload_len)
        {
            return frames.next().into_iter().for_each(|frame| self.out.drop(frame, reason));
        }
        self.pass(frames, segment.payload_len, reason);
    }

    /// Passes the first of these frames.
    #[inline]
    fn pass(&mut self, frames: &mut IntoIter<Frame<B>>, payload_len: u32, reason: PassReason) {
        if let Some(frame) = frames.next() {
            self.out.pass(frame, payload_len, reason);
        }
    }

    /// Holds the first of these frames, the first segment of a flow, and those that carry it on.
    fn hold(&mut self, frames: &mut IntoIter<Frame<B>>, hash: u32, segment: &Segment, now: Instant) {
        if self.held() >= self.max_connections
            && let Some((oldest, _)) = self.oldest()
        {
            self.flush(oldest, FlushReason::Evicted);
        }
        let Some(frame) = frames.next() else { return };
        let run = match self.pool.start(frame, segment, Rule::Lossless, self.limits, now) {
            Ok(run) => run,
            Err(frame) => return self.out.pass(frame, segment.payload_len, PassReason::PoolEmpty),
        };
        if !self.recent.has_room() {
            self.settle();
        }
        if let Some(nth) = self.recent.push(hash, segment.flow, run) {
            self.join_expected(Place::Recent(nth), frames);
        }
    }

    /// Moves the recent flows to the large table.
    #[cold]
    #[inline(never)]
    fn settle(&mut self) {
        for (hash, flow, run) in self.recent.drain() {
            let since = run.since;
            if let Ok(index) = self.table.insert(hash, flow, run) {
                self.ages.push(index, since);
            }
        }
    }

    /// The flow that has held something longest, and since when.
    #[inline]
    fn oldest(&self) -> Option<(Place, Instant)> {
        if let Some((index, since)) = self.ages.oldest() {
            return Some((Place::Table(index), since));
        }
        let (nth, run) = self.recent.oldest()?;
        Some((Place::Recent(nth), run.since))
    }

    /// Hands on what a flow holds.
    #[inline]
    fn flush(&mut self, place: Place, reason: FlushReason) {
        let run = match place {
            Place::Recent(nth) => self.recent.remove(nth),
            Place::Table(index) => {
                self.ages.remove(index);
                self.table.remove(index)
            }
        };
        if let Some(run) = run {
            self.pool.finish(run, reason, &mut self.out);
        }
    }

    #[inline(never)]
    fn flush_all(&mut self, reason: FlushReason) {
        if !self.singles.is_empty() {
            self.singles.flush(reason, &mut self.out);
        }
        while let Some((index, _)) = self.ages.oldest() {
            self.flush(Place::Table(index), reason);
        }
        for (_, _, run) in self.recent.drain() {
            self.pool.finish(run, reason, &mut self.out);
        }
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.flush_all(reason, &mut self.pool, &mut self.out);
        }
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
            self.last_batch = self.held() + self.singles.len() + self.held_datagrams();
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
        let datagrams = self.datagrams.as_ref().and_then(|datagrams| datagrams.oldest());
        let since = self.oldest().map(|(_, since)| since).into_iter().chain(datagrams).min()?;
        Some(since + hold)
    }

    fn handle_timeout(&mut self, now: Instant) {
        let Hold::For(hold) = self.hold else { return };
        while let Some((oldest, _)) = self.oldest().filter(|(_, since)| *since + hold <= now) {
            self.flush(oldest, FlushReason::Timeout);
        }
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.flush_due(hold, now, &mut self.pool, &mut self.out);
        }
    }
}
