//! Memory mappings shared with the kernel (mmap(2)).

use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::io::{self, Errno};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// A C structure of integers that the kernel and this process exchange.
///
/// # Safety
/// The type has no padding, and all bit patterns are valid.
#[allow(unsafe_code)]
pub(crate) unsafe trait Plain: Copy {}

/// Implements [`Plain`] for structures whose integer fields fill them.
macro_rules! plain {
    ($($name:ty),*) => {$(
        // SAFETY: its fields are integers, or arrays and structures of integers, and fill it.
        #[allow(unsafe_code)]
        unsafe impl $crate::mapping::Plain for $name {}
    )*};
}

pub(crate) use plain;

plain!(libc::c_int, libc::c_uint, u64);

/// An mmap(2)ed region, zeroed or of a descriptor, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the pages belong to the process and not to a thread. A mapping hands out only their address: each
// access states why no other access conflicts with it.
#[allow(unsafe_code)]
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared reference gives out only the address.
#[allow(unsafe_code)]
unsafe impl Sync for Mapping {}

impl Mapping {
    const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);
    /// Maps all pages at once, so that none costs a page fault later. Miri does not support it.
    const POPULATE: MapFlags = if cfg!(miri) { MapFlags::empty() } else { MapFlags::POPULATE };

    /// Maps `len` zeroed bytes.
    #[allow(unsafe_code)]
    pub(crate) fn zeroed(len: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | Self::POPULATE;
        // SAFETY: without MAP_FIXED the kernel finds a place where nothing is mapped.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), len, Self::READ_WRITE, flags) }?;
        Self::at(start.cast(), len)
    }

    /// Maps `len` bytes of `fd` from `offset`, shared with the kernel.
    #[allow(unsafe_code)]
    pub(crate) fn of(fd: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Self> {
        let flags = MapFlags::SHARED | Self::POPULATE;
        // SAFETY: without MAP_FIXED the kernel finds a place where nothing is mapped.
        let start = unsafe { mmap(ptr::null_mut(), len, Self::READ_WRITE, flags, fd, offset) }?;
        Self::at(start.cast(), len)
    }

    fn at(start: *mut u8, len: usize) -> io::Result<Self> {
        NonNull::new(start).map(|start| Self { start, len }).ok_or(Errno::NOMEM)
    }

    /// Returns the start address, which is page-aligned.
    #[inline]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the length in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: `self` mapped these pages, and all borrows from it have ended.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}
