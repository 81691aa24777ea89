//! The file behind `cmd_fd`, by which rdma-core sends commands to the kernel. Here it names the device of the
//! process: an empty file in memory, recognized by its device and inode even if the descriptor was copied.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

/// The file of this process; `None` if it could not be opened.
fn file() -> Option<&'static OwnedFd> {
    static FILE: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let opened = FILE.get_or_init(|| {
        // SAFETY: the name is null-terminated.
        let fd = unsafe { libc::memfd_create(c"nichrome0".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: the descriptor was just opened and has no other owner.
        (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
    });
    opened.as_ref()
}

/// Returns the value of a context's `cmd_fd`; −1 if the file could not be opened.
pub(crate) fn command_fd() -> RawFd {
    file().map_or(-1, AsRawFd::as_raw_fd)
}

/// Returns true if a descriptor refers to this process's command file.
pub(crate) fn is_command_file(fd: RawFd) -> bool {
    file().is_some_and(|file| {
        let (ours, theirs) = (identity(file.as_raw_fd()), identity(fd));
        ours.is_some() && ours == theirs
    })
}

/// Returns the device and inode of a file; `None` if the descriptor is not open.
fn identity(fd: RawFd) -> Option<(libc::dev_t, libc::ino_t)> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the structure has room for the result.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call initialized it.
    let stat = unsafe { stat.assume_init() };
    Some((stat.st_dev, stat.st_ino))
}
