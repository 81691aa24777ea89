//! Locks on single bytes of a file that belong to an open file description; the kernel releases them when it
//! is closed (F_OFD_SETLK of fcntl(2)).

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::{self, Errno};

use crate::packet_options::check;

/// Locks a byte; returns false if another description has it locked.
pub(super) fn try_lock(file: &OwnedFd, byte: u64) -> io::Result<bool> {
    match control(file, libc::F_OFD_SETLK, libc::F_WRLCK, byte) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Locks a byte, and waits while another description has it locked.
pub(super) fn lock(file: &OwnedFd, byte: u64) -> io::Result<()> {
    loop {
        match control(file, libc::F_OFD_SETLKW, libc::F_WRLCK, byte) {
            Err(Errno::INTR) => {}
            result => return result.map(drop),
        }
    }
}

/// Unlocks a byte.
pub(super) fn unlock(file: &OwnedFd, byte: u64) {
    // Fails only if the descriptor is not a file's.
    let _ = control(file, libc::F_OFD_SETLK, libc::F_UNLCK, byte);
}

/// Returns true if another description has a byte locked.
pub(super) fn is_locked_elsewhere(file: &OwnedFd, byte: u64) -> io::Result<bool> {
    Ok(control(file, libc::F_OFD_GETLK, libc::F_WRLCK, byte)? != libc::F_UNLCK)
}

/// Calls fcntl(2) for one byte; returns the kind of lock that it left in the structure.
#[allow(unsafe_code)]
fn control(file: &OwnedFd, command: i32, kind: i32, byte: u64) -> io::Result<i32> {
    let start = i64::try_from(byte).map_err(|_| Errno::OVERFLOW)?;
    // SAFETY: every field of the structure is an integer, for which zero is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    (lock.l_start, lock.l_len) = (start, 1);
    // SAFETY: these commands read and write one `struct flock`, which lives until the call returns.
    check(unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) })?;
    Ok(lock.l_type.into())
}
