//! Scheduling parameters of threads (sched_setattr(2)).

use std::time::Duration;
use std::{fs, io};

use rustix::process::getpriority_process;

/// The minimum time slice of Linux, in nanoseconds.
const SLICE: u64 = 100_000;

/// `struct sched_attr`, first version (`linux/sched/types.h`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Gives the calling thread ordinary priority and the minimum time slice. Since Linux 6.12 a waking thread
/// then preempts the threads of its session with longer slices; before, there is no effect. Its share of CPU
/// time does not change.
pub(crate) fn request_short_slices() -> io::Result<()> {
    let nice = getpriority_process(None)?;
    set(Attributes { policy: libc::SCHED_OTHER as u32, nice, runtime: SLICE, ..Attributes::default() })
}

/// Puts the calling thread in the real-time class `SCHED_FIFO` (sched(7)), so that it preempts all ordinary
/// threads; an ordinary thread may wait for a busy CPU until the next tick, up to 4 ms. Requires
/// `CAP_SYS_NICE` or a sufficient RLIMIT_RTPRIO. While the thread runs, no ordinary thread runs on its CPU.
pub(crate) fn run_in_real_time() -> io::Result<()> {
    set(Attributes { policy: libc::SCHED_FIFO as u32, priority: 1, ..Attributes::default() })
}

#[allow(unsafe_code)]
fn set(attributes: Attributes) -> io::Result<()> {
    let attributes = Attributes { size: size_of::<Attributes>() as u32, ..attributes };
    // SAFETY: sched_setattr reads a struct sched_attr of the size stored in it. Thread 0 is the calling one;
    // flags are 0.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns how long the calling thread has been runnable but waiting for a CPU, since its start. `None` if
/// the kernel lacks CONFIG_SCHED_INFO.
pub fn waited_for_processor() -> Option<Duration> {
    waited(&fs::read_to_string("/proc/thread-self/schedstat").ok()?)
}

/// Parses a schedstat line: the second number is nanoseconds on a run queue
/// (Documentation/scheduler/sched-stats.rst).
fn waited(schedstat: &str) -> Option<Duration> {
    schedstat.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn waiting_is_the_second_number() {
        assert_eq!(waited("115342 58437 1\n"), Some(Duration::from_nanos(58_437)));
        assert_eq!(waited(""), None);
    }

    #[test]
    fn the_kernel_knows_the_request() {
        request_short_slices().unwrap();
        if let Err(error) = thread::spawn(run_in_real_time).join().unwrap() {
            assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        }
    }
}
