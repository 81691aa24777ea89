//! The `gro` profile: lossless coalescing. The received packets can be re-created bit for bit.
//!
//! The rules are those of the Linux kernel's `tcp_gro_receive`. Consecutive segments merge if they are equal
//! in every header bit except the IPv4 identification (constant, or incremented by one), PSH and FIN (which
//! end the aggregate), lengths, checksums and the sequence number. All payloads have the length of the first;
//! the last may be shorter. A segment that cannot merge flushes its flow first, and never overtakes it.
//!
//! | case | what happens |
//! |---|---|
//! | SYN, RST, URG, CWR, no payload | flow flushed, frame passed |
//! | PSH or FIN on data | appended, then the flow is flushed; passed if the flow holds nothing |
//! | next in sequence, other header field | flow flushed; the segment starts a new aggregate |
//! | out of order, overlap, old sequence | flow flushed; the segment starts a new aggregate: the host sees the order of arrival |
//! | longer than the first, or no more room | flow flushed; the segment starts a new aggregate |
//! | wrong checksum; of IPv4 headers, also a tunnel's, whatever the checksum status | flow flushed, passed for the host to drop and count (or dropped, by configuration) |
//! | IPv6 with a routing header, an authentication header or a home address option; a first fragment, also of a tunnel | flow flushed, passed |
//! | bytes after the IP packet, a checksum of 0xFFFF | flow flushed, passed: they could not be re-created |
//! | table full | the flow held longest is flushed for the new one |
//! | no free aggregate: the driver and other flows have all of them | the UDP flow held longest is flushed; the frame passes if that frees none |
//! | TCP within IP or PPP over Ethernet, with `Config::tunnels` | as without the tunnel; the tunnel header must be equal except length, checksum and identification (constant, or incremented by one) |
//! | CWR or AE, with `Config::accurate_ecn` | as any other header field: segments with equal flags merge |
//! | UDP datagrams, with `Config::udp` | see `datagrams.rs` |

mod join;
mod shared_pool;

use std::fmt;
use std::mem;
use std::vec::IntoIter;

use nichrome_wire::{Engine, Instant, TcpFlags};
use pulp::NullaryFnOnce;

use crate::burst::{self, Singles};
use crate::checksums;
use crate::common;
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
use crate::segment::{Medium, Segment};
use crate::stats::Statistics;
use crate::table::{AgeList, ConnectionTable, Index};

/// The lossless engine: see the [module](self).
pub struct Gro<B: AsRef<[u8]>> {
    medium: Medium,
    /// True if segments in tunnels are coalesced.
    tunnels: bool,
    /// Flags that do not keep segments from being coalesced, although other profiles pass such segments.
    free_flags: TcpFlags,
    bad_checksum: BadChecksum,
    hold: Hold,
    limits: Limits,
    max_connections: usize,
    hasher: KeyHasher,
    masks: Masks,
    /// The flows that began to hold segments most recently; most flows are flushed from here.
    recent: Recent<B>,
    /// The recent flow whose turn is next, if the flows take turns; else [`Nth::NONE`].
    turn: Nth,
    /// Older flows that still hold segments.
    table: ConnectionTable<PooledRun<B>>,
    ages: AgeList,
    pool: RunPool<B>,
    /// The held UDP datagrams, if `Config::udp` is set.
    datagrams: Option<Box<Datagrams<B>>>,
    /// Number of flows that held segments or datagrams when the last batch ended; 0 unless [`Hold::Batch`].
    last_batch: usize,
    /// Segments that are alone in their flow in this batch.
    singles: Singles<B>,
    out: Outbox<B>,
    /// A reusable vector for bursts of one frame.
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

/// Where a flow's run is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Recent(Nth),
    Table(Index),
}

impl<B: AsRef<[u8]>> Gro<B> {
    /// Creates an engine that holds segments for `hold`, and reserves its memory: see [`Config`].
    ///
    /// # Errors
    /// A value of `config` is out of its range.
    pub fn new(config: &Config, hold: Hold) -> Result<Self, ConfigError> {
        config.validate()?;
        let max_connections = config.holding_connections();
        Ok(Self {
            medium: config.medium,
            tunnels: config.tunnels,
            free_flags: if config.accurate_ecn { TcpFlags::CWR | TcpFlags::AE } else { TcpFlags::NONE },
            bad_checksum: config.bad_checksum.unwrap_or(BadChecksum::Pass),
            hold,
            limits: config.limits(),
            max_connections,
            hasher: KeyHasher::new(config.seed),
            masks: Masks::new(Rule::Lossless),
            recent: Recent::new(),
            turn: Nth::NONE,
            // Few flows hold segments at a time, and few chains fit in the nearest cache.
            table: ConnectionTable::new(max_connections, max_connections / 4, config.seed),
            ages: AgeList::new(max_connections),
            pool: RunPool::new(config.max_aggregates, config.max_segments),
            datagrams: config.udp.then(|| Box::new(Datagrams::new(config))),
            last_batch: 0,
            singles: Singles::new(),
            out: Outbox::new(max_connections + 4),
            single_burst: Vec::with_capacity(1),
        })
    }

