//! The engine's `Memory`: the address space of this process.

use std::sync::atomic::{AtomicU64, Ordering};

use nichrome_rdma::{Memory, MemoryFault};

use crate::guarded_copy;

/// The memory of this process.
///
/// An access to a registered page that the program has since unmapped returns a [`MemoryFault`]. RDMA hardware, which pins
/// registered pages, would still reach it.
#[derive(Debug, Default)]
pub(crate) struct ProcessMemory;

const PAGE: u64 = 4096;

impl Memory for ProcessMemory {
    /// Returns true if the whole range is mapped. Does not check whether it is writable.
    fn covers(&self, address: u64, len: u64) -> bool {
        let first = address & !(PAGE - 1);
        // The kernel rounds the length up to whole pages, and treats a length that wraps around as empty, which is mapped.
        let end = address.checked_add(len).filter(|end| end.checked_next_multiple_of(PAGE).is_some());
        let Some(len) = end.map(|end| (end - first) as usize) else { return false };
        // By its number: the C library's function is a cancellation point (pthreads(7)), and the device is locked.
        // SAFETY: with MS_ASYNC the kernel only walks the mappings; it accesses no memory.
        let result = unsafe { libc::syscall(libc::SYS_msync, first, len, libc::MS_ASYNC) };
        result == 0
    }

    #[inline]
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryFault> {
        // SAFETY: `into` is a Rust slice; the source is the program's memory, a registered region or inline bytes.
        let missing = unsafe { guarded_copy::copy(into.as_mut_ptr(), address as *const u8, into.len()) };
        if missing == 0 { Ok(()) } else { Err(MemoryFault { address }) }
    }

    #[inline]
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        // SAFETY: `bytes` is a Rust slice; the destination is a region that the program registered as writable.
        let missing = unsafe { guarded_copy::copy(address as *mut u8, bytes.as_ptr(), bytes.len()) };
        if missing == 0 { Ok(()) } else { Err(MemoryFault { address }) }
    }

    fn update(&mut self, address: u64, change: impl Fn(u64) -> u64) -> Result<u64, MemoryFault> {
        let place = address as *mut u64;
        // SAFETY: `touch` accepts any address.
        if !place.is_aligned() || unsafe { guarded_copy::touch(place) } != 0 {
            return Err(MemoryFault { address });
        }
        // SAFETY: as for `write`; the word is aligned, and `touch` found it writable.
        let word = unsafe { AtomicU64::from_ptr(place) };
        let updated = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |before| Some(change(before)));
        updated.map_err(|_| MemoryFault { address })
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
}
