//! The `npu` profile: receive offload as in lro-npu, section IV, with reordering by sequence number.
//!
//! Each connection has a `ConnectionDescriptor` in the ConnectionTable, in memory reserved at start. Data
//! segments pass the filter (IV.B), are put in order (IV.C, Algorithms 1 to 3), and are delivered to the host
//! as one packet (IV.D) at 64 KB of consecutive payload, on FIN, or after a timeout of ten average
//! inter-arrival times (IV.E). The packet's header (section II) has the sequence number and timestamps of the
//! first segment, and the ACK number and window of the last. [Active ACK](ActiveAck) (V.C) generates outputs
//! of its own.
//!
//! Where a rule of the paper would break a connection, the safe rule is the default. [`NpuConfig::paper`]
//! selects the paper's rules; "ours" in the last column marks the cases in which it keeps the safe rule.
//! [`ActiveAck::Paper`] selects V.C.
//!
//! | case | the paper | here by default | `NpuConfig::paper` |
//! |---|---|---|---|
//! | comparing sequence numbers | as integers | serial arithmetic | ours |
//! | below nextseq | dropped (Algorithm 1) | the connection's segments are flushed, then the segment passes: the host may have dropped its bytes, or must answer a keepalive. The in-order segments after it are merged again. With active ACK, bytes that the host has acknowledged are dropped and acknowledged again | paper |
//! | same bytes as a held segment | dropped (Algorithm 2) | as below nextseq | paper |
//! | begins below nextseq, ends above | dropped (Algorithm 1) | as below nextseq | paper |
//! | overlaps a segment behind a gap | both kept | as below nextseq | ours: the host would get the bytes twice |
//! | Insert (Algorithm 2) at the end | never happens as printed | appends | ours |
//! | a gap that is not filled | held until the timeout | held for `reorder_hold` only: a gap hides loss from the sender | paper: at most 60 s, as any timeout |
//! | further ahead than `reorder_bytes` | held | the connection's segments are flushed, then the segment passes. It may be forged: nextseq moves to its end only if the next segment is within `reorder_bytes` of that | paper: up to 1 GB ahead |
//! | many runs in order that begin more than `reorder_bytes` before the end of the stream | dropped | the stream continues there: the segment that moved its end counts as forged | paper |
//! | more than `reorder_segments` behind a gap | held | the connection's segments are flushed, then the segment passes | ours, at 1,023 segments: memory is reserved at start |
//! | more than `max_segments` in an aggregate | held to 64 KB | the aggregate ends (128 by default) | ours: memory is reserved at start |
//! | SYN | takes a descriptor | takes nothing: SYNs are cheap to forge. A connection takes its descriptor with data, also mid-stream | paper; mid-stream as ours |
//! | the first burst of a connection, and bursts further apart than the ceiling | take or have a descriptor | are coalesced within their receive batch without a descriptor (except with active ACK), for up to 64 connections at a time. A connection takes a descriptor when it comes back within the ceiling, when the batch continues at a later time, and with a segment that is not next in sequence or does not merge; missing bytes are then waited for until the batch ends. A connection releases its descriptor after four intervals above the ceiling in a row. Without a descriptor, the engine knows neither its earlier sequence numbers nor its timestamps | paper |
//! | SYN of a known connection | not said | restarts the stream, except for a SYN-ACK at most `reorder_bytes` before nextseq, which is a retransmission or late | always restarts the stream |
//! | FIN | delivers held data, then releases the descriptor | the same if no byte before the FIN is missing and none behind it was received; other FINs may be forged, and do not release the descriptor. The FIN itself passes after the held data | paper |
//! | first fragments, segments that are not parsed (IPv6 routing header or home address) | not said | the connection's segments are flushed, then the packet passes. Its end is unknown, so the next segment does not wait for the bytes between | ours |
//! | RST, URG, pure ACK, window probe, other options | not said, or forwarded | the connection's segments are flushed, then the segment passes; the descriptor stays | ours |
//! | ECN, TOS, flags | not compared | unequal ones never merge; CWR never merges | ours |
//! | an older timestamp behind a newer one | merged | merged only with segments that have an equal timestamp: the host's PAWS test must see it. After many deliveries in a row with older timestamps, the newest counts as forged | ours |
//! | ACK number of the aggregate | of the last segment | the latest of all, with its window: after reordering, the last segment is not the newest | ours |
//! | average interval | of all intervals | while segments come in trains, without the intervals above the ceiling, from the third on: these do not predict how long a train continues | paper |
//! | timeout | ten average intervals | within a floor and a ceiling; the ceiling also limits the time from the first segment on | paper: no floor, a ceiling of 60 s |
//! | time of an arrival | of each packet | one per burst: its segments arrive together | ours |
//! | inter-arrival times above the ceiling | each segment held until the ceiling, and delivered alone | after two such intervals in a row, or one without a descriptor, the connection is sparse until two segments arrive closer together: its segments are delivered at once (several in a row in one burst: when the batch ends), and it has no descriptor (except with active ACK). If the last 64 bursts of connections without a descriptor were single segments, a connection that shares its cell in the last-arrival cache with a sparse one also counts as sparse. Without a descriptor, an interval of more than 1.07 s is above any ceiling | paper |
//! | intervals above the timeout | held until the timeout, though no segment joins | after four such intervals in a row, and at the start of a connection, the segments of a receive batch are delivered when the batch ends, until segments arrive within the timeout of the previous ones. If the driver ends no batch, or segments wait behind a gap, the timeout delivers | paper |
//! | ACKs for a burst (V.C) | one per packet | the same, at most 64 between two polls of the driver | ours |
//! | no free descriptor | not said | a connection that was not used lately is evicted, and its data delivered. If it has had one segment only, it then counts as sparse. If more than 64 connections without a descriptor have segments in one batch, none is evicted for them: their segments are delivered before the batch ends | ours; not as sparse |
//! | no free aggregate | not said | the runs that the end of the batch would deliver are delivered early, else the run whose timer fires next; if that frees none, the segment passes | ours |
//! | PSH | not said | ignored, since a timeout delivers; or ends the aggregate | ours |

