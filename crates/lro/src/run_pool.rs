//! The pool of runs of an engine. A run returns when the driver drops its packet.

use nichrome_wire::Instant;

use crate::aggregate::Aggregate;
use crate::frame::Frame;
use crate::mask::Rule;
use crate::outbox::Outbox;
use crate::reason::FlushReason;
use crate::recycle::{Recycled, Recycler};
use crate::run::{Limits, PooledRun, Run};
use crate::segment::Segment;

/// A fixed number of runs.
pub(crate) struct RunPool<B>(Recycler<Run<B>>);

impl<B: AsRef<[u8]>> RunPool<B> {
    /// Reserves memory for `runs` runs of up to `segments` segments.
    pub(crate) fn new(runs: usize, segments: usize) -> Self {
        Self(Recycler::new((0..runs).map(|_| Run::with_room(segments))))
    }

    /// Starts a run with its first segment; returns the frame if all runs are in use.
    #[inline(always)]
    pub(crate) fn start(
        &mut self,
        frame: Frame<B>,
        segment: &Segment,
        rule: Rule,
        limits: Limits,
        now: Instant,
    ) -> Result<PooledRun<B>, Frame<B>> {
        let Some(mut run) = self.0.take() else { return Err(frame) };
        run.begin(frame, segment, rule, limits, now);
        Ok(run)
    }

    /// Takes a run, which the caller starts; `None` if all are in use.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<PooledRun<B>> {
        self.0.take()
    }

    /// Delivers a run to the host: a single segment as its frame, more as an aggregate.
    #[inline(never)]
    pub(crate) fn finish(&mut self, run: PooledRun<B>, reason: FlushReason, out: &mut Outbox<B>) {
        self.finish_next(run, reason, out);
    }

    /// As [`RunPool::finish`], for loops.
    #[inline(always)]
    pub(crate) fn finish_next(&mut self, mut run: PooledRun<B>, reason: FlushReason, out: &mut Outbox<B>) {
        if run.segments() == 1
            && let Some(frame) = run.take_first()
        {
            out.flush_frame(frame, run.tcp_bytes(), reason);
            self.0.give_back(run);
        } else {
            run.seal(reason);
            out.flush_aggregate(Aggregate::new(Recycled::lend(run)), reason);
        }
    }
}