    /// Returns the counters since the engine was created.
    pub fn statistics(&self) -> &Statistics {
        &self.out.stats
    }

    /// Returns the number of flows that hold segments now; with [`Hold::Batch`], at the end of the last
    /// batch.
    pub fn connections(&self) -> usize {
        match self.hold {
            Hold::Batch => self.last_batch,
            Hold::For(_) => self.held() + self.held_datagrams(),
        }
    }

    /// Flushes all flows.
    pub fn drain(&mut self) {
        self.flush_all(FlushReason::Drain);
    }

    /// Flushes the TCP flows that have held segments the longest, until this number of frames has left; then
    /// UDP flows.
    pub fn drain_oldest(&mut self, frames: usize) {
        let mut left = frames;
        if left > 0 && !self.singles.is_empty() {
            left = left.saturating_sub(self.singles.len());
            self.singles.flush(FlushReason::Drain, &mut self.out);
        }
        while left > 0
            && let Some((place, _)) = self.oldest()
        {
            left = left.saturating_sub(self.run_mut(place).map_or(0, |run| run.segments()));
            self.flush(place, FlushReason::Drain);
        }
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.flush_oldest(left, FlushReason::Drain, &mut self.pool, &mut self.out);
        }
    }

    /// Returns the number of TCP flows that hold segments.
    #[inline]
    fn held(&self) -> usize {
        self.recent.len() + self.table.len()
    }

    /// Returns the number of UDP flows that hold datagrams.
    #[inline]
    fn held_datagrams(&self) -> usize {
        self.datagrams.as_ref().map_or(0, |datagrams| datagrams.len())
    }

    /// Finds the run of a flow.
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

    /// Returns the run at `place`.
    #[inline(always)]
    fn run_mut(&mut self, place: Place) -> Option<&mut Run<B>> {
        match place {
            Place::Recent(nth) => self.recent.get_mut(nth),
            Place::Table(index) => self.table.get_mut(index).map(|run| &mut **run),
        }
    }

    /// Consumes the frames.
    #[inline]
    fn receive_frames(&mut self, frames: &mut Vec<Frame<B>>, now: Instant) {
        self.masks.arch.dispatch(ReceiveFrames { gro: self, frames, now });
    }

    /// As [`Gro::receive_frames`]; `alone` has the bits of the frames that are alone in their flow.
    #[inline(never)]
    fn receive_singles(&mut self, frames: &mut Vec<Frame<B>>, alone: u64, now: Instant) {
        let mut burst = mem::take(frames).into_iter();
        while !burst.as_slice().is_empty() {
            if !self.receive_alone(&mut burst, alone) {
                self.receive_other(&mut burst, now);
            }
        }
        *frames = burst::emptied(burst);
    }

    /// As [`Gro::receive_next`], not inlined: one copy of its code for all callers.
    #[inline(never)]
    fn receive_other(&mut self, frames: &mut IntoIter<Frame<B>>, now: Instant) {
        self.receive_next(frames, now);
    }

    /// Consumes the first frame, and the following frames that extend it.
    #[inline(always)]
    fn receive_next(&mut self, frames: &mut IntoIter<Frame<B>>, now: Instant) {
        if self.join_turn(frames, now) {
            return;
        }
        let Some(first) = frames.as_slice().first() else { return };
        let head = first.bytes().first_chunk().filter(|_| self.medium == Medium::Ethernet);
        let Some(head) = head else { return self.receive_uncommon(frames, now) };
        // For an uncommon frame the hash is of arbitrary header bytes, but equal for frames with equal
        // headers.
        let flow = common::flow(head);
        let hash = self.hasher.hash(&flow);
        if let Some(nth) = self.recent.likely(hash) {
            if self.join_common(nth, frames, now) {
                self.turn = self.recent.after(nth);
                return;
            }
            if self.hold_instead(nth, frames, hash, flow, now) {
                return;
            }
        } else if self.table.len() == 0
            // No flow with this hash holds segments.
            && let Some(segment) = common::first_segment(first.bytes())
            && checksums::verify_common(first, segment.layout, segment.payload_len).is_ok()
            && self.hold_common(frames, hash, flow, segment, now)
        {
            return;
        }
        self.receive_known(frames, now);
    }

    /// Consumes the leading frames whose bit in `alone` is set and that are common segments which can be
    /// held. Returns false if there are none.
    #[inline(always)]
    fn receive_alone(&mut self, frames: &mut IntoIter<Frame<B>>, alone: u64) -> bool {
        let (mut count, mut payload) = (0, 0);
        let bits = (0..frames.len()).rev().map(|place| alone >> place & 1);
        for (frame, is_alone) in frames.as_slice().iter().zip(bits) {
            if is_alone == 0 {
                break;
            }
            let Some(segment) = common::first_segment(frame.bytes()) else { break };
            if checksums::verify_common(frame, segment.layout, segment.payload_len).is_err() {
                break;
            }
            count += 1;
            payload += u64::from(segment.payload_len);
        }
        if count > 0 {
            self.singles.hold(frames.take(count), payload);
        }
        count > 0
    }

    /// Returns a bit mask of the frames that are alone in their flow; 0 if the search would cost more than it
    /// saves, or if segments are held.
    #[inline]
    fn alone(&self, frames: &[Frame<B>]) -> u64 {
        if self.search_pays(frames.len()) && self.held() == 0 && self.medium == Medium::Ethernet {
            burst::alone(frames)
        } else {
            0
        }
    }

    /// Returns true if enough of this number of frames are probably alone in their flow to be worth a search.
    #[inline]
    fn search_pays(&self, frames: usize) -> bool {
        /// A smaller batch may be the rest of a larger one.
        const LEAST: usize = 8;
        self.last_batch > frames / 2 && frames >= LEAST
    }

    /// Starts runs with the segments held as singles: the batch continues.
    #[cold]
    fn hold_singles(&mut self, now: Instant) {
        let mut frames = self.singles.take();
        self.receive_frames(&mut frames, now);
        self.singles.give_back(frames);
    }

    /// Consumes the first frame, whose flow may hold segments.
    #[inline(never)]
    fn receive_known(&mut self, frames: &mut IntoIter<Frame<B>>, now: Instant) {
        let Some(frame) = frames.as_slice().first() else { return };
        match parse::parse_common(frame.bytes(), self.medium) {
            Some(segment) => self.receive_segment(frames, self.hasher.hash(&segment.flow), &segment, now),
            None => self.receive_uncommon(frames, now),
        }
    }

    /// Consumes the first frame, which is not a common one.
    #[inline(never)]
    fn receive_uncommon(&mut self, frames: &mut IntoIter<Frame<B>>, now: Instant) {
        let Some(frame) = frames.as_slice().first() else { return };
        let parsed = parse::parse_any(frame.bytes(), self.medium);
        match parsed {
            Parsed::Other(PassReason::NotTcp) => self.receive_not_tcp(frames, now),
            parsed => self.receive_parsed(frames, &parsed, now),
        }
    }

    /// Consumes the first frame, whose headers are `parsed`.
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

    /// Consumes the first frame, which may be a UDP datagram or a TCP segment in a tunnel.
    fn receive_not_tcp(&mut self, frames: &mut IntoIter<Frame<B>>, now: Instant) {
        let Some(frame) = frames.as_slice().first() else { return };
        if let Some(datagrams) = &mut self.datagrams
            && let Some(packet) = datagram::read(frame.bytes(), self.medium)
        {
            if let Err(frame) = datagrams.receive(frames, &packet, now, &mut self.pool, &mut self.out) {
                self.receive_datagram_again(frame, &packet, now);
            }
            return;
        }
        let parsed = match self.tunnels {
            true => parse::parse_tunneled(frame.bytes(), self.medium),
            false => Parsed::Other(PassReason::NotTcp),
        };
        self.receive_parsed(frames, &parsed, now);
    }

    /// Consumes the first frame, a TCP segment.
    fn receive_segment(
        &mut self,
        frames: &mut IntoIter<Frame<B>>,
        hash: u32,
        segment: &Segment,
        now: Instant,
    ) {
        if let Some(place) = self.find(hash, &segment.flow) {
            let is_common = common::is_layout(segment.layout) && matches!(place, Place::Recent(_));
            if !is_common && self.join_expected(place, frames) {
                return;
            }
            let Some(frame) = frames.as_slice().first() else { return };
            match self.joining(place, frame) {
                Ok(follower) => return self.join(place, frames, &follower),
                Err(_) if lossless::why_not_held(segment, frame, self.free_flags).is_some() => {
                    self.flush(place, FlushReason::Barrier);
                }
                Err(reason) => self.flush(place, reason),
            }
        }
        self.receive_first(frames, hash, segment, now);
    }

    /// Consumes the first frame, a segment of a flow that holds nothing.
    fn receive_first(&mut self, frames: &mut IntoIter<Frame<B>>, hash: u32, segment: &Segment, now: Instant) {
        let Some(frame) = frames.as_slice().first() else { return };
        self.out.stats.tcp_payload_bytes_in += u64::from(segment.payload_len);
        match lossless::why_not_held(segment, frame, self.free_flags) {
            None => self.hold(frames, hash, segment, now),
            Some(reason) => self.pass_or_drop(frames, segment, reason),
        }
    }

    /// Passes the first frame, which cannot be held, or drops it for a wrong checksum, as configured.
    #[inline(never)]
    fn pass_or_drop(&mut self, frames: &mut IntoIter<Frame<B>>, segment: &Segment, reason: PassReason) {
        let Some(frame) = frames.as_slice().first() else { return };
        if reason == PassReason::BadChecksum
            && self.bad_checksum == BadChecksum::Drop
            && let Err(reason) = checksums::verify(frame, segment.layout, segment.payload_len)
        {
            return frames.next().into_iter().for_each(|frame| self.out.drop(frame, reason));
        }
        self.pass(frames, segment.payload_len, reason);
    }

    /// Passes the first frame.
    #[inline]
    fn pass(&mut self, frames: &mut IntoIter<Frame<B>>, payload_len: u32, reason: PassReason) {
        if let Some(frame) = frames.next() {
            self.out.pass(frame, payload_len, reason);
        }
    }

    /// Starts a run with the first frame, a flow's first segment, and appends the following frames that
    /// extend it.
    fn hold(&mut self, frames: &mut IntoIter<Frame<B>>, hash: u32, segment: &Segment, now: Instant) {
        if self.held() >= self.max_connections
            && let Some((oldest, _)) = self.oldest()
        {
            self.flush(oldest, FlushReason::Evicted);
        }
        let Some(frame) = frames.next() else { return };
        let started = self.pool.start(frame, segment, Rule::Lossless, self.limits, now);
        let run = match started.or_else(|frame| self.start_in_place_of_datagrams(frame, segment, now)) {
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

    /// Moves the recent flows to the table.
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

    /// Returns the flow held longest, and when it began to hold segments.
    #[inline]
    fn oldest(&self) -> Option<(Place, Instant)> {
        if let Some((index, since)) = self.ages.oldest() {
            return Some((Place::Table(index), since));
        }
        let (nth, run) = self.recent.oldest()?;
        Some((Place::Recent(nth), run.since))
    }

    /// Flushes a flow.
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

    #[inline]
    fn flush_all(&mut self, reason: FlushReason) {
        self.masks.arch.dispatch(FlushAll { gro: self, reason });
    }
}

/// [`Gro::receive_frames`], compiled once for AVX2 and once without.
struct ReceiveFrames<'a, B: AsRef<[u8]>> {
    gro: &'a mut Gro<B>,
    frames: &'a mut Vec<Frame<B>>,
    now: Instant,
}

