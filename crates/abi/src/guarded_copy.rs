//! Copies from and to the program's memory, and exchanges of a word, that return an error, rather than crash, if it is not mapped.
//!
//! RDMA hardware pins the pages of a region, so they outlive munmap(2); here they do not. Checking with the kernel before
//! each copy would cost more than the copy (process_vm_readv(2): about a microsecond). So each access is made by an
//! instruction at a known address. If it faults, a handler of SIGSEGV and SIGBUS resumes after it, and the function returns
//! an error. Other faults go to the previous handler. A program that installs a handler later replaces this one.

use std::ffi::{c_int, c_void};
use std::sync::{Once, OnceLock};
use std::{mem, ptr};

/// Copies `len` bytes. Returns the number of bytes not copied because a page was unmapped or protected; 0 on success.
///
/// # Safety
/// One side is the caller's own memory; the other may be any address. They do not overlap.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn copy(to: *mut u8, from: *const u8, len: usize) -> usize {
    core::arch::naked_asm!("mov rcx, rdx", "rep movsb", "mov rax, rcx", "ret")
}

/// The result of [`compare_exchange`] for an address that is not writable.
pub(crate) const NOT_WRITABLE: usize = 2;

/// Atomically stores `new` in a word if the word has the value `*value`. Writes the word's previous value to `value`. Returns 0 if it
/// stored, 1 if the word had another value, and [`NOT_WRITABLE`].
///
/// # Safety
/// `value` is the caller's own memory; `word` is aligned, and may be any such address.
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

/// Returns where to resume after a fault at `instruction`, or `None` if it is not an access of `copy` or `compare_exchange`. The table
/// holds byte offsets into these functions: of the access and of the instruction to resume at.
fn landing(instruction: usize) -> Option<usize> {
    let copy: unsafe extern "C" fn(*mut u8, *const u8, usize) -> usize = copy;
    let exchange: unsafe extern "C" fn(*mut u64, *mut u64, u64) -> usize = compare_exchange;
    let places = [(copy as usize, 3, 5), (exchange as usize, 3, 18)];
    let found = places.iter().find(|(start, at, _)| start + at == instruction);
    found.map(|(start, _, behind)| start + behind)
}

/// The previous action of each signal.
static BEFORE: [OnceLock<libc::sigaction>; 2] = [const { OnceLock::new() }; 2];

const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// Installs the signal handler that turns faults in [`copy`] and [`compare_exchange`] into errors, once.
pub(crate) fn guard() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (signal, before) in SIGNALS.into_iter().zip(&BEFORE) {
            // SAFETY: an all-zero sigaction is valid, and the handler has the signature that SA_SIGINFO requires.
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
    let instruction = unsafe {
        let context = &mut *context.cast::<libc::ucontext_t>();
        &mut context.uc_mcontext.gregs[libc::REG_RIP as usize]
    };
    // SAFETY: the kernel passes the signal's information. Its code is positive only if the kernel raised the signal.
    let is_sent = unsafe { (*info).si_code } <= 0;
    if !is_sent && let Some(landing) = landing(*instruction as usize) {
        *instruction = landing as i64;
        return;
    }
    let nth = usize::from(signal != SIGNALS[0]);
    let Some(before) = BEFORE[nth].get() else { return };
    // SAFETY: the previous handler is called as the kernel would call it. Without one, the default action is restored and
    // applies when the instruction faults again, or when the signal is sent again. The kernel ignores no fault.
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

/// Does what the kernel does before it calls the handler of an action: a handler for one signal is removed, and signals are blocked, until
/// the kernel restores the mask of the interrupted thread. Otherwise a handler that sends its signal again would be called again.
fn prepare(signal: c_int, action: &libc::sigaction) {
    let mut blocked = action.sa_mask;
    // SAFETY: the set is initialized and the signal valid; the old mask is not requested. All are async-signal-safe (signal-safety(7)).
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

    const PAGE: usize = 4096;

    /// Maps two pages, then unmaps the second (`None`) or changes its protection.
    fn pages(second: Option<c_int>) -> *mut u8 {
        // SAFETY: only the new mapping is unmapped or protected.
        unsafe {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let start = libc::mmap(ptr::null_mut(), 2 * PAGE, rights, flags, -1, 0).cast::<u8>();
            match second {
                Some(rights) => libc::mprotect(start.add(PAGE).cast(), PAGE, rights),
                None => libc::munmap(start.add(PAGE).cast(), PAGE),
            };
            start
        }
    }

    #[test]
    fn unmapped_memory_is_an_error() {
        guard();
        let start = pages(None);
        let mut ours = [7u8; 100];
        // SAFETY: one side is this test's array.
        unsafe {
            assert_eq!(copy(start, ours.as_ptr(), 100), 0);
            assert_eq!(copy(start.add(PAGE - 60), ours.as_ptr(), 100), 40);
            assert_eq!(copy(ours.as_mut_ptr(), start.add(PAGE - 1), 100), 99);
            assert_eq!(copy(ours.as_mut_ptr(), ptr::null(), 100), 100);
        }
    }

    #[test]
    fn a_word_is_exchanged_if_it_has_the_value_and_is_writable() {
        guard();
        for second in [None, Some(libc::PROT_READ)] {
            let start = pages(second).cast::<u64>();
            let exchange = |nth: usize, mut value: u64, new| {
                // SAFETY: the words are aligned, and the value is this function's.
                let result = unsafe { compare_exchange(start.add(nth), &raw mut value, new) };
                (result, value)
            };
            assert_eq!(exchange(1, 0, 7), (0, 0));
            assert_eq!(exchange(1, 5, 8), (1, 7));
            assert_eq!(exchange(1, 7, u64::MAX), (0, 7));
            assert_eq!(exchange(1, 7, 8), (1, u64::MAX));
            assert_eq!(exchange(PAGE / 8, 0, 1), (NOT_WRITABLE, 0));
        }
    }

    #[test]
    fn a_write_to_read_only_memory_is_an_error() {
        guard();
        let start = pages(Some(libc::PROT_READ));
        let mut ours = [7u8; 8];
        // SAFETY: one side is this test's array.
        unsafe {
            assert_eq!(copy(start.add(PAGE), ours.as_ptr(), 8), 8);
            assert_eq!(copy(ours.as_mut_ptr(), start.add(PAGE), 8), 0);
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
        let fault = || unsafe { ptr::write_volatile(pages(None).add(PAGE), 1) };
        assert_eq!(ended_by(fault), libc::SIGSEGV);
    }
}
