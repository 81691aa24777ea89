//! Runtime directories for sockets and records of running commands.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use rustix::process::geteuid;

/// Returns this user's directory.
pub(crate) fn of_user() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(directory) if !directory.is_empty() => PathBuf::from(directory).join("nichrome"),
        _ => std::env::temp_dir().join(format!("nichrome-{}", geteuid().as_raw())),
    }
}

/// Returns the machine's directory for root, the user's for others.
pub(crate) fn of_machine() -> PathBuf {
    let directory = PathBuf::from("/run/nichrome");
    if geteuid().is_root() && create(&directory).is_ok() { directory } else { of_user() }
}

/// Creates the directory, inaccessible to other users.
pub(crate) fn create(directory: &Path) -> anyhow::Result<()> {
    let make = || -> io::Result<u32> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        Ok(fs::metadata(directory)?.uid())
    };
    let owner = make().with_context(|| format!("cannot create {}", directory.display()))?;
    ensure!(owner == geteuid().as_raw(), "{} belongs to another user", directory.display());
    Ok(())
}

/// Removes the directory if it is empty.
pub(crate) fn remove_if_empty(directory: &Path) {
    let _ = fs::remove_dir(directory);
}
