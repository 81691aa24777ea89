//! Interrupts a command by a signal, as Ctrl-C does by SIGINT.

use std::fs;
use std::process::Child;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Sends a signal once the command handles it.
pub(crate) fn interrupt(child: &Child, signal: Signal) {
    let status = format!("/proc/{}/status", child.id());
    while !catches(signal, &fs::read_to_string(&status).unwrap()) {
        thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Returns true if the process has a handler for the signal (proc_pid_status(5), SigCgt).
fn catches(signal: Signal, status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & 1 << (signal.as_raw() - 1) != 0
}
