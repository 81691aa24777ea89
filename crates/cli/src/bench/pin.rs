//! Pins a measurement to a CPU.

use std::fs;

use rustix::thread::{CpuSet, sched_setaffinity};

/// Pins this thread to its current CPU. Ignores errors: figures are then less steady.
pub(super) fn pin() {
    let stat = fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
    if let Some(number) = core_of(&stat) {
        let mut core = CpuSet::new();
        core.set(number);
        let _ = sched_setaffinity(None, &core);
    }
}

/// Parses a thread's CPU from /proc (proc_pid_stat(5), field 39). The system call would use the vDSO, which
/// valgrind hides.
fn core_of(stat: &str) -> Option<usize> {
    const STATE: usize = 3;
    const PROCESSOR: usize = 39;
    // The name before the state may contain spaces and parentheses.
    let (_, from_state) = stat.rsplit_once(')')?;
    let number = from_state.split_whitespace().nth(PROCESSOR - STATE)?.parse().ok();
    number.filter(|number| *number < CpuSet::MAX_CPU)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_is_found_whatever_the_name_of_the_program() {
        let fields: String = (4..=52).map(|field| format!(" {field}")).collect();
        assert_eq!(core_of(&format!("7 (a) b) R{fields}\n")), Some(39));
        assert_eq!(core_of("7 (a) R 1 2"), None);
        assert_eq!(core_of(""), None);
    }
}
