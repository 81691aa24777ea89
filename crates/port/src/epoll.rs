//! Waiting for many descriptors at once (epoll(7)).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nichrome_wire::Instant;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::{self, Errno};

use crate::clock;

/// A level-triggered set of descriptors. The set is a descriptor too: readable while one of its members is
/// ready, so that [`clock::wait`] waits for all of them.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

/// The readiness that a member of an [`Epoll`] is watched for. Errors and hang-ups are always reported, even
/// with [`Interest::NONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest(EventFlags);

impl Interest {
    /// Errors and hang-ups only.
    pub const NONE: Self = Self(EventFlags::empty());
    /// Readable.
    pub const READ: Self = Self(EventFlags::IN);
    /// Writable.
    pub const WRITE: Self = Self(EventFlags::OUT);
    /// Readable or writable.
    pub const READ_WRITE: Self = Self(EventFlags::IN.union(EventFlags::OUT));
}

/// Tokens reported by one [`Epoll::wait`] at most; the others are reported by the next.
const BATCH: usize = 64;

impl Epoll {
    /// Creates an empty set.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn new() -> io::Result<Self> {
        epoll::create(CreateFlags::CLOEXEC).map(Self)
    }

    /// Adds a descriptor. It leaves the set when its last duplicate is closed.
    ///
    /// # Errors
    /// It is a member already, or cannot be watched.
    pub fn add(&self, member: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        epoll::add(&self.0, member, EventData::new_u64(token), interest.0)
    }

    /// Changes the interest of a member.
    ///
    /// # Errors
    /// It is not a member.
    pub fn modify(&self, member: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        epoll::modify(&self.0, member, EventData::new_u64(token), interest.0)
    }

    /// Removes a descriptor.
    ///
    /// # Errors
    /// It is not a member.
    pub fn remove(&self, member: impl AsFd) -> io::Result<()> {
        epoll::delete(&self.0, member)
    }

    /// Waits until a member is ready or it is `until`, and replaces `ready` by the tokens of ready members.
    /// The resolution is 1 ms, rounded up. A signal ends the wait with no token.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&self, ready: &mut Vec<u64>, until: Option<Instant>) -> io::Result<()> {
        let timeout = until.map(|until| clock::timespec(until.nanos_since(clock::now())));
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; BATCH];
        ready.clear();
        match epoll::wait(&self.0, &mut events, timeout.as_ref()) {
            Ok(count) => ready.extend(events.iter().take(count).map(|event| event.data.u64())),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Waker;
    use std::time::Duration;

    #[test]
    fn a_wait_reports_ready_members_only_and_ends_at_its_time() {
        let (set, quiet, woken) = (Epoll::new().unwrap(), Waker::new().unwrap(), Waker::new().unwrap());
        set.add(&quiet, 1, Interest::READ).unwrap();
        set.add(&woken, 2, Interest::READ).unwrap();
        let mut ready = vec![7];
        let until = clock::now() + Duration::from_micros(1500);
        set.wait(&mut ready, Some(until)).unwrap();
        assert!(ready.is_empty() && clock::now() >= until);
        woken.wake();
        assert_eq!(clock::wait([set.as_fd()], None), Ok([true]), "the set is readable");
        set.wait(&mut ready, None).unwrap();
        assert_eq!(ready, [2]);
        set.modify(&woken, 2, Interest::NONE).unwrap();
        set.wait(&mut ready, Some(Instant::ZERO)).unwrap();
        assert!(ready.is_empty());
        set.modify(&woken, 2, Interest::READ).unwrap();
        set.remove(&woken).unwrap();
        set.wait(&mut ready, Some(Instant::ZERO)).unwrap();
        assert!(ready.is_empty());
    }
}
