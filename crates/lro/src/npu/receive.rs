//! The receive path: dispatches the frames of a burst. Common segments take the shortest path.

use std::mem;
use std::vec::IntoIter;

use nichrome_wire::{Instant, TcpFlags};
use pulp::NullaryFnOnce;

use super::last_arrivals::{Arrival, Standing};
use super::{ActiveAck, Npu};
use crate::burst;
use crate::checksums;
use crate::common::{self, FirstOfStream, Head};
use crate::config::BadChecksum;
use crate::flow::FlowKey;
use crate::frame::Frame;
use crate::parse::{self, Parsed};
use crate::reason::{FlushReason, PassReason};
use crate::segment::{FirstSegment, Medium, Segment};
use crate::table::Index;

/// Number of frames whose connections are prefetched together.
const AHEAD: usize = 32;

/// Number of connections above which their state does not stay in the L1 cache beside the frames of a burst.
/// Up to this number, prefetching costs more than it saves.
const MANY: usize = 32;

/// Minimum number of connections in a burst, or of lookups of last arrivals, from which on the state for the
/// next burst is prefetched. With fewer, looking ahead at each frame costs more than it saves.
const MIN_BURST_CONNECTIONS: usize = 8;

/// As [`MANY`], for the timers.
const LARGE: usize = 32768;

impl<B: AsRef<[u8]>> Npu<B> {
    /// Consumes the frames of a burst.
    pub(super) fn receive_burst(&mut self, frames: &mut Vec<Frame<B>>, now: Instant) {
        let needs_last_arrivals = mem::take(&mut self.last_arrival_lookups) >= MIN_BURST_CONNECTIONS;
        let takes_turns = self.order.begin_burst(self.burst_connections) && !needs_last_arrivals;
        let arch = self.masks.arch;
        if takes_turns {
            arch.dispatch(ReceiveBurst::<_, IN_TURN> { npu: self, frames, needs_last_arrivals, now });
        } else if needs_last_arrivals
            || (self.burst_connections >= MIN_BURST_CONNECTIONS && self.table.len() > MANY)
        {
            arch.dispatch(ReceiveBurst::<_, PREFETCHING> { npu: self, frames, needs_last_arrivals, now });
        } else {
            arch.dispatch(ReceiveBurst::<_, ONE_BY_ONE> { npu: self, frames, needs_last_arrivals, now });
        }
        self.burst_connections = self.untimed.len() + self.undescribed.len();
    }

    /// Returns the hash of a frame's connection; 0 if the frame is probably not a TCP segment.
    #[inline(always)]
    fn likely_hash(&self, frame: &Frame<B>) -> u32 {
        let flow = parse::likely_flow(frame.bytes(), self.medium);
        flow.map_or(0, |flow| self.table.hash(&flow))
    }

    /// Consumes the first frame, whose [hash](Npu::likely_hash) is `hash`, and the following frames that
    /// extend it. A connection with this hash may be at `likely`.
    #[inline(always)]
    fn receive_next(
        &mut self,
        hash: u32,
        likely: Option<Index>,
        burst: &mut IntoIter<Frame<B>>,
        now: Instant,
    ) {
        // The comparisons below reject frames that are not segments, or are of another connection with this
        // hash.
        let is_consumed = match likely {
            Some(index) if self.table.peek(index).is_some_and(|descriptor| descriptor.run.is_some()) => {
                // The paper's rule acknowledges every packet, also those of a train.
                self.config.active_ack != ActiveAck::Paper && self.join_train(index, burst, now)
            }
            Some(index) => self.begin_train(index, burst, now),
            None => self.begin_connection(hash, burst, now),
        };
        if is_consumed {
            return;
        }
        let Some(frame) = burst.next() else { return };
        match parse::parse_common(frame.bytes(), self.medium) {
            Some(segment) => self.receive_segment(frame, &segment, hash, now),
            None => self.receive_uncommon(frame, now),
        }
    }

