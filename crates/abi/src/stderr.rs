//! Prints lines to standard error, which several processes may share.

use std::io;

use nichrome_port::uninterrupted;

/// Prints lines by one write(2), so that the lines of several processes on one pipe or terminal do not mix.
/// Takes no lock: if another thread held it while the program forked, the child would wait for it forever.
pub(crate) fn print_lines(lines: &str) {
    let text: String = lines.lines().map(|line| format!("nichrome: {line}\n")).collect();
    let mut rest = text.as_bytes();
    // Errors of standard error cannot be reported.
    while !rest.is_empty()
        && let Ok(written @ 1..) = uninterrupted(|| Ok(rustix::io::write(io::stderr(), rest)?))
    {
        rest = rest.get(written..).unwrap_or_default();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_forked_child_prints_although_another_thread_printed_at_the_fork() {
        let (begun, begins) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let printing = thread::spawn(move || {
            let _locked = io::stderr().lock();
            begun.send(()).unwrap();
            let _ = ends.recv();
        });
        begins.recv().unwrap();
        // SAFETY: the child prints and exits without returning.
        let child = unsafe { libc::fork() };
        if child == 0 {
            print_lines("a child");
            // SAFETY: as above.
            unsafe { libc::_exit(0) };
        }
        let limit = Instant::now() + Duration::from_secs(20);
        let mut status = 0;
        // SAFETY: the status is written.
        while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
            if Instant::now() > limit {
                // SAFETY: the child is this test's, and not waited for yet.
                unsafe { libc::kill(child, libc::SIGKILL) };
            }
            thread::sleep(Duration::from_millis(1));
        }
        drop(end);
        printing.join().unwrap();
        assert_eq!(status, 0, "the child was killed because it did not end");
    }
}