mod ack;
mod acker;
mod config;
mod descriptor;
mod host;
mod last_arrivals;
mod order;
mod receive;
mod reconstruct;
mod reorder;
mod timers;
mod undescribed;

use std::fmt;
use std::mem;

use nichrome_wire::{Engine, Instant, SeqNumber, TcpFlags, TcpHeader, TimingWheel};

pub use self::ack::ActiveAck;
pub use self::config::{NpuConfig, PshRule, Rules};

use self::acker::Acker;
use self::descriptor::{ConnectionDescriptor, MAX_OPAQUE_LEN, Timeouts};
use self::last_arrivals::LastArrivals;
use self::order::Order;
use self::reorder::ReorderList;
use crate::config::{BadChecksum, Config, ConfigError};
use crate::flow::FlowKey;
use crate::frame::Frame;
use crate::mask::{Masks, Rule};
use crate::outbox::{Outbox, Output};
use crate::parse::{self, Parsed};
use crate::reason::{FlushReason, PassReason};
use crate::recent::Recent;
use crate::recycle::Recycler;
use crate::run::{Limits, PooledRun};
use crate::run_pool::RunPool;
use crate::segment::{Medium, Segment};
use crate::stats::Statistics;
use crate::table::{ConnectionTable, Index};

/// Resolution of the timing wheel in nanoseconds; its period is 4.2 ms.
const WHEEL_TICK: u64 = 1024;

