//! Ctrl-C in the middle of a capture: the command ends as if the capture ended there.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use nichrome_port::Waker;
use signal_hook::flag;

use crate::failure;
use crate::number::plural;
use crate::picture_file;
use crate::signals;

/// Time for the command to end by itself. It may wait longer for a program that reads its output.
const GRACE_PERIOD: Duration = Duration::from_secs(3);

/// Whether a signal has interrupted the command. Clones share this state.
#[derive(Clone)]
pub(crate) struct Interruption {
    /// The signal's number; 0 if there was none.
    signal: Arc<AtomicUsize>,
    waker: Arc<Waker>,
}

impl Interruption {
    /// Watches for the [signals that end a command](signals::ending_or_quitting) from now on.
    ///
    /// # Errors
    /// Signals cannot be received, or no descriptor is free.
    pub(crate) fn watch() -> anyhow::Result<Self> {
        let waker = Arc::new(Waker::new().context("cannot wait for signals")?);
        let interruption = Self { signal: Arc::default(), waker: Arc::clone(&waker) };
        let signals = signals::ending_or_quitting();
        for signal in &signals {
            flag::register_usize(*signal, Arc::clone(&interruption.signal), *signal as usize)
                .context("cannot wait for signals")?;
        }
        signals::forward(&signals, move |signal| -> Result<(), ()> {
            waker.wake();
            thread::sleep(GRACE_PERIOD);
            picture_file::remove_unfinished();
            failure::notice(format_args!("nichrome: interrupted"));
            process::exit(128 + signal)
        })?;
        Ok(interruption)
    }

    /// Returns true if a signal has arrived.
    #[inline]
    pub(crate) fn is_requested(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0
    }

    /// Returns the waker, which a signal wakes.
    pub(super) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Fails if a signal has arrived, after `packets` were processed.
    ///
    /// # Errors
    /// The command was interrupted.
    pub(crate) fn check(&self, packets: u64) -> anyhow::Result<()> {
        self.check_with(|| format!("the first {} processed", plural(packets, "packet was", "packets were")))
    }

    /// Fails if a signal has arrived; `done` describes the work done by then.
    ///
    /// # Errors
    /// The command was interrupted.
    pub(crate) fn check_with(&self, done: impl FnOnce() -> String) -> anyhow::Result<()> {
        match self.signal.load(Ordering::Relaxed) {
            0 => Ok(()),
            signal => Err(failure::interrupted(signal as i32, done())),
        }
    }
}
