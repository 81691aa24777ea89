//! Threads of a library, which block the signals of the program that contains it (signal(7)).
//!
//! A program may block a signal in its own threads, to wait for it by signalfd(2). In a thread that does not
//! block the signal, its default action would end the program.

use std::thread::{Builder, JoinHandle};
use std::{io, mem, ptr};

/// Signals for faults of the thread itself, and for its system calls that a filter traps (seccomp(2)), which
/// must not be blocked: the kernel would end the process.
const FAULTS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];

/// Starts a thread that blocks all signals except those for its own faults.
///
/// # Errors
/// The system's limit of threads is reached.
pub fn spawn_quiet<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    // A thread inherits the signal mask of the thread that starts it.
    let before = block_signals();
    let thread = Builder::new().name(name.to_owned()).spawn(work);
    set_mask(&before);
    thread
}

/// Blocks signals in the calling thread; returns its previous mask.
#[allow(unsafe_code)]
fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets are live, and filled before they are read; the signals are valid, so no call fails.
    unsafe {
        let (mut blocked, mut before): (libc::sigset_t, libc::sigset_t) = (mem::zeroed(), mem::zeroed());
        libc::sigfillset(&raw mut blocked);
        for fault in FAULTS {
            libc::sigdelset(&raw mut blocked, fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const blocked, &raw mut before);
        before
    }
}

#[allow(unsafe_code)]
fn set_mask(mask: &libc::sigset_t) {
    // SAFETY: the set is live and initialized, and the old mask is not requested.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, mask, ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Returns the blocked signals of the calling thread: bit n - 1 stands for signal n.
    fn blocked() -> u64 {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    }

    #[test]
    fn the_thread_takes_faults_only_and_its_starter_what_it_took_before() {
        let before = blocked();
        let of_thread = spawn_quiet("quiet", blocked).unwrap().join().unwrap();
        assert_eq!(blocked(), before);
        let is_blocked = |signal: libc::c_int| of_thread >> (signal - 1) & 1 == 1;
        assert!([libc::SIGUSR2, libc::SIGTERM, libc::SIGCHLD, libc::SIGALRM].into_iter().all(is_blocked));
        assert!(!FAULTS.into_iter().any(is_blocked));
        assert!(!is_blocked(libc::SIGSYS), "a system call that a filter traps");
    }
}
