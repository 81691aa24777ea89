//! Child processes that end with their parent thread.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, set_parent_process_death_signal};

/// Makes the kernel send SIGKILL to the child when the thread that starts it ends (PR_SET_PDEATHSIG).
#[allow(unsafe_code)]
pub fn kill_with_parent(command: &mut Command) {
    let prepare = || set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from);
    // SAFETY: between fork and exec only async-signal-safe functions may be called; prctl(2) is a system
    // call.
    unsafe { command.pre_exec(prepare) };
}
