//! Replacements of open(2), fstat(2), write(2) and close(2) for librdmacm. Calls for other files go to the C
//! library.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::RawFd;
use std::slice;

use super::device_number::device_number;
use super::file::File;
use crate::blocking::{self, map_result, until_done};
use crate::cancellation::Uncancelled;
use crate::doctor::record;
use crate::errno::Errno;
use crate::fork::prepare_for_forks;

/// The path of the device file.
const PATH: &CStr = c"/dev/infiniband/rdma_cm";

/// Permissions of the device file, as udev sets them.
const MODE: libc::mode_t = libc::S_IFCHR | 0o666;

/// Returns the result, or −1 and sets errno.
fn returned<T: From<i8>>(result: Result<T, Errno>) -> T {
    result.unwrap_or_else(|errno| {
        errno.set();
        T::from(-1)
    })
}

/// Opens the device file, or another file. The C library's function is variadic; on the supported ABIs its
/// callers pass the arguments as to this function. `__open_2` takes two arguments and never creates a file.
pub(super) unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the caller passes a C string.
    unsafe {
        if CStr::from_ptr(path) != PATH {
            return libc::open(path, flags, mode);
        }
    }
    let _uncancelled = Uncancelled::begin();
    prepare_for_forks();
    let opened = File::open(flags);
    if opened.is_ok() {
        record("open_rdma_cm");
    }
    returned(opened)
}

/// Returns the status of the device file, or of another file.
pub(super) unsafe extern "C" fn fstat(fd: RawFd, status: *mut libc::stat) -> c_int {
    // SAFETY: the caller passes memory for the status.
    unsafe {
        let result = libc::fstat(fd, status);
        if result == 0 && File::is_open(fd) {
            ((*status).st_mode, (*status).st_rdev) = (MODE, device_number());
        }
        result
    }
}

/// As [`fstat`], for libraries linked with glibc before 2.33.
pub(super) unsafe extern "C" fn fxstat(_version: c_int, fd: RawFd, status: *mut libc::stat) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { fstat(fd, status) }
}

/// Carries out a command written to the device file, or writes to another file.
pub(super) unsafe extern "C-unwind" fn write(fd: RawFd, bytes: *const c_void, len: usize) -> isize {
    // Looks the descriptor up without a reference to the file, which a cancelled thread would never drop.
    if !File::is_open(fd) {
        // SAFETY: guaranteed by the caller.
        return unsafe { blocking::write(fd, bytes, len) };
    }
    let step = |prior| {
        // SAFETY: the caller passes `len` bytes.
        let written = unsafe { slice::from_raw_parts(bytes.cast::<u8>(), len) };
        map_result(File::write(fd, written, prior), |result| returned(result.map(|()| len as isize)))
    };
    // SAFETY: a program closes no file that it writes to.
    unsafe { until_done(step) }
}

/// Closes the device file, or another file.
pub(super) unsafe extern "C" fn close(fd: RawFd) -> c_int {
    let is_closed = {
        let _uncancelled = Uncancelled::begin();
        File::close(fd)
    };
    if is_closed {
        return 0;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { libc::close(fd) }
}
