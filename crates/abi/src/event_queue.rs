//! Events behind a file descriptor that programs poll, read through a verb, and make non-blocking as they like.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::errno::Errno;

/// Events in order. The descriptor counts them: it is readable while there is one (eventfd(2) as a semaphore).
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    fd: OwnedFd,
    events: Mutex<VecDeque<T>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> EventQueue<T> {
    pub(crate) fn new() -> Result<Self, Errno> {
        // SAFETY: a system call without pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE) };
        if fd < 0 {
            return Err(Errno::last());
        }
        // SAFETY: the descriptor was opened just now and is nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, events: Mutex::default() })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub(crate) fn push(&self, event: T) {
        lock(&self.events).push_back(event);
        let one = 1u64;
        // It fails only where 2⁶⁴ − 2 events wait.
        // SAFETY: 8 bytes are read from `one`.
        let _ = unsafe { libc::write(self.fd(), (&raw const one).cast(), 8) };
    }

    /// Takes the next event, and `tells` of it before anyone can remove events; waits for one unless the program has
    /// made the descriptor non-blocking.
    pub(crate) fn take<R>(&self, tell: impl Fn(T) -> R) -> Result<R, Errno> {
        loop {
            let mut count = 0u64;
            // SAFETY: 8 bytes are written to `count`.
            let read = unsafe { libc::read(self.fd(), (&raw mut count).cast(), 8) };
            if read < 0 {
                return Err(Errno::last());
            }
            let mut events = lock(&self.events);
            // The event that was counted may have been removed with its object.
            if let Some(event) = events.pop_front() {
                return Ok(tell(event));
            }
        }
    }

    /// Removes the events of an object that goes.
    pub(crate) fn remove(&self, is_of_it: impl Fn(&T) -> bool) {
        let mut events = lock(&self.events);
        let before = events.len();
        events.retain(|event| !is_of_it(event));
        for _ in events.len()..before {
            self.uncount();
        }
    }

    /// Counts one event less, unless who takes events has counted it already.
    fn uncount(&self) {
        let mut readable = libc::pollfd { fd: self.fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure is passed.
        if unsafe { libc::poll(&raw mut readable, 1, 0) } == 1 {
            let mut count = 0u64;
            // SAFETY: 8 bytes are written to `count`.
            let _ = unsafe { libc::read(self.fd(), (&raw mut count).cast(), 8) };
        }
    }
}

/// Events of an object that were given to the program and that it has not acknowledged: the object must not go before.
#[derive(Debug, Default)]
pub(crate) struct Unacknowledged {
    count: Mutex<u32>,
    changed: Condvar,
}

impl Unacknowledged {
    pub(crate) fn add(&self) {
        let mut count = lock(&self.count);
        *count = count.saturating_add(1);
    }

    pub(crate) fn acknowledge(&self, events: u32) {
        let mut count = lock(&self.count);
        *count = count.saturating_sub(events);
        self.changed.notify_all();
    }

    /// Waits until the program has acknowledged all.
    pub(crate) fn wait(&self) {
        let count = lock(&self.count);
        drop(self.changed.wait_while(count, |count| *count > 0).unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn is_readable(queue: &EventQueue<u8>) -> bool {
        let mut readable = libc::pollfd { fd: queue.fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure is passed.
        unsafe { libc::poll(&raw mut readable, 1, 0) == 1 }
    }

    #[test]
    fn the_descriptor_is_readable_while_there_is_an_event() {
        let queue = EventQueue::new().unwrap();
        assert!(!is_readable(&queue));
        queue.push(1);
        queue.push(2);
        assert_eq!(queue.take(|event| event), Ok(1));
        assert!(is_readable(&queue));
        queue.push(3);
        queue.remove(|event| *event == 2);
        assert_eq!(queue.take(|event| event), Ok(3));
        assert!(!is_readable(&queue));
    }
}