    /// Consumes all frames, for connections that take turns.
    #[inline(always)]
    fn receive_in_turn(&mut self, burst: &mut IntoIter<Frame<B>>, now: Instant) {
        if self.table.len() > MANY {
            self.order.upcoming().take(burst.len().min(AHEAD)).for_each(|index| self.table.prefetch(index.0));
        }
        while !burst.as_slice().is_empty() {
            if !self.join_turn(burst, now) {
                self.receive_by_hash(burst, now);
            }
        }
    }

    /// Consumes all frames, for connection state that is in the cache.
    #[inline(always)]
    fn receive_cached(&mut self, burst: &mut IntoIter<Frame<B>>, now: Instant) {
        while !burst.as_slice().is_empty() {
            self.receive_by_hash(burst, now);
        }
    }

    /// Consumes the first frame, and the following frames that extend it. Finds the connection by its hash.
    #[inline(always)]
    fn receive_by_hash(&mut self, burst: &mut IntoIter<Frame<B>>, now: Instant) {
        let hash = burst.as_slice().first().map_or(0, |frame| self.likely_hash(frame));
        self.receive_next(hash, self.table.likely(hash), burst, now);
    }

    /// Consumes all frames, for connection state that is not in the cache: prefetches it for [`AHEAD`] frames
    /// at a time.
    #[inline(always)]
    fn receive_ahead(&mut self, burst: &mut IntoIter<Frame<B>>, needs_last_arrivals: bool, now: Instant) {
        let mut ahead = Ahead { trains: [0; AHEAD], hashes: [0; AHEAD], slots: [u32::MAX; AHEAD] };
        while !burst.as_slice().is_empty() {
            self.hash_and_prefetch(burst.as_slice(), needs_last_arrivals, &mut ahead);
            let (all, mut nth) = (burst.len(), 0);
            while let Some(train) = ahead.trains.get(nth)
                && !burst.as_slice().is_empty()
            {
                let (hash, slot) = ahead.hash_and_slot(*train);
                let is_alone = ahead.trains.get(nth + 1) != Some(train);
                if needs_last_arrivals && is_alone && self.receive_single(hash, burst, now) {
                    nth += 1;
                } else {
                    self.receive_next(hash, self.table.likely_at(slot, hash), burst, now);
                    nth = all - burst.len();
                }
            }
        }
    }

    /// Consumes the first frame if it is a common segment of a connection that holds nothing and has no
    /// descriptor. The frame behind it is of another connection.
    #[inline(always)]
    fn receive_single(&mut self, hash: u32, burst: &mut IntoIter<Frame<B>>, now: Instant) -> bool {
        if self.undescribed.len() > 0 && self.undescribed.likely(hash).is_some() {
            return false;
        }
        match self.last_arrivals.if_sparse(hash, now) {
            Some(arrival) => self.pass_first_sparse(arrival, burst),
            None => self.last_arrivals.has_no_descriptor(hash) && self.begin_near(hash, burst, now),
        }
    }

    /// Delivers a segment of a sparse connection, which has no descriptor.
    #[inline(always)]
    pub(super) fn pass_sparse(&mut self, hash: u32, frame: Frame<B>, payload_len: u32, now: Instant) {
        self.last_arrivals.arrived(hash, now, now, true);
        self.out.flush_frame(frame, payload_len, FlushReason::Sparse);
    }

