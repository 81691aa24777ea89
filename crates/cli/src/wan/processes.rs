//! The processes on the hosts: started so that they end with this process, and stopped at the end.
//!
//! If the system allows it, each host's programs run in their own process namespace, whose end kills all of
//! them, including daemons. Otherwise children of the programs survive if nichrome is killed by SIGKILL.

use std::collections::HashMap;
use std::io;
use std::process::{self, Child, Command};
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::side::Side;
use nichrome_port::{ProcessNamespace, kill_with_parent};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, wait};

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// Time that programs interrupted from the terminal get before SIGTERM: one that is already ending should not
/// be disturbed.
const AFTER_AN_INTERRUPT: Duration = Duration::from_millis(300);

/// Maximum wait for a killed process, which the kernel may delay while it waits for a device.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Polling interval.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The processes of both hosts.
pub(super) struct Processes {
    namespaces: [Option<ProcessNamespace>; 2],
}

impl Processes {
    /// Creates an empty set. From now on, orphans of programs become children of this process.
    pub(super) fn new() -> Self {
        // On failure, orphans become children of init.
        let _ = set_child_subreaper(Some(rustix::process::getpid()));
        Self { namespaces: Side::BOTH.map(|_| ProcessNamespace::new().ok()) }
    }

    /// Starts a command on `side`, in the network namespace of the calling thread, which must outlive it.
    pub(super) fn spawn(&self, side: Side, command: &mut Command) -> io::Result<Child> {
        match side.of(&self.namespaces) {
            Some(namespace) => namespace.spawn(command),
            None => {
                kill_with_parent(command);
                command.spawn()
            }
        }
    }

    /// Returns the current activity; `None` without processes.
    pub(super) fn activity(&self) -> Option<Activity> {
        self.running().iter().map(|process| process.activity).max()
    }

    /// Waits for programs that were interrupted along with this process.
    pub(super) fn wait_for_the_interrupted(&self) {
        let begun = Instant::now();
        while begun.elapsed() < AFTER_AN_INTERRUPT && !self.running().is_empty() {
            reap();
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Stops all processes, by SIGTERM and then SIGKILL. Returns those that are left.
    pub(super) fn stop(self) -> Vec<Pid> {
        signal_until_gone(Signal::TERM, GRACE, || pids(&self.running()));
        drop(self);
        signal_until_gone(Signal::KILL, KILL_TIMEOUT, || pids(&descendants()))
    }

    /// Returns the started programs and all their descendants.
    fn running(&self) -> Vec<Process> {
        let inits =
            self.namespaces.each_ref().map(|namespace| namespace.as_ref().map(ProcessNamespace::init));
        let mut all = descendants();
        all.retain(|process| !inits.contains(&Some(process.pid)));
        all
    }
}

/// Sends the signal once to each process that `left` returns, until it returns none or the time is up.
/// Returns the processes that are left.
fn signal_until_gone(signal: Signal, at_most: Duration, left: impl Fn() -> Vec<Pid>) -> Vec<Pid> {
    let begun = Instant::now();
    let mut signaled = Vec::new();
    loop {
        let left = left();
        if left.is_empty() || begun.elapsed() > at_most {
            return left;
        }
        for pid in left {
            if !signaled.contains(&pid) {
                // Fails only if the process has ended meanwhile.
                let _ = kill_process(pid, signal);
                signaled.push(pid);
            }
        }
        reap();
        thread::sleep(POLL_INTERVAL);
    }
}

/// Reaps ended children.
fn reap() {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

/// The activity of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Activity {
    /// Sleeping.
    AtRest,
    /// Running, or waiting for a CPU or disk.
    Busy,
}

/// A process that has not ended.
struct Process {
    pid: Pid,
    activity: Activity,
}

fn pids(processes: &[Process]) -> Vec<Pid> {
    processes.iter().map(|process| process.pid).collect()
}

/// Returns all running descendants of this process.
fn descendants() -> Vec<Process> {
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Some(pid) = Pid::from_raw(number) else { continue };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some((state, parent)) = state_and_parent(&stat)
            && state != "Z"
        {
            let activity = if matches!(state, "R" | "D") { Activity::Busy } else { Activity::AtRest };
            children.entry(parent).or_default().push(Process { pid, activity });
        }
    }
    let mut found = Vec::new();
    let mut next = vec![process::id() as i32];
    while let Some(pid) = next.pop() {
        let of = children.remove(&pid).unwrap_or_default();
        next.extend(of.iter().map(|process| process.pid.as_raw_nonzero().get()));
        found.extend(of);
    }
    found
}

/// Parses state and parent in `/proc/PID/stat`, behind the name, which may contain anything
/// (proc_pid_stat(5)).
fn state_and_parent(stat: &str) -> Option<(&str, i32)> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_hide_the_parent() {
        assert_eq!(state_and_parent("7 (a) b) S 3 7 7 0"), Some(("S", 3)));
        assert_eq!(state_and_parent("7 (a"), None);
    }
}
