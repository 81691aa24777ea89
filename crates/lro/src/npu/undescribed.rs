//! Connections without a descriptor, whose segments are coalesced within one receive batch only.
//! These are the first burst of a connection, and bursts further apart than the hold limit. No segment joins
//! after the end of the batch, so a run and a [last arrival](super::last_arrivals) suffice. A segment that
//! cannot join the run gives the connection a descriptor, to which the run moves.

use std::mem;
use std::vec::IntoIter;

use nichrome_wire::{Instant, SeqNumber, TimingWheel};

use super::last_arrivals::{LastArrivals, Standing};
use super::receive::filter;
use super::{Npu, WHEEL_TICK};
use crate::flow::FlowKey;
use crate::frame::Frame;
use crate::reason::FlushReason;
use crate::recent::Nth;
use crate::run::PooledRun;
use crate::segment::Segment;
use crate::table::Index;

impl<B: AsRef<[u8]>> Npu<B> {
    /// Returns true if one more connection may have a run without a descriptor. If there is no room and the
    /// table is full, delivers the runs of all undescribed: to move one to a descriptor would evict a known
    /// connection.
    #[inline(always)]
    pub(super) fn admits_without_descriptor(&mut self) -> bool {
        self.coalesces_undescribed && (self.undescribed.has_room() || self.make_room_without_descriptor())
    }

    #[cold]
    fn make_room_without_descriptor(&mut self) -> bool {
        if self.table.is_full() {
            self.deliver_undescribed_early(FlushReason::Evicted);
        }
        self.undescribed.has_room()
    }

    /// Holds the run of a connection without a descriptor, unless it has ended; there must be
    /// [room](Npu::admits_without_descriptor).
    #[inline(always)]
    pub(super) fn hold_undescribed(&mut self, hash: u32, flow: FlowKey, run: PooledRun<B>) {
        let has_ended = run.has_ended(self.ends);
        if let Some(nth) = self.undescribed.push(hash, flow, run)
            && has_ended
        {
            self.deliver_ended_undescribed(nth);
        }
    }

    /// Adds the leading frames that are the next full-size segments of a connection without a descriptor.
    /// Returns false if there are none.
    #[inline(always)]
    pub(super) fn join_undescribed(&mut self, nth: Nth, frames: &mut IntoIter<Frame<B>>) -> bool {
        let Some(run) = self.undescribed.get_mut(nth) else { return false };
        let count = run.add_stream_train(&mut self.masks, frames, self.ends);
        if count == 0 {
            return false;
        }
        self.out.stats.tcp_payload_bytes_in += u64::from(count) * u64::from(run.first_len);
        if run.has_ended(self.ends) {
            self.deliver_ended_undescribed(nth);
        }
        true
    }

    /// Finds a connection with a descriptor. A connection with a run and no descriptor takes one.
    pub(super) fn find_or_promote(&mut self, hash: u32, flow: &FlowKey) -> Option<Index> {
        self.table.find(hash, flow).or_else(|| {
            let nth = self.undescribed.find(hash, flow)?;
            let index = self.promote(nth)?;
            if self.promoted.len() < Self::PROMOTED {
                self.promoted.push((index, hash));
            }
            Some(index)
        })
    }

    /// Consumes a segment with the right checksums that is next in sequence behind the run of a connection
    /// without a descriptor: adds it to the run, or delivers the run and passes the segment if the [filter]
    /// rejects it. Otherwise returns the frame.
    pub(super) fn follow_undescribed(
        &mut self,
        hash: u32,
        frame: Frame<B>,
        segment: &Segment,
    ) -> Option<Frame<B>> {
        let Some(nth) = self.undescribed.find(hash, &segment.flow) else { return Some(frame) };
        let Some(run) = self.undescribed.get_mut(nth) else { return Some(frame) };
        if segment.seq != run.end {
            return Some(frame);
        }
        if let Some(reason) = filter(segment) {
            self.deliver_undescribed_run(nth, FlushReason::Barrier);
            self.out.pass(frame, segment.payload_len, reason);
        } else if run.why_not_stream(self.masks.of(run.layout), &frame, segment, self.limits).is_none() {
            run.follow_stream(frame, segment);
            if run.has_ended(self.ends) {
                self.deliver_ended_undescribed(nth);
            }
        } else {
            return Some(frame);
        }
        None
    }

    /// Gives up the gaps of connections that took descriptors in this batch: if the first segment was a
    /// retransmission, the bytes that seem to be missing arrived before this batch.
    #[cold]
    pub(super) fn give_up_gaps(&mut self) {
        while let Some((index, hash)) = self.promoted.pop() {
            let is_present = self.table.key(index).is_some_and(|(present, _)| present == hash);
            if is_present && self.table.peek(index).is_some_and(|descriptor| descriptor.waiting.is_some()) {
                self.reconstruct_all(index, FlushReason::EndOfBatch);
            }
        }
    }

