//! The `npu` profile: receive offload as in lro-npu, section IV, with reordering by sequence number.
//!
//! Each connection has a [`ConnectionDescriptor`] in the ConnectionTable, from memory reserved at start. Data segments
//! go through the filter (IV.B), are put in order (IV.C, Algorithms 1 to 3), and are handed to the host as one packet
//! (IV.D) when 64 KB of consecutive payload are there, when a FIN comes, or on a timeout of ten average intervals
//! between arrivals (IV.E). The header of the whole (section II): sequence number and timestamps of the first segment,
//! ACK number and window of the last. [Active ACK](ActiveAck) (V.C) is an output of its own.
//!
//! Where a rule of the paper would break a connection, the safe rule is the default and the paper's is there under
//! its name ([`Rules::Paper`], [`ActiveAck::Paper`]):
//!
//! | case | the paper | here by default |
//! |---|---|---|
//! | comparing sequence numbers | as integers | serial arithmetic, always |
//! | below nextseq | dropped (Algorithm 1) | everything held goes up, then the segment: the host may have lost what it was handed, or must answer a keepalive. What follows it without a gap is merged again. With active ACK, what the host has acknowledged is dropped and acknowledged again |
//! | the same bytes held already | dropped (Algorithm 2) | as below nextseq |
//! | partly below nextseq, partly overlapping | dropped, or both kept | as below nextseq |
//! | Insert (Algorithm 2) at the end | never happens as printed | appends |
//! | a gap that is not filled | held until the timeout | held `reorder_hold` only: a gap hides loss from the sender |
//! | further ahead than `reorder_bytes` | held | everything held goes up, then the segment |
//! | SYN | takes a descriptor | takes nothing: SYNs are free to forge. A connection takes its descriptor with its first data, also mid-stream |
//! | FIN | held data, then the descriptor is released | the same; FIN itself is passed after it |
//! | RST, URG, pure ACK, window probe, other options | not said, or forwarded | everything held goes up first, then the segment; the descriptor stays |
//! | ECN, TOS, flags | not compared | unequal ones never merge; CWR never merges |
//! | an older timestamp behind a newer one | merged | not merged, but with its equals: PAWS must see it |
//! | ACK number of the whole | of the last segment | the latest of all, with its window: after reordering, the last is not the newest |
//! | timeout | ten average intervals | within a floor and a ceiling, and the ceiling holds from the first segment on, too |
//! | no free descriptor | not said | one that was not used lately is evicted, its data handed on |
//! | no free aggregate | not said | the segment is passed |
//! | PSH | not said | ignored, since the timeouts deliver; or ends the aggregate |

mod ack;
mod acker;
mod config;
mod descriptor;
mod host;
mod reorder;

use nichrome_wire::{Engine, Instant, SeqNumber, TcpFlags, TcpHeader};

pub use self::ack::{AckFrame, ActiveAck};
pub use self::config::{NpuConfig, PshRule, Rules};

use self::ack::Acknowledgement;
use self::acker::Acker;
use self::descriptor::{ConnectionDescriptor, Timeouts};
use self::reorder::{Insertion, ReorderList};
use crate::config::{BadChecksum, Config, ConfigError};
use crate::frame::Frame;
use crate::outbox::{Outbox, Output};
use crate::parse::{self, Parsed};
use crate::reason::{DropReason, FlushReason, PassReason};
use crate::recycle::Recycler;
use crate::run::{Limits, Run, RunPool};
use crate::segment::{self, Layout, Medium, Segment};
use crate::stats::Statistics;
use crate::table::{ConnectionTable, Index};
use crate::template::{HeaderBytes, MAX_HEADER, Rule};
use crate::wheel::TimingWheel;

