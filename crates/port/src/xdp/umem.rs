//! The UMEM: memory that an AF_XDP socket receives into and sends from, cut into chunks.
//!
//! A [`Chunk`] stands for the right to its bytes. There is one for each, made with the UMEM; it is given up where the
//! address goes to the kernel ([`Chunk::give`]), and made anew where the kernel gives it back ([`Umem::regain`]).

use std::fmt;
use std::mem;
use std::slice;
use std::sync::Arc;

use rustix::io;

use super::return_list::ReturnList;
use crate::mapping::Mapping;

/// The sole right to a chunk's bytes.
#[derive(Debug)]
pub(super) struct Chunk(u32);

/// The memory, and the list on which chunks of received frames come back.
#[derive(Debug)]
pub(super) struct Umem {
    memory: Mapping,
    chunk_size: u32,
    returned: ReturnList,
}

impl Umem {
    /// Makes a UMEM of `chunks` chunks of `chunk_size` bytes, which must be a power of two.
    pub(super) fn new(chunks: u32, chunk_size: u32) -> io::Result<(Self, Vec<Chunk>)> {
        let memory = Mapping::zeroed(chunks as usize * chunk_size as usize)?;
        let umem = Self { memory, chunk_size, returned: ReturnList::new(chunks) };
        Ok((umem, (0..chunks).map(Chunk).collect()))
    }

    /// Its address and length, as it is registered with the kernel.
    pub(super) fn region(&self) -> (u64, u64) {
        (self.memory.start().as_ptr() as u64, self.memory.len() as u64)
    }

    /// Bytes of a chunk.
    pub(super) fn chunk_size(&self) -> u32 {
        self.chunk_size
    }

    /// The chunk in which `address` lies, and where in it that is.
    ///
    /// # Safety
    /// The kernel has just given the address back, through the receive or the completion ring of a socket that
    /// this UMEM is registered with.
    #[allow(unsafe_code)]
    #[inline]
    pub(super) unsafe fn regain(&self, address: u64) -> (Chunk, u32) {
        let size = u64::from(self.chunk_size);
        let chunk = Chunk((address / size) as u32);
        debug_assert!(address < self.memory.len() as u64);
        (chunk, (address % size) as u32)
    }

    /// The chunks that have come back since the last call.
    #[inline]
    pub(super) fn take_returned(&self) -> impl Iterator<Item = Chunk> + '_ {
        // A chunk was pushed by the loan that held it, and no one else has it.
        self.returned.take_all().map(Chunk)
    }

    /// A chunk's bytes.
    #[allow(unsafe_code)]
    #[inline]
    pub(super) fn bytes<'a>(&'a self, chunk: &'a Chunk) -> &'a [u8] {
        let size = self.chunk_size as usize;
        // SAFETY: the chunk lies in the mapping. Whoever has the `Chunk` is the only one who has a right to its bytes:
        // neither the kernel nor another thread writes them. The borrow of the chunk keeps it from being given away.
        unsafe { slice::from_raw_parts(self.memory.start().as_ptr().add(chunk.0 as usize * size), size) }
    }

    /// A chunk's bytes, to be written.
    #[allow(unsafe_code)]
    #[inline]
    pub(super) fn bytes_mut<'a>(&'a self, chunk: &'a mut Chunk) -> &'a mut [u8] {
        let size = self.chunk_size as usize;
        // SAFETY: as for `bytes`, and the chunk is borrowed mutably: no one reads the bytes either.
        unsafe { slice::from_raw_parts_mut(self.memory.start().as_ptr().add(chunk.0 as usize * size), size) }
    }
}

impl Chunk {
    /// Gives the chunk up, to the kernel: its address in the UMEM.
    #[inline]
    pub(super) fn give(self, umem: &Umem) -> u64 {
        u64::from(self.0) * u64::from(umem.chunk_size)
    }
}

/// A received frame in its chunk, which comes back to the UMEM when this is dropped.
pub(super) struct Loan {
    chunk: Chunk,
    start: u32,
    len: u32,
    umem: Arc<Umem>,
}

impl Loan {
    /// The frame of `len` bytes from `start` in `chunk`.
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
