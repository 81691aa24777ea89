//! Passes signals to a command instead of ending it.

use std::process::ExitCode;

use anyhow::Context;
use signal_hook::iterator::Signals;

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

/// Returns the exit status for a signal: 128 plus its number, as shells do.
pub(crate) fn exit_code(signal: i32) -> ExitCode {
    ExitCode::from((128 + signal) as u8)
}
