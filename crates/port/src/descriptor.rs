//! Descriptors that may be closed while their owner holds locks.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io;

/// An open descriptor, closed on drop by the raw system call. The C library's close(2), which [`OwnedFd`]
/// calls, is a cancellation point (pthreads(7)): a thread that is cancelled there would leave its locks
/// locked.
#[derive(Debug)]
pub(crate) struct Descriptor(ManuallyDrop<OwnedFd>);

impl From<OwnedFd> for Descriptor {
    fn from(descriptor: OwnedFd) -> Self {
        Self(ManuallyDrop::new(descriptor))
    }
}

impl Drop for Descriptor {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: the descriptor is open, and neither used nor closed after this: `ManuallyDrop` drops
        // nothing.
        unsafe { io::close(self.0.as_raw_fd()) };
    }
}

impl AsFd for Descriptor {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, pipe};

    #[test]
    fn a_descriptor_is_closed_when_it_is_dropped() {
        let (mut reader, writer) = pipe().unwrap();
        drop(Descriptor::from(OwnedFd::from(writer)));
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "no writer is left");
    }
}