impl<B: AsRef<[u8]>> NullaryFnOnce for ReceiveFrames<'_, B> {
    type Output = ();

    /// Examines each frame in place and moves it once.
    #[inline(always)]
    fn call(self) {
        let Self { gro, frames, now } = self;
        let mut burst = mem::take(frames).into_iter();
        while !burst.as_slice().is_empty() {
            gro.receive_next(&mut burst, now);
        }
        *frames = burst::emptied(burst);
    }
}

/// [`Gro::flush_all`], compiled once for AVX2 and once without.
struct FlushAll<'a, B: AsRef<[u8]>> {
    gro: &'a mut Gro<B>,
    reason: FlushReason,
}

impl<B: AsRef<[u8]>> NullaryFnOnce for FlushAll<'_, B> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { gro, reason } = self;
        if !gro.singles.is_empty() {
            gro.singles.flush(reason, &mut gro.out);
        }
        while let Some((index, _)) = gro.ages.oldest() {
            gro.flush(Place::Table(index), reason);
        }
        for (_, _, run) in gro.recent.drain() {
            gro.pool.finish_next(run, reason, &mut gro.out);
        }
        if let Some(datagrams) = &mut gro.datagrams {
            datagrams.flush_all(reason, &mut gro.pool, &mut gro.out);
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
        match self.alone(frames) {
            0 => self.receive_frames(frames, now),
            alone => self.receive_singles(frames, alone, now),
        }
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
