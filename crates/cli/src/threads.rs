//! Threads: creation with error reporting, and their ends.

use std::thread::{Builder, JoinHandle};

use anyhow::Context;

/// Calls a function when it is dropped: at the end of a thread, also of one that panics.
pub(crate) struct AtEnd<F: Fn()>(pub(crate) F);

impl<F: Fn()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Starts a thread called `name`.
///
/// # Errors
/// The system's limit of threads is reached.
pub(crate) fn start<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<JoinHandle<T>> {
    Builder::new().name(name.into()).spawn(work).context("cannot start a thread")
}
