//! System calls that signals interrupt.

use std::io::{self, ErrorKind};

/// Repeats a system call that a signal interrupts. On a socket with a timeout, the signals that stop and
/// continue a process interrupt it, too (signal(7)).
///
/// # Errors
/// The call's, except [`ErrorKind::Interrupted`].
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
