//! The `npu` profile: receive offload as in lro-npu, section IV, with reordering by sequence number.
//!
//! Each connection has a `ConnectionDescriptor` in the ConnectionTable, from memory reserved at start. Data segments
//! go through the filter (IV.B), are put in order (IV.C, Algorithms 1 to 3), and are handed to the host as one packet
//! (IV.D) when 64 KB of consecutive payload are there, when a FIN comes, or on a timeout of ten average intervals
//! between arrivals (IV.E). The header of the whole (section II): sequence number and timestamps of the first segment,
//! ACK number and window of the last. [Active ACK](ActiveAck) (V.C) is an output of its own.
//!
//! Where a rule of the paper would break a connection, the safe rule is the default. [`NpuConfig::paper`] has the paper's
//! rules as far as the last column says; [`ActiveAck::Paper`] is V.C. "Ours" there: the safe rule also holds with the paper's.
//!
//! | case | the paper | here by default | `NpuConfig::paper` |
//! |---|---|---|---|
//! | comparing sequence numbers | as integers | serial arithmetic | ours |
//! | below nextseq | dropped (Algorithm 1) | everything held goes up, then the segment: the host may have lost what it was handed, or must answer a keepalive. What follows it without a gap is merged again. With active ACK, what the host has acknowledged is dropped and acknowledged again | paper |
//! | the same bytes held already | dropped (Algorithm 2) | as below nextseq | paper |
//! | begins below nextseq, ends above | dropped (Algorithm 1) | as below nextseq | paper |
//! | overlaps what waits behind a gap | both kept | as below nextseq | ours: the host would get the bytes twice |
//! | Insert (Algorithm 2) at the end | never happens as printed | appends | ours |
//! | a gap that is not filled | held until the timeout | held `reorder_hold` only: a gap hides loss from the sender | paper: at most 60 s, as any timeout |
//! | further ahead than `reorder_bytes` | held | everything held goes up, then the segment | paper: up to 1 GB ahead |
//! | more than `reorder_segments` behind a gap | held | everything held goes up, then the segment | ours, at 1,023 segments: memory is reserved at start |
//! | more than `max_segments` in an aggregate | held to 64 KB | the aggregate ends (128 by default) | ours: memory is reserved at start |
//! | SYN | takes a descriptor | takes nothing: SYNs are free to forge. A connection takes its descriptor with its first data, also mid-stream | paper; mid-stream as ours |
//! | FIN | held data, then the descriptor is released | the same; FIN itself is passed after it | paper |
//! | RST, URG, pure ACK, window probe, other options | not said, or forwarded | everything held goes up first, then the segment; the descriptor stays | ours |
//! | ECN, TOS, flags | not compared | unequal ones never merge; CWR never merges | ours |
//! | an older timestamp behind a newer one | merged | not merged, but with its equals: PAWS must see it | ours |
//! | ACK number of the whole | of the last segment | the latest of all, with its window: after reordering, the last is not the newest | ours |
//! | average interval | of all intervals | without pauses longer than the ceiling, from the third on while segments come in trains: they say nothing of how long a train goes on | paper |
//! | timeout | ten average intervals | within a floor and a ceiling, and the ceiling holds from the first segment on, too | paper: no floor, a ceiling of 60 s |
//! | time of an arrival | of each packet | one for a burst, whose segments arrive at once | ours |
//! | segments further apart than the ceiling | each held until the ceiling, in vain | after two such intervals in a row, handed on at once, until two come nearer to each other; meanwhile the connection has no descriptor (but with active ACK) | paper |
//! | ACKs that a burst makes (V.C) | one for each packet | the same, at most 64 between two polls of the driver | ours |
//! | no free descriptor | not said | one that was not used lately is evicted, its data handed on; if it has held one segment only, the next that comes later than the ceiling is handed on at once | ours; the next is held |
//! | no free aggregate | not said | the segment is passed | ours |
//! | PSH | not said | ignored, since the timeouts deliver; or ends the aggregate | ours |

mod ack;
mod acker;
mod config;
mod descriptor;
mod host;
mod lull;
mod receive;
mod reconstruct;
mod reorder;