    /// Takes a descriptor for a connection that came back within the hold limit or cannot be coalesced
    /// without one.
    #[inline(always)]
    pub(super) fn recognize(
        &mut self,
        standing: Standing,
        hash: u32,
        flow: FlowKey,
        nextseq: SeqNumber,
        now: Instant,
    ) -> Option<Index> {
        let index = self.establish(hash, flow, nextseq, now)?;
        if let Standing::Recent(before) = standing {
            self.last_arrivals.note_return();
            self.table.get_mut(index)?.arrived_before(before, LastArrivals::RESOLUTION, &self.timeouts);
        }
        Some(index)
    }

    /// Delivers the run of a connection at the end of the batch. If the connection no longer needs its
    /// descriptor, releases it and records the last arrival.
    #[inline(never)]
    pub(super) fn deliver_and_release(&mut self, index: Index) {
        self.reconstruct(index, FlushReason::EndOfBatch);
        if let Some(descriptor) = self.table.peek(index)
            && self.coalesces_undescribed
            && descriptor.may_be_released()
            && let Some((hash, _)) = self.table.key(index)
        {
            let last_arrival = descriptor.last_arrival;
            self.release(index);
            self.last_arrivals.arrived(hash, last_arrival, self.burst_at, false);
        }
    }

    /// Moves a run to a descriptor.
    #[cold]
    fn promote(&mut self, nth: Nth) -> Option<Index> {
        let (hash, flow) = self.undescribed.key(nth)?;
        let run = self.undescribed.remove(nth)?;
        let standing = self.last_arrivals.standing(hash, run.since);
        self.hold_known(standing, hash, flow, run)
    }

    /// Takes a descriptor for a connection, and holds its run there.
    fn hold_known(
        &mut self,
        standing: Standing,
        hash: u32,
        flow: FlowKey,
        run: PooledRun<B>,
    ) -> Option<Index> {
        let Some(index) = self.recognize(standing, hash, flow, run.start, run.since) else {
            self.runs.finish(run, FlushReason::Evicted, &mut self.out);
            return None;
        };
        let descriptor = self.table.get_mut(index)?;
        descriptor.arrived_together(run.segments() as u32, run.since, &self.timeouts);
        descriptor.advance(run.end);
        debug_assert!(!run.has_ended(self.ends), "ended runs are delivered");
        descriptor.hold(run);
        self.leave_untimed(index);
        Some(index)
    }

    /// Moves all runs to descriptors, because time has passed and the batch continues.
    #[cold]
    pub(super) fn promote_all(&mut self) {
        while let Some((nth, _)) = self.undescribed.oldest() {
            self.promote(nth);
        }
    }

    /// Ends the batch for connections without a descriptor. Those that came back within the hold limit take
    /// one, with their runs. Delivers the runs of the others, and records their arrivals.
    #[inline(always)]
    pub(super) fn deliver_undescribed(&mut self) {
        for (hash, flow, run) in self.undescribed.drain() {
            match self.last_arrivals.arrived_again(hash, run.since, run.segments() == 1) {
                None => self.runs.finish_next(run, FlushReason::EndOfBatch, &mut self.out),
                Some(before) => self.returned.push((hash, flow, run, before)),
            }
        }
        if !self.returned.is_empty() {
            self.hold_returned();
        }
    }

    /// Moves the runs of connections that came back within the hold limit to descriptors.
    #[cold]
    fn hold_returned(&mut self) {
        let mut returned = mem::take(&mut self.returned);
        for (hash, flow, run, before) in returned.drain(..) {
            self.hold_known(Standing::Recent(before), hash, flow, run);
        }
        self.returned = returned;
    }

    /// Delivers the run of a connection without a descriptor, and records its arrival.
    #[cold]
    pub(super) fn deliver_undescribed_run(&mut self, nth: Nth, reason: FlushReason) {
        let Some((hash, _)) = self.undescribed.key(nth) else { return };
        let Some(run) = self.undescribed.remove(nth) else { return };
        self.last_arrivals.arrived(hash, run.since, run.since, run.segments() == 1);
        self.runs.finish(run, reason, &mut self.out);
    }

    /// Delivers the run of a connection without a descriptor, which has ended.
    #[cold]
    fn deliver_ended_undescribed(&mut self, nth: Nth) {
        let Some(run) = self.undescribed.get(nth) else { return };
        let reason = run.end_reason();
        self.deliver_undescribed_run(nth, reason);
    }

    /// Delivers all runs of connections without a descriptor before the batch ends. Does not record their
    /// arrivals: the next segment of the batch would then count as one that came back within the hold limit.
    #[cold]
    pub(super) fn deliver_undescribed_early(&mut self, reason: FlushReason) {
        for (_, _, run) in self.undescribed.drain() {
            self.runs.finish_next(run, reason, &mut self.out);
        }
    }

    /// Returns when the runs of connections without a descriptor are due, for drivers that end no batch.
    #[inline]
    pub(super) fn undescribed_deadline(&self) -> Option<Instant> {
        let (_, run) = self.undescribed.oldest()?;
        Some(TimingWheel::<WHEEL_TICK>::due(self.timeouts.first_deadline(run.since)))
    }
}