    /// Hashes the first [`AHEAD`] frames, and prefetches the state of their connections; also their last
    /// arrivals if `needs_last_arrivals`. Writes to `ahead` in place: a returned copy would be read at once
    /// in other sizes than it was written, which stalls store forwarding.
    #[inline(always)]
    fn hash_and_prefetch(&self, frames: &[Frame<B>], needs_last_arrivals: bool, ahead: &mut Ahead) {
        let is_large = self.table.len() > MANY;
        let is_ethernet = self.medium == Medium::Ethernet;
        let mut count = 0;
        let mut before: Option<&Head> = None;
        for (train, frame) in ahead.trains.iter_mut().zip(frames) {
            let head = frame.bytes().first_chunk();
            if let (Some(before), Some(head)) = (before, head)
                && common::are_of_one_flow(before, head)
            {
                *train = count as u8 - 1;
                continue;
            }
            before = head.filter(|head| is_ethernet && common::is_likely(head));
            let hash = match before {
                Some(head) => self.table.hash_ipv4(&common::flow(head)),
                None => self.likely_hash(frame),
            };
            if let Some(slot) = ahead.hashes.get_mut(count) {
                *slot = hash;
            }
            *train = count as u8;
            count += 1;
            if needs_last_arrivals {
                self.last_arrivals.prefetch(hash);
            }
            if is_large {
                self.table.prefetch_bucket(hash);
            }
        }
        if let Some(end) = ahead.trains.get_mut(frames.len()) {
            *end = u8::MAX;
        }
        if is_large {
            // If `needs_last_arrivals`, the last-arrival cells are being prefetched, and they recognize more
            // absent connections than the table's counts.
            let is_absent = |hash| match needs_last_arrivals {
                true => self.last_arrivals.has_no_descriptor(hash),
                false => self.table.is_absent(hash),
            };
            self.table.prefetch_slots(&ahead.hashes[..count], &mut ahead.slots[..count], is_absent);
        }
        if self.table.len() > LARGE {
            self.prefetch_timers(&ahead.slots[..count]);
        }
    }

    /// Prefetches the timers of the connections at these slots, and the state of as many connections whose
    /// timers fire next.
    #[inline(never)]
    fn prefetch_timers(&self, slots: &[u32]) {
        self.wheel.prefetch(slots);
        let count = slots.len();
        let descriptors =
            || self.wheel.upcoming().take(count).filter_map(|index| self.table.peek(Index(index)));
        let held = descriptors().fold(0, |sum, descriptor| sum ^ u32::from(descriptor.run.is_some()));
        let runs = descriptors().filter_map(|descriptor| descriptor.run.as_ref());
        let read = runs.fold(held, |sum, run| sum ^ run.end.0 ^ run.segments() as u32);
        std::hint::black_box(read);
    }

    /// As [`Npu::join_train`] or [`Npu::begin_train`], for the connection whose turn it is.
    #[inline(always)]
    fn join_turn(&mut self, frames: &mut IntoIter<Frame<B>>, now: Instant) -> bool {
        let index = self.order.next();
        match self.table.peek(index) {
            Some(descriptor) if descriptor.run.is_some() => self.join_train(index, frames, now),
            Some(_) => self.begin_train(index, frames, now),
            None => false,
        }
    }

    /// The fast path, without parsing: adds the leading frames that are the next full-size segments of a
    /// connection without a gap. Returns false if there are none.
    #[inline(always)]
    fn join_train(&mut self, index: Index, frames: &mut IntoIter<Frame<B>>, now: Instant) -> bool {
        let Some(descriptor) = self.table.get_mut(index) else { return false };
        let (Some(run), None) = (&mut descriptor.run, &descriptor.waiting) else { return false };
        let count = run.add_stream_train(&mut self.masks, frames, self.ends);
        if count == 0 {
            return false;
        }
        self.out.stats.tcp_payload_bytes_in += u64::from(count) * u64::from(run.first_len);
        let (has_ended, end) = (run.has_ended(self.ends), run.end);
        descriptor.advance(end);
        if descriptor.is_untimed {
            descriptor.arrived_again(count);
        } else {
            descriptor.arrived_together(count, now, &self.timeouts);
            self.leave_untimed(index);
        }
        self.order.note(index);
        if has_ended {
            self.deliver_ended(index);
        }
        true
    }

    /// Starts a run with the first frame, if it is a [common one](common), and its connection is the one at
    /// `index`, holds nothing and expects the segment. Adds the following frames as [`Npu::join_train`] does.
    /// Reads only the header fields that a run needs, and moves each frame once. Returns false if it consumed
    /// no frame.
    #[inline(always)]
    fn begin_train(&mut self, index: Index, frames: &mut IntoIter<Frame<B>>, now: Instant) -> bool {
        let Some((head, first)) = self.first_of_train(frames.as_slice()) else { return false };
        self.table.flow(index).is_some_and(|flow| common::is_flow(head, flow))
            && self.start_train(index, first, frames, now)
    }

