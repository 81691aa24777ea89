//! Real-time priority for threads that do an interrupt handler's work, with time left to ordinary threads.

use std::io;

use nichrome_wire::Instant;

use crate::{clock, scheduling};

/// Nanoseconds of work in real-time priority, after which the thread is an ordinary one: a tick of usual kernels.
const TURN: u64 = 4_000_000;

/// Nanoseconds of work as an ordinary thread between two turns.
const PAUSE: u64 = 1_000_000;

/// Nanoseconds of work that a nanosecond of sleep makes up for.
const RATIO: u64 = TURN / PAUSE;

/// Nanoseconds of work since waking up, after which there is much of it: the minimum time slice of Linux.
const BUSY: u64 = 100_000;

/// When a thread that has woken up gets real-time priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onset {
    /// At once: for work at a given time.
    Waking,
    /// After 100 µs of work: for work that others make. They go on meanwhile, so that there is more of it at a time.
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

/// Real-time priority (`SCHED_FIFO`, sched(7)) of a thread: it preempts ordinary threads, and the threads that it wakes do not
/// preempt it, as with an interrupt handler. In turns: over time the thread is asleep or an ordinary one for a fifth at least,
/// so that the ordinary threads of its CPU go on under any load.
#[derive(Debug, Default)]
pub struct RealTime {
    /// `None`: always an ordinary thread.
    turn: Option<Turn>,
}

impl RealTime {
    /// Gives the calling thread, which is the one to use the result, real-time priority.
    ///
    /// # Errors
    /// It is not permitted: it requires `CAP_SYS_NICE` or an RLIMIT_RTPRIO of 1.
    pub fn request(onset: Onset) -> io::Result<Self> {
        scheduling::run_in_real_time()?;
        Ok(Self { turn: Some(Turn::new(onset, clock::now())) })
    }

    /// As [`RealTime::request`]; the thread stays an ordinary one if it is not permitted.
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
            && turn.changes(clock::now())
        {
            set(turn.is_real_time);
        }
    }

    /// Sleeps by calling `sleep`.
    #[inline]
    pub fn sleep<T>(&mut self, sleep: impl FnOnce() -> T) -> T {
        let Some(turn) = &mut self.turn else { return sleep() };
        if turn.lies_down(clock::now()) {
            set(turn.is_real_time);
        }
        let slept = sleep();
        turn.gets_up(clock::now());
        slept
    }
}

/// Changes the priority of the calling thread. Failing to get real-time priority again, the thread goes on as an ordinary one.
fn set(is_real_time: bool) {
    let _ = if is_real_time { scheduling::run_in_real_time() } else { scheduling::request_short_slices() };
}

/// Decides when a turn ends and when the next one begins.
#[derive(Debug)]
struct Turn {
    onset: Onset,
    is_real_time: bool,
    /// Real-time work up to `since` that no sleep has made up for, in nanoseconds; [`TURN`] during a pause.
    used: u64,
    /// When the thread lay down, got up, or changed its priority.
    since: Instant,
}

impl Turn {
    const fn new(onset: Onset, now: Instant) -> Self {
        Self { onset, is_real_time: true, used: 0, since: now }
    }

    /// Changes the priority if it is time after work until `now`; returns true if it has changed.
    #[inline]
    fn changes(&mut self, now: Instant) -> bool {
        let spent = now.nanos_since(self.since);
        let (changes, used) = match self.is_real_time {
            true => (self.used + spent >= TURN, TURN),
            false if self.used >= TURN => (spent >= PAUSE, 0),
            false => (spent >= self.onset.nanos(), self.used),
        };
        if changes {
            (self.is_real_time, self.used, self.since) = (!self.is_real_time, used, now);
        }
        changes
    }