/// The reordering engine: see the [module](self).
pub struct Npu<B: AsRef<[u8]>> {
    medium: Medium,
    bad_checksum: BadChecksum,
    limits: Limits,
    config: NpuConfig,
    timeouts: Timeouts,
    /// The flags that end an aggregate.
    ends: TcpFlags,
    table: ConnectionTable<ConnectionDescriptor<B>>,
    /// The timeout checking thread of IV.E.
    wheel: TimingWheel<WHEEL_TICK>,
    runs: RunPool<B>,
    masks: Masks,
    lists: Recycler<ReorderList<B>>,
    acker: Option<Acker>,
    /// True if [common frames](crate::common) start runs without being parsed: with Ethernet headers, and
    /// without active ACK.
    starts_trains: bool,
    last_arrivals: LastArrivals,
    /// True if segments of connections without a descriptor are coalesced: under the safe rules, and without
    /// active ACK.
    coalesces_undescribed: bool,
    /// The runs of connections without a descriptor. The end of the receive batch delivers them.
    undescribed: Recent<B>,
    /// Connections whose runs moved to descriptors in this receive batch, and their hashes.
    promoted: Vec<(Index, u32)>,
    /// Used at the end of a receive batch: the runs of connections that came back within the hold limit, with
    /// hash, flow and previous arrival.
    returned: Vec<(u32, FlowKey, PooledRun<B>, Instant)>,
    /// Number of single segments in the last burst, or so far in this one, that needed the last arrival of
    /// their connection.
    last_arrival_lookups: usize,
    /// Connections that took segments of the last burst and whose timers are not set yet.
    untimed: Vec<Index>,
    /// When the last burst arrived.
    burst_at: Instant,
    /// Approximate number of connections in the last burst.
    burst_connections: usize,
    /// Connections that [time out between bursts](ConnectionDescriptor::times_out_between_bursts) and took
    /// segments of this receive batch, whose end delivers their runs.
    until_end: Vec<Index>,
    /// The earliest deadline of the connections in `until_end`, for drivers that end no batch;
    /// [`Instant::MAX`] if there are none.
    until_end_deadline: Instant,
    /// The order in which connections with a descriptor take turns.
    order: Order,
    out: Outbox<B>,
    /// A reusable vector for bursts of one frame.
    single_burst: Vec<Frame<B>>,
}

impl<B: AsRef<[u8]>> fmt::Debug for Npu<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Npu").field("config", &self.config).finish_non_exhaustive()
    }
}

impl<B: AsRef<[u8]>> Npu<B> {
    /// Creates an engine and reserves its memory: see [`Config`].
    ///
    /// # Errors
    /// A value of `config` or `npu` is out of its range.
    pub fn new(config: &Config, npu: &NpuConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        npu.validate()?;
        let lists = config.max_aggregates.min(config.max_connections).div_ceil(8);
        let timeouts = Timeouts::new(npu);
        let acker = Acker::new(npu.active_ack, config.max_connections);
        Ok(Self {
            medium: config.medium,
            bad_checksum: config.bad_checksum.unwrap_or(BadChecksum::Drop),
            limits: config.limits(),
            config: *npu,
            timeouts,
            ends: if npu.psh == PshRule::End { TcpFlags::PSH } else { TcpFlags::NONE },
            // There are many connections, and each step along a chain costs a cache miss.
            table: ConnectionTable::new(config.max_connections, config.max_connections * 4, config.seed),
            wheel: TimingWheel::new(config.max_connections),
            runs: RunPool::new(config.max_aggregates, config.max_segments),
            masks: Masks::new(Rule::Stream),
            lists: Recycler::new((0..lists).map(|_| ReorderList::new(npu.reorder_segments))),
            starts_trains: acker.is_none() && config.medium == Medium::Ethernet,
            acker,
            last_arrivals: LastArrivals::new(config.max_connections, timeouts.ceiling),
            coalesces_undescribed: npu.rules == Rules::Safe && npu.active_ack == ActiveAck::Off,
            undescribed: Recent::new(),
            promoted: Vec::with_capacity(Self::PROMOTED),
            returned: Vec::with_capacity(Recent::<B>::MOST),
            last_arrival_lookups: 0,
            untimed: Vec::with_capacity(Self::UNTIMED),
            burst_at: Instant::ZERO,
            burst_connections: 0,
            until_end: Vec::with_capacity(Self::UNTIL_END),
            until_end_deadline: Instant::MAX,
            order: Order::new(config.max_connections),
            out: Outbox::new(npu.reorder_segments + 64),
            single_burst: Vec::with_capacity(1),
        })
    }

    /// Maximum number of connections in `promoted`; the gaps of others are given up after `reorder_hold`.
    const PROMOTED: usize = 64;

    /// Maximum number of connections in `untimed`.
    const UNTIMED: usize = 64;

    /// Maximum number of connections in `until_end`; others hold their runs until their timers fire.
    const UNTIL_END: usize = 256;

