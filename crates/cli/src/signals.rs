//! Signals as events of a command that ends in an orderly way.

use std::process::ExitCode;

use anyhow::Context;
use signal_hook::iterator::Signals;

use crate::threads;

/// From now on, these signals are told instead of ending the process, on a thread of its own, as long as anyone listens.
pub(crate) fn forward<E>(
    signals: &[i32],
    tell: impl FnMut(i32) -> Result<(), E> + Send + 'static,
) -> anyhow::Result<()> {
    let mut signals = Signals::new(signals).context("cannot wait for signals")?;
    threads::start("signals", move || drop(signals.forever().try_for_each(tell))).map(drop)
}

/// The exit status of what a signal has ended: 128 and its number, as shells have it.
pub(crate) fn exit_code(signal: i32) -> ExitCode {
    ExitCode::from((128 + signal) as u8)
}