    /// Begins a sleep; returns true if the priority changes.
    #[inline]
    fn lies_down(&mut self, now: Instant) -> bool {
        let was_real_time = self.is_real_time;
        if was_real_time {
            self.used = (self.used + now.nanos_since(self.since)).min(TURN);
        }
        (self.is_real_time, self.since) = (self.onset == Onset::Waking, now);
        self.is_real_time != was_real_time
    }

    /// Ends a sleep.
    #[inline]
    fn gets_up(&mut self, now: Instant) {
        let slept = now.nanos_since(self.since);
        self.used = self.used.saturating_sub(slept.saturating_mul(RATIO));
        self.since = now;
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

    proptest! {
        /// Whatever a thread does: of any time, four fifths and a turn at most are real-time work, which is noticed after each
        /// piece. Sleeps are short, so that most threads need pauses.
        #[test]
        fn a_fifth_of_the_time_is_left_to_others(
            onset in prop_oneof![Just(Onset::Waking), Just(Onset::Working)],
            steps in proptest::collection::vec((any::<bool>(), 1..LONGEST), 1..400),
        ) {
            let mut now = Instant::ZERO;
            let mut turn = Turn::new(onset, now);
            let mut worked = 0;
            // Times, and the real-time work up to them.
            let mut marks = vec![];
            for (sleeps, nanos) in steps {
                marks.push((now, worked));
                if sleeps {
                    turn.lies_down(now);
                    prop_assert_eq!(turn.is_real_time, onset == Onset::Waking);
                    now = now + Duration::from_nanos(nanos / 10);
                    turn.gets_up(now);
                } else {
                    worked += if turn.is_real_time { nanos } else { 0 };
                    now = now + Duration::from_nanos(nanos);
                    turn.changes(now);
                }
                for (then, before) in &marks {
                    let share = now.nanos_since(*then) / (RATIO + 1) * RATIO;
                    prop_assert!(worked - before <= share + TURN + LONGEST);
                }
            }
        }
    }

    #[test]
    fn turns_and_pauses_alternate_without_sleep() {
        let mut turn = Turn::new(Onset::Working, Instant::ZERO);
        let changes: Vec<u64> = (1..=11_000)
            .map(|micros| micros * 1000)
            .filter(|nanos| turn.changes(Instant::from_nanos(*nanos)))
            .collect();
        assert_eq!(changes, [4_000_000, 5_000_000, 9_000_000, 10_000_000]);
    }

    #[test]
    fn a_thread_that_sleeps_enough_keeps_its_priority() {
        let mut turn = Turn::new(Onset::Waking, Instant::ZERO);
        for millis in 0..100 {
            let at = |micros: u64| Instant::from_nanos(millis * 1_000_000 + micros * 1000);
            assert!(!turn.changes(at(790)) && !turn.lies_down(at(790)));
            turn.gets_up(at(1000));
        }
    }

    #[test]
    fn a_thread_for_the_work_of_others_wakes_up_as_an_ordinary_one() {
        let at = |micros: u64| Instant::from_nanos(micros * 1000);
        let mut turn = Turn::new(Onset::Working, at(0));
        assert!(turn.lies_down(at(10)));
        turn.gets_up(at(1000));
        assert!(!turn.changes(at(1099)) && turn.changes(at(1100)));
        assert!(turn.lies_down(at(1200)));
    }

    #[test]
    #[allow(unsafe_code)]
    fn the_kernel_has_the_priority_of_the_turn() {
        // SAFETY: thread 0 is the calling one.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let test = move || {
            let mut real_time = RealTime::if_permitted(Onset::Waking);
            let in_turn = if real_time.is_permitted() { libc::SCHED_FIFO } else { libc::SCHED_OTHER };
            assert_eq!(policy(), in_turn);
            let begun = clock::now();
            while clock::now().nanos_since(begun) < TURN {}
            real_time.worked();
            assert_eq!(policy(), libc::SCHED_OTHER);
            real_time.sleep(|| assert_eq!(policy(), in_turn));
        };
        thread::spawn(test).join().unwrap();
    }
}
