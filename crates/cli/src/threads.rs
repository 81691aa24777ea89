//! Threads, of which a user may not have as many as are wanted.

use std::thread::{Builder, JoinHandle};

use anyhow::Context;

/// Starts a thread that is called `name` where threads are listed.
///
/// # Errors
/// There are no more to be had.
pub(crate) fn start<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<JoinHandle<T>> {
    Builder::new().name(name.into()).spawn(work).context("cannot start a thread")
}
