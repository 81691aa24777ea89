//! Atomic file output: files are complete or absent, even if the command is interrupted.

use std::convert::Infallible;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use tempfile::{Builder, NamedTempFile};

use crate::failure::notice;
use crate::{picture_file, signals};

/// End of the names of files that are being written.
const UNFINISHED: &str = ".unfinished";

/// The folders that this process created, outer ones first. Locked while a file is written.
static WRITING: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn writing() -> MutexGuard<'static, Vec<PathBuf>> {
    WRITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a file into a folder under a temporary name, then renames it. Creates the folder if it is missing:
/// another process that created it may have failed, and removed it.
pub(super) fn write(folder: &Path, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
    let _writing = writing();
    let write = || {
        fs::create_dir_all(folder)?;
        let mut file = unfinished(folder)?;
        // Errors of `NamedTempFile` itself name the temporary file.
        file.as_file_mut().write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(folder.join(name)).map(drop).map_err(|error| error.error)
    };
    write().with_context(|| format!("cannot write {}", folder.join(name).display()))
}

/// Creates the folder and those around it if they are missing, and checks that it is writable.
pub(super) fn make_folder(folder: &Path) -> anyhow::Result<()> {
    let mut created = writing();
    let missing = folder.ancestors().take_while(|outer| !outer.as_os_str().is_empty() && !outer.exists());
    let mut missing: Vec<_> = missing.map(Path::to_owned).collect();
    missing.reverse();
    created.extend(missing);
    let make = || fs::create_dir_all(folder).and_then(|()| unfinished(folder)).map(drop);
    let made = make().map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => ErrorKind::NotADirectory.into(),
        _ => error,
    });
    made.with_context(|| format!("cannot write to {}", folder.display()))
}

/// Removes the empty folders that this process created, after a failure.
pub(super) fn remove_empty_folders() {
    remove_empty(&writing());
}

fn remove_empty(created: &[PathBuf]) {
    for folder in created.iter().rev() {
        // Fails if something was written to it.
        let _ = fs::remove_dir(folder);
    }
}

/// Removes the unfinished files of killed processes from the folder.
pub(super) fn remove_leftovers(folder: &Path) -> io::Result<()> {
    /// No file takes this long to write.
    const LONG: Duration = Duration::from_secs(3600);
    for entry in fs::read_dir(folder)?.flatten() {
        let name = entry.file_name();
        let is_unfinished =
            name.to_str().is_some_and(|name| name.starts_with('.') && name.ends_with(UNFINISHED));
        let age = entry.metadata().and_then(|of| of.modified()).ok().and_then(|at| at.elapsed().ok());
        if is_unfinished && age.is_some_and(|age| age > LONG) {
            // Another process may have removed it.
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
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
    Builder::new().prefix(".").suffix(UNFINISHED).make_in(folder, open)
}

/// From now on, a signal ends the process after a file in progress is complete, and prints `last_words`.
pub(super) fn end_on_signals(last_words: impl Fn() -> String + Send + 'static) -> anyhow::Result<()> {
    signals::forward(&signals::ending_or_quitting(), move |signal| -> Result<(), Infallible> {
        let created = writing();
        picture_file::remove_unfinished();
        remove_empty(&created);
        notice(format_args!("nichrome: {}", last_words()));
        process::exit(128 + signal)
    })
}

#[cfg(test)]
mod tests {
    use tempfile::tempdir;

    use super::*;

    #[test]
    fn a_folder_that_another_process_has_removed_is_created_again() {
        let outer = tempdir().unwrap();
        let folder = outer.path().join("store");
        write(&folder, "record.json", b"{}").unwrap();
        assert_eq!(fs::read(folder.join("record.json")).unwrap(), b"{}");
    }
}
