//! The program's memory as the device reaches it.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use nichrome_rdma::{Memory, MemoryFault};

/// The memory of this process.
///
/// A program that unmaps memory while it is registered breaks what it promised: hardware would keep the pages, here the
/// next access to them ends the process.
#[derive(Debug, Default)]
pub(crate) struct ProcessMemory;

const PAGE: u64 = 4096;

impl Memory for ProcessMemory {
    /// Whether all of it is mapped. Whether it can be written is not known without writing.
    fn covers(&self, address: u64, len: u64) -> bool {
        let first = address & !(PAGE - 1);
        let Some(len) = address.checked_add(len).map(|end| (end - first) as usize) else { return false };
        // SAFETY: the kernel looks at the mappings and neither reads nor changes what is there.
        let looked = unsafe { libc::msync(first as *mut libc::c_void, len, libc::MS_ASYNC) };
        looked == 0
    }

    #[inline]
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryFault> {
        // SAFETY: the engine asks only for bytes of registered regions, which `covers` found and which the program
        // keeps mapped, or for inline bytes, which the program lends for the call. They are not `into`, which is ours.
        unsafe { ptr::copy_nonoverlapping(address as *const u8, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    #[inline]
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        // SAFETY: as for `read`; the region was registered to be written. `bytes` are ours and not the program's.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
        Ok(())
    }

    fn update(&mut self, address: u64, change: impl Fn(u64) -> u64) -> Result<u64, MemoryFault> {
        let place = address as *mut u64;
        if !place.is_aligned() {
            return Err(MemoryFault { address });
        }
        // SAFETY: as for `write`, and aligned.
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
    fn what_is_mapped_is_covered_and_nothing_else() {
        let bytes = vec![0u8; 10_000];
        let address = bytes.as_ptr() as u64;
        assert!(ProcessMemory.covers(address, 10_000));
        assert!(!ProcessMemory.covers(8, 1));
        assert!(!ProcessMemory.covers(u64::MAX - 8, 100));
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
