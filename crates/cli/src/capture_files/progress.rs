//! A progress bar for long reads.

use std::fs;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Delay before the bar appears.
const BAR_DELAY: Duration = Duration::from_secs(2);

/// Records between two reads of the clock.
const STRIDE: u64 = 1024;

/// Progress of reading the input.
pub(crate) struct Progress {
    begun: Instant,
    records: u64,
    /// Initially hidden; `None` without a terminal.
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Creates progress for the input at `path`. The decompressed length of a compressed file is unknown.
    pub(crate) fn new(path: &Path, is_compressed: bool) -> Self {
        let file = || fs::metadata(path).ok().filter(|file| file.is_file() && !is_compressed);
        let bar = || bar(file().map(|file| file.len()));
        Self { begun: Instant::now(), records: 0, bar: io::stderr().is_terminal().then(bar) }
    }

    /// Counts a record that ends at byte `position`.
    #[inline]
    pub(crate) fn reached(&mut self, position: u64) {
        self.records += 1;
        if let Some(bar) = &self.bar
            && self.records.is_multiple_of(STRIDE)
        {
            bar.set_position(position);
            if bar.is_hidden() && self.begun.elapsed() > BAR_DELAY {
                bar.set_draw_target(ProgressDrawTarget::stderr());
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(len: Option<u64>) -> ProgressBar {
    let template = match len {
        Some(_) => "{wide_bar} {bytes} of {total_bytes}, {eta} left",
        None => "{spinner} {bytes} read, {bytes_per_sec}",
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(len, ProgressDrawTarget::hidden()).with_style(style)
}
