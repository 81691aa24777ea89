//! Copies from and to the program's memory on processors that `guarded_copy.rs` does not support. An access to unmapped
//! memory ends the process.

use std::ptr;

/// Copies `len` bytes; returns 0.
///
/// # Safety
/// Both sides are valid for `len` bytes and do not overlap.
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> usize {
    // SAFETY: guaranteed by the caller.
    unsafe { ptr::copy_nonoverlapping(from, to, len) };
    0
}

/// Returns 0: assumes that the word is writable.
///
/// # Safety
/// Any address is allowed.
pub(crate) unsafe fn touch(_word: *mut u64) -> usize {
    0
}

/// Does nothing.
pub(crate) fn guard() {}