    /// Returns the counters since the engine was created.
    pub fn statistics(&self) -> &Statistics {
        &self.out.stats
    }

    /// Returns the number of connections with a descriptor, or with held segments.
    pub fn connections(&self) -> usize {
        self.table.len() + self.undescribed.len()
    }

    /// Flushes all connections.
    pub fn drain(&mut self) {
        self.promote_all();
        self.settle_timers();
        for index in self.table.indexes() {
            self.reconstruct_all(index, FlushReason::Drain);
        }
        self.until_end.clear();
        self.until_end_deadline = Instant::MAX;
    }

    /// Flushes the connections whose timers fire next, until this number of frames has left.
    pub fn drain_oldest(&mut self, frames: usize) {
        self.promote_all();
        self.settle_timers();
        self.settle_all_timers(self.burst_at);
        let mut left = frames;
        while left > 0 {
            let Some(index) = self.wheel.upcoming().next().map(Index) else { break };
            self.wheel.cancel(index.0);
            if let Some(descriptor) = self.table.get_mut(index) {
                descriptor.armed = Instant::MAX;
                left = left.saturating_sub(descriptor.frames());
            }
            self.reconstruct_all(index, FlushReason::Drain);
        }
    }

    /// Frees an aggregate if all are in use: delivers the runs that the end of the receive batch would
    /// deliver, or else the run of the connection whose timer fires next. Segments behind a gap stay: the
    /// segment that is being received may fill the gap.
    #[cold]
    fn free_run(&mut self) {
        /// Maximum number of connections with a gap and without a run to examine.
        const MOST: usize = 64;
        if self.undescribed.len() > 0 {
            return self.deliver_undescribed_early(FlushReason::EndOfBatch);
        }
        self.settle_timers();
        if !self.until_end.is_empty() {
            return self.deliver_until_end(|npu, index| npu.reconstruct(index, FlushReason::EndOfBatch));
        }
        let mut gaps = 0;
        while gaps < MOST {
            let next = self.wheel.upcoming().nth(gaps).map(Index);
            let Some(index) = next else { return };
            let Some(descriptor) = self.table.get_mut(index) else { return };
            let has_run = descriptor.run.is_some();
            if descriptor.waiting.is_none() {
                // Also if the connection holds nothing: its run was delivered before its timer fired.
                descriptor.armed = Instant::MAX;
                self.wheel.cancel(index.0);
            } else {
                gaps += 1;
            }
            if has_run {
                return self.reconstruct(index, FlushReason::Evicted);
            }
        }
    }

    /// Learns the window scale, the ACK number and the window from a frame that the host transmits.
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

    /// Records that the host refused a packet: suspends active ACK on its connection until the host
    /// transmits.
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

    /// Takes a descriptor for a new connection; evicts one that was not used lately if none is free (IV.A).
    #[inline(always)]
    fn establish(&mut self, hash: u32, flow: FlowKey, nextseq: SeqNumber, now: Instant) -> Option<Index> {
        if self.table.is_full() {
            self.make_room();
        }
        let index = self.table.insert(hash, flow, ConnectionDescriptor::BLANK).ok()?;
        self.table.get_mut(index)?.begin(nextseq, now);
        self.last_arrivals.descriptor_added(hash);
        Some(index)
    }

    /// Frees a descriptor that was not used lately.
    #[cold]
    fn make_room(&mut self) {
        if let Some(victim) = self.table.victim() {
            self.reconstruct_all(victim, FlushReason::Evicted);
            self.evict(victim);
        }
    }

    /// Releases a descriptor that another connection needs. If only one segment has arrived, records it as
    /// the last arrival: the connection then counts as sparse.
    fn evict(&mut self, victim: Index) {
        let sparse =
            self.table.peek(victim).filter(|descriptor| self.coalesces_undescribed && descriptor.is_single());
        let arrival = sparse.map(|descriptor| descriptor.last_arrival).zip(self.table.key(victim));
        self.release(victim);
        if let Some((last_arrival, (hash, _))) = arrival {
            self.last_arrivals.arrived(hash, last_arrival, self.burst_at, true);
        }
    }

