//! Processors of programs, cards and path, and the processor time of threads.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

use crate::threads;

/// A role that gets a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The measured program.
    Application,
    /// The card of its host.
    Card,
    /// The other host's program and card.
    Peer,
    /// The path between the hosts.
    Path,
}

/// The processors that this process may use. The first is reserved for the measured program, if there are
/// several.
pub(super) struct Processors {
    all: CpuSet,
    usable: Vec<usize>,
}

impl Processors {
    pub(super) fn new() -> anyhow::Result<Self> {
        let all = sched_getaffinity(None).context("cannot read the CPU affinity")?;
        let usable = (0..CpuSet::MAX_CPU).filter(|processor| all.is_set(*processor)).collect();
        Ok(Self { all, usable })
    }

    /// Returns the number of processors.
    pub(super) fn count(&self) -> usize {
        self.usable.len()
    }

    /// Returns the processor of a role; without enough processors, the last roles share the last one.
    fn of(&self, role: Role) -> CpuSet {
        let nth = match role {
            Role::Application => 0,
            Role::Card => 1,
            Role::Peer => 2,
            Role::Path => 3,
        };
        let mut processor = CpuSet::new();
        if let Some(number) = self.usable.get(nth).or(self.usable.last()) {
            processor.set(*number);
        }
        processor
    }

    /// Runs `work`, and the threads that it starts, on the processor of `role`.
    pub(super) fn on<T>(&self, role: Role, work: impl FnOnce() -> T) -> T {
        // If the system refuses, the figures have more noise.
        let _ = sched_setaffinity(None, &self.of(role));
        let result = work();
        let _ = sched_setaffinity(None, &self.all);
        result
    }

    /// Moves threads to the processor of `role`.
    pub(super) fn place(&self, threads: &Threads, role: Role) {
        for thread in &threads.0 {
            // If the system refuses, the figures have more noise.
            let _ = sched_setaffinity(Pid::from_raw(*thread), &self.of(role));
        }
    }
}

/// Threads of this process.
#[derive(Clone, Debug, Default)]
pub(super) struct Threads(BTreeSet<i32>);

impl Threads {
    /// Returns the threads of the process.
    fn now() -> Self {
        let entries = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        Self(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
    }

    /// Returns the threads that `work` starts and leaves running. No other thread may start meanwhile.
    pub(super) fn started_by<T>(work: impl FnOnce() -> T) -> (Self, T) {
        let before = Self::now();
        let result = work();
        (Self(Self::now().0.difference(&before.0).copied().collect()), result)
    }

    /// Returns the processor time of the threads.
    pub(super) fn time(&self) -> Duration {
        let tasks = Path::new("/proc/self/task");
        self.0.iter().filter_map(|thread| threads::processor_time(&tasks.join(thread.to_string()))).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_role_has_one_processor_and_the_others_share_the_last() {
        let processors = |usable: &[usize]| Processors { all: CpuSet::new(), usable: usable.to_vec() };
        let number = |of: &Processors, role| (0..CpuSet::MAX_CPU).find(|nth| of.of(role).is_set(*nth));
        let roles = [Role::Application, Role::Card, Role::Peer, Role::Path];
        for (usable, expected) in [
            (&[4][..], [4, 4, 4, 4]),
            (&[1, 3], [1, 3, 3, 3]),
            (&[0, 1, 2], [0, 1, 2, 2]),
            (&[0, 1, 2, 3, 4], [0, 1, 2, 3]),
        ] {
            let of = processors(usable);
            assert_eq!(roles.map(|role| number(&of, role)), expected.map(Some));
        }
    }

    #[test]
    fn a_thread_that_waits_is_found_and_has_used_time() {
        let (end, ended) = mpsc::channel::<()>();
        let (threads, handle) = Threads::started_by(|| thread::spawn(move || ended.recv().is_err()));
        // Other tests start threads, too.
        assert!(!threads.0.is_empty());
        drop(end);
        assert!(handle.join().unwrap());
    }
}
