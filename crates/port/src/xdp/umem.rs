//! The UMEM: memory that an AF_XDP socket receives into and sends from, divided into chunks.
//!
//! A [`Chunk`] is the exclusive right to its bytes. Each is created with the UMEM, consumed when its address
//! goes to the kernel ([`Chunk::give`]), and recreated when the kernel returns the address
//! ([`Umem::regain`]).

use std::fmt;
use std::mem;
use std::slice;
use std::sync::Arc;

use rustix::io;

use super::return_list::ReturnList;
use crate::mapping::Mapping;

/// The exclusive right to a chunk's bytes.
#[derive(Debug)]
pub(super) struct Chunk(u32);

/// The memory, and the return list for chunks of received frames.
#[derive(Debug)]
pub(super) struct Umem {
    memory: Mapping,
    chunk_size: u32,
    returned: ReturnList,
}

impl Umem {
    /// Creates a UMEM of `chunks` chunks of `chunk_size` bytes, a power of two.
    pub(super) fn new(chunks: u32, chunk_size: u32) -> io::Result<(Self, Vec<Chunk>)> {
        let memory = Mapping::zeroed(chunks as usize * chunk_size as usize)?;
        let umem = Self { memory, chunk_size, returned: ReturnList::new(chunks) };
        Ok((umem, (0..chunks).map(Chunk).collect()))
    }

    /// Returns address and length, for registration.
    pub(super) fn region(&self) -> (u64, u64) {
        (self.memory.start().as_ptr() as u64, self.memory.len() as u64)
    }

    /// Returns the size of a chunk, in bytes.
    pub(super) fn chunk_size(&self) -> u32 {
        self.chunk_size
    }

    /// Returns the chunk that contains `address`, and the offset in it.
    ///
    /// # Safety
    /// The kernel has just returned the address through the receive or completion ring of a socket that this
    /// UMEM is registered with.
    #[allow(unsafe_code)]
    #[inline]
    pub(super) unsafe fn regain(&self, address: u64) -> (Chunk, u32) {
        let size = u64::from(self.chunk_size);
        let chunk = Chunk((address / size) as u32);
        debug_assert!(address < self.memory.len() as u64);
        (chunk, (address % size) as u32)
    }

    /// Takes the chunks returned since the last call.
    #[inline]
    pub(super) fn take_returned(&self) -> impl Iterator<Item = Chunk> + '_ {
        // The loan that held a chunk pushed it, so this is the only owner.
        self.returned.take_all().map(Chunk)
    }

    /// Borrows a chunk's bytes.
    #[allow(unsafe_code)]
    #[inline]
    pub(super) fn bytes<'a>(&'a self, chunk: &'a Chunk) -> &'a [u8] {
        let size = self.chunk_size as usize;
        // SAFETY: the chunk lies in the mapping. The owner of the `Chunk` has the exclusive right to its
        // bytes: neither the kernel nor another thread writes them. The borrow keeps the chunk from being
        // given away.
        unsafe { slice::from_raw_parts(self.memory.start().as_ptr().add(chunk.0 as usize * size), size) }
    }

    /// Borrows a chunk's bytes mutably.
    #[allow(unsafe_code)]
    #[inline]
    pub(super) fn bytes_mut<'a>(&'a self, chunk: &'a mut Chunk) -> &'a mut [u8] {
        let size = self.chunk_size as usize;
        // SAFETY: as for `bytes`; the mutable borrow also excludes readers.
        unsafe { slice::from_raw_parts_mut(self.memory.start().as_ptr().add(chunk.0 as usize * size), size) }
    }
}

impl Chunk {
    /// Gives the chunk to the kernel; returns its address in the UMEM.
    #[inline]
    pub(super) fn give(self, umem: &Umem) -> u64 {
        u64::from(self.0) * u64::from(umem.chunk_size)
    }
}

/// A received frame in its chunk, which returns to the UMEM on drop.
pub(super) struct Loan {
    chunk: Chunk,
    start: u32,
    len: u32,
    umem: Arc<Umem>,
}

impl Loan {
    /// Wraps the frame of `len` bytes from offset `start` in `chunk`.
    #[inline]
    pub(super) fn new(umem: &Arc<Umem>, chunk: Chunk, start: u32, len: u32) -> Self {
        Self { chunk, start, len, umem: Arc::clone(umem) }
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        let (start, len) = (self.start as usize, self.len as usize);
        self.umem.bytes(&self.chunk).get(start..start + len).unwrap_or_default()
    }
}

impl Drop for Loan {
    #[inline]
    fn drop(&mut self) {
        let Chunk(number) = mem::replace(&mut self.chunk, Chunk(u32::MAX));
        self.umem.returned.push(number);
    }
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Loan").field(&self.bytes()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_do_not_overlap() {
        let (umem, mut chunks) = Umem::new(4, 2048).unwrap();
        for (fill, chunk) in (1..).zip(&mut chunks) {
            umem.bytes_mut(chunk).fill(fill);
        }
        for (fill, chunk) in (1..).zip(&chunks) {
            assert_eq!(umem.bytes(chunk), [fill; 2048]);
        }
        let addresses: Vec<u64> = chunks.into_iter().map(|chunk| chunk.give(&umem)).collect();
        assert_eq!(addresses, [0, 2048, 4096, 6144]);
    }

    #[test]
    fn a_loan_shows_its_frame_and_comes_back() {
        let (umem, mut chunks) = Umem::new(2, 2048).unwrap();
        let umem = Arc::new(umem);
        let mut chunk = chunks.pop().unwrap();
        umem.bytes_mut(&mut chunk)[256..259].copy_from_slice(b"abc");
        let loan = Loan::new(&umem, chunk, 256, 3);
        assert_eq!(loan.bytes(), b"abc");
        assert_eq!(umem.take_returned().count(), 0);
        drop(loan);
        let returned: Vec<u64> = umem.take_returned().map(|chunk| chunk.give(&umem)).collect();
        assert_eq!(returned, [2048]);
    }

    #[test]
    fn a_frame_beyond_its_chunk_is_empty() {
        let (umem, mut chunks) = Umem::new(1, 2048).unwrap();
        let loan = Loan::new(&Arc::new(umem), chunks.pop().unwrap(), 2000, 100);
        assert_eq!(loan.bytes(), b"");
    }
}
