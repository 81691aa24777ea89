//! Calls that block until an event comes, and so are cancellation points (pthreads(7)).
//!
//! A cancelled thread unwinds through the frames of the call, whose destructors need not run (RFC 2945). So the only frames during a
//! wait are those of the exported function and of [`until_done`], which own nothing and hold no lock.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;

use crate::errno::{Errno, minus_one};

unsafe extern "C-unwind" {
    fn read(fd: c_int, buffer: *mut c_void, len: usize) -> isize;
    /// write(2), which is a cancellation point, too.
    pub(crate) fn write(fd: c_int, bytes: *const c_void, len: usize) -> isize;
}

/// What a call does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step<T: Copy> {
    /// It returns.
    Done(T),
    /// It reads from this eventfd, which blocks while there is no event, and then takes the next step.
    Read(RawFd),
}

/// The read before a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// None: the first step.
    Nothing,
    /// It decremented the count.
    Read,
    /// It failed.
    Failed(Errno),
}

/// Takes steps until one returns a result.
///
/// # Safety
/// The descriptors that `step` returns stay open while they are read.
pub(crate) unsafe fn until_done<T: Copy>(step: impl Fn(Before) -> Step<T> + Copy) -> T {
    let mut before = Before::Nothing;
    loop {
        let fd = match step(before) {
            Step::Done(result) => return result,
            Step::Read(fd) => fd,
        };
        let mut count = 0u64;
        // SAFETY: 8 bytes are written to `count`; the descriptor is open.
        let len = unsafe { read(fd, (&raw mut count).cast(), 8) };
        before = if len < 0 { Before::Failed(Errno::last()) } else { Before::Read };
    }
}

/// The step of a verb that returns 0, or −1 and sets errno.
pub(crate) fn verb_step(step: Result<Step<()>, Errno>) -> Step<c_int> {
    match step {
        Ok(Step::Read(fd)) => Step::Read(fd),
        Ok(Step::Done(())) => Step::Done(minus_one(Ok(()))),
        Err(errno) => Step::Done(minus_one(Err(errno))),
    }
}
