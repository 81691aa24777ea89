//! Where the intervals of a card at work are shown.

use std::io;
use std::time::Duration;

use super::rates::Interval;

/// Whether whoever looks wants to see more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    More,
    NoMore,
}

/// Where it is shown.
pub(super) trait Shown {
    /// Waits for the next look.
    fn wait(&mut self, interval: Duration) -> io::Result<Wanted>;

    fn show(&mut self, interval: &Interval<'_>) -> io::Result<()>;
}
