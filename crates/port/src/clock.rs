//! Clocks and precise waiting for live drivers.

use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;

use nichrome_wire::Instant;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{self, Errno};
use rustix::thread::set_current_timer_slack;
use rustix::time::{ClockId, clock_gettime};

use crate::scheduling;

/// Returns the time since boot: the time base of live engines.
#[inline]
pub fn now() -> Instant {
    read(ClockId::Monotonic)
}

/// Returns nanoseconds since 1970, for capture timestamps. May jump when the clock is set; [`now`] plus an
/// offset taken once does not.
pub fn wall_clock() -> Instant {
    read(ClockId::Realtime)
}

#[inline]
fn read(clock: ClockId) -> Instant {
    let time = clock_gettime(clock);
    Instant::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Sets the timer slack of this thread to its minimum (default 50 µs) and asks for a short time slice, so
/// that the thread runs as soon as its timer expires.
pub fn sleep_precisely() -> io::Result<()> {
    // Older schedulers do not support it: the thread then waits for its turn.
    let _ = scheduling::request_short_slices();
    set_current_timer_slack(NonZeroU64::new(1))
}

/// Waits until one of `sources` is readable or closed, or until `until`. Returns which are readable.
pub fn wait<const N: usize>(sources: [BorrowedFd<'_>; N], until: Option<Instant>) -> io::Result<[bool; N]> {
    let timeout = until.map(|until| timespec(until.nanos_since(now())));
    let mut polled = sources.map(|source| PollFd::from_borrowed_fd(source, PollFlags::IN));
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) => Ok(polled.map(|source| !source.revents().is_empty())),
        Err(Errno::INTR) => Ok([false; N]),
        Err(error) => Err(error),
    }
}

pub(crate) fn timespec(nanos: u64) -> Timespec {
    Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Waker;
    use std::os::fd::AsFd;
    use std::time::Duration;

    #[test]
    fn a_wait_ends_at_its_time_and_not_before() {
        let waker = Waker::new().unwrap();
        let until = now() + Duration::from_millis(3);
        assert_eq!(wait([waker.as_fd()], Some(until)), Ok([false]));
        assert!(now() >= until);
        assert_eq!(wait([waker.as_fd()], Some(Instant::ZERO)), Ok([false]), "a time that has passed");
    }

    #[test]
    fn a_wait_returns_the_event_that_ended_it() {
        let (quiet, woken) = (Waker::new().unwrap(), Waker::new().unwrap());
        woken.wake();
        assert_eq!(wait([quiet.as_fd(), woken.as_fd()], None), Ok([false, true]));
        woken.clear();
        assert_eq!(wait([quiet.as_fd(), woken.as_fd()], Some(now())), Ok([false, false]));
    }

    #[test]
    fn the_wall_clock_counts_from_1970() {
        assert!(wall_clock().as_nanos() / 1_000_000_000 > 1_700_000_000);
    }
}
