//! Ctrl-C in the middle of a capture: the command ends as if the capture ended there.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure;
use crate::signals;

/// Time for the command to end by itself. A read from a pipe may wait longer.
const PATIENCE: Duration = Duration::from_secs(1);

/// The number of the signal that has interrupted the command; 0 if there was none.
#[derive(Default)]
pub(crate) struct Interruption(Arc<AtomicUsize>);

impl Interruption {
    /// Watches for SIGINT, SIGTERM and SIGHUP from now on.
    ///
    /// # Errors
    /// Signals cannot be received.
    pub(crate) fn watch() -> anyhow::Result<Self> {
        let interruption = Self::default();
        let signals = [SIGINT, SIGTERM, SIGHUP];
        for signal in signals {
            flag::register_usize(signal, Arc::clone(&interruption.0), signal as usize)
                .context("cannot wait for signals")?;
        }
        signals::forward(&signals, |signal| -> Result<(), ()> {
            thread::sleep(PATIENCE);
            failure::say(format_args!("nichrome: interrupted"));
            process::exit(128 + signal)
        })?;
        Ok(interruption)
    }

    /// Returns true if a signal has arrived.
    #[inline]
    pub(crate) fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Fails if a signal has arrived, after `packets` were processed.
    ///
    /// # Errors
    /// The command was interrupted.
    pub(crate) fn check(&self, packets: u64) -> anyhow::Result<()> {
        match self.0.load(Ordering::Relaxed) {
            0 => Ok(()),
            signal => Err(failure::interrupted(signal as i32, packets)),
        }
    }
}