/// The reordering engine: see the [module](self).
pub struct Npu<B: AsRef<[u8]>> {
    medium: Medium,
    bad_checksum: BadChecksum,
    limits: Limits,
    config: NpuConfig,
    timeouts: Timeouts,
    table: ConnectionTable<ConnectionDescriptor<B>>,
    /// The timeout checking thread of IV.E.
    wheel: TimingWheel,
    runs: RunPool<B>,
    lists: Recycler<ReorderList<B>>,
    acker: Option<Acker>,
    /// The connection of the last segment: the next is likely of the same.
    predicted: Option<Index>,
    out: Outbox<B>,
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
            table: ConnectionTable::new(config.max_connections, config.seed),
            wheel: TimingWheel::new(config.max_connections),
            runs: RunPool::new(config.max_aggregates, config.max_segments),
            lists: Recycler::new((0..lists).map(|_| ReorderList::new(npu.reorder_segments))),
            acker: Acker::new(npu.active_ack, config.max_connections),
            predicted: None,
            out: Outbox::new(npu.reorder_segments + 64),
        })
    }

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

    /// The usual case, without parsing: the next segment of the same connection, of full size, with nothing waiting.
    #[inline]
    fn receive_predicted(&mut self, frame: Frame<B>, now: Instant) -> Result<(), Frame<B>> {
        let Some(index) = self.predicted else { return Err(frame) };
        if self.config.active_ack == ActiveAck::Paper {
            // Every packet is acknowledged, also this.
            return Err(frame);
        }
        let Some(descriptor) = self.table.get_mut(index) else { return Err(frame) };
        let (Some(run), None) = (&mut descriptor.run, &descriptor.waiting) else { return Err(frame) };
        let Some(latest) = run.predicts_stream(&frame) else { return Err(frame) };
        if segment::verify(&frame, run.layout, run.first_len).is_err() {
            return Err(frame);
        }
        self.out.stats.tcp_payload_bytes_in += u64::from(run.first_len);
        run.follow_predicted_stream(frame, latest);
        let ended = ended_by(run, latest.flags, self.config.psh);
        let end = run.end;
        descriptor.advance(end);
        descriptor.arrived(now);
        match ended {
            Some(reason) => self.reconstruct(index, reason),
            None => self.set_timer(index, now),
        }
        Ok(())
    }

    fn receive_unpredicted(&mut self, frame: Frame<B>, now: Instant) {
        let parsed = parse::parse(frame.bytes(), self.medium);
        let segment = match &parsed {
            Parsed::Tcp(segment) => segment,
            Parsed::FirstFragment(flow) => {
                if let Some(index) = self.table.find(self.table.hash(flow), flow) {
                    self.reconstruct_all(index, FlushReason::Barrier);
                }
                return self.out.pass(frame, 0, PassReason::Fragment);
            }
            Parsed::Other(reason) => return self.out.pass(frame, 0, *reason),
        };
        self.out.stats.tcp_payload_bytes_in += u64::from(segment.payload_len);
        let verified = segment::verify(&frame, segment.layout, segment.payload_len);
        if let Err(reason) = verified
            && self.bad_checksum == BadChecksum::Drop
        {
            return self.out.drop(frame, reason);
        }
        let hash = self.table.hash(&segment.flow);
        let found = self.table.find(hash, &segment.flow);
        if verified.is_err() {
            if let Some(index) = found {
                self.reconstruct_all(index, FlushReason::Barrier);
            }
            self.out.pass(frame, segment.payload_len, PassReason::BadChecksum);
        } else if let Some(reason) = filter(segment) {
            self.receive_control(found, hash, frame, segment, reason, now);
        } else if let Some(index) = found.or_else(|| self.establish(hash, segment, segment.seq, now)) {
            self.predicted = Some(index);
            self.reorder_packet(index, frame, segment, now);
        } else {
            self.out.pass(frame, segment.payload_len, PassReason::TableFull);
        }
    }

    /// Reads ahead what the lookups of a batch will need.
    fn look_ahead(&self, frames: &[Frame<B>]) {
        const BATCH: usize = 32;
        for frames in frames.chunks(BATCH) {
            let mut hashes = [0; BATCH];
            for (hash, frame) in hashes.iter_mut().zip(frames) {
                let flow = parse::likely_flow(frame.bytes(), self.medium);
                *hash = flow.map_or(0, |flow| self.table.hash(&flow));
            }
            self.wheel.look_ahead(&self.table.look_ahead(&hashes));
        }
    }

    /// Takes a descriptor for a new connection, from one that was not used lately if none is free (IV.A).
    fn establish(&mut self, hash: u32, segment: &Segment, nextseq: SeqNumber, now: Instant) -> Option<Index> {
        if self.table.is_full() {
            let victim = self.table.victim()?;
            self.reconstruct_all(victim, FlushReason::Evicted);
            self.release(victim);
        }
        self.table.insert(hash, segment.flow, ConnectionDescriptor::new(nextseq, now)).ok()
    }

    /// Gives a descriptor back.
    fn release(&mut self, index: Index) {
        self.wheel.cancel(index);
        self.table.remove(index);
        if let Some(acker) = &mut self.acker {
            acker.forget(index);
        }
        if self.predicted == Some(index) {
            self.predicted = None;
        }
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
                && let Some(acker) = &mut self.acker
            {
                acker.forget(index);
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
        if let Some(descriptor) = self.table.get_mut(index) {
            if segment.payload_len > 0 {
                descriptor.catch_up(segment.end());
            }
        }
        self.tell_host(index, segment.seq, segment.end());
    }

    /// Notes for active ACK that the host was handed the bytes from `seq` to `end`.
    fn tell_host(&mut self, index: Index, seq: SeqNumber, end: SeqNumber) {
        if let Some(host) = self.acker.as_mut().and_then(|acker| acker.host(index)) {
            host.handed(seq, end);
        }
    }

    /// ReorderPacket (Algorithm 1).
    fn reorder_packet(&mut self, index: Index, frame: Frame<B>, segment: &Segment, now: Instant) {
        let Some(descriptor) = self.table.get_mut(index) else { return };
        descriptor.arrived(now);
        if descriptor.resumes_at_frontier(segment.seq) {
            self.reconstruct(index, FlushReason::OutOfOrder);
            self.resume(index);
        }
        let Some(descriptor) = self.table.get_mut(index) else { return };
        let ahead = segment.seq.since(descriptor.nextseq);
        if ahead == 0 {
            let answer = (self.config.active_ack == ActiveAck::Paper).then(|| Header::of(&frame));
            self.append(index, frame, segment, now);
            self.update_nextseq(index);
            self.answer(index, segment, answer);
        } else if ahead < 0 || descriptor.frontier.is_some() {
            self.receive_old(index, frame, segment);
        } else if ahead.cast_unsigned() > self.config.reorder_bytes {
            self.release_alone(index, frame, segment, PassReason::FarAhead);
        } else {
            self.insert(index, frame, segment, now);
        }
        self.set_timer(index, now);
    }

    /// Goes on where the stream was before old segments came.
    fn resume(&mut self, index: Index) {
        if let Some(descriptor) = self.table.get_mut(index)
            && let Some(frontier) = descriptor.frontier.take()
        {
            descriptor.nextseq = frontier;
        }
    }

    /// Adds the segment at nextseq to the run of consecutive payload, or hands that on and starts anew.
    fn append(&mut self, index: Index, frame: Frame<B>, segment: &Segment, now: Instant) {
        let Some(descriptor) = self.table.get_mut(index) else { return };
        descriptor.advance(segment.end());
        if let Some(run) = &mut descriptor.run {
            match run.why_not_stream(&frame, segment, self.limits) {
                None => run.follow_stream(frame, segment),
                Some(reason) => {
                    self.reconstruct(index, reason);
                    return self.start(index, frame, segment, now);
                }
            }
            if let Some(reason) = ended_by(run, segment.flags, self.config.psh) {
                self.reconstruct(index, reason);
            }
        } else {
            self.start(index, frame, segment, now);
        }
    }

    /// Starts a run.
    fn start(&mut self, index: Index, frame: Frame<B>, segment: &Segment, now: Instant) {
        let Some(descriptor) = self.table.get_mut(index) else { return };
        match self.runs.start(frame, segment, Rule::Stream, self.limits, now) {
            Ok(mut run) => {
                if descriptor.is_older(segment) {
                    run.only_timestamp = run.newest_timestamp;
                }
                let ended = ended_by(&run, segment.flags, self.config.psh);
                descriptor.run = Some(run);
                if let Some(reason) = ended {
                    self.reconstruct(index, reason);
                }
            }
            Err(frame) => {
                self.handed(index, segment);
                self.out.pass(frame, segment.payload_len, PassReason::PoolEmpty);
            }
        }
    }

    /// UpdateNextSeq (Algorithm 3): waiting segments that nextseq has reached join the run.
    fn update_nextseq(&mut self, index: Index) {
        let Some(descriptor) = self.table.get_mut(index) else { return };
        let Some(mut list) = descriptor.waiting.take() else { return };
        let since = list.since;
        for waiting in list.take_consecutive(descriptor.nextseq) {
            self.append(index, waiting.frame, &waiting.segment, since);
        }
        let Some(descriptor) = self.table.get_mut(index) else { return };
        if let Some(run) = &mut descriptor.run {
            // What has waited for the gap has waited; the ceiling is for both.
            run.since = run.since.min(since);
        }
        let overlaps = list.first_seq().is_some_and(|seq| seq.before(descriptor.nextseq));
        if list.is_empty() {
            self.lists.give_back(list);
        } else {
            descriptor.waiting = Some(list);
        }
        if overlaps {
            self.reconstruct_all(index, FlushReason::OutOfOrder);
        }
    }

    /// Insert (Algorithm 2): a segment ahead of nextseq waits.
    fn insert(&mut self, index: Index, frame: Frame<B>, segment: &Segment, now: Instant) {
        let Some(descriptor) = self.table.get_mut(index) else { return };
        if descriptor.waiting.is_none() {
            descriptor.waiting = self.lists.take();
            if let Some(list) = &mut descriptor.waiting {
                list.since = now;
            }
            if let Some(host) = self.acker.as_mut().and_then(|acker| acker.host(index)) {
                host.leave_to_host();
            }
        }
        let answer = (self.config.active_ack == ActiveAck::Paper).then(|| Header::of(&frame));
        let inserted = match &mut descriptor.waiting {
            Some(list) => list.insert(frame, *segment),
            None => Insertion::Full(frame),
        };
        match inserted {
            Insertion::Waits => {}
            Insertion::Duplicate(frame) if self.config.rules == Rules::Paper => {
                self.out.drop(frame, DropReason::Duplicate);
            }
            Insertion::Duplicate(frame) | Insertion::Overlap(frame) => {
                self.release_alone(index, frame, segment, PassReason::Old);
            }
            Insertion::Full(frame) => {
                self.reconstruct_all(index, FlushReason::ReorderFull);
                self.release_alone(index, frame, segment, PassReason::OutOfOrder);
            }
        }
        self.answer(index, segment, answer);
    }

    /// A segment that begins below nextseq: bytes that were seen, and perhaps new ones.
    fn receive_old(&mut self, index: Index, frame: Frame<B>, segment: &Segment) {
        if self.config.rules == Rules::Paper {
            let answer = Header::of(&frame);
            self.out.drop(frame, DropReason::Duplicate);
            return self.answer(index, segment, Some(answer));
        }
        if self.config.active_ack == ActiveAck::Safe
            && segment.payload_len > 1
            && let Some(descriptor) = self.table.peek(index)
            && let Some(host) = self.acker.as_mut().and_then(|acker| acker.host(index))
            && host.has_acknowledged(segment.end())
            && let Some(repetition) = host.repetition(descriptor.newest_timestamp)
        {
            self.acknowledge(frame.bytes(), segment.layout, &repetition);
            return self.out.drop(frame, DropReason::Duplicate);
        }
        self.release_alone(index, frame, segment, PassReason::Old);
        if let Some(descriptor) = self.table.get_mut(index) {
            descriptor.rewind(segment.end());
        }
    }

    /// Hands on everything held, then a segment by itself.
    fn release_alone(&mut self, index: Index, frame: Frame<B>, segment: &Segment, reason: PassReason) {
        self.reconstruct_all(index, FlushReason::Barrier);
        self.handed(index, segment);
        self.out.pass(frame, segment.payload_len, reason);
    }

    /// Packet reconstruction (IV.D): the run of consecutive payload goes to the host, and is acknowledged if that is safe.
    fn reconstruct(&mut self, index: Index, reason: FlushReason) {
        let Some((header, layout)) = self.hand_over(index, reason) else { return };
        if let Some(descriptor) = self.table.peek(index)
            && let Some(host) = self.acker.as_mut().and_then(|acker| acker.host(index))
            && let Some(acknowledgement) = host.acknowledgement(descriptor.newest_timestamp)
        {
            self.acknowledge(&header, layout, &acknowledgement);
        }
    }

    /// Hands the run to the host. Gives its header where active ACK `safe` may acknowledge now: nothing waits behind
    /// a gap. A mark of congestion is for the host to echo.
    fn hand_over(&mut self, index: Index, reason: FlushReason) -> Option<(HeaderBytes, Layout)> {
        let descriptor = self.table.get_mut(index)?;
        let mut run = descriptor.run.take()?;
        let (seq, end) = (run.start, run.end);
        descriptor.delivered(&run);
        let safe = self.config.active_ack == ActiveAck::Safe;
        if safe
            && run.template().is_congestion_experienced()
            && let Some(host) = self.acker.as_mut().and_then(|acker| acker.host(index))
        {
            host.leave_to_host();
        }
        let may_acknowledge = safe && descriptor.waiting.is_none();
        let answered = may_acknowledge.then(|| (run.template().header_array(), run.layout));
        self.runs.finish(run, reason, &mut self.out);
        self.tell_host(index, seq, end);
        answered
    }

    /// Hands on everything that a connection holds, in order of sequence, gaps and all.
    fn reconstruct_all(&mut self, index: Index, reason: FlushReason) {
        let Some(descriptor) = self.table.get_mut(index) else { return };
        let Some(mut list) = descriptor.waiting.take() else { return self.reconstruct(index, reason) };
        let since = list.since;
        self.hand_over(index, reason);
        while let Some(seq) = list.first_seq() {
            let Some(descriptor) = self.table.get_mut(index) else { return };
            descriptor.catch_up(seq);
            for waiting in list.take_consecutive(seq) {
                self.append(index, waiting.frame, &waiting.segment, since);
            }
            self.hand_over(index, reason);
        }
        self.lists.give_back(list);
    }

    /// Sends what active ACK, as the paper has it, says to a data packet.
    fn answer(&mut self, index: Index, segment: &Segment, received: Option<Header>) {
        if self.config.active_ack != ActiveAck::Paper {
            return;
        }
        if let Some(received) = received
            && let Some(descriptor) = self.table.get_mut(index)
        {
            let acknowledgement = Acknowledgement::paper(segment, descriptor.nextseq);
            self.acknowledge(&received.0, segment.layout, &acknowledgement);
        }
    }

    /// Sends an acknowledgement in answer to a received header.
    fn acknowledge(&mut self, received: &[u8], layout: Layout, acknowledgement: &Acknowledgement) {
        if let Some(acker) = &mut self.acker
            && let Some(frame) = acker.frame(received, layout, acknowledgement)
        {
            self.out.acknowledge(frame);
        }
    }

    /// Sets the timer to what the connection holds.
    #[inline]
    fn set_timer(&mut self, index: Index, now: Instant) {
        if let Some(descriptor) = self.table.get_mut(index)
            && let Some(deadline) = self.timeouts.deadline(descriptor)
        {
            self.wheel.set(index, deadline, now);
        }
    }
}