use std::fmt;
use std::mem;

use nichrome_wire::{Engine, Instant, SeqNumber, TcpFlags, TcpHeader, TimingWheel};

pub use self::ack::ActiveAck;
pub use self::config::{NpuConfig, PshRule, Rules};

use self::acker::Acker;
use self::descriptor::{ConnectionDescriptor, Timeouts};
use self::lull::Lulls;
use self::reorder::ReorderList;
use crate::config::{BadChecksum, Config, ConfigError};
use crate::frame::Frame;
use crate::mask::{Masks, Rule};
use crate::outbox::{Outbox, Output};
use crate::parse::{self, Parsed};
use crate::reason::{FlushReason, PassReason};
use crate::recycle::Recycler;
use crate::run::Limits;
use crate::run_pool::RunPool;
use crate::segment::{Medium, Segment};
use crate::stats::Statistics;
use crate::table::{ConnectionTable, Index};

/// Nanoseconds between two places of the timing wheel, whose turn takes 4.2 ms.
const WHEEL_TICK: u64 = 1024;

/// The reordering engine: see the [module](self).
pub struct Npu<B: AsRef<[u8]>> {
    medium: Medium,
    bad_checksum: BadChecksum,
    limits: Limits,
    config: NpuConfig,
    timeouts: Timeouts,
    table: ConnectionTable<ConnectionDescriptor<B>>,
    /// The timeout checking thread of IV.E.
    wheel: TimingWheel<WHEEL_TICK>,
    runs: RunPool<B>,
    masks: Masks,
    lists: Recycler<ReorderList<B>>,
    acker: Option<Acker>,
    lulls: Lulls,
    /// For so many of the next segments it is likely that their connections are in a lull.
    lulls_likely: u32,
    /// Connections that took segments of this burst, whose timers are not set to them yet.
    untimed: Vec<Index>,
    out: Outbox<B>,
    /// Room for a burst of one frame.
    single_burst: Vec<Frame<B>>,
}

impl<B: AsRef<[u8]>> fmt::Debug for Npu<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Npu").field("config", &self.config).finish_non_exhaustive()
    }
}

impl<B: AsRef<[u8]>> Npu<B> {
    /// An engine with all its memory reserved.
    ///
    /// # Errors
    /// A value of `config` or `npu` is out of its range.
    pub fn new(config: &Config, npu: &NpuConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        npu.validate()?;
        let lists = config.max_aggregates.min(config.max_connections).div_ceil(8);
        Ok(Self {
            medium: config.medium,
            bad_checksum: config.bad_checksum.unwrap_or(BadChecksum::Drop),
            limits: config.limits(),
            config: *npu,
            timeouts: Timeouts::new(npu),
            // Many connections are known, and one that is not the first of its chain costs a cache miss more.
            table: ConnectionTable::new(config.max_connections, config.max_connections * 4, config.seed),
            wheel: TimingWheel::new(config.max_connections),
            runs: RunPool::new(config.max_aggregates, config.max_segments),
            masks: Masks::new(Rule::Stream),
            lists: Recycler::new((0..lists).map(|_| ReorderList::new(npu.reorder_segments))),
            acker: Acker::new(npu.active_ack, config.max_connections),
            lulls: Lulls::new(config.max_connections),
            lulls_likely: 0,
            untimed: Vec::with_capacity(Self::UNTIMED),
            out: Outbox::new(npu.reorder_segments + 64),
            single_burst: Vec::with_capacity(1),
        })
    }

    /// The most connections whose timers are left.
    const UNTIMED: usize = 64;

    /// What the engine has done so far.
    pub fn statistics(&self) -> &Statistics {
        &self.out.stats
    }

    /// Connections that have a descriptor.
    pub fn connections(&self) -> usize {
        self.table.len()
    }

    /// Hands on everything that is held.
    pub fn drain(&mut self) {
        for index in self.table.indexes() {
            self.reconstruct_all(index, FlushReason::Drain);
        }
    }

