//! Guarded accesses of x86-64.

use std::ops::Range;

/// Copies `len` bytes. Returns the number of bytes not copied because a page was unmapped or protected; 0 on
/// success.
///
/// # Safety
/// One side is the caller's own memory; the other may be any address. They do not overlap.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn copy(to: *mut u8, from: *const u8, len: usize) -> usize {
    core::arch::naked_asm!("mov rcx, rdx", "rep movsb", "mov rax, rcx", "ret")
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
        "mov rax, [rsi]",
        "lock cmpxchg [rdi], rdx",
        "mov [rsi], rax",
        "setne al",
        "movzx eax, al",
        "ret",
        "mov eax, 2",
        "ret"
    )
}

/// Returns the accesses: one instruction of each function.
pub(super) fn accesses() -> [(usize, Range<usize>, usize); 2] {
    let copy: unsafe extern "C" fn(*mut u8, *const u8, usize) -> usize = copy;
    let exchange: unsafe extern "C" fn(*mut u64, *mut u64, u64) -> usize = compare_exchange;
    [(copy as usize, 3..4, 5), (exchange as usize, 3..4, 18)]
}

/// Returns the address of the interrupted instruction.
pub(super) fn instruction(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize
}

/// Resumes the thread at `instruction` when the signal handler returns.
pub(super) fn resume_at(context: &mut libc::ucontext_t, instruction: usize) {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] = instruction as i64;
}
