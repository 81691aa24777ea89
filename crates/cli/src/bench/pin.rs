//! The core that a measurement runs on.

use std::fs;

use rustix::thread::{CpuSet, sched_setaffinity};

/// Keeps this thread on the core that it is on. Where the system refuses, the figures are only less steady.
pub(super) fn pin() {
    let stat = fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
    if let Some(number) = core_of(&stat) {
        let mut core = CpuSet::new();
        core.set(number);
        let _ = sched_setaffinity(None, &core);
    }
}

/// The core that a thread is on, from its line in /proc (proc_pid_stat(5), field 39). The system call would go through
/// the vDSO, which valgrind takes away.
fn core_of(stat: &str) -> Option<usize> {
    const STATE: usize = 3;
    const PROCESSOR: usize = 39;
    // The name before the state may hold spaces and parentheses.
    let (_, from_state) = stat.rsplit_once(')')?;
    let number = from_state.split_whitespace().nth(PROCESSOR - STATE)?.parse().ok();
    number.filter(|number| *number < CpuSet::MAX_CPU)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_is_read_behind_any_name() {
        let fields: String = (4..=52).map(|field| format!(" {field}")).collect();
        assert_eq!(core_of(&format!("7 (a) b) R{fields}\n")), Some(39));
        assert_eq!(core_of("7 (a) R 1 2"), None);
        assert_eq!(core_of(""), None);
    }
}
