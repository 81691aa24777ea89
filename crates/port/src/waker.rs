//! A cross-thread wake-up.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nichrome_wire::Instant;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{self, Errno};

use crate::clock;
use crate::eventfd::try_read_eventfd;

/// A cross-thread wake-up (eventfd(2)). A thread waits for it with [`crate::clock::wait`]; others signal it.
#[derive(Debug)]
pub struct Waker(OwnedFd);

impl Waker {
    /// Creates a waker that is not signalled.
    pub fn new() -> io::Result<Self> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self)
    }

    /// Signals the waker.
    pub fn wake(&self) {
        // Fails only if the counter would overflow (2⁶⁴ − 2); the waker is signalled in that case too.
        let _ = io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Resets the waker. Does not block, even if the descriptor has been made blocking.
    pub fn clear(&self) {
        // EAGAIN: already reset.
        if try_read_eventfd(self.as_fd()) == Err(Errno::OPNOTSUPP)
            && matches!(clock::wait([self.as_fd()], Some(Instant::ZERO)), Ok([true]))
        {
            let _ = io::read(&self.0, &mut [0; 8]);
        }
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
