//! The engine's `Memory`: the address space of this process.

use nichrome_rdma::{Memory, MemoryFault};

use crate::guarded_copy;

/// The memory of this process.
///
/// An access to a registered page that the program has since unmapped returns a [`MemoryFault`]. RDMA
/// hardware, which pins registered pages, would still reach it.
#[derive(Debug, Default)]
pub(crate) struct ProcessMemory;

/// Bytes of a page: 4 KiB, but up to 64 KiB with some kernels for AArch64.
pub(crate) fn page_size() -> usize {
    // SAFETY: a system call without pointers.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Extends a range to the start of its first page, as msync(2) requires; returns address and length. `None`
/// if the length wraps around when rounded up to whole pages: the kernel, which rounds it, would treat the
/// range as empty.
fn from_page_start(address: u64, len: u64, page: u64) -> Option<(u64, usize)> {
    let first = address & !(page - 1);
    let end = address.checked_add(len).filter(|end| end.checked_next_multiple_of(page).is_some())?;
    Some((first, (end - first) as usize))
}

impl Memory for ProcessMemory {
    /// Returns true if the whole range is mapped. Does not check whether it is writable.
    fn covers(&self, address: u64, len: u64) -> bool {
        let Some((first, len)) = from_page_start(address, len, page_size() as u64) else { return false };
        // A raw system call: the C library's msync is a cancellation point (pthreads(7)), and the device is
        // locked. SAFETY: with MS_ASYNC the kernel only walks the mappings; it accesses no memory.
        let result = unsafe { libc::syscall(libc::SYS_msync, first, len, libc::MS_ASYNC) };
        result == 0
    }

    #[inline]
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryFault> {
        // SAFETY: `into` is a Rust slice; the source is the program's memory, a registered region or inline
        // bytes.
        let missing = unsafe { guarded_copy::copy(into.as_mut_ptr(), address as *const u8, into.len()) };
        if missing == 0 { Ok(()) } else { Err(MemoryFault { address }) }
    }

    #[inline]
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        // SAFETY: `bytes` is a Rust slice; the destination is a region that the program registered as
        // writable.
        let missing = unsafe { guarded_copy::copy(address as *mut u8, bytes.as_ptr(), bytes.len()) };
        if missing == 0 { Ok(()) } else { Err(MemoryFault { address }) }
    }

    fn update(&mut self, address: u64, change: impl Fn(u64) -> u64) -> Result<u64, MemoryFault> {
        let place = address as *mut u64;
        if !place.is_aligned() {
            return Err(MemoryFault { address });
        }
        // A guess: if it is wrong, the first exchange fails and returns the word's value.
        let mut before = 0;
        loop {
            // SAFETY: as for `write`; the word is aligned, and `before` is this function's.
            match unsafe { guarded_copy::compare_exchange(place, &raw mut before, change(before)) } {
                0 => return Ok(before),
                guarded_copy::NOT_WRITABLE => return Err(MemoryFault { address }),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_mapped_memory_is_covered() {
        let bytes = vec![0u8; 10_000];
        let address = bytes.as_ptr() as u64;
        assert!(ProcessMemory.covers(address, 10_000));
        assert!(!ProcessMemory.covers(8, 1));
        assert!(!ProcessMemory.covers(u64::MAX - 8, 100));
        assert!(!ProcessMemory.covers(0, u64::MAX), "more than whole pages can be");
    }

    /// msync(2) fails with EINVAL for an address within a page.
    #[test]
    fn a_range_is_extended_to_the_start_of_a_page_of_any_size() {
        for (page, first) in [(0x1000, 0x7_3000), (0x4000, 0x7_0000), (0x1_0000, 0x7_0000)] {
            let len = (0x7_3456 + 10_000 - first) as usize;
            assert_eq!(from_page_start(0x7_3456, 10_000, page), Some((first, len)), "{page:#x}");
            assert_eq!(from_page_start(0, u64::MAX - page + 2, page), None, "{page:#x}");
        }
        assert!(page_size().is_power_of_two());
    }

    #[test]
    fn bytes_are_read_written_and_updated_in_place() {
        let mut words = [1u64, 2];
        let address = words.as_mut_ptr() as u64;
        let mut memory = ProcessMemory;
        memory.write(address + 8, &7u64.to_ne_bytes()).unwrap();
        assert_eq!(memory.update(address + 8, |before| before + 1), Ok(7));
        let mut read = [0; 8];
        memory.read(address + 8, &mut read).unwrap();
        assert_eq!(u64::from_ne_bytes(read), 8);
        assert!(memory.update(address + 4, |before| before).is_err());
    }

    #[test]
    fn an_update_of_memory_that_another_thread_unmaps_meanwhile_is_done_or_an_error() {
        use std::ptr;
        use std::sync::atomic::{AtomicBool, Ordering};
        use std::thread;

        guarded_copy::guard();
        let (page, rights) = (page_size(), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a new mapping, which only this test accesses.
        let start = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(ptr::null_mut(), page, rights, flags, -1, 0)
        };
        let address = start as u64;
        let [has_begun, is_over] = [const { AtomicBool::new(false) }; 2];
        let done = thread::scope(|scope| {
            let updates = scope.spawn(|| {
                let update = || ProcessMemory.update(address, |before| before + 1).is_ok();
                let mut done = 0u64;
                while !is_over.load(Ordering::Relaxed) {
                    done += u64::from(update());
                    has_begun.store(true, Ordering::Relaxed);
                }
                done
            });
            while !has_begun.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            for _ in 0..20_000 {
                // SAFETY: the mapping is the test's.
                unsafe {
                    libc::mprotect(start, page, libc::PROT_NONE);
                    libc::mprotect(start, page, rights);
                }
            }
            is_over.store(true, Ordering::Relaxed);
            updates.join().unwrap()
        });
        // SAFETY: the word is mapped again.
        assert_eq!(unsafe { *start.cast::<u64>() }, done);
    }
}
