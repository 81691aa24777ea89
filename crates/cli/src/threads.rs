//! Threads of this process: creation with error reporting, and processor time.

use std::fs;
use std::path::Path;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

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

/// Returns the time on a processor, user and system, of the thread with this folder in `/proc/self/task`.
pub(crate) fn processor_time(task: &Path) -> Option<Duration> {
    on_processor(&fs::read_to_string(task.join("schedstat")).ok()?)
}

/// The first number is nanoseconds on a processor (Documentation/scheduler/sched-stats.rst).
fn on_processor(schedstat: &str) -> Option<Duration> {
    schedstat.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn time_on_a_processor_is_the_first_number() {
        assert_eq!(on_processor("115342 58437 1\n"), Some(Duration::from_nanos(115_342)));
        assert_eq!(on_processor(""), None);
    }

    #[test]
    fn a_thread_that_sleeps_has_used_time() {
        // The kernel adds the time of a running thread at ticks and switches.
        thread::sleep(Duration::from_millis(1));
        assert!(processor_time(Path::new("/proc/thread-self")).unwrap() > Duration::ZERO);
        assert_eq!(processor_time(Path::new("/nonexistent")), None);
    }
}
