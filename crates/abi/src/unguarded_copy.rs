//! Copies from and to the program's memory on processors that `guarded_copy.rs` does not support. An access to unmapped
//! memory ends the process.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Copies `len` bytes; returns 0.
///
/// # Safety
/// Both sides are valid for `len` bytes and do not overlap.
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> usize {
    // SAFETY: guaranteed by the caller.
    unsafe { ptr::copy_nonoverlapping(from, to, len) };
    0
}

/// Not returned here.
pub(crate) const NOT_WRITABLE: usize = 2;

/// Atomically stores `new` in a word if the word has the value `*value`. Writes the word's previous value to `value`. Returns 0 if it
/// stored, 1 if the word had another value.
///
/// # Safety
/// `value` is the caller's own memory; `word` is aligned and writable.
pub(crate) unsafe fn compare_exchange(word: *mut u64, value: *mut u64, new: u64) -> usize {
    // SAFETY: guaranteed by the caller.
    let (word, value) = unsafe { (AtomicU64::from_ptr(word), &mut *value) };
    let exchanged = word.compare_exchange(*value, new, Ordering::SeqCst, Ordering::SeqCst);
    let (Ok(before) | Err(before)) = exchanged;
    *value = before;
    usize::from(exchanged.is_err())
}

/// Does nothing.
pub(crate) fn guard() {}
