//! Deadlines of conversations with clients.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

/// Returns the remaining time until a deadline.
///
/// # Errors
/// [`ErrorKind::TimedOut`]: the deadline has passed.
pub(crate) fn remaining(until: Instant) -> io::Result<Duration> {
    let remaining = until.saturating_duration_since(Instant::now());
    if remaining.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(remaining) }
}
