//! How the kernel's scheduler treats a thread (sched_setattr(2)).

use std::io;

use rustix::process::getpriority_process;

/// Nanoseconds: the shortest slice that Linux gives.
const SLICE: u64 = 100_000;

/// `struct sched_attr` in its first version (`linux/sched/types.h`).
#[repr(C)]
#[derive(Default)]
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

/// Gives the calling thread a short time slice. Since Linux 6.12 a thread that wakes goes before others that have longer
/// ones;
/// before, nothing changes. Its share of the processor stays the same.
#[allow(unsafe_code)]
pub(crate) fn take_short_slices() -> io::Result<()> {
    let size = size_of::<Attributes>() as u32;
    let nice = getpriority_process(None)?;
    let attributes = Attributes { size, nice, runtime: SLICE, ..Attributes::default() };
    // SAFETY: sched_setattr reads a struct sched_attr of the size that stands in it. Thread 0 is the calling one, policy
    // 0 SCHED_OTHER, and there are no flags.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

const _: () = assert!(size_of::<Attributes>() == 48);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_knows_the_request() {
        take_short_slices().unwrap();
    }
}
