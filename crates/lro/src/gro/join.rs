//! Joins segments to the runs of their flows, and starts runs with common segments.

use std::vec::IntoIter;

use nichrome_wire::Instant;

use super::{Gro, Place};
use crate::checksums;
use crate::common;
use crate::flow::FlowKey;
use crate::frame::Frame;
use crate::lossless;
use crate::reason::FlushReason;
use crate::recent::Nth;
use crate::run::NextCommon;
use crate::segment::{FirstSegment, Follower};

impl<B: AsRef<[u8]>> Gro<B> {
    /// Returns the fields of a frame that extends the run at `place`; else why the run ends. A wrong checksum
    /// counts as an unequal field.
    #[inline(never)]
    pub(super) fn joining(&mut self, place: Place, frame: &Frame<B>) -> Result<Follower, FlushReason> {
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
        let joins = !follower.trailer
            && lossless::has_usual_checksums(frame, follower.usual_checksums)
            && checksums::verify(frame, layout, follower.payload_len).is_ok();
        if joins { Ok(follower) } else { Err(FlushReason::UnequalField) }
    }

    /// Appends the first frame, which [`Gro::joining`] has accepted.
    #[inline]
    pub(super) fn join(&mut self, place: Place, frames: &mut IntoIter<Frame<B>>, follower: &Follower) {
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

    /// Appends the leading frames that are the expected next segments of the flow at `place`. Returns false
    /// if there are none.
    #[inline(never)]
    pub(super) fn join_expected(&mut self, place: Place, frames: &mut IntoIter<Frame<B>>) -> bool {
        let run = match place {
            Place::Recent(nth) => self.recent.get_mut(nth),
            Place::Table(index) => self.table.get_mut(index).map(|run| &mut **run),
        };
        let next = frames.as_slice().first();
        let Some(run) = run.filter(|run| next.is_some_and(|next| run.may_be_next(next.bytes()))) else {
            return false;
        };
        let (bytes, ends) = run.add_train(&mut self.masks, frames);
        self.out.stats.tcp_payload_bytes_in += u64::from(bytes);
        if let Some(reason) = lossless::ended_by(ends) {
            self.flush(place, reason);
        }
        bytes > 0
    }

    /// As [`Gro::join_expected`], for a recent flow that began with a [common frame](crate::common). Restarts
    /// the run with a segment that is next in sequence but has another ACK number.
    #[inline(always)]
    pub(super) fn join_common(&mut self, nth: Nth, frames: &mut IntoIter<Frame<B>>, now: Instant) -> bool {
        let Some(run) = self.recent.get_mut(nth).filter(|run| run.is_common) else { return false };
        match run.next_common(frames.as_slice()) {
            NextCommon::SameAck => {
                let (bytes, ends) = run.add_common(&mut self.masks, frames);
                self.out.stats.tcp_payload_bytes_in += u64::from(bytes);
                if let Some(reason) = lossless::ended_by(ends) {
                    self.flush(Place::Recent(nth), reason);
                }
                bytes > 0
            }
            NextCommon::OtherAck => self.start_again(nth, frames, now),
            NextCommon::Other => false,
        }
    }

    /// As [`Gro::join_common`], for the flow whose turn it is: flows whose segments alternate mostly keep the
    /// order in which they began, so the next flow is found without computing its hash.
    #[inline(always)]
    pub(super) fn join_turn(&mut self, frames: &mut IntoIter<Frame<B>>, now: Instant) -> bool {
        let nth = self.turn;
        let joined = self.join_common(nth, frames, now);
        self.turn = if joined { self.recent.after(nth) } else { Nth::NONE };
        joined
    }

    /// For each leading frame that [may](crate::run::Run::may_start_again) restart the run: delivers the
    /// run's only segment, and restarts the run with the frame. The run must have begun at `now`, so that the
    /// flow keeps its place in the order of age. Returns false if it consumed no frame.
    #[inline(never)]
    fn start_again(&mut self, nth: Nth, frames: &mut IntoIter<Frame<B>>, now: Instant) -> bool {
        let Some(run) = self.recent.get_mut(nth).filter(|run| run.since == now) else { return false };
        let mut count = 0;
        while frames.as_slice().first().is_some_and(|next| run.may_start_again(next)) {
            if let Some(alone) = frames.next().and_then(|frame| run.start_alike(frame)) {
                self.out.flush_frame(alone, run.first_len, FlushReason::UnequalField);
            }
            count += 1;
        }
        self.out.stats.tcp_payload_bytes_in += u64::from(run.first_len) * count;
        count > 0
    }

    /// Starts a run for a recent flow with the first frame, whose fields are `first`, and appends the
    /// following frames that extend it. Returns false if there is no room.
    #[inline(always)]
    pub(super) fn hold_common(
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
        let next = run.next_common(frames.as_slice());
        if next == NextCommon::SameAck {
            let (bytes, ends) = run.add_common(&mut self.masks, frames);
            self.out.stats.tcp_payload_bytes_in += u64::from(bytes);
            if let Some(reason) = lossless::ended_by(ends) {
                self.pool.finish(run, reason, &mut self.out);
                return true;
            }
        }
        if let Some(nth) = self.recent.push(hash, flow, run)
            && next == NextCommon::OtherAck
        {
            self.start_again(nth, frames, now);
        }
        true
    }

    /// Flushes a recent flow and starts a new run with the first frame, if that is a common segment of the
    /// same flow with another ACK number or window. Returns false otherwise.
    #[inline(never)]
    pub(super) fn hold_instead(
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
        let Some(segment) = common::first_segment(frame.bytes()) else { return false };
        if (segment.ack, segment.window) == (run.ack, run.window)
            || self.recent.flow(nth) != Some(&flow)
            || checksums::verify_common(frame, segment.layout, segment.payload_len).is_err()
        {
            return false;
        }
        if self.replace_single(nth, frames, segment, now) {
            return true;
        }
        self.flush(Place::Recent(nth), FlushReason::UnequalField);
        self.hold_common(frames, hash, flow, segment, now)
    }

    /// If the run has one segment and began at `now`, delivers that segment and restarts the run with the
    /// first frame. The flow keeps its place.
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
}
