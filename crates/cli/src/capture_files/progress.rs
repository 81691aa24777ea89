//! A progress bar on the standard error, for whom it takes long.

use std::fs;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar that appears only later.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often the clock is read, in records.
const STRIDE: u64 = 1024;

/// How far the input has been read.
pub(crate) struct Progress {
    begun: Instant,
    records: u64,
    /// Hidden at first; `None` where nobody looks.
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Progress through the input at `path`. Of a compressed file nobody knows how long it is.
    pub(crate) fn new(path: &Path, is_compressed: bool) -> Self {
        let file = || fs::metadata(path).ok().filter(|file| file.is_file() && !is_compressed);
        let bar = || bar(file().map(|file| file.len()));
        Self { begun: Instant::now(), records: 0, bar: io::stderr().is_terminal().then(bar) }
    }

    /// Says that one more record was read, which ends at byte `position`.
    #[inline]
    pub(crate) fn reached(&mut self, position: u64) {
        self.records += 1;
        if let Some(bar) = &self.bar
            && self.records.is_multiple_of(STRIDE)
        {
            bar.set_position(position);
            if bar.is_hidden() && self.begun.elapsed() > PATIENCE {
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
