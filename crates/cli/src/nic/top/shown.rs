//! The output of `nichrome top`.

use std::io;
use std::time::Duration;

use super::rates::Interval;

/// Whether to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    More,
    NoMore,
}

/// An output for intervals.
pub(super) trait Shown {
    /// Waits for the next update.
    fn wait(&mut self, interval: Duration) -> io::Result<Wanted>;

    fn show(&mut self, interval: &Interval<'_>) -> io::Result<()>;
}
