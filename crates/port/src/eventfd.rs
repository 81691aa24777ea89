//! Reads of eventfd(2) descriptors that do not block.

use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;

use rustix::io::{self, ReadWriteFlags};

/// Reads from an eventfd without blocking, also if other threads block in reads of the same descriptor.
///
/// # Errors
/// `EAGAIN`: the count is 0. `EOPNOTSUPP`: a kernel before 5.8.
pub fn try_read_eventfd(eventfd: BorrowedFd<'_>) -> io::Result<()> {
    let mut count = [0; 8];
    // Position −1 means the current position.
    io::preadv2(eventfd, &mut [IoSliceMut::new(&mut count)], u64::MAX, ReadWriteFlags::NOWAIT).map(drop)
}
