//! Thread creation with error reporting.

use std::thread::{Builder, JoinHandle};

use anyhow::Context;

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
