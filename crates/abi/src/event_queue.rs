//! Event queues: events behind an eventfd(2) that programs poll and may make non-blocking.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use nichrome_port::try_read_eventfd;

use crate::blocking::PriorRead;
use crate::errno::Errno;

/// A FIFO of events. The eventfd, a semaphore, counts them and so is readable while the queue is not empty. A
/// forked child has its own copy of the events, but shares the eventfd with its parent, so it neither reads
/// nor writes the eventfd.
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    fd: OwnedFd,
    /// ID of the process that created the queue.
    process: u32,
    events: Mutex<VecDeque<T>>,
}

/// Locked while the events of any queue are accessed: a thread that forks cannot lock each queue, and its
/// child must find all of them unlocked and consistent. Only the lock of one queue is taken under it.
static ALL: Mutex<()> = Mutex::new(());

/// All queues, locked.
pub(crate) struct Held {
    _all: MutexGuard<'static, ()>,
}

/// Locks all queues until the result is dropped: for a process that is about to fork.
pub(crate) fn hold() -> Held {
    Held { _all: lock(&ALL) }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The locked events of a queue. Drops the queue's lock before the lock of all queues.
struct Locked<'a, T> {
    list: MutexGuard<'a, VecDeque<T>>,
    _all: Held,
}

impl<T> EventQueue<T> {
    pub(crate) fn new() -> Result<Self, Errno> {
        // SAFETY: a system call without pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE) };
        if fd < 0 {
            return Err(Errno::last());
        }
        // SAFETY: the descriptor was just opened and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, process: process::id(), events: Mutex::default() })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    fn events(&self) -> Locked<'_, T> {
        let all = hold();
        Locked { list: lock(&self.events), _all: all }
    }

    /// Returns true in a forked child of the process that created the queue.
    fn is_inherited(&self) -> bool {
        self.process != process::id()
    }

    /// Appends an event and makes the descriptor readable.
    pub(crate) fn push(&self, event: T) {
        self.events().list.push_back(event);
        if self.is_inherited() {
            return;
        }
        // Fails only if the count would exceed 2⁶⁴ − 2. Not the C library's write, which is a cancellation
        // point (pthreads(7)): the device is locked here.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Removes the next event and returns `convert(event)`, called under the queue's lock. Returns `None` if
    /// the caller must read the eventfd first.
    ///
    /// # Errors
    /// The error of the read: `EAGAIN` if the program has made the descriptor non-blocking. `ENODEV` in a
    /// forked child without an event: it must not read the eventfd.
    pub(crate) fn take<R>(&self, prior: PriorRead, convert: impl Fn(T) -> R) -> Result<Option<R>, Errno> {
        let pop = || self.events().list.pop_front().map(&convert);
        match prior {
            _ if self.is_inherited() => pop().map(Some).ok_or(Errno(libc::ENODEV)),
            PriorRead::None => Ok(None),
            // `None` if `remove` discarded the event after the read had decremented the count.
            PriorRead::Done => Ok(pop()),
            PriorRead::Failed(errno) => Err(errno),
        }
    }

    /// Returns true if the queue is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.events().list.is_empty()
    }

    /// Returns true if a read of the eventfd blocks while the queue is empty.
    pub(crate) fn is_blocking(&self) -> bool {
        if self.is_inherited() {
            return false;
        }
        // SAFETY: a system call without pointers.
        let flags = unsafe { libc::fcntl(self.fd(), libc::F_GETFL) };
        flags >= 0 && flags & libc::O_NONBLOCK == 0
    }

    /// Removes the events for which `matches` returns true.
    pub(crate) fn remove(&self, matches: impl Fn(&T) -> bool) {
        let mut locked = self.events();
        let events = &mut locked.list;
        let before = events.len();
        events.retain(|event| !matches(event));
        if self.is_inherited() {
            return;
        }
        for _ in events.len()..before {
            // A read that blocks under the lock would stop `push`, and with it the device. EAGAIN: a
            // concurrent `take` has decremented the count. EOPNOTSUPP: a kernel before 5.8. The count then
            // stays too large, and a program that polls the descriptor may find no event.
            let _ = try_read_eventfd(self.fd.as_fd());
        }
    }
}

/// Count of the events of an object that the program has taken but not acknowledged. The object must not be
/// freed before the count is 0.
#[derive(Debug, Default)]
pub(crate) struct Unacknowledged {
    count: AtomicU32,
    /// Notified under [`ALL`].
    changed: Condvar,
}

impl Unacknowledged {
    pub(crate) fn add(&self) {
        self.change(|count| count.saturating_add(1));
    }

    pub(crate) fn acknowledge(&self, events: u32) {
        let _all = hold();
        self.change(|count| count.saturating_sub(events));
        self.changed.notify_all();
    }

    /// Blocks until the program has acknowledged all events.
    pub(crate) fn wait(&self) {
        let is_left = |(): &mut ()| self.count.load(Ordering::Acquire) > 0;
        drop(self.changed.wait_while(lock(&ALL), is_left).unwrap_or_else(PoisonError::into_inner));
    }

    fn change(&self, change: impl Fn(u32) -> u32) {
        let changed = |count| Some(change(count));
        // The function always returns a count.
        let _ = self.count.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::ffi::c_int;
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::blocking::{Step, until_done};

    fn take(queue: &EventQueue<u8>) -> Result<u8, c_int> {
        let step = |prior| match queue.take(prior, |event| event) {
            Ok(None) => Step::Read(queue.fd()),
            Ok(Some(event)) => Step::Done(Ok(event)),
            Err(errno) => Step::Done(Err(errno.0)),
        };
        // SAFETY: the queue has the descriptor.
        unsafe { until_done(step) }
    }

    fn is_readable(queue: &EventQueue<u8>) -> bool {
        let mut readable = libc::pollfd { fd: queue.fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure is passed.
        unsafe { libc::poll(&raw mut readable, 1, 0) == 1 }
    }

    #[test]
    fn the_descriptor_is_readable_while_the_queue_is_not_empty() {
        let queue = EventQueue::new().unwrap();
        assert!(!is_readable(&queue));
        queue.push(1);
        queue.push(2);
        assert_eq!(take(&queue), Ok(1));
        assert!(is_readable(&queue));
        queue.push(3);
        queue.remove(|event| *event == 2);
        assert_eq!(take(&queue), Ok(3));
        assert!(!is_readable(&queue));
    }

    #[test]
    fn removing_events_does_not_wait_for_the_thread_that_takes_them() {
        const LAST: u8 = 0;
        let (queue, (done, ends)) = (Arc::new(EventQueue::new().unwrap()), mpsc::channel());
        let (taker, taken) = (Arc::clone(&queue), done.clone());
        thread::spawn(move || {
            while take(&taker).unwrap() != LAST {}
            taken.send(()).unwrap();
        });
        thread::spawn(move || {
            for _ in 0..50_000 {
                queue.push(1);
                queue.remove(|event| *event == 1);
            }
            queue.push(LAST);
            done.send(()).unwrap();
        });
        for _ in 0..2 {
            ends.recv_timeout(Duration::from_secs(60)).expect("a thread blocks");
        }
    }
}
