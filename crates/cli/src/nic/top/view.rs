//! The output of `nichrome top`.

use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

use super::rates::Interval;

/// An output for intervals.
pub(super) trait View {
    /// Waits for the next update; breaks if the user has quit.
    fn wait(&mut self, interval: Duration) -> io::Result<ControlFlow<()>>;

    fn show(&mut self, interval: &Interval<'_>) -> io::Result<()>;
}