    /// As [`Npu::begin_train`], for the hash of a connection without a descriptor. Several segments in a row
    /// start a run without a lookup of the connection's last arrival: the end of the batch looks it up.
    #[inline(always)]
    fn begin_connection(&mut self, hash: u32, frames: &mut IntoIter<Frame<B>>, now: Instant) -> bool {
        if self.undescribed.len() > 0
            && let Some(nth) = self.undescribed.likely(hash)
        {
            return self.join_undescribed(nth, frames);
        }
        if is_train(frames.as_slice()) && self.admits_without_descriptor() {
            let Some((head, first)) = self.first_of_train(frames.as_slice()) else { return false };
            self.last_arrivals.prefetch(hash);
            return self.start_undescribed(hash, common::flow(head), first, frames, now);
        }
        self.begin_alone(hash, frames, now)
    }

    /// As [`Npu::begin_connection`], for a segment that the next frame does not continue, or if there is no
    /// room for another run without a descriptor. Delivers the segment at once if its connection is sparse.
    #[inline(never)]
    fn begin_alone(&mut self, hash: u32, frames: &mut IntoIter<Frame<B>>, now: Instant) -> bool {
        match self.last_arrivals.if_sparse(hash, now) {
            Some(arrival) => self.pass_first_sparse(arrival, frames),
            None => self.begin_near(hash, frames, now),
        }
    }

    /// As [`Npu::begin_alone`], for a connection that is not certainly sparse. It takes a descriptor if its
    /// last arrival was within the hold limit, or if there is no room for another run without one. Returns
    /// false if it is sparse after all, and may share its cell with a connection that has a descriptor.
    #[inline(never)]
    fn begin_near(&mut self, hash: u32, frames: &mut IntoIter<Frame<B>>, now: Instant) -> bool {
        let Some((head, first)) = self.first_of_train(frames.as_slice()) else { return false };
        self.last_arrival_lookups += 1;
        let standing = self.last_arrivals.standing(hash, now);
        if standing == Standing::Sparse {
            return false;
        }
        if standing == Standing::NotRecent && self.admits_without_descriptor() {
            return self.start_undescribed(hash, common::flow(head), first, frames, now);
        }
        let index = self.recognize(standing, hash, common::flow(head), first.0.seq, now);
        index.is_some_and(|index| self.start_train(index, first, frames, now))
    }

    /// Delivers the first frame of a sparse connection without a descriptor at once, if it is a common
    /// segment.
    #[inline(always)]
    fn pass_first_sparse(&mut self, arrival: Arrival, frames: &mut IntoIter<Frame<B>>) -> bool {
        let Some((_, (FirstSegment { payload_len, .. }, _))) = self.first_of_train(frames.as_slice()) else {
            return false;
        };
        self.last_arrival_lookups += 1;
        self.last_arrivals.record(arrival);
        self.out.stats.tcp_payload_bytes_in += u64::from(payload_len);
        if let Some(frame) = frames.next() {
            self.out.flush_frame(frame, payload_len, FlushReason::Sparse);
        }
        true
    }

    /// Starts a run of a connection without a descriptor with the first frame, as [`Npu::begin_train`].
    #[inline(always)]
    fn start_undescribed(
        &mut self,
        hash: u32,
        flow: FlowKey,
        (segment, timestamp): FirstOfStream,
        frames: &mut IntoIter<Frame<B>>,
        now: Instant,
    ) -> bool {
        let Some(mut run) = self.runs.take() else { return false };
        let Some(frame) = frames.next() else { return false };
        run.start_stream(frame, segment, timestamp, self.limits, now);
        if !run.has_ended(self.ends) {
            run.add_stream_train(&mut self.masks, frames, self.ends);
        }
        self.out.stats.tcp_payload_bytes_in += u64::from(run.bytes);
        self.hold_undescribed(hash, flow, run);
        true
    }

