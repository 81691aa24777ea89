//! Runtime directories for sockets and records of running commands.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::process::geteuid;

/// Time limit of the attempts to create a directory that other processes remove.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Returns this user's directory.
pub(crate) fn of_user() -> PathBuf {
    within(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from))
}

/// Returns this user's directory in the given runtime directory. A relative one is ignored (XDG Base
/// Directory Specification): a command that runs in another directory would not find it.
fn within(runtime_dir: Option<PathBuf>) -> PathBuf {
    match runtime_dir.filter(|path| path.is_absolute()) {
        Some(path) => path.join("nichrome"),
        None => std::env::temp_dir().join(format!("nichrome-{}", geteuid().as_raw())),
    }
}

/// Returns the machine's directory for root, the user's for others.
pub(crate) fn of_machine() -> PathBuf {
    let directory = PathBuf::from("/run/nichrome");
    if geteuid().is_root() && create(&directory).is_ok() { directory } else { of_user() }
}

/// Creates the directory, inaccessible to other users.
pub(crate) fn create(directory: &Path) -> anyhow::Result<()> {
    create_with(directory, || Ok(()))
}

/// As [`create`], and then calls `make` to create a file in the directory. Repeats both if another process
/// has removed the directory while it was empty.
pub(crate) fn create_with<T>(directory: &Path, make: impl Fn() -> io::Result<T>) -> anyhow::Result<T> {
    let begun = Instant::now();
    loop {
        match try_to_create(directory, &make) {
            Err(error) if is_removed(&error, directory) && begun.elapsed() < TIMEOUT => {}
            made => return made,
        }
    }
}

/// The remedy if a directory cannot be used.
const REMEDY: &str = "XDG_RUNTIME_DIR chooses another place";

fn try_to_create<T>(directory: &Path, make: impl Fn() -> io::Result<T>) -> anyhow::Result<T> {
    let place = directory.display();
    let owner = owner_of_new(directory).with_context(|| format!("cannot create {place} ({REMEDY})"))?;
    ensure!(owner == geteuid().as_raw(), "{place} belongs to another user ({REMEDY})");
    Ok(make()?)
}

/// Creates the directory, unless it exists, and returns its owner.
fn owner_of_new(directory: &Path) -> io::Result<u32> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    Ok(fs::metadata(directory)?.uid())
}

/// Returns true if another process has removed the directory since it was created or found.
fn is_removed(error: &anyhow::Error, directory: &Path) -> bool {
    match error.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(ErrorKind::NotFound) => true,
        // False if the path is a file. A third process may have created the directory again.
        Some(ErrorKind::AlreadyExists) => directory.is_dir() || !directory.exists(),
        _ => false,
    }
}

/// Removes the directory if it is empty.
pub(crate) fn remove_if_empty(directory: &Path) {
    let _ = fs::remove_dir(directory);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_runtime_directory_is_ignored() {
        let temporary = std::env::temp_dir();
        for given in [Some("relative"), Some(""), None] {
            assert!(within(given.map(PathBuf::from)).starts_with(&temporary), "{given:?}");
        }
        assert_eq!(within(Some("/run/user/7".into())), Path::new("/run/user/7/nichrome"));
    }
}
