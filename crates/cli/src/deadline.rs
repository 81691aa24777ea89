//! Deadlines of conversations with clients.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

/// Returns the time left until a deadline.
///
/// # Errors
/// [`ErrorKind::TimedOut`]: the deadline has passed.
pub(crate) fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}
