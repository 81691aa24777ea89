//! Calls that block until an event comes, and so are cancellation points (pthreads(7)).
//!
//! A cancelled thread unwinds through the frames of the call, whose destructors need not run (RFC 2945). So
//! the only frames during a wait are those of the exported function and of [`until_done`], which own nothing
//! and hold no lock.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;

use crate::cancellation::Uncancelled;
use crate::errno::Errno;

unsafe extern "C-unwind" {
    fn read(fd: c_int, buffer: *mut c_void, len: usize) -> isize;
    /// write(2), which is a cancellation point, too.
    pub(crate) fn write(fd: c_int, bytes: *const c_void, len: usize) -> isize;
}

/// What a call does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step<T: Copy> {
    /// Returns this result.
    Done(T),
    /// Reads from this eventfd, which blocks while there is no event, then takes the next step.
    Read(RawFd),
}

/// The read before a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PriorRead {
    /// No read: this is the first step.
    None,
    /// The read decremented the eventfd's count.
    Done,
    /// The read failed.
    Failed(Errno),
}

/// Takes steps, during which the thread is not cancelled, until one returns a result.
///
/// # Safety
/// The descriptors that `step` returns stay open while they are read.
pub(crate) unsafe fn until_done<T: Copy>(step: impl Fn(PriorRead) -> Step<T> + Copy) -> T {
    let mut prior = PriorRead::None;
    loop {
        let next = {
            let _uncancelled = Uncancelled::begin();
            step(prior)
        };
        let fd = match next {
            Step::Done(result) => return result,
            Step::Read(fd) => fd,
        };
        let mut count = 0u64;
        // SAFETY: 8 bytes are written to `count`; the descriptor is open.
        let len = unsafe { read(fd, (&raw mut count).cast(), 8) };
        prior = if len < 0 { PriorRead::Failed(Errno::last()) } else { PriorRead::Done };
    }
}

/// Converts the result or error that ends a call to the call's return value, by `end`. Returns a read
/// unchanged.
pub(crate) fn map_result<T: Copy, R: Copy>(
    step: Result<Step<T>, Errno>,
    end: impl FnOnce(Result<T, Errno>) -> R,
) -> Step<R> {
    match step {
        Ok(Step::Read(fd)) => Step::Read(fd),
        Ok(Step::Done(result)) => Step::Done(end(Ok(result))),
        Err(errno) => Step::Done(end(Err(errno))),
    }
}