    /// Returns the header fields that a run needs of the first frame, if it is a [common one](common) that
    /// may start a run.
    #[inline(always)]
    fn first_of_train<'a>(&self, frames: &'a [Frame<B>]) -> Option<(&'a Head, FirstOfStream)> {
        let frame = frames.first().filter(|_| self.starts_trains)?;
        let head = frame.bytes().first_chunk()?;
        let (segment, timestamp) = common::first_of_stream(frame.bytes())?;
        checksums::verify_common(frame, segment.layout, segment.payload_len).ok()?;
        Some((head, (segment, timestamp)))
    }

    /// Starts a run of the connection at `index` with the first frame, as [`Npu::begin_train`].
    #[inline(always)]
    fn start_train(
        &mut self,
        index: Index,
        (segment, timestamp): FirstOfStream,
        frames: &mut IntoIter<Frame<B>>,
        now: Instant,
    ) -> bool {
        let Some(descriptor) = self.table.get_mut(index) else { return false };
        if !descriptor.begins_at(segment.seq, now, self.timeouts.pause) {
            return false;
        }
        let Some(mut run) = self.runs.take() else { return false };
        let Some(frame) = frames.next() else { return false };
        run.start_stream(frame, segment, timestamp, self.limits, now);
        descriptor.limit_timestamps(&mut run);
        let mut count = 1;
        if !run.has_ended(self.ends) {
            count += run.add_stream_train(&mut self.masks, frames, self.ends);
        }
        self.out.stats.tcp_payload_bytes_in += u64::from(run.bytes);
        self.order.note(index);
        descriptor.arrived_together(count, now, &self.timeouts);
        descriptor.advance(run.end);
        let ended = run.has_ended(self.ends).then(|| run.end_reason());
        descriptor.hold(run);
        let is_left = self.untimed.len() < Self::UNTIMED && !descriptor.is_untimed;
        if is_left {
            self.untimed.push(index);
            descriptor.is_untimed = true;
        }
        if let Some(reason) = ended {
            self.reconstruct(index, reason);
        }
        if !is_left {
            self.leave_untimed(index);
        }
        true
    }

    /// Consumes a frame that is not a common segment.
    #[inline(never)]
    fn receive_uncommon(&mut self, frame: Frame<B>, now: Instant) {
        match &parse::parse_any(frame.bytes(), self.medium) {
            Parsed::Tcp(segment) => {
                self.receive_segment(frame, segment, self.table.hash(&segment.flow), now);
            }
            Parsed::Barrier { flow, seq, reason } => {
                if let Some(index) = self.find_or_promote(self.table.hash(flow), flow) {
                    self.reconstruct_all(index, FlushReason::Barrier);
                    if let Some(seq) = seq {
                        self.passed_opaque(index, *seq);
                    }
                }
                self.out.pass(frame, 0, *reason);
            }
            Parsed::Other(reason) => self.out.pass(frame, 0, *reason),
        }
    }

    /// Consumes a segment whose connection has this hash.
    fn receive_segment(&mut self, frame: Frame<B>, segment: &Segment, hash: u32, now: Instant) {
        self.out.stats.tcp_payload_bytes_in += u64::from(segment.payload_len);
        let verified = checksums::verify(&frame, segment.layout, segment.payload_len);
        if let Err(reason) = verified
            && self.bad_checksum == BadChecksum::Drop
        {
            return self.out.drop(frame, reason);
        }
        let frame = if verified.is_ok() && self.undescribed.len() > 0 {
            let Some(frame) = self.follow_undescribed(hash, frame, segment) else { return };
            frame
        } else {
            frame
        };
        let found = self.find_or_promote(hash, &segment.flow);
        if verified.is_err() {
            if let Some(index) = found {
                self.reconstruct_all(index, FlushReason::Barrier);
            }
            self.out.pass(frame, segment.payload_len, PassReason::BadChecksum);
        } else if let Some(reason) = filter(segment) {
            self.receive_control(found, hash, frame, segment, reason, now);
        } else if let Some(index) = found {
            self.reorder_packet(index, frame, segment, now);
        } else {
            self.receive_first(frame, segment, hash, now);
        }
    }

    /// Consumes a data segment of a connection that has neither a descriptor nor a run.
    fn receive_first(&mut self, frame: Frame<B>, segment: &Segment, hash: u32, now: Instant) {
        let standing = self.last_arrivals.standing(hash, now);
        match standing {
            Standing::Sparse => self.pass_sparse(hash, frame, segment.payload_len, now),
            Standing::NotRecent if self.admits_without_descriptor() => {
                match self.start_run(frame, segment, now) {
                    Ok(run) => self.hold_undescribed(hash, segment.flow, run),
                    Err(frame) => self.out.pass(frame, segment.payload_len, PassReason::PoolEmpty),
                }
            }
            Standing::NotRecent | Standing::Recent(_) => {
                match self.recognize(standing, hash, segment.flow, segment.seq, now) {
                    Some(index) => self.reorder_packet(index, frame, segment, now),
                    None => self.out.pass(frame, segment.payload_len, PassReason::TableFull),
                }
            }
        }
    }
}

