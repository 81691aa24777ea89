//! Descriptors whose owners may hold locks.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io;

/// An open descriptor, closed when dropped. By the kernel's call: the C library's close(2), which [`OwnedFd`]
/// calls, is a cancellation point (pthreads(7)), and a thread that is cancelled there leaves what it has
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
