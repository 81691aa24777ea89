//! Converts the engine's errors to errno and to the return values of verbs.

use std::ffi::c_int;
use std::ptr;

use nichrome_rdma::{ModifyError, ObjectError, PostError, RegisterError};

/// A value of errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    pub(crate) const INVALID: Self = Self(libc::EINVAL);
    pub(crate) const NO_ENTRY: Self = Self(libc::ENOENT);
    pub(crate) const NO_MEMORY: Self = Self(libc::ENOMEM);
    pub(crate) const NO_DATA: Self = Self(libc::ENODATA);
    pub(crate) const BUSY: Self = Self(libc::EBUSY);
    pub(crate) const UNSUPPORTED: Self = Self(libc::EOPNOTSUPP);
    pub(crate) const UNKNOWN_PROTOCOL: Self = Self(libc::EPROTONOSUPPORT);

    /// Sets the calling thread's errno.
    pub(crate) fn set(self) {
        // SAFETY: the location of errno is valid as long as the thread runs.
        unsafe { *libc::__errno_location() = self.0 };
    }

    /// Returns the error of the last system call.
    pub(crate) fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }
}

/// Return value of a verb that returns 0 or an errno; also sets errno.
pub(crate) fn status(result: Result<(), impl Into<Errno>>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            let errno = error.into();
            errno.set();
            errno.0
        }
    }
}

/// Return value of a verb that returns an object, or a null pointer and sets errno.
pub(crate) fn pointer<T>(result: Result<*mut T, Errno>) -> *mut T {
    result.unwrap_or_else(|errno| {
        errno.set();
        ptr::null_mut()
    })
}

/// Return value of a verb that returns 0, or −1 and sets errno.
pub(crate) fn minus_one(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => {
            errno.set();
            -1
        }
    }
}

impl From<nichrome_cm::Errno> for Errno {
    fn from(error: nichrome_cm::Errno) -> Self {
        Self(error.0)
    }
}

impl From<ObjectError> for Errno {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Unknown(_) | ObjectError::Size { .. } | ObjectError::Address(_) => Self::INVALID,
            ObjectError::Exhausted(_) => Self::NO_MEMORY,
            ObjectError::InUse(_) => Self::BUSY,
            ObjectError::Service(_) => Self::UNSUPPORTED,
        }
    }
}

impl From<RegisterError> for Errno {
    fn from(error: RegisterError) -> Self {
        match error {
            RegisterError::Object(error) => error.into(),
            RegisterError::NotMapped { .. } => Self(libc::EFAULT),
            RegisterError::NeedsLocalWrite | RegisterError::Rights(_) | RegisterError::Range { .. } => {
                Self::INVALID
            }
        }
    }
}

impl From<ModifyError> for Errno {
    fn from(error: ModifyError) -> Self {
        match error {
            ModifyError::Object(error) => error.into(),
            ModifyError::Draining => Self::BUSY,
            _ => Self::INVALID,
        }
    }
}

impl From<PostError> for Errno {
    fn from(error: PostError) -> Self {
        match error {
            PostError::Object(error) => error.into(),
            PostError::Full(_) => Self::NO_MEMORY,
            PostError::Memory => Self(libc::EFAULT),
            PostError::Transport => Self::UNSUPPORTED,
            _ => Self::INVALID,
        }
    }
}
