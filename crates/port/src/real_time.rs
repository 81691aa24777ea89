//! Real-time priority for threads that do an interrupt handler's work, with time left to ordinary threads.

use std::io;

use nichrome_wire::Instant;

use crate::{clock, scheduling};

/// Nanoseconds of work at real-time priority, after which the thread returns to ordinary priority: one tick
/// of usual kernels.
const TURN: u64 = 4_000_000;

/// Nanoseconds of real-time work that one nanosecond of sleep or of ordinary priority compensates.
const RATIO: u64 = 4;

/// Nanoseconds of work since waking up, after which a thread counts as busy: the minimum time slice of Linux.
const BUSY: u64 = 100_000;

/// When a thread that has woken up gets real-time priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onset {
    /// At once: for work that is due at a given time.
    Waking,
    /// After 100 µs of work: for work that other threads produce. They run until then, so that there is more
    /// work per wake-up.
    Working,
}

impl Onset {
    const fn nanos(self) -> u64 {
        match self {
            Self::Waking => 0,
            Self::Working => BUSY,
        }
    }
}

/// Real-time priority (`SCHED_FIFO`, sched(7)) of a thread: it preempts ordinary threads, and the threads
/// that it wakes do not preempt it, as with an interrupt handler. It has this priority in turns: for at least
/// a fifth of the time it sleeps or has ordinary priority, so that the ordinary threads of its CPU make
/// progress under any load.
#[derive(Debug, Default)]
pub struct RealTime {
    /// `None` if the thread always has ordinary priority.
    turn: Option<Turn>,
}

impl RealTime {
    /// Gives the calling thread real-time priority. Only this thread may use the result.
    ///
    /// # Errors
    /// Real-time priority is not permitted: it requires `CAP_SYS_NICE` or an RLIMIT_RTPRIO of 1.
    pub fn request(onset: Onset) -> io::Result<Self> {
        scheduling::run_in_real_time()?;
        Ok(Self { turn: Some(Turn::new(onset, clock::now())) })
    }

    /// As [`RealTime::request`]; the thread keeps ordinary priority if real-time priority is not permitted.
    pub fn if_permitted(onset: Onset) -> Self {
        Self::request(onset).unwrap_or_default()
    }

    /// Returns true if the thread has real-time priority in turns.
    pub fn is_permitted(&self) -> bool {
        self.turn.is_some()
    }

    /// Call after each piece of work: ends or begins a turn if it is time.
    #[inline]
    pub fn worked(&mut self) {
        if let Some(turn) = &mut self.turn
            && turn.account_work(clock::now())
        {
            set(turn.is_real_time());
        }
    }

    /// Sleeps by calling `sleep`.
    #[inline]
    pub fn sleep<T>(&mut self, sleep: impl FnOnce() -> T) -> T {
        let Some(turn) = &mut self.turn else { return sleep() };
        if turn.begin_sleep(clock::now()) {
            set(turn.is_real_time());
        }
        let slept = sleep();
        turn.end_sleep(clock::now());
        slept
    }
}

/// Changes the priority of the calling thread. If the kernel refuses real-time priority, the thread keeps
/// ordinary priority.
fn set(is_real_time: bool) {
    let _ = if is_real_time { scheduling::run_in_real_time() } else { scheduling::request_short_slices() };
}

/// Decides when a turn ends and when the next one begins.
#[derive(Debug)]
struct Turn {
    onset: Onset,
    phase: Phase,
    /// Real-time work up to `since` that is not compensated yet, in nanoseconds.
    used: u64,
    /// When the phase, the last sleep or the work after it began.
    since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    RealTime,
    /// Ordinary priority until the onset.
    Ordinary,
    /// Ordinary priority, asleep or not, until the last turn is compensated.
    Pause,
}

impl Turn {
    const fn new(onset: Onset, now: Instant) -> Self {
        Self { onset, phase: Phase::RealTime, used: 0, since: now }
    }

    fn is_real_time(&self) -> bool {
        self.phase == Phase::RealTime
    }

    /// Accounts for work until `now`, and changes the phase if it is time. Returns true if the priority has
    /// changed.
    #[inline]
    fn account_work(&mut self, now: Instant) -> bool {
        let spent = now.nanos_since(self.since);
        let (phase, used) = match self.phase {
            Phase::RealTime if self.used + spent >= TURN => (Phase::Pause, self.used + spent),
            Phase::Ordinary if spent >= self.onset.nanos() => (Phase::RealTime, self.used),
            Phase::Pause if spent.saturating_mul(RATIO) >= self.used => (Phase::RealTime, 0),
            _ => return false,
        };
        (self.phase, self.used, self.since) = (phase, used, now);
        true
    }

    /// Begins a sleep; returns true if the priority changes. A pause continues.
    #[inline]
    fn begin_sleep(&mut self, now: Instant) -> bool {
        match (self.phase, self.onset) {
            (Phase::Pause, _) => return false,
            (Phase::Ordinary, _) => {}
            (Phase::RealTime, _) => self.used += now.nanos_since(self.since),
        }
        self.since = now;
        let ends = self.is_real_time() && self.onset == Onset::Working;
        if ends {
            self.phase = Phase::Ordinary;
        }
        ends
    }