/// Returns true if the first two frames are of one connection, provided that they are [common ones](common).
#[inline(always)]
fn is_train<B: AsRef<[u8]>>(frames: &[Frame<B>]) -> bool {
    let [first, second, ..] = frames else { return false };
    let heads = first.bytes().first_chunk().zip(second.bytes().first_chunk());
    heads.is_some_and(|(first, second)| common::are_of_one_flow(first, second))
}

/// The filter (IV.B, Figure 6): returns why a segment must pass instead of waiting and merging.
pub(super) fn filter(segment: &Segment) -> Option<PassReason> {
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

/// Hashes and slots for the next frames. A train is a sequence of frames of one connection, which is hashed
/// once.
struct Ahead {
    /// The number of each frame's train; behind the last frame, a number that no train has.
    trains: [u8; AHEAD],
    /// The connection hash of each train; 0 if its frame is no common segment.
    hashes: [u32; AHEAD],
    /// The slot of the table where each train's connection may be.
    slots: [u32; AHEAD],
}

impl Ahead {
    /// Returns hash and slot of a train.
    #[inline(always)]
    fn hash_and_slot(&self, train: u8) -> (u32, u32) {
        let train = usize::from(train) % AHEAD;
        (self.hashes[train], self.slots[train])
    }
}

/// Ways to find the connections of a burst: in the order of earlier bursts, by hashes that are computed for
/// several frames ahead, or by the hash of each frame.
const IN_TURN: u8 = 0;
const PREFETCHING: u8 = 1;
const ONE_BY_ONE: u8 = 2;

/// [`Npu::receive_burst`] in one of these ways: each is compiled once for AVX2 and once without.
struct ReceiveBurst<'a, B: AsRef<[u8]>, const WAY: u8> {
    npu: &'a mut Npu<B>,
    frames: &'a mut Vec<Frame<B>>,
    /// True if the burst probably needs many last arrivals.
    needs_last_arrivals: bool,
    now: Instant,
}

impl<B: AsRef<[u8]>, const WAY: u8> NullaryFnOnce for ReceiveBurst<'_, B, WAY> {
    type Output = ();

    /// Frames that join a run are examined in place and moved once.
    #[inline(always)]
    fn call(self) {
        let Self { npu, frames, needs_last_arrivals, now } = self;
        let mut burst = mem::take(frames).into_iter();
        match WAY {
            IN_TURN => npu.receive_in_turn(&mut burst, now),
            PREFETCHING => npu.receive_ahead(&mut burst, needs_last_arrivals, now),
            _ => npu.receive_cached(&mut burst, now),
        }
        *frames = burst::emptied(burst);
    }
}
