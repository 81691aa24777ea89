//! Error numbers of the operating system.

use std::fmt;
use std::io;

use rustix::io::Errno;

/// An error number of the operating system (errno(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OsError(i32);

impl OsError {
    /// Returns the number.
    pub const fn raw_os_error(self) -> i32 {
        self.0
    }
}

impl From<Errno> for OsError {
    fn from(error: Errno) -> Self {
        Self(error.raw_os_error())
    }
}

impl From<OsError> for io::Error {
    fn from(OsError(number): OsError) -> Self {
        Self::from_raw_os_error(number)
    }
}

impl fmt::Display for OsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from(*self).fmt(f)
    }
}

impl std::error::Error for OsError {}
