//! The hand-over of a device between the programs that poll it and the driver's thread.
//!
//! A device needs a thread that receives and serves timers. A program that polls does so inline. A program
//! whose memory is the target of WRITEs and READs calls no verb, so the driver's thread waits for the ports
//! while no program polls. [`Handover`] decides which of them waits, without a lock and without a system call
//! per poll. The device itself is behind a mutex: the hand-over only decides who *waits*, so a wrong decision
//! costs time, never consistency.
//!
//! | field | written by | meaning |
//! |---|---|---|
//! | `polled_at` | programs, each poll | time of the last poll |
//! | `busy_at` | programs, polls and verbs that moved a datagram | time of the last traffic |
//! | `waiters` | programs in [`wait`](Handover::begin_wait) | programs that wait for the ports themselves, [`MAX_WAITERS`] at most |
//! | `descriptor_waits` | programs in [`begin_descriptor_wait`](Handover::begin_descriptor_wait) | programs that wait for an event on a descriptor of their own |
//! | `is_napping` | thread; cleared by `begin_descriptor_wait` | the thread waits for the waker alone, for a bounded time |
//! | `wakes_at` | thread; cleared by `wake_by` | when the thread's wait ends by itself; 0 while it is awake or naps |
//! | `ended` | the driver's owner | the thread must return |
//!
//! ## The thread
//!
//! ```text
//! loop: is_polled ── yes ─► nap(20 µs … 640 µs)           the waker alone
//!          └─ no ─► arm ─► progress under the lock ─► poll (see crate::poll_time) ─► sleep(deadline)
//!                                                       waiters = 0: the waker, the ports and the side ports
//!                                                       waiters > 0: the waker and the side ports
//! ```
//!
//! A nap is bounded and doubles while the program keeps polling. So a program that polls sometimes, and in
//! between reads memory that its peer writes, is served at least every 640 µs.
//!
//! ## No wake-up is lost
//!
//! Three changes must end the thread's wait. Each is a store and then a load on either side, all `SeqCst`, so
//! that at least one side sees the other's store.
//!
//! 1. *A timer earlier than the thread's deadline.* The thread stores `wakes_at = u64::MAX` in
//!    [`arm`](Handover::arm) before it takes the lock, reads the device's deadline under the lock, and lowers
//!    `wakes_at` to it by `fetch_min`. A program sets a timer under the lock and then calls
//!    [`wake_by`](Handover::wake_by). If the program had the lock first, the thread reads the new deadline.
//!    Otherwise the program sees `wakes_at` armed, exchanges it for 0 and signals the waker; of several
//!    programs one signals. The exchange is repeated if the thread lowers `wakes_at` in between: the lowered
//!    value may still be later than the program's timer. The waker keeps the signal, so it may come before
//!    the thread waits.
//! 2. *A program begins to wait for an event* ([`begin_descriptor_wait`](Handover::begin_descriptor_wait))
//!    *while the thread naps.* The thread stores `is_napping`, then reads `descriptor_waits`. The program
//!    increments `descriptor_waits`, then swaps `is_napping`. Either the thread does not nap or the program
//!    signals the waker.
//! 3. *The last program stops waiting for the ports.* The thread may wait for the waker alone, so
//!    [`end_wait`](Handover::end_wait) decrements `waiters` and then wakes the thread as for a timer that is
//!    due.
//!
//! `tests/loom` checks these three, and `end`, in all interleavings.
//!
//! `polled_at` and `busy_at` are hints, `Relaxed`: a stale value shortens or prolongs one nap.

use std::time::Duration;

use nichrome_wire::Instant;
use rustix::io;

use crate::sync::{AsFd, AtomicBool, AtomicU64, AtomicUsize, Ordering, Source, Waker, clock};

/// Time without a poll after which the program counts as not polling.
const POLL_INTERVAL: Duration = Duration::from_micros(10);

/// Maximum number of programs' threads that wait for the ports at a time. Each datagram wakes all of them.
/// Further threads wait for their own event only, which one of these threads reports.
const MAX_WAITERS: usize = 4;

/// The protocol of the module's documentation.
pub(crate) struct Handover {
    /// Ends the thread's waits.
    waker: Waker,
    /// Nanoseconds.
    polled_at: AtomicU64,
    /// Nanoseconds.
    busy_at: AtomicU64,
    waiters: AtomicUsize,
    descriptor_waits: AtomicUsize,
    is_napping: AtomicBool,
    /// Nanoseconds.
    wakes_at: AtomicU64,
    ended: AtomicBool,
}

