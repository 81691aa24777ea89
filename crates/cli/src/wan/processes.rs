//! Everything that runs on the hosts: started so that it ends with this process, however that ends, and stopped.
//!
//! Where the system allows it, each host's programs are in a process namespace of their own: its end kills all of them,
//! daemons included. Elsewhere what a program has started outlives a nichrome that is killed by SIGKILL.

use std::collections::HashMap;
use std::io;
use std::process::{self, Child, Command};
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::side::Side;
use nichrome_port::{ProcessNamespace, die_with_parent};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, wait};

/// How long programs have to end by themselves once they have been asked to.
const GRACE: Duration = Duration::from_secs(2);

/// How long programs that were interrupted from the terminal, as we were, have before they are asked to end, too: one
/// that is already ending is best left alone.
const AFTER_AN_INTERRUPT: Duration = Duration::from_millis(300);

/// How long one that was killed may take, which a kernel that waits for a device holds up.
const UNTIL_KILLED: Duration = Duration::from_secs(5);

/// How often is looked whether something has happened.
pub(super) const LOOK: Duration = Duration::from_millis(10);

/// The processes of both hosts.
pub(super) struct Processes {
    namespaces: [Option<ProcessNamespace>; 2],
}

impl Processes {
    /// Nothing runs yet. Whatever programs leave behind is found from now on.
    pub(super) fn new() -> Self {
        // A kernel that refuses this leaves them to init, as it would without.
        let _ = set_child_subreaper(Some(rustix::process::getpid()));
        Self { namespaces: Side::BOTH.map(|_| ProcessNamespace::new().ok()) }
    }

    /// Starts a command on `side`, and in the network namespace of the calling thread, which must live on.
    pub(super) fn spawn(&self, side: Side, command: &mut Command) -> io::Result<Child> {
        match side.of(&self.namespaces) {
            Some(namespace) => namespace.spawn(command),
            None => {
                die_with_parent(command);
                command.spawn()
            }
        }
    }

    /// What they are doing at this moment; `None` where there are none.
    pub(super) fn activity(&self) -> Option<Activity> {
        self.running().iter().map(|process| process.activity).max()
    }

    /// Gives programs that were interrupted with us some time to end by themselves.
    pub(super) fn wait_for_the_interrupted(&self) {
        let begun = Instant::now();
        while begun.elapsed() < AFTER_AN_INTERRUPT && !self.running().is_empty() {
            reap();
            thread::sleep(LOOK);
        }
    }

    /// Stops all of them: asks first, and kills after some time. Says what is left.
    pub(super) fn stop(self) -> Vec<Pid> {
        signal_until_gone(Signal::TERM, GRACE, || pids(&self.running()));
        drop(self);
        signal_until_gone(Signal::KILL, UNTIL_KILLED, || pids(&descendants()))
    }

    /// Those that programs were started as, and all that they have started.
    fn running(&self) -> Vec<Process> {
        let inits =
            self.namespaces.each_ref().map(|namespace| namespace.as_ref().map(ProcessNamespace::init));
        let mut all = descendants();
        all.retain(|process| !inits.contains(&Some(process.pid)));
        all
    }
}

/// Sends the signal to all that `left` finds, once to each, until there are none or it takes too long.
fn signal_until_gone(signal: Signal, at_most: Duration, left: impl Fn() -> Vec<Pid>) -> Vec<Pid> {
    let begun = Instant::now();
    let mut told = Vec::new();
    loop {
        let left = left();
        if left.is_empty() || begun.elapsed() > at_most {
            return left;
        }
        for pid in left {
            if !told.contains(&pid) {
                // One that has ended in the meantime needs none.
                let _ = kill_process(pid, signal);
                told.push(pid);
            }
        }
        reap();
        thread::sleep(LOOK);
    }
}

/// Takes note of children that have ended.
fn reap() {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Activity {
    /// It waits for others.
    AtRest,
    /// It runs, or waits for a processor or a disk.
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

/// All that this process has started, directly or not, and that has not ended.
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

/// The state and the parent in `/proc/PID/stat`, behind the name, which may hold anything (proc_pid_stat(5)).
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
