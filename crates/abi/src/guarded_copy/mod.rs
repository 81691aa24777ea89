//! Copies from and to the program's memory, and atomic exchanges of a word in it, which return an error
//! instead of crashing if the memory is not mapped.
//!
//! RDMA hardware pins the pages of a region, so they outlive munmap(2); here they do not. Checking with the
//! kernel before each copy would cost more than the copy (process_vm_readv(2): about a microsecond). So each
//! access is made by an instruction at a known address. If it faults, a handler of SIGSEGV and SIGBUS resumes
//! the thread at an address behind it, and the function returns an error. Other faults go to the previous
//! handler. A program that installs a handler later replaces this one. The instructions and registers depend
//! on the processor: `x86_64.rs`, `aarch64.rs`.

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod processor;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod processor;

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::{Once, OnceLock};
use std::{mem, ptr};

pub(crate) use processor::{compare_exchange, copy};

/// Accesses to the program's memory: the address of a function, the byte offsets of its instructions that
/// access the memory, and the offset at which to resume after one of them faulted.
type Accesses = (usize, Range<usize>, usize);

/// The result of [`compare_exchange`] for an address that is not writable.
pub(crate) const NOT_WRITABLE: usize = 2;

/// Returns where to resume after a fault at `instruction`, or `None` if it is not an access of `copy` or
/// `compare_exchange`.
fn landing(instruction: usize) -> Option<usize> {
    let accesses = processor::accesses();
    let is_of = |(start, offsets, _): &&Accesses| offsets.contains(&instruction.wrapping_sub(*start));
    accesses.iter().find(is_of).map(|(start, _, resume)| start + resume)
}

/// The previous action of each signal.
static BEFORE: [OnceLock<libc::sigaction>; 2] = [const { OnceLock::new() }; 2];

const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// Installs the signal handler that turns faults in [`copy`] and [`compare_exchange`] into errors, once.
pub(crate) fn guard() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (signal, before) in SIGNALS.into_iter().zip(&BEFORE) {
            // SAFETY: an all-zero sigaction is valid, and the handler has the signature that SA_SIGINFO
            // requires.
            unsafe {
                let mut old: libc::sigaction = mem::zeroed();
                libc::sigaction(signal, ptr::null(), &raw mut old);
                let _ = before.set(old);
                let restarts = match old.sa_sigaction {
                    libc::SIG_DFL | libc::SIG_IGN => libc::SA_RESTART,
                    _ => old.sa_flags & libc::SA_RESTART,
                };
                let mut new: libc::sigaction = mem::zeroed();
                let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = faulted;
                new.sa_sigaction = handler as usize;
                new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER | restarts;
                libc::sigaction(signal, &raw const new, ptr::null_mut());
            }
        }
    });
}

extern "C" fn faulted(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the context of the faulting thread and resumes it with that context.
    let thread = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    // SAFETY: the kernel passes the signal's information. Its code is positive only if the kernel raised the
    // signal.
    let is_sent = unsafe { (*info).si_code } <= 0;
    if !is_sent && let Some(landing) = landing(processor::instruction(thread)) {
        processor::resume_at(thread, landing);
        return;
    }
    let nth = usize::from(signal != SIGNALS[0]);
    let Some(before) = BEFORE[nth].get() else { return };
    // SAFETY: the previous handler is called as the kernel would call it. Without one, the default action is
    // restored and applies when the instruction faults again, or when the signal is sent again. The kernel
    // ignores no fault.
    unsafe {
        match before.sa_sigaction {
            libc::SIG_IGN if is_sent => {}
            libc::SIG_DFL | libc::SIG_IGN => {
                libc::signal(signal, libc::SIG_DFL);
                if is_sent {
                    libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), signal);
                }
            }
            handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
                prepare(signal, before);
                let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                    mem::transmute(handler);
                handler(signal, info, context);
            }
            handler => {
                prepare(signal, before);
                let handler: extern "C" fn(c_int) = mem::transmute(handler);
                handler(signal);
            }
        }
    }
}

