//! Interrupts a command by a signal, as Ctrl-C does by SIGINT.

use std::fs;
use std::process::Child;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Sends a signal once the command has a handler for SIGINT, and handles or ignores the signal itself.
pub(crate) fn interrupt(child: &Child, signal: Signal) {
    let status = format!("/proc/{}/status", child.id());
    while !is_ready(signal, &fs::read_to_string(&status).unwrap()) {
        thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Returns true if the process has a handler for SIGINT, and handles or ignores the signal
/// (proc_pid_status(5), SigCgt and SigIgn).
fn is_ready(signal: Signal, status: &str) -> bool {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
    let mask = |name: &str| u64::from_str_radix(field(name), 16).unwrap();
    let contains = |mask: u64, signal: Signal| mask & 1 << (signal.as_raw() - 1) != 0;
    assert!(!field("State:").starts_with('Z'), "it has ended");
    let (caught, ignored) = (mask("SigCgt:"), mask("SigIgn:"));
    contains(caught, Signal::INT) && contains(caught | ignored, signal)
}
