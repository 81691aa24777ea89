//! Passes signals to a command instead of ending it.

use std::fs;
use std::process::ExitCode;

use anyhow::Context;
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;

use crate::threads;

/// Passes these signals to `notify` on a separate thread instead of ending the process, until `notify` returns an
/// error. SIGHUP stays ignored if it is: nohup(1).
pub(crate) fn forward<E>(
    signals: &[i32],
    notify: impl FnMut(i32) -> Result<(), E> + Send + 'static,
) -> anyhow::Result<()> {
    let wanted = signals.iter().filter(|signal| !is_ignored_hangup(**signal));
    let mut signals = Signals::new(wanted).context("cannot wait for signals")?;
    threads::start("signals", move || drop(signals.forever().try_for_each(notify))).map(drop)
}

/// Returns true for SIGHUP if this process ignores it.
pub(crate) fn is_ignored_hangup(signal: i32) -> bool {
    let ignored = || {
        // proc_pid_status(5)
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    signal == SIGHUP && ignored().is_some_and(|mask| mask & 1 << (SIGHUP - 1) != 0)
}

/// Returns the exit status for a signal: 128 plus its number, as shells do.
pub(crate) fn exit_code(signal: i32) -> ExitCode {
    ExitCode::from((128 + signal) as u8)
}