    /// Ends a sleep.
    #[inline]
    fn end_sleep(&mut self, now: Instant) {
        let left = self.used.saturating_sub(now.nanos_since(self.since).saturating_mul(RATIO));
        if self.phase == Phase::Pause {
            if left > 0 {
                return;
            }
            self.phase = Phase::Ordinary;
        }
        (self.used, self.since) = (left, now);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    /// The longest piece of work, in nanoseconds.
    const LONGEST: u64 = 3_000_000;

    /// A thread, and its real-time work.
    struct Thread {
        turn: Turn,
        now: Instant,
        worked: u64,
    }

    impl Thread {
        fn new(onset: Onset) -> Self {
            Self { turn: Turn::new(onset, Instant::ZERO), now: Instant::ZERO, worked: 0 }
        }

        fn work(&mut self, nanos: u64) {
            self.worked += if self.turn.is_real_time() { nanos } else { 0 };
            self.now = self.now + Duration::from_nanos(nanos);
            self.turn.account_work(self.now);
        }

        fn sleep(&mut self, nanos: u64) {
            self.turn.begin_sleep(self.now);
            self.now = self.now + Duration::from_nanos(nanos);
            self.turn.end_sleep(self.now);
            self.turn.account_work(self.now);
        }
    }

    proptest! {
        /// In any period, real-time work takes at most four fifths of the time and one turn; the end of a
        /// turn is noticed after a piece of work. Most threads of this test sleep too little, so that they
        /// need pauses.
        #[test]
        fn a_fifth_of_the_time_is_left_to_others(
            onset in prop_oneof![Just(Onset::Waking), Just(Onset::Working)],
            divisor in prop_oneof![Just(10), Just(10_000)],
            steps in proptest::collection::vec((any::<bool>(), 1..LONGEST), 1..400),
        ) {
            let mut thread = Thread::new(onset);
            let mut marks = vec![];
            for (sleeps, nanos) in steps {
                marks.push((thread.now, thread.worked));
                if sleeps { thread.sleep(nanos / divisor) } else { thread.work(nanos) }
                for (then, before) in &marks {
                    let share = thread.now.nanos_since(*then) / (RATIO + 1) * RATIO;
                    prop_assert!(thread.worked - before <= share + TURN + LONGEST);
                }
            }
        }
    }

    #[test]
    fn a_moment_of_sleep_ends_no_pause() {
        for onset in [Onset::Waking, Onset::Working] {
            let mut thread = Thread::new(onset);
            for _ in 0..10_000 {
                thread.work(110_000);
                thread.sleep(1000);
            }
            let share = thread.worked as f64 / thread.now.nanos_since(Instant::ZERO) as f64;
            assert!(share <= 0.8, "{onset:?}: {share}");
        }
    }

    #[test]
    fn turns_and_pauses_alternate_without_sleep() {
        let mut turn = Turn::new(Onset::Working, Instant::ZERO);
        let changes: Vec<u64> = (1..=11_000)
            .map(|micros| micros * 1000)
            .filter(|nanos| turn.account_work(Instant::from_nanos(*nanos)))
            .collect();
        assert_eq!(changes, [4_000_000, 5_000_000, 9_000_000, 10_000_000]);
    }

    #[test]
    fn a_thread_that_sleeps_enough_keeps_its_priority() {
        let mut turn = Turn::new(Onset::Waking, Instant::ZERO);
        for millis in 0..100 {
            let at = |micros: u64| Instant::from_nanos(millis * 1_000_000 + micros * 1000);
            assert!(!turn.account_work(at(790)) && !turn.begin_sleep(at(790)));
            turn.end_sleep(at(1000));
        }
    }

    #[test]
    fn a_thread_for_the_work_of_others_wakes_up_as_an_ordinary_one() {
        let at = |micros: u64| Instant::from_nanos(micros * 1000);
        let mut turn = Turn::new(Onset::Working, at(0));
        assert!(turn.begin_sleep(at(10)));
        turn.end_sleep(at(1000));
        assert!(!turn.account_work(at(1099)) && turn.account_work(at(1100)));
        assert!(turn.begin_sleep(at(1200)));
    }

    #[test]
    #[allow(unsafe_code)]
    fn the_kernel_has_the_priority_of_the_turn() {
        // SAFETY: thread 0 is the calling one.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let test = move || {
            let begun = clock::now();
            let mut real_time = RealTime::if_permitted(Onset::Waking);
            let in_turn = if real_time.is_permitted() { libc::SCHED_FIFO } else { libc::SCHED_OTHER };
            assert_eq!(policy(), in_turn);
            let begun_to_work = clock::now();
            while clock::now().nanos_since(begun_to_work) < TURN {}
            real_time.worked();
            assert_eq!(policy(), libc::SCHED_OTHER);
            // Longer than the pause, however long the turn was.
            let turn = clock::now() - begun;
            real_time.sleep(|| thread::sleep(turn));
            real_time.worked();
            assert_eq!(policy(), in_turn);
        };
        thread::spawn(test).join().unwrap();
    }
}