/// Why a run ends with the segment that was just added, which has these flags.
#[inline]
fn ended_by<B: AsRef<[u8]>>(run: &Run<B>, flags: TcpFlags, psh: PshRule) -> Option<FlushReason> {
    if run.is_full() {
        Some(FlushReason::MaxLength)
    } else if psh == PshRule::End && flags.contains(TcpFlags::PSH) {
        Some(FlushReason::Psh)
    } else {
        None
    }
}

/// A copy of the headers of a received frame, for answering it after it is gone.
struct Header(HeaderBytes);

impl Header {
    fn of<B: AsRef<[u8]>>(frame: &Frame<B>) -> Self {
        let mut header = [0; MAX_HEADER];
        for (place, byte) in header.iter_mut().zip(frame.bytes()) {
            *place = *byte;
        }
        Self(header)
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
        self.out.received(&frame);
        if let Err(frame) = self.receive_predicted(frame, now) {
            self.receive_unpredicted(frame, now);
        }
    }

    fn receive_batch(&mut self, frames: &mut Vec<Frame<B>>, now: Instant) {
        /// A table with more connections than this does not stay in the nearest caches.
        const LARGE: usize = 1024;
        if self.table.len() > LARGE {
            self.look_ahead(frames);
        }
        for frame in frames.drain(..) {
            self.receive(frame, now);
        }
    }

    #[inline]
    fn poll(&mut self) -> Option<Output<B>> {
        self.out.pop()
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        self.wheel.next_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(index) = self.wheel.expire(now) {
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
