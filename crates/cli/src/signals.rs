//! Signals as events of a command that ends in an orderly way.

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::thread;

use anyhow::Context;
use signal_hook::iterator::Signals;

/// From now on, these signals are told instead of ending the process, on a thread of its own.
pub(crate) fn forward(
    signals: &[i32],
    tell: impl FnMut(i32) -> ControlFlow<()> + Send + 'static,
) -> anyhow::Result<()> {
    let mut signals = Signals::new(signals).context("cannot wait for signals")?;
    thread::spawn(move || signals.forever().try_for_each(tell));
    Ok(())
}

/// The exit status of what a signal has ended: 128 and its number, as shells have it.
pub(crate) fn exit_code(signal: i32) -> ExitCode {
    ExitCode::from((128 + signal) as u8)
}
