//! Waits for a condition.

use std::thread;
use std::time::{Duration, Instant};

/// Time limit for each step on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until a condition holds.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < until, "gave up waiting for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