    /// Learns from a frame that the host sends: its window scale, what it has acknowledged, how far its window goes.
    pub fn observe_transmit(&mut self, frame: &[u8]) {
        let Some(acker) = &mut self.acker else { return };
        let Parsed::Tcp(segment) = parse::parse(frame, self.medium) else { return };
        let flow = segment.flow.reversed();
        let hash = self.table.hash(&flow);
        if segment.flags.contains(TcpFlags::SYN) {
            acker.handshakes.host_syn(hash, flow, segment.flags, options(frame, &segment));
        }
        let scale = acker.handshakes.scale(hash, &flow);
        if let Some(index) = self.table.find(hash, &flow)
            && let Some(host) = acker.host(index)
        {
            host.observe(&segment, scale);
        }
    }

    /// Learns that the host did not take a packet. On its connection, nothing is acknowledged until the host has spoken.
    pub fn observe_refusal(&mut self, packet: &[u8]) {
        let Some(acker) = &mut self.acker else { return };
        let flow = match parse::parse(packet, self.medium) {
            Parsed::Tcp(segment) => segment.flow,
            Parsed::Barrier { flow, .. } => flow,
            Parsed::Other(_) => return,
        };
        if let Some(index) = self.table.find(self.table.hash(&flow), &flow)
            && let Some(host) = acker.host(index)
        {
            host.stop();
        }
    }

    /// Takes a descriptor for a new connection, from one that was not used lately if none is free (IV.A).
    fn establish(&mut self, hash: u32, segment: &Segment, nextseq: SeqNumber, now: Instant) -> Option<Index> {
        if self.table.is_full() {
            let victim = self.table.victim()?;
            self.reconstruct_all(victim, FlushReason::Evicted);
            self.evict(victim);
        }
        let index = self.table.insert(hash, segment.flow, ConnectionDescriptor::new(nextseq, now)).ok()?;
        self.lulls.joined(hash);
        Some(index)
    }

    /// Gives a descriptor back of which another has more need. If its connection goes on as sparsely as it began, it has no need
    /// of one.
    fn evict(&mut self, victim: Index) {
        let is_free = self.config.rules == Rules::Safe && self.acker.is_none();
        let sparse = self.table.peek(victim).filter(|descriptor| is_free && descriptor.is_single());
        let heard = sparse.map(|descriptor| descriptor.last_arrival).zip(self.table.key(victim));
        self.release(victim);
        if let Some((last_arrival, (hash, _))) = heard {
            self.lulls.heard(hash, last_arrival);
        }
    }

    /// Gives a descriptor back.
    fn release(&mut self, index: Index) {
        self.wheel.cancel(index.0);
        let Some((hash, flow)) = self.table.key(index) else { return };
        if let Some(acker) = &mut self.acker {
            acker.forget(index);
            acker.handshakes.forget(hash, &flow);
        }
        self.table.remove(index);
        self.lulls.left(hash);
    }

    /// A segment that is not data: a barrier. Everything held of its connection goes up, then it, untouched.
    fn receive_control(
        &mut self,
        found: Option<Index>,
        hash: u32,
        frame: Frame<B>,
        segment: &Segment,
        reason: PassReason,
        now: Instant,
    ) {
        let syn = segment.flags.contains(TcpFlags::SYN);
        if syn && let Some(acker) = &mut self.acker {
            acker.handshakes.peer_syn(hash, segment.flow, segment.flags, options(frame.bytes(), segment));
        }
        if let Some(index) = found {
            self.reconstruct_all(index, FlushReason::Barrier);
            if syn {
                self.restart(index, segment, now);
            } else if segment.flags.contains(TcpFlags::RST)
                && let Some(host) = self.acker.as_mut().and_then(|acker| acker.host(index))
            {
                host.stop();
            }
            self.handed(index, segment);
        } else if syn && self.config.rules == Rules::Paper {
            self.establish(hash, segment, segment.end() + 1, now);
        }
        self.out.pass(frame, segment.payload_len, reason);
        if let Some(index) = found
            && segment.flags.contains(TcpFlags::FIN)
        {
            self.release(index);
        }
    }

