//! Passes signals to a command instead of ending it.

use std::fs;
use std::process::ExitCode;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::exfiltrator::WithRawSiginfo;
use signal_hook::iterator::{Signals, SignalsInfo};

use crate::threads;

/// Passes these signals to `notify` on a separate thread instead of ending the process, until `notify`
/// returns an error.
pub(crate) fn forward<E>(
    signals: &[i32],
    notify: impl FnMut(i32) -> Result<(), E> + Send + 'static,
) -> anyhow::Result<()> {
    let mut signals = Signals::new(signals).context("cannot wait for signals")?;
    threads::start("signals", move || drop(signals.forever().try_for_each(notify))).map(drop)
}

/// As [`forward`], without Ctrl-C and Ctrl-\ at the terminal: the kernel sends their signals to all processes
/// in the foreground, unlike SIGHUP.
pub(crate) fn forward_without_keys<E>(
    signals: &[i32],
    mut notify: impl FnMut(i32) -> Result<(), E> + Send + 'static,
) -> anyhow::Result<()> {
    let mut signals = SignalsInfo::<WithRawSiginfo>::new(signals).context("cannot wait for signals")?;
    let work = move || {
        let mut others = signals.forever().filter(|info| !is_of_key(info.si_signo, info.si_code));
        drop(others.try_for_each(|info| notify(info.si_signo)));
    };
    threads::start("signals", work).map(drop)
}

/// Returns true if a key at the terminal caused the signal: a positive code is the kernel's (sigaction(2),
/// si_code).
fn is_of_key(signal: i32, code: i32) -> bool {
    code > 0 && [SIGINT, SIGQUIT].contains(&signal)
}

/// Returns the signals that ask a command to end: SIGINT, SIGTERM and, unless it is ignored as under
/// nohup(1), SIGHUP.
pub(crate) fn ending() -> Vec<i32> {
    let hangup = (!ignores_hangup().unwrap_or_default()).then_some(SIGHUP);
    [SIGINT, SIGTERM].into_iter().chain(hangup).collect()
}

/// Returns the [`ending`] signals and SIGQUIT: for commands that surely end by them. Others leave SIGQUIT its
/// default action, as the last resort.
pub(crate) fn ending_or_quitting() -> Vec<i32> {
    [ending(), vec![SIGQUIT]].concat()
}

/// Returns true if this process ignores SIGHUP; `None` if the kernel does not say (proc_pid_status(5),
/// SigIgn).
fn ignores_hangup() -> Option<bool> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    Some(u64::from_str_radix(mask.trim(), 16).ok()? & 1 << (SIGHUP - 1) != 0)
}

/// Returns the exit status for a signal: 128 plus its number, as shells do.
pub(crate) fn exit_code(signal: i32) -> ExitCode {
    ExitCode::from((128 + signal) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hangup_and_what_processes_send_are_of_no_key() {
        const SI_USER: i32 = 0;
        const SI_KERNEL: i32 = 128;
        for (signal, code, expected) in [
            (SIGINT, SI_KERNEL, true),
            (SIGQUIT, SI_KERNEL, true),
            (SIGHUP, SI_KERNEL, false),
            (SIGINT, SI_USER, false),
        ] {
            assert_eq!(is_of_key(signal, code), expected, "{signal}, {code}");
        }
    }
}
