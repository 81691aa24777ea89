//! The cores and their hardware threads (lro-npu VI): four cores that issue for one thread at a time, four threads each.

use nichrome_wire::Instant;

use crate::Server;

/// A hardware thread, by its number from 0 on; the first core has the first ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ThreadId(pub usize);

/// The sending thread (lro-npu VI).
pub(super) const SENDER: ThreadId = ThreadId(0);
/// How many threads come before the receiving ones: the sending and the timeout checking thread, which is in a loop of its
/// own and does not wait for its core.
const BEFORE_RECEIVERS: usize = 2;

/// Threads that do not receive: these two, and the one that the card's shell has (lro-npu VI).
pub(super) const BESIDE_RECEIVERS: usize = BEFORE_RECEIVERS + 1;

/// The receiving thread of this place among them.
pub(super) fn receiver(place: usize) -> ThreadId {
    ThreadId(BEFORE_RECEIVERS + place)
}

/// All cores. While a thread waits for memory, its core works for the others (lro-npu I).
#[derive(Clone, Debug)]
pub(super) struct Cores {
    cores: Vec<Server>,
    threads_per_core: usize,
}

impl Cores {
    /// So many cores of so many threads each, at least 1 of both.
    pub(super) fn new(cores: usize, threads_per_core: usize) -> Self {
        // A thread has one job at a time: there are never more waiting than threads.
        let core = Server::new(usize::MAX);
        Self { cores: vec![core; cores.max(1)], threads_per_core: threads_per_core.max(1) }
    }

    /// A job of a thread that takes its core for `nanos` nanoseconds; says when it is done.
    pub(super) fn work(&mut self, thread: ThreadId, nanos: u64, now: Instant) -> Instant {
        let ThreadId(thread) = thread;
        let place = (thread / self.threads_per_core).min(self.cores.len() - 1);
        self.cores[place].serve(nanos, now).unwrap_or(now)
    }

    /// Nanoseconds that all cores together have worked until `now`.
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