    /// Releases a descriptor.
    fn release(&mut self, index: Index) {
        self.wheel.cancel(index.0);
        let Some((hash, flow)) = self.table.key(index) else { return };
        if let Some(acker) = &mut self.acker {
            acker.forget(index);
            acker.handshakes.forget(hash, &flow);
        }
        self.table.remove(index);
        self.last_arrivals.descriptor_removed(hash);
    }

    /// Flushes a connection, then passes a control segment of it unchanged.
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
        let ended = found.filter(|index| self.is_end(*index, segment));
        if let Some(index) = found {
            self.reconstruct_all(index, FlushReason::Barrier);
            if syn && !self.is_late_syn(index, segment) {
                self.restart(index, segment, now);
            } else if segment.flags.intersects(TcpFlags::SYN | TcpFlags::RST)
                && let Some(host) = self.acker.as_mut().and_then(|acker| acker.host(index))
            {
                host.stop();
            }
            self.note_delivered_alone(index, segment);
            if segment.payload_len > 0 {
                // The host may discard it: without ACK (RFC 9293 section 3.10.7.4), or for an option.
                self.leave_to_host(index, segment.seq, segment.end());
            }
        } else if syn && self.config.rules == Rules::Paper {
            self.establish(hash, segment.flow, segment.end() + 1, now);
        }
        self.out.pass(frame, segment.payload_len, reason);
        if let Some(index) = ended {
            self.release(index);
        }
    }

    /// Returns true for a FIN that ends the stream. A FIN before or behind the end may be forged: the host
    /// ignores it, or waits for the missing bytes.
    fn is_end(&self, index: Index, segment: &Segment) -> bool {
        segment.flags.contains(TcpFlags::FIN)
            && (self.config.rules == Rules::Paper
                || self
                    .table
                    .peek(index)
                    .is_some_and(|known| known.is_whole_with(segment.seq, segment.end())))
    }

    /// Returns true for a retransmitted or late SYN-ACK: the host answers it with an ACK, and the connection
    /// continues (RFC 9293 section 3.10.7.4).
    fn is_late_syn(&self, index: Index, segment: &Segment) -> bool {
        let start = segment.end() + 1;
        self.config.rules == Rules::Safe
            && segment.flags.contains(TcpFlags::ACK)
            && self.table.peek(index).is_some_and(|known| known.has_passed(start, self.config.reorder_bytes))
    }

    /// Restarts a known connection on a SYN: its data begins after the SYN.
    fn restart(&mut self, index: Index, segment: &Segment, now: Instant) {
        if let Some(descriptor) = self.table.get_mut(index) {
            *descriptor = ConnectionDescriptor::new(segment.end() + 1, now);
        }
        if let Some(acker) = &mut self.acker {
            acker.forget(index);
        }
    }

    /// Records that a segment was delivered alone.
    fn note_delivered_alone(&mut self, index: Index, segment: &Segment) {
        let mut is_older = false;
        if segment.payload_len > 0
            && let Some(descriptor) = self.table.get_mut(index)
        {
            let timestamp = segment.timestamps.map(|timestamps| timestamps.value);
            is_older = descriptor.is_older(timestamp);
            descriptor.passed((segment.seq, segment.end()), timestamp, self.config.reorder_bytes);
        }
        let end = segment.end() + u32::from(segment.flags.contains(TcpFlags::SYN));
        self.note_delivered(index, segment.seq, end);
        if segment.congestion_experienced || is_older || self.host_discards(index, segment.ack) {
            self.leave_to_host(index, segment.seq, end);
        }
    }

    /// Returns true if active ACK knows that the host discards data with this ACK number.
    fn host_discards(&mut self, index: Index, ack: SeqNumber) -> bool {
        self.acker.as_mut().and_then(|acker| acker.host(index)).is_some_and(|host| host.discards(ack))
    }

    /// Records that a packet at `seq` with an unknown end was delivered. All its bytes are less than
    /// [`MAX_OPAQUE_LEN`] bytes after `seq`: active ACK leaves these to the host.
    fn passed_opaque(&mut self, index: Index, seq: SeqNumber) {
        if let Some(descriptor) = self.table.get_mut(index) {
            descriptor.passed_opaque(seq);
        }
        self.leave_to_host(index, seq, seq + MAX_OPAQUE_LEN);
    }

    /// Records for active ACK that the bytes from `seq` to `end` were delivered to the host.
    fn note_delivered(&mut self, index: Index, seq: SeqNumber, end: SeqNumber) {
        if let Some(host) = self.acker.as_mut().and_then(|acker| acker.host(index)) {
            host.note_delivered(seq, end);
        }
    }

    /// Leaves the acknowledgement of the bytes from `seq` to `end` to the host.
    fn leave_to_host(&mut self, index: Index, seq: SeqNumber, end: SeqNumber) {
        if let Some(host) = self.acker.as_mut().and_then(|acker| acker.host(index)) {
            host.leave_to_host(seq, end);
        }
    }
}

