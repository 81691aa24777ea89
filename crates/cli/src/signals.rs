//! Passes signals to a command instead of ending it.

use std::fs;
use std::process::ExitCode;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::exfiltrator::WithRawSiginfo;
use signal_hook::iterator::{Signals, SignalsInfo};

use crate::threads;

/// Passes these signals to `notify` on a separate thread instead of ending the process, until `notify` returns an
/// error.
pub(crate) fn forward<E>(
    signals: &[i32],
    notify: impl FnMut(i32) -> Result<(), E> + Send + 'static,
) -> anyhow::Result<()> {
    let mut signals = Signals::new(signals).context("cannot wait for signals")?;
    threads::start("signals", move || drop(signals.forever().try_for_each(notify))).map(drop)
}

/// As [`forward`], without the signals of the terminal, such as Ctrl-C: the kernel sends them to all processes in the foreground.
pub(crate) fn forward_without_terminal<E>(
    signals: &[i32],
    mut notify: impl FnMut(i32) -> Result<(), E> + Send + 'static,
) -> anyhow::Result<()> {
    let mut signals = SignalsInfo::<WithRawSiginfo>::new(signals).context("cannot wait for signals")?;
    let work = move || {
        // A positive code is the kernel's (sigaction(2), si_code).
        let mut others = signals.forever().filter(|info| info.si_code <= 0);
        drop(others.try_for_each(|info| notify(info.si_signo)));
    };
    threads::start("signals", work).map(drop)
}

/// Returns the signals that ask a command to end: SIGINT, SIGTERM and, unless it is ignored as under nohup(1), SIGHUP.
pub(crate) fn ending() -> Vec<i32> {
    let hangup = (!ignores_hangup().unwrap_or_default()).then_some(SIGHUP);
    [SIGINT, SIGTERM].into_iter().chain(hangup).collect()
}

/// Returns the [`ending`] signals and SIGQUIT: for commands that surely end by them. Others leave SIGQUIT its default action, as the
/// last resort.
pub(crate) fn ending_or_quitting() -> Vec<i32> {
    [ending(), vec![SIGQUIT]].concat()
}

/// Returns true if this process ignores SIGHUP; `None` if the kernel does not say (proc_pid_status(5), SigIgn).
fn ignores_hangup() -> Option<bool> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    Some(u64::from_str_radix(mask.trim(), 16).ok()? & 1 << (SIGHUP - 1) != 0)
}

/// Returns the exit status for a signal: 128 plus its number, as shells do.
pub(crate) fn exit_code(signal: i32) -> ExitCode {
    ExitCode::from((128 + signal) as u8)
}
