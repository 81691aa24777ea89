//! The device number of `/dev/infiniband/rdma_cm`.

use std::ffi::CStr;
use std::fs;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use crate::cancellation::Uncancelled;

/// The major number of miscellaneous devices (Linux, `MISC_MAJOR`).
const MISCELLANEOUS: libc::c_uint = 10;

/// A minor number that no device of the kernel has (`MISC_DYNAMIC_MINOR`).
const DYNAMIC: libc::c_uint = 255;

/// Returns the number of the machine's own rdma_cm device, if it has one: librdmacm reads that number from
/// the kernel and compares it with the file's.
pub(super) fn device_number() -> libc::dev_t {
    static NUMBER: OnceLock<libc::dev_t> = OnceLock::new();
    *NUMBER.get_or_init(|| {
        let _uncancelled = Uncancelled::begin();
        of_file(c"/dev/infiniband/rdma_cm")
            .or_else(|| parse(&fs::read_to_string("/sys/class/misc/rdma_cm/dev").ok()?))
            .unwrap_or(libc::makedev(MISCELLANEOUS, DYNAMIC))
    })
}

/// Returns the number of a character device; `None` if there is none. Makes the system call itself: the
/// preloaded library interposes on the C library's function.
fn of_file(path: &CStr) -> Option<libc::dev_t> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the path is null-terminated, and the structure has room for the result, whose layout is the
    // kernel's on 64-bit systems.
    let result =
        unsafe { libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path.as_ptr(), status.as_mut_ptr(), 0) };
    if result != 0 {
        return None;
    }
    // SAFETY: the call initialized it.
    let status = unsafe { status.assume_init() };
    (status.st_mode & libc::S_IFMT == libc::S_IFCHR).then_some(status.st_rdev)
}

/// Parses `major:minor`.
fn parse(text: &str) -> Option<libc::dev_t> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_number_is_that_of_the_file_or_of_the_text() {
        assert_eq!(of_file(c"/dev/null"), Some(libc::makedev(1, 3)));
        assert_eq!(of_file(c"/etc/passwd"), None);
        assert_eq!(of_file(c"/nowhere"), None);
        assert_eq!(parse("10:58\n"), Some(libc::makedev(10, 58)));
        assert_eq!(parse("10"), None);
    }
}
