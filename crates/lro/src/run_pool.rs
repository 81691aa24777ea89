//! Memory for the runs of an engine, which come back when the host is done with them.

use nichrome_wire::Instant;

use crate::aggregate::Aggregate;
use crate::frame::Frame;
use crate::mask::Rule;
use crate::outbox::Outbox;
use crate::reason::FlushReason;
use crate::recycle::{Recycled, Recycler};
use crate::run::{Limits, PooledRun, Run};
use crate::segment::Segment;

/// Memory for a fixed number of runs.
pub(crate) struct RunPool<B>(Recycler<Run<B>>);

impl<B: AsRef<[u8]>> RunPool<B> {
    /// Room for `runs` runs of up to `segments` segments.
    pub(crate) fn new(runs: usize, segments: usize) -> Self {
        Self(Recycler::new((0..runs).map(|_| Run::with_room(segments))))
    }

    /// Starts a run with its first segment; gives the frame back where all runs are in use.
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

    /// Memory for a run, to be started by the caller.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<PooledRun<B>> {
        self.0.take()
    }

    /// Hands on a run: a single segment leaves as the frame that it was, more as an aggregate.
    #[inline]
    pub(crate) fn finish(&mut self, mut run: PooledRun<B>, reason: FlushReason, out: &mut Outbox<B>) {
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
