//! Delivery of held segments (lro-npu IV.E): at the end of the receive batch, or by a timer, which is set
//! once per burst.

use std::mem;

use nichrome_wire::{Instant, TimingWheel};
use pulp::NullaryFnOnce;

use super::config::Rules;
use super::descriptor::{ConnectionDescriptor, Timeouts};
use super::{Npu, WHEEL_TICK};
use crate::reason::FlushReason;
use crate::table::Index;

impl<B: AsRef<[u8]>> Npu<B> {
    /// Defers the timer of a connection: the burst may have more segments of the connection, and the receive
    /// batch may end with the burst.
    #[inline]
    pub(super) fn leave_untimed(&mut self, index: Index) {
        if self.untimed.len() >= Self::UNTIMED {
            self.settle_timers();
        }
        if let Some(descriptor) = self.table.get_mut(index)
            && !descriptor.is_untimed
        {
            self.untimed.push(index);
            descriptor.is_untimed = true;
        }
    }

    /// Sets the deferred timers, because the receive batch continues. Connections that time out between
    /// bursts get no timer: the end of the batch delivers their runs.
    #[inline(never)]
    pub(super) fn settle_timers(&mut self) {
        for index in self.untimed.drain(..) {
            let Some(descriptor) = self.table.get_mut(index) else { continue };
            descriptor.is_untimed = false;
            if descriptor.times_out_between_bursts()
                && self.config.rules == Rules::Safe
                && self.until_end.len() < Self::UNTIL_END
            {
                descriptor.deadline = self.timeouts.quiet_deadline(descriptor);
                self.until_end_deadline = self.until_end_deadline.min(descriptor.deadline);
                self.until_end.push(index);
            } else {
                set_timer(&mut self.wheel, &self.timeouts, index, descriptor, self.burst_at);
            }
        }
    }

    /// Calls `deliver` for the connections in `until_end` that still time out between bursts.
    #[cold]
    pub(super) fn deliver_until_end(&mut self, deliver: impl Fn(&mut Self, Index)) {
        let mut until_end = mem::take(&mut self.until_end);
        for index in until_end.drain(..) {
            if self.table.peek(index).is_some_and(ConnectionDescriptor::times_out_between_bursts) {
                deliver(self, index);
            }
        }
        self.until_end = until_end;
        self.until_end_deadline = Instant::MAX;
    }

    /// Returns when the first of the deferred timers would fire.
    #[cold]
    pub(super) fn untimed_deadline(&self) -> Option<Instant> {
        let descriptors = self.untimed.iter().filter_map(|index| self.table.peek(*index));
        let deadlines = descriptors.filter_map(|descriptor| self.timeouts.deadline(descriptor));
        deadlines.min().map(TimingWheel::<WHEEL_TICK>::due)
    }

    /// Sets the timers of the connections in `until_end`: the driver has not ended the batch by the first of
    /// their deadlines, or is short of buffers.
    #[cold]
    pub(super) fn settle_all_timers(&mut self, now: Instant) {
        for index in self.until_end.drain(..) {
            if let Some(descriptor) = self.table.get_mut(index) {
                set_timer(&mut self.wheel, &self.timeouts, index, descriptor, now);
            }
        }
        self.until_end_deadline = Instant::MAX;
    }

    /// Delivers the segments of a connection that are due, and sets its timer for the rest. For a timer that
    /// fired early, or a connection with segments behind a gap.
    pub(super) fn deliver_due(&mut self, index: Index, now: Instant) {
        let Some(descriptor) = self.table.get_mut(index) else { return };
        if self.timeouts.gap_deadline(descriptor).is_some_and(|deadline| deadline <= now) {
            self.reconstruct_all(index, FlushReason::ReorderTimeout);
        } else if self.timeouts.run_deadline(descriptor).is_some_and(|deadline| deadline <= now) {
            self.reconstruct(index, FlushReason::Timeout);
        }
        if let Some(descriptor) = self.table.get_mut(index) {
            set_timer(&mut self.wheel, &self.timeouts, index, descriptor, now);
        }
    }

    /// Ends a receive batch: delivers the runs of connections that time out between bursts, and sets the
    /// timers of the others.
    #[inline]
    pub(super) fn end_batch(&mut self) {
        self.masks.arch.dispatch(EndBatch(self));
    }
}

/// Computes the deadline of the connection at `index`. Sets its timer if it holds segments, unless the timer
/// already fires earlier.
#[inline(always)]
fn set_timer<B: AsRef<[u8]>>(
    wheel: &mut TimingWheel<WHEEL_TICK>,
    timeouts: &Timeouts,
    index: Index,
    descriptor: &mut ConnectionDescriptor<B>,
    now: Instant,
) {
    let held_until = timeouts.deadline(descriptor);
    descriptor.deadline = held_until.unwrap_or_else(|| timeouts.quiet_deadline(descriptor));
    if let Some(deadline) = held_until
        && deadline < descriptor.armed
    {
        descriptor.armed = deadline;
        wheel.set(index.0, deadline, now);
    }
}

/// [`Npu::end_batch`], compiled once for AVX2 and once without.
struct EndBatch<'a, B: AsRef<[u8]>>(&'a mut Npu<B>);

impl<B: AsRef<[u8]>> NullaryFnOnce for EndBatch<'_, B> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self(npu) = self;
        if !npu.promoted.is_empty() {
            npu.give_up_gaps();
        }
        if npu.undescribed.len() > 0 {
            npu.deliver_undescribed();
        }
        if !npu.until_end.is_empty() {
            npu.deliver_until_end(Npu::deliver_and_release);
        }
        let is_safe = npu.config.rules == Rules::Safe;
        let mut untimed = mem::take(&mut npu.untimed);
        for index in untimed.drain(..) {
            let Some(descriptor) = npu.table.get_mut(index) else { continue };
            descriptor.is_untimed = false;
            if is_safe && descriptor.times_out_between_bursts() {
                descriptor.deadline = npu.timeouts.quiet_deadline(descriptor);
                if npu.acker.is_some() || descriptor.may_be_released() {
                    npu.deliver_and_release(index);
                } else if let Some(run) = descriptor.take_run() {
                    npu.runs.finish_next(run, FlushReason::EndOfBatch, &mut npu.out);
                }
            } else {
                set_timer(&mut npu.wheel, &npu.timeouts, index, descriptor, npu.burst_at);
            }
        }
        npu.untimed = untimed;
    }
}
