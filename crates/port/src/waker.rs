//! Waking a thread that waits for descriptors.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io;

/// An event that one thread waits for with [`crate::clock::wait`] and others bring about (eventfd(2)).
#[derive(Debug)]
pub struct Waker(OwnedFd);

impl Waker {
    /// An event that has not come about.
    pub fn new() -> io::Result<Self> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self)
    }

    /// Brings it about.
    pub fn wake(&self) {
        // It fails only where 2⁶⁴ − 2 of them have not been cleared, and then the thread is woken anyway.
        let _ = io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it one that has not come about.
    pub fn clear(&self) {
        // It fails only where there is nothing to clear.
        let _ = io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
