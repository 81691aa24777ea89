//! Processor time of a thread.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Returns the processor time that the calling thread has used.
pub(super) fn thread_time() -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(tv_sec as u64, tv_nsec as u32)
}