/// Returns the TCP options of a frame.
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
        if self.undescribed.len() > 0 && now > self.burst_at {
            self.promote_all();
        }
        if !self.untimed.is_empty() {
            self.settle_timers();
        }
        self.burst_at = now;
        self.out.received(frames);
        self.receive_burst(frames, now);
    }

    /// Delivers the runs of connections that time out between bursts, and sets the timers of the others.
    #[inline]
    fn end_of_batch(&mut self, _now: Instant) {
        self.end_batch();
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
        let mut due = self.wheel.next_timeout();
        if !self.until_end.is_empty() {
            due = Some(due.map_or(self.until_end_deadline, |due| due.min(self.until_end_deadline)));
        }
        if !self.untimed.is_empty() {
            due = due.into_iter().chain(self.untimed_deadline()).min();
        }
        if self.undescribed.len() > 0 {
            due = due.into_iter().chain(self.undescribed_deadline()).min();
        }
        due
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.promote_all();
        self.settle_timers();
        if self.until_end_deadline <= now {
            self.settle_all_timers(now);
        }
        while let Some(index) = self.wheel.expire(now).map(Index) {
            let Some(descriptor) = self.table.get_mut(index) else { continue };
            descriptor.armed = Instant::MAX;
            if descriptor.deadline <= now && descriptor.waiting.is_none() {
                self.reconstruct(index, FlushReason::Timeout);
            } else {
                self.deliver_due(index, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use nichrome_wire::TcpFrame;

    use super::*;

    /// A segment of 10 bytes at byte `at` of a connection. The connection number determines source address
    /// and port.
    fn segment(connection: u32, at: u32) -> Frame<Vec<u8>> {
        let [_, net, high, low] = connection.to_be_bytes();
        let (src, dst) = ([10, 0, net, 1], [10, 0, 0, 2]);
        let network = nichrome_wire::Network::ipv4(src.into(), dst.into());
        let fields = TcpFrame { network, src_port: u16::from_be_bytes([high, low]), ..TcpFrame::default() };
        Frame::new(TcpFrame { seq: fields.seq + at, payload: vec![0; 10], ..fields }.build())
    }

    #[test]
    fn connections_with_the_same_hash_are_held_apart() {
        let mut npu = Npu::new(&Config::default(), &NpuConfig::default()).unwrap();
        let mut hashes = HashMap::new();
        let (one, other) = (0..1 << 20)
            .find_map(|connection| {
                let flow = parse::likely_flow(segment(connection, 0).bytes(), Medium::Ethernet)?;
                Some((hashes.insert(npu.table.hash(&flow), connection)?, connection))
            })
            .unwrap();
        for at in [0, 10, 20] {
            for connection in [one, other] {
                npu.receive(segment(connection, at), Instant::ZERO);
            }
        }
        npu.drain();
        let merged: Vec<usize> = std::iter::from_fn(|| npu.poll())
            .filter_map(|output| match output {
                Output::ToHost(packet) => Some(packet.len()),
                Output::ToWire(_) | Output::Dropped(..) => None,
            })
            .collect();
        assert_eq!((npu.connections(), merged), (2, vec![14 + 40 + 30; 2]));
        // Again, while both connections hold nothing.
        for at in [30, 40] {
            for connection in [one, other] {
                npu.receive(segment(connection, at), Instant::ZERO);
                npu.drain();
            }
        }
        assert_eq!(std::iter::from_fn(|| npu.poll()).count(), 4);
        assert_eq!(npu.statistics().passes.get(PassReason::Old), 0);
    }
}