impl Handover {
    /// Starts with the thread awake and no program.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            waker: Waker::new()?,
            polled_at: AtomicU64::new(0),
            busy_at: AtomicU64::new(0),
            waiters: AtomicUsize::new(0),
            descriptor_waits: AtomicUsize::new(0),
            is_napping: AtomicBool::new(false),
            wakes_at: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        })
    }
}

/// Calls of programs.
impl Handover {
    /// Records a poll.
    pub(crate) fn polled(&self, now: Instant) {
        self.polled_at.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// Records that a datagram was received or sent.
    pub(crate) fn record_traffic(&self, now: Instant) {
        self.busy_at.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// Time of the last traffic.
    pub(crate) fn busy_at(&self) -> Instant {
        Instant::from_nanos(self.busy_at.load(Ordering::Relaxed))
    }

    /// Returns true if the calling program is to wait for the ports from now on, until
    /// [`Handover::end_wait`]; false if enough others do.
    pub(crate) fn begin_wait(&self) -> bool {
        let one_more = |waiters| (waiters < MAX_WAITERS).then_some(waiters + 1);
        self.waiters.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_ok()
    }

    /// Ends the calling program's wait for the ports.
    pub(crate) fn end_wait(&self) {
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        // The thread may wait for the waker alone.
        self.wake_by(Some(Instant::ZERO));
    }

    /// Announces that the calling program is about to wait for an event on a descriptor of its own. Until
    /// [`Handover::end_descriptor_wait`], the thread waits for the ports, however often programs poll.
    pub(crate) fn begin_descriptor_wait(&self) {
        self.descriptor_waits.fetch_add(1, Ordering::SeqCst);
        if self.is_napping.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// Ends one [`Handover::begin_descriptor_wait`].
    pub(crate) fn end_descriptor_wait(&self) {
        self.descriptor_waits.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes the thread if it would sleep beyond `due`.
    pub(crate) fn wake_by(&self, due: Option<Instant>) {
        let Some(due) = due else { return };
        let disarmed = |wakes_at: u64| (due.as_nanos() < wakes_at).then_some(0);
        if self.wakes_at.fetch_update(Ordering::SeqCst, Ordering::SeqCst, disarmed).is_ok() {
            self.waker.wake();
        }
    }

    /// Makes the thread return.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.waker.wake();
    }
}

/// Calls of the thread.
impl Handover {
    pub(crate) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Returns true if a program waits for an event on a descriptor of its own.
    pub(crate) fn has_descriptor_waits(&self) -> bool {
        self.descriptor_waits.load(Ordering::SeqCst) > 0
    }

    /// Returns true if a program has polled within [`POLL_INTERVAL`].
    pub(crate) fn was_polled(&self) -> bool {
        clock::now() - Instant::from_nanos(self.polled_at.load(Ordering::Relaxed)) <= POLL_INTERVAL
    }

    /// Leaves the ports to the program that polls: sleeps for `time` or until the waker is signalled.
    pub(crate) fn nap(&self, time: Duration) {
        // Rule 2: stored before `descriptor_waits` is read.
        self.is_napping.store(true, Ordering::SeqCst);
        if !self.has_descriptor_waits()
            && matches!(clock::wait([self.waker.as_fd()], Some(clock::now() + time)), Ok([true]))
        {
            self.waker.clear();
        }
        self.is_napping.store(false, Ordering::SeqCst);
    }

    /// Returns true if the thread must stop polling the ports: since [`arm`](Handover::arm) a program has
    /// woken it, or a program waits for the ports itself.
    pub(crate) fn must_stop_polling(&self) -> bool {
        self.wakes_at.load(Ordering::SeqCst) == 0 || self.waiters.load(Ordering::SeqCst) > 0
    }

    /// Announces a wait. To be called before the device's deadline is read (rule 1).
    pub(crate) fn arm(&self) {
        self.wakes_at.store(u64::MAX, Ordering::SeqCst);
    }

    /// Waits until `due`, for the waker, for `ports` unless a program waits for them, and for the
    /// `side_ports` if any was opened.
    pub(crate) fn sleep(
        &self,
        due: Option<Instant>,
        ports: Source<'_>,
        side_ports: Option<Source<'_>>,
    ) -> io::Result<()> {
        if let Some(due) = due {
            self.wakes_at.fetch_min(due.as_nanos(), Ordering::SeqCst);
        }
        let waker = self.waker.as_fd();
        let was_woken = match (self.waiters.load(Ordering::SeqCst) > 0, side_ports) {
            (true, None) => clock::wait([waker], due).map(|[woken]| woken),
            (true, Some(side)) => clock::wait([waker, side], due).map(|[woken, _]| woken),
            (false, None) => clock::wait([waker, ports], due).map(|[woken, _]| woken),
            (false, Some(side)) => clock::wait([waker, ports, side], due).map(|[woken, ..]| woken),
        };
        self.wakes_at.store(0, Ordering::SeqCst);
        if was_woken? {
            self.waker.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::thread;

    const SOON: Duration = Duration::from_secs(20);

    /// Asserts that `change` ends a wait that nothing else ends within [`SOON`].
    fn ends(wait: impl FnOnce() + Send, change: impl FnOnce()) {
        let start = clock::now();
        thread::scope(|scope| {
            let waiting = scope.spawn(wait);
            // Nothing else ends the wait, not even after a while.
            thread::sleep(Duration::from_millis(20));
            assert!(!waiting.is_finished());
            change();
        });
        assert!(clock::now() - start < SOON / 2);
    }

    fn is_armed(handover: &Handover) -> bool {
        handover.wakes_at.load(Ordering::SeqCst) != 0
    }

    fn sleep(handover: &Handover, ports: &Waker) {
        handover.arm();
        handover.sleep(Some(clock::now() + SOON), ports.as_fd(), None).unwrap();
    }

    #[test]
    fn each_change_that_must_end_the_threads_wait_ends_it() {
        let (handover, ports) = (Handover::new().unwrap(), Waker::new().unwrap());
        let calls = || {
            // Before the thread has announced its wait, `wake_by` has no effect.
            while !is_armed(&handover) {
                thread::yield_now();
            }
            handover.wake_by(Some(clock::now()));
        };
        ends(|| sleep(&handover, &ports), calls);
        ends(|| sleep(&handover, &ports), || handover.end());
        ends(|| handover.nap(SOON), || handover.begin_descriptor_wait());
        handover.end_descriptor_wait();
        ends(|| sleep(&handover, &ports), || ports.wake());
    }

    #[test]
    fn while_a_program_waits_for_the_ports_the_thread_does_not() {
        let (handover, ports) = (Handover::new().unwrap(), Waker::new().unwrap());
        handover.begin_wait();
        ports.wake();
        ends(|| sleep(&handover, &ports), || handover.end_wait());
    }

    #[test]
    fn while_a_program_waits_for_the_ports_the_thread_waits_for_the_side_ports() {
        let (handover, ports) = (Handover::new().unwrap(), Waker::new().unwrap());
        let side_ports = Waker::new().unwrap();
        let sleep = || {
            handover.arm();
            let until = Some(clock::now() + SOON);
            handover.sleep(until, ports.as_fd(), Some(side_ports.as_fd())).unwrap();
        };
        handover.begin_wait();
        ports.wake();
        ends(sleep, || side_ports.wake());
    }

    #[test]
    fn of_many_programs_few_wait_for_the_ports() {
        let handover = Handover::new().unwrap();
        let at_ports = (0..10 * MAX_WAITERS).filter(|_| handover.begin_wait()).count();
        assert_eq!(at_ports, MAX_WAITERS);
        handover.end_wait();
        assert!(handover.begin_wait());
    }

    #[test]
    fn a_later_timer_and_an_attended_nap_cost_no_wake_up() {
        let (handover, ports) = (Handover::new().unwrap(), Waker::new().unwrap());
        handover.arm();
        let due = clock::now() + Duration::from_millis(5);
        thread::scope(|scope| {
            scope.spawn(|| handover.sleep(Some(due), ports.as_fd(), None).unwrap());
            while handover.wakes_at.load(Ordering::SeqCst) == u64::MAX {
                thread::yield_now();
            }
            handover.wake_by(Some(due + SOON));
        });
        assert!(clock::now() >= due);
        handover.begin_descriptor_wait();
        handover.nap(SOON);
        assert_eq!(clock::wait([handover.waker.as_fd()], Some(Instant::ZERO)), Ok([false]));
    }
}
