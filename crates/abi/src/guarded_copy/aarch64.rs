//! Guarded accesses of AArch64.

use std::ops::Range;

/// Copies `len` bytes. Returns the number of bytes not copied because a page was unmapped or protected; 0 on
/// success.
///
/// As on x86-64, a program that polls memory sees the peer's writes in order: the barriers keep loads and
/// stores of one copy before those of the next, and one instruction writes an aligned word, so that no reader
/// sees a part of it. After a fault in the loops over words, copies the remaining bytes one by one, up to the
/// byte that faults.
///
/// # Safety
/// One side is the caller's own memory; the other may be any address. They do not overlap.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn copy(to: *mut u8, from: *const u8, len: usize) -> usize {
    core::arch::naked_asm!(
        "dmb ishld",
        "dmb ishst",
        "2:",
        "cmp x2, #64",
        "b.lo 3f",
        "ldp q0, q1, [x1]",
        "ldp q2, q3, [x1, #32]",
        "stp q0, q1, [x0]",
        "stp q2, q3, [x0, #32]",
        "add x1, x1, #64",
        "add x0, x0, #64",
        "sub x2, x2, #64",
        "b 2b",
        "3:",
        "cmp x2, #8",
        "b.lo 4f",
        "ldr x3, [x1]",
        "str x3, [x0]",
        "add x1, x1, #8",
        "add x0, x0, #8",
        "sub x2, x2, #8",
        "b 3b",
        "4:",
        "tbz x2, #2, 5f",
        "ldr w3, [x1]",
        "str w3, [x0]",
        "add x1, x1, #4",
        "add x0, x0, #4",
        "sub x2, x2, #4",
        "5:",
        "tbz x2, #1, 6f",
        "ldrh w3, [x1]",
        "strh w3, [x0]",
        "add x1, x1, #2",
        "add x0, x0, #2",
        "sub x2, x2, #2",
        "6:",
        "cbz x2, 7f",
        "ldrb w3, [x1]",
        "strb w3, [x0]",
        "add x1, x1, #1",
        "add x0, x0, #1",
        "sub x2, x2, #1",
        "b 6b",
        "7:",
        "mov x0, x2",
        "ret"
    )
}

/// Atomically stores `new` in a word if the word has the value `*value`. Writes the word's previous value to
/// `value`. Returns 0 if it stored, 1 if the word had another value, and
/// [`NOT_WRITABLE`](super::NOT_WRITABLE).
///
/// # Safety
/// `value` is the caller's own memory; `word` may be any aligned address.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn compare_exchange(word: *mut u64, value: *mut u64, new: u64) -> usize {
    core::arch::naked_asm!(
        "ldr x3, [x1]",
        "2:",
        "ldaxr x4, [x0]",
        "cmp x4, x3",
        "b.ne 3f",
        "stlxr w5, x2, [x0]",
        "cbnz w5, 2b",
        "3:",
        "str x4, [x1]",
        "cset x0, ne",
        "ret",
        "mov x0, #2",
        "ret"
    )
}

/// Returns the accesses: of `copy` in words, of `copy` in bytes, and of `compare_exchange`.
pub(super) fn accesses() -> [(usize, Range<usize>, usize); 3] {
    let copy: unsafe extern "C" fn(*mut u8, *const u8, usize) -> usize = copy;
    let exchange: unsafe extern "C" fn(*mut u64, *mut u64, u64) -> usize = compare_exchange;
    let instructions =
        [(copy as usize, 4..29, 32), (copy as usize, 33..35, 39), (exchange as usize, 1..5, 9)];
    // An instruction has 4 bytes.
    instructions.map(|(function, Range { start, end }, resume)| (function, 4 * start..4 * end, 4 * resume))
}

/// Returns the address of the interrupted instruction.
pub(super) fn instruction(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.pc as usize
}

/// Resumes the thread at `instruction` when the signal handler returns.
pub(super) fn resume_at(context: &mut libc::ucontext_t, instruction: usize) {
    context.uc_mcontext.pc = instruction as u64;
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn a_word_of_any_size_is_seen_as_a_whole() {
        for len in [2, 4, 8] {
            let (word, all) = (AtomicU64::new(0), u64::MAX >> (64 - 8 * len));
            thread::scope(|scope| {
                let reader = scope.spawn(|| {
                    let whole = |_| [0, all].contains(&word.load(Ordering::Relaxed));
                    assert!((0..1_000_000).all(whole), "{len} bytes");
                });
                for value in [all, 0].into_iter().cycle().take_while(|_| !reader.is_finished()) {
                    // SAFETY: the word is accessed atomically by the reader, and has as many bytes.
                    unsafe { copy(word.as_ptr().cast(), value.to_ne_bytes().as_ptr(), len) };
                }
            });
        }
    }
}