    /// A SYN on a known four-tuple: a new connection, whose data begins after it.
    fn restart(&mut self, index: Index, segment: &Segment, now: Instant) {
        if let Some(descriptor) = self.table.get_mut(index) {
            *descriptor = ConnectionDescriptor::new(segment.end() + 1, now);
        }
        if let Some(acker) = &mut self.acker {
            acker.forget(index);
        }
    }

    /// Notes that a segment was handed on by itself.
    fn handed(&mut self, index: Index, segment: &Segment) {
        if segment.payload_len > 0
            && let Some(descriptor) = self.table.get_mut(index)
        {
            descriptor.catch_up(segment.end());
        }
        let end = segment.end() + u32::from(segment.flags.contains(TcpFlags::SYN));
        self.tell_host(index, segment.seq, end);
        if segment.congestion_experienced {
            self.leave_to_host(index, end);
        }
    }

    /// Notes for active ACK that the host was handed the bytes from `seq` to `end`.
    fn tell_host(&mut self, index: Index, seq: SeqNumber, end: SeqNumber) {
        if let Some(host) = self.acker.as_mut().and_then(|acker| acker.host(index)) {
            host.handed(seq, end);
        }
    }

    /// Notes for active ACK that the host has something to say of what is before `end`.
    fn leave_to_host(&mut self, index: Index, end: SeqNumber) {
        if let Some(host) = self.acker.as_mut().and_then(|acker| acker.host(index)) {
            host.leave_to_host(end);
        }
    }

    /// Sees to it that the timer of a connection that says so is set once [`Npu::settle_timers`] is called: more segments of the
    /// burst may be of the same.
    #[inline]
    fn leave_untimed(&mut self, index: Index, now: Instant) {
        if self.untimed.len() >= Self::UNTIMED {
            self.settle_timers(now);
        }
        self.untimed.push(index);
    }

    /// Sets the timers that were left.
    #[inline]
    fn settle_timers(&mut self, now: Instant) {
        let mut untimed = mem::take(&mut self.untimed);
        for index in untimed.drain(..) {
            if let Some(descriptor) = self.table.get_mut(index) {
                descriptor.untimed = false;
            }
            self.set_timer(index, now);
        }
        self.untimed = untimed;
    }

    /// Sets the timer to what the connection holds.
    #[inline]
    fn set_timer(&mut self, index: Index, now: Instant) {
        if let Some(descriptor) = self.table.get_mut(index)
            && let Some(deadline) = self.timeouts.deadline(descriptor)
        {
            self.wheel.set(index.0, deadline, now);
        }
    }
}

/// The filter (IV.B, Figure 6): why a segment is not data that may wait and be merged; `None` where it may.
fn filter(segment: &Segment) -> Option<PassReason> {
    if let Some(reason) = segment.control() {
        Some(reason)
    } else if segment.flags.contains(TcpFlags::FIN) {
        Some(PassReason::Fin)
    } else if segment.other_options {
        Some(PassReason::TcpOptions)
    } else {
        None
    }
}

/// The TCP options of a frame.
fn options<'a>(frame: &'a [u8], segment: &Segment) -> &'a [u8] {
    let tcp = frame.get(usize::from(segment.layout.transport)..).unwrap_or_default();
    TcpHeader::new(tcp).and_then(|tcp| tcp.options()).unwrap_or_default()
}

impl<B: AsRef<[u8]>> Engine for Npu<B> {
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
        self.receive_burst(frames, now);
        self.settle_timers(now);
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
        self.wheel.next_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(index) = self.wheel.expire(now).map(Index) {
            let Some(descriptor) = self.table.peek(index) else { continue };
            if self.timeouts.gap_deadline(descriptor).is_some_and(|deadline| deadline <= now) {
                self.reconstruct_all(index, FlushReason::ReorderTimeout);
            } else if self.timeouts.run_deadline(descriptor).is_some_and(|deadline| deadline <= now) {
                self.reconstruct(index, FlushReason::Timeout);
            }
            self.set_timer(index, now);
        }
    }
}
