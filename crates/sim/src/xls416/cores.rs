//! The cores and their hardware threads (lro-npu VI): four cores that issue for one thread at a time, four
//! threads each.

use nichrome_wire::Instant;

use crate::Server;

/// A hardware thread, numbered from 0 through all cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ThreadId(pub usize);

/// The sending thread (lro-npu VI).
pub(super) const SENDER: ThreadId = ThreadId(0);
/// Number of threads before the receiving ones: the sending thread and the timeout checking thread, which
/// runs in its own loop and does not wait for its core.
const BEFORE_RECEIVERS: usize = 2;

/// Number of threads that do not receive: these two, and the card's shell (lro-npu VI).
pub(super) const BESIDE_RECEIVERS: usize = BEFORE_RECEIVERS + 1;

/// Returns the receiving thread with this index.
pub(super) fn receiver(place: usize) -> ThreadId {
    ThreadId(BEFORE_RECEIVERS + place)
}

/// The cores. While a thread waits for memory, its core runs others (lro-npu I).
#[derive(Clone, Debug)]
pub(super) struct Cores {
    cores: Vec<Server>,
    threads_per_core: usize,
}

impl Cores {
    /// Creates cores with hardware threads, at least 1 of both.
    pub(super) fn new(cores: usize, threads_per_core: usize) -> Self {
        // A thread has one job at a time, so at most as many jobs wait as there are threads.
        let core = Server::new(usize::MAX);
        Self { cores: vec![core; cores.max(1)], threads_per_core: threads_per_core.max(1) }
    }

    /// Runs a job of a thread that takes `nanos` nanoseconds of its core; returns its completion time.
    pub(super) fn work(&mut self, thread: ThreadId, nanos: u64, now: Instant) -> Instant {
        let ThreadId(thread) = thread;
        let place = (thread / self.threads_per_core).min(self.cores.len() - 1);
        self.cores[place].serve(nanos, now).unwrap_or(now)
    }

    /// Returns the total busy time of all cores until `now`, in nanoseconds.
    pub(super) fn busy_nanos(&self, now: Instant) -> u64 {
        self.cores.iter().map(|core| core.busy_nanos(now)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_one_core_take_turns_and_others_do_not() {
        let mut cores = Cores::new(2, 2);
        let done: Vec<_> = (0..4).map(|id| cores.work(ThreadId(id), 100, Instant::ZERO).as_nanos()).collect();
        assert_eq!(done, [100, 200, 100, 200]);
        assert_eq!(cores.busy_nanos(Instant::from_nanos(150)), 300);
    }

    #[test]
    fn thirteen_receivers_are_on_four_cores_beside_the_others() {
        let core = |thread: ThreadId| thread.0 / 4;
        let on: Vec<_> =
            (0..4).map(|nth| (0..13).filter(|place| core(receiver(*place)) == nth).count()).collect();
        assert_eq!(on, [2, 4, 4, 3]);
        assert_eq!(core(SENDER), 0);
    }
}
