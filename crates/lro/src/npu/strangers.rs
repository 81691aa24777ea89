//! Connections without a descriptor, whose segments are coalesced within one receive batch: the first burst of each, and bursts further
//! apart than the hold limit. Nothing joins them after the end of the batch, so that they need no more than a run and a
//! [last arrival](super::last_arrivals). What is not next in sequence finds the connection with a descriptor, which takes the run along.

use std::vec::IntoIter;

use nichrome_wire::{Instant, SeqNumber, TimingWheel};

use super::descriptor::ended_by;
use super::last_arrivals::{LastArrivals, Standing};
use super::{Npu, WHEEL_TICK};
use crate::flow::FlowKey;
use crate::frame::Frame;
use crate::reason::FlushReason;
use crate::recent::Nth;
use crate::run::PooledRun;
use crate::table::Index;

impl<B: AsRef<[u8]>> Npu<B> {
    /// Returns true if one more connection may have a run without a descriptor. Delivers the other ones' if it would evict a known
    /// connection otherwise.
    #[inline(always)]
    pub(super) fn takes_stranger(&mut self) -> bool {
        self.may_forget && (self.strangers.has_room() || self.makes_room_for_stranger())
    }

    #[cold]
    fn makes_room_for_stranger(&mut self) -> bool {
        if self.table.is_full() {
            self.deliver_strangers(FlushReason::Evicted);
        }
        self.strangers.has_room()
    }

    /// Holds the run of a connection without a descriptor; there must be [room](Npu::takes_stranger).
    #[inline(always)]
    pub(super) fn hold_stranger(&mut self, hash: u32, flow: FlowKey, run: PooledRun<B>) {
        let ended = ended_by(&run, run.flags, self.ends).is_some();
        self.no_descriptor_likely = Self::LATELY;
        if let Some(nth) = self.strangers.push(hash, flow, run)
            && ended
        {
            self.promote(nth);
        }
    }

    /// Adds the leading frames that are the next full-size segments of a connection without a descriptor. Returns false if there are
    /// none.
    #[inline(always)]
    pub(super) fn join_stranger(&mut self, nth: Nth, frames: &mut IntoIter<Frame<B>>) -> bool {
        let Some(run) = self.strangers.get_mut(nth) else { return false };
        let count = run.add_stream_train(&mut self.masks, frames, self.ends);
        if count == 0 {
            return false;
        }
        self.out.stats.tcp_payload_bytes_in += u64::from(count) * u64::from(run.first_len);
        if ended_by(run, run.flags, self.ends).is_some() {
            self.promote(nth);
        }
        true
    }

    /// Finds a connection, which takes a descriptor if it has a run without one.
    pub(super) fn find(&mut self, hash: u32, flow: &FlowKey) -> Option<Index> {
        self.table.find(hash, flow).or_else(|| {
            let nth = self.strangers.find(hash, flow)?;
            self.promote(nth)
        })
    }

    /// Takes a descriptor for a connection, which has come back or cannot do without.
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
        if let Standing::Met(at) = standing {
            self.last_arrivals.came_back();
            self.table.get_mut(index)?.arrived_before(at, LastArrivals::RESOLUTION, &self.timeouts);
        }
        Some(index)
    }

    /// Delivers what a connection holds at the end of the batch. If it needs no descriptor any longer, releases that, and records its last
    /// arrival.
    #[inline(never)]
    pub(super) fn deliver_and_forget(&mut self, index: Index) {
        self.reconstruct(index, FlushReason::EndOfBatch);
        if let Some(descriptor) = self.table.peek(index)
            && self.may_forget
            && descriptor.may_be_forgotten()
            && let Some((hash, _)) = self.table.key(index)
        {
            let last_arrival = descriptor.last_arrival;
            self.release(index);
            self.last_arrivals.arrived(hash, last_arrival, false);
        }
    }

    /// Moves a run to a descriptor. Delivers it if it has ended.
    #[cold]
    fn promote(&mut self, nth: Nth) -> Option<Index> {
        let (hash, flow) = self.strangers.key(nth)?;
        let run = self.strangers.remove(nth)?;
        let Some(index) = self.establish(hash, flow, run.start, run.since) else {
            self.runs.finish(run, FlushReason::Evicted, &mut self.out);
            return None;
        };
        let descriptor = self.table.get_mut(index)?;
        descriptor.arrived_together(run.segments() as u32, run.since, &self.timeouts);
        descriptor.advance(run.end);
        if let Some(reason) = descriptor.hold(run, self.ends) {
            self.reconstruct(index, reason);
        }
        self.leave_untimed(index);
        Some(index)
    }

    /// Moves all runs to descriptors: time has passed, and the batch goes on.
    #[cold]
    pub(super) fn promote_all(&mut self) {
        while let Some((nth, _)) = self.strangers.oldest() {
            self.promote(nth);
        }
    }

    /// Delivers all runs of connections without a descriptor, and records their arrivals.
    #[inline(always)]
    pub(super) fn deliver_strangers(&mut self, reason: FlushReason) {
        for (hash, _, run) in self.strangers.drain() {
            self.last_arrivals.arrived(hash, run.since, run.segments() == 1);
            self.runs.finish_next(run, reason, &mut self.out);
        }
    }

    /// Returns when the runs of connections without a descriptor are due, for drivers that end no batch.
    #[inline]
    pub(super) fn strangers_deadline(&self) -> Option<Instant> {
        let (_, run) = self.strangers.oldest()?;
        Some(TimingWheel::<WHEEL_TICK>::due(self.timeouts.first_deadline(run.since)))
    }
}
