//! Memory that is shared with the kernel, or registered with it (mmap(2)).

use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::io::{self, Errno};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// What the kernel and we write for each other: structures of numbers.
///
/// # Safety
/// The type has no padding, and all bit patterns are valid.
#[allow(unsafe_code)]
pub(crate) unsafe trait Plain: Copy {}

/// Implements [`Plain`].
macro_rules! plain {
    ($($name:ty),*) => {$(
        // SAFETY: its fields are integers, or arrays and structures of integers, and fill it.
        #[allow(unsafe_code)]
        unsafe impl $crate::mapping::Plain for $name {}
    )*};
}

pub(crate) use plain;

plain!(libc::c_int, libc::c_uint, u64);

/// Pages of memory, zeroed or a device's, that stay where they are until this is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the pages belong to the process and not to a thread. A mapping hands out their address only: whoever reads
// or writes through it argues for himself that no one else does.
#[allow(unsafe_code)]
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared mapping gives no more than the address either.
#[allow(unsafe_code)]
unsafe impl Sync for Mapping {}

impl Mapping {
    const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

    /// `len` bytes of zeros.
    #[allow(unsafe_code)]
    pub(crate) fn zeroed(len: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: without MAP_FIXED the kernel finds a place where nothing is mapped.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), len, Self::READ_WRITE, flags) }?;
        Self::at(start.cast(), len)
    }

    /// `len` bytes of what `fd` has at `offset`, shared with the kernel.
    #[allow(unsafe_code)]
    pub(crate) fn of(fd: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: without MAP_FIXED the kernel finds a place where nothing is mapped.
        let start = unsafe { mmap(ptr::null_mut(), len, Self::READ_WRITE, flags, fd, offset) }?;
        Self::at(start.cast(), len)
    }

    fn at(start: *mut u8, len: usize) -> io::Result<Self> {
        NonNull::new(start).map(|start| Self { start, len }).ok_or(Errno::NOMEM)
    }

    /// Where the pages lie; page-aligned.
    #[inline]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// How many bytes they have.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: these pages were mapped by `self`, and what borrows from it is gone.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}
