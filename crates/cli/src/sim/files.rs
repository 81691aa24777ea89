//! Atomic file output: files are complete or absent, even if the command is interrupted.

use std::convert::Infallible;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use tempfile::{Builder, NamedTempFile};

use crate::failure::say;
use crate::signals;

/// Held while a file is written.
static WRITING: Mutex<()> = Mutex::new(());

fn writing() -> MutexGuard<'static, ()> {
    WRITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a file into a folder under a temporary name, then renames it.
pub(super) fn write(folder: &Path, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
    let _writing = writing();
    let write = || {
        let mut file = unfinished(folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(folder.join(name)).map(drop).map_err(|error| error.error)
    };
    write().with_context(|| format!("cannot write {}", folder.join(name).display()))
}

/// Creates the folder if it is missing, and checks that it is writable.
pub(super) fn make_folder(folder: &Path) -> anyhow::Result<()> {
    let _writing = writing();
    let make = || fs::create_dir_all(folder).and_then(|()| unfinished(folder)).map(drop);
    make().with_context(|| format!("cannot write to {}", folder.display()))
}

/// Checks that a file can be created at this path.
pub(super) fn check(file: &Path) -> anyhow::Result<()> {
    let _writing = writing();
    unfinished(folder_of(file)).map(drop).with_context(|| format!("cannot write {}", file.display()))
}

/// Returns the folder of a file, as named by the user.
pub(super) fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates a temporary file, removed unless it is renamed.
fn unfinished(folder: &Path) -> io::Result<NamedTempFile> {
    // Opened here, since tempfile's own errors name the temporary file.
    let open = |path: &Path| OpenOptions::new().write(true).create_new(true).mode(0o666).open(path);
    Builder::new().prefix(".").suffix(".unfinished").make_in(folder, open)
}

/// From now on, a signal ends the process after a file in progress is complete, and prints `last_words`.
pub(super) fn end_on_signals(last_words: impl Fn() -> String + Send + 'static) -> anyhow::Result<()> {
    signals::forward(&[SIGINT, SIGTERM], move |signal| -> Result<(), Infallible> {
        let _writing = writing();
        say(format_args!("nichrome: {}", last_words()));
        process::exit(128 + signal)
    })
}
