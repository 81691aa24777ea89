//! Mount namespaces (mount_namespaces(7)): mounts visible to this process and its children only.

use std::fs::{self, File, FileType};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change};
use rustix::thread::UnshareFlags;

use crate::namespace::{NamespaceError, enter_user_namespace, may_administer, refused, unshare};

/// The mount namespace of this process.
#[derive(Debug)]
pub struct MountNamespace(());

impl MountNamespace {
    /// Moves this process, which must have one thread only, into a mount namespace of its own. Later mounts
    /// of the machine appear in it; its mounts do not appear outside. Without `CAP_SYS_ADMIN`, the process
    /// also moves into a user namespace, where it keeps its user and group IDs; programs that it executes
    /// have no capabilities there.
    ///
    /// # Errors
    /// The kernel refuses one of the namespaces.
    pub fn enter() -> Result<Self, NamespaceError> {
        if may_administer() {
            unshare(UnshareFlags::NEWNS).map_err(|error| refused("mount", error))?;
        } else {
            enter_user_namespace(UnshareFlags::NEWNS, "mount")?;
        }
        mount_change(c"/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
            .map_err(|error| NamespaceError::mount(Path::new("/"), error.into()))?;
        Ok(Self(()))
    }

    /// Mounts a tmpfs over a folder: files created in it are visible in this namespace only. Binds the
    /// folder's entries into the tmpfs, except those named in `hidden`. Entries created in the covered folder
    /// later do not appear.
    ///
    /// # Errors
    /// The folder does not exist, or the kernel refuses a mount.
    pub fn cover(&self, folder: &Path, hidden: &[&str]) -> Result<(), NamespaceError> {
        cover(folder, hidden).map_err(|(path, error)| NamespaceError::mount(&path, error))
    }

    /// Bind-mounts the file or folder `from` at `at`, which must exist and be of the same kind.
    ///
    /// # Errors
    /// A path does not exist, or the kernel refuses the mount.
    pub fn bind(&self, from: &Path, at: &Path) -> Result<(), NamespaceError> {
        mount_bind_recursive(from, at).map_err(|error| NamespaceError::mount(at, error.into()))
    }
}

/// An error, and the path at which it occurred.
type At<T> = Result<T, (PathBuf, io::Error)>;

fn cover(folder: &Path, hidden: &[&str]) -> At<()> {
    let at_folder = |error: io::Error| (folder.to_owned(), error);
    // This descriptor refers to the folder beneath the tmpfs.
    let covered = open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(io::Error::from);
    let covered = covered.map_err(at_folder)?;
    let entries: Vec<_> = fs::read_dir(folder).and_then(Iterator::collect).map_err(at_folder)?;
    mount(c"tmpfs", folder, c"tmpfs", MountFlags::NOSUID, Some(c"mode=755"))
        .map_err(|error| at_folder(error.into()))?;
    for entry in entries {
        let name = entry.file_name();
        if hidden.iter().any(|hidden| name == **hidden) {
            continue;
        }
        let at = folder.join(&name);
        let shown = entry.file_type().and_then(|kind| show(&beneath(&covered).join(&name), kind, &at));
        match shown {
            // The entry was deleted after the folder was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            shown => shown.map_err(|error| (at, error))?,
        }
    }
    Ok(())
}

/// Returns a /proc path that refers to an open folder.
fn beneath(folder: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()))
}

/// Binds an entry of the covered folder into the tmpfs. Copies a symbolic link, which cannot be bound.
fn show(entry: &Path, kind: FileType, at: &Path) -> io::Result<()> {
    if kind.is_symlink() {
        return symlink(fs::read_link(entry)?, at);
    }
    if kind.is_dir() {
        fs::create_dir(at)?;
    } else {
        File::create(at)?;
    }
    Ok(mount_bind_recursive(entry, at)?)
}
