//! How the kernel's scheduler treats a thread (sched_setattr(2)).

use std::time::Duration;
use std::{fs, io};

use rustix::process::getpriority_process;

/// Nanoseconds: the shortest slice that Linux gives.
const SLICE: u64 = 100_000;

/// `struct sched_attr` in its first version (`linux/sched/types.h`).
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

/// Gives the calling thread a short time slice. Since Linux 6.12 a thread that wakes goes before others of its session
/// that have longer ones; before, nothing changes. Its share of the processor stays the same.
pub(crate) fn take_short_slices() -> io::Result<()> {
    let nice = getpriority_process(None)?;
    set(Attributes { policy: libc::SCHED_OTHER as u32, nice, runtime: SLICE, ..Attributes::default() })
}

/// Has the calling thread run before all ordinary ones as soon as it has something to do (`SCHED_FIFO`, sched(7)).
/// Otherwise a processor that is busy with another session's threads lets it wait for the next tick, up to 4 ms. Needs
/// `CAP_SYS_NICE` or a limit of real-time priorities that allows it. The thread must sleep while it has nothing to do:
/// no ordinary thread runs while it does.
pub fn come_first() -> io::Result<()> {
    set(Attributes { policy: libc::SCHED_FIFO as u32, priority: 1, ..Attributes::default() })
}

#[allow(unsafe_code)]
fn set(attributes: Attributes) -> io::Result<()> {
    let attributes = Attributes { size: size_of::<Attributes>() as u32, ..attributes };
    // SAFETY: sched_setattr reads a struct sched_attr of the size that stands in it. Thread 0 is the calling one; there
    // are no flags.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// How long the calling thread was ready to run and had to wait for a processor, in all its life; `None` where the
/// kernel does not keep account (CONFIG_SCHED_INFO).
pub fn waited_for_processor() -> Option<Duration> {
    waited(&fs::read_to_string("/proc/thread-self/schedstat").ok()?)
}

/// The second of the numbers is nanoseconds on a run queue (Documentation/scheduler/sched-stats.rst).
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
        take_short_slices().unwrap();
        if let Err(error) = thread::spawn(come_first).join().unwrap() {
            assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        }
    }
}