/// Does what the kernel does before it calls an action's handler: removes a one-shot handler (SA_RESETHAND),
/// and blocks the action's signals until the kernel restores the interrupted thread's mask. Without this, a
/// handler that raises its own signal would be called again.
fn prepare(signal: c_int, action: &libc::sigaction) {
    let mut blocked = action.sa_mask;
    // SAFETY: the set is initialized and the signal valid; the old mask is not requested. All these functions
    // are async-signal-safe (signal-safety(7)).
    unsafe {
        if action.sa_flags & libc::SA_RESETHAND != 0 {
            libc::signal(signal, libc::SIG_DFL);
        }
        if action.sa_flags & libc::SA_NODEFER == 0 {
            libc::sigaddset(&raw mut blocked, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, ptr::null_mut());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::process_memory::page_size;

    /// Maps two pages, then unmaps the second (`None`) or changes its protection. Returns the start of the
    /// second.
    fn pages(second: Option<c_int>) -> *mut u8 {
        let page = page_size();
        // SAFETY: only the new mapping is unmapped or protected.
        unsafe {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let start = libc::mmap(ptr::null_mut(), 2 * page, rights, flags, -1, 0).cast::<u8>().add(page);
            match second {
                Some(rights) => libc::mprotect(start.cast(), page, rights),
                None => libc::munmap(start.cast(), page),
            };
            start
        }
    }

    #[test]
    fn unmapped_memory_is_an_error() {
        guard();
        let end = pages(None);
        let mut ours = [7u8; 100];
        // SAFETY: one side is this test's array.
        unsafe {
            assert_eq!(copy(end.sub(100), ours.as_ptr(), 100), 0);
            assert_eq!(copy(end.sub(60), ours.as_ptr(), 100), 40);
            assert_eq!(copy(ours.as_mut_ptr(), end.sub(1), 100), 99);
            assert_eq!(copy(ours.as_mut_ptr(), ptr::null(), 100), 100);
        }
    }

    /// Each instruction of the copy accesses the last bytes before the unmapped page, and the first of that
    /// page.
    #[test]
    fn all_bytes_before_one_that_is_not_mapped_are_copied() {
        const MOST: usize = 150;
        guard();
        let end = pages(None);
        let sent: [u8; MOST] = std::array::from_fn(|nth| nth as u8 + 1);
        for len in 0..=MOST {
            for mapped in 0..=len {
                let mut back = [0; MOST];
                // SAFETY: one side is this test's array, and bytes before the end are mapped.
                unsafe {
                    let start = end.sub(mapped);
                    start.write_bytes(0, mapped);
                    assert_eq!(copy(start, sent.as_ptr(), len), len - mapped);
                    assert_eq!(copy(back.as_mut_ptr(), start, len), len - mapped);
                }
                assert_eq!(back[..mapped], sent[..mapped], "of {len}");
                assert_eq!(back[mapped..], [0; MOST][mapped..], "of {len}");
            }
        }
    }

    #[test]
    fn a_word_is_exchanged_if_it_has_the_value_and_is_writable() {
        guard();
        for second in [None, Some(libc::PROT_READ)] {
            let end = pages(second).cast::<u64>();
            let exchange = |word, mut value: u64, new| {
                // SAFETY: the words are aligned, and the value is this function's.
                let result = unsafe { compare_exchange(word, &raw mut value, new) };
                (result, value)
            };
            // SAFETY: the last word of the first page.
            let last = unsafe { end.sub(1) };
            assert_eq!(exchange(last, 0, 7), (0, 0));
            assert_eq!(exchange(last, 5, 8), (1, 7));
            assert_eq!(exchange(last, 7, u64::MAX), (0, 7));
            assert_eq!(exchange(last, 7, 8), (1, u64::MAX));
            assert_eq!(exchange(end, 0, 1), (NOT_WRITABLE, 0));
        }
    }

    #[test]
    fn a_write_to_read_only_memory_is_an_error() {
        guard();
        let protected = pages(Some(libc::PROT_READ));
        let mut ours = [7u8; 8];
        // SAFETY: one side is this test's array.
        unsafe {
            assert_eq!(copy(protected, ours.as_ptr(), 8), 8);
            assert_eq!(copy(ours.as_mut_ptr(), protected, 8), 0);
        }
        assert_eq!(ours, [0; 8]);
    }

    /// Runs `f` in a child. Returns the signal that ends it, or its negative exit status.
    fn ended_by(f: impl FnOnce()) -> c_int {
        // SAFETY: the child runs `f` and exits without returning.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                f();
                libc::_exit(0);
            }
            let mut status = 0;
            libc::waitpid(child, &raw mut status, 0);
            if libc::WIFSIGNALED(status) { libc::WTERMSIG(status) } else { -libc::WEXITSTATUS(status) }
        }
    }

    #[test]
    fn another_fault_ends_the_process() {
        guard();
        // SAFETY: the write is meant to fault.
        let fault = || unsafe { ptr::write_volatile(pages(None), 1) };
        assert_eq!(ended_by(fault), libc::SIGSEGV);
    }
}
