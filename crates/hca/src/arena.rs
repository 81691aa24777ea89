//! Memory owned by the adapter, for programs without `unsafe`.

use std::collections::BTreeMap;

use nichrome_rdma::{Memory, MemoryFault};

/// Pieces of memory at virtual addresses. Program and adapter access them under the adapter's lock, so
/// neither sees a partial write of the other.
#[derive(Debug)]
pub struct Arena {
    pieces: BTreeMap<u64, Vec<u8>>,
    next: u64,
}

/// Alignment of pieces, and the smallest gap between them, in bytes.
const PAGE: u64 = 4096;

impl Default for Arena {
    fn default() -> Self {
        Self { pieces: BTreeMap::new(), next: 16 * PAGE }
    }
}

impl Arena {
    /// Allocates a piece of `len` zero bytes; returns its address.
    pub fn allocate(&mut self, len: usize) -> u64 {
        let address = self.next;
        self.next += (len as u64 + PAGE).next_multiple_of(PAGE);
        self.pieces.insert(address, vec![0; len]);
        address
    }

    /// Frees the piece at `address`.
    pub fn free(&mut self, address: u64) {
        self.pieces.remove(&address);
    }

    /// The piece that starts at `address`, or an empty slice.
    pub fn piece(&self, address: u64) -> &[u8] {
        self.pieces.get(&address).map_or(&[], Vec::as_slice)
    }

    /// The mutable piece that starts at `address`, or an empty slice.
    pub fn piece_mut(&mut self, address: u64) -> &mut [u8] {
        self.pieces.get_mut(&address).map_or(&mut [], Vec::as_mut_slice)
    }

    #[inline]
    fn bytes(&self, address: u64, len: usize) -> Option<&[u8]> {
        let (start, piece) = self.pieces.range(..=address).next_back()?;
        let at = usize::try_from(address - start).ok()?;
        piece.get(at..)?.get(..len)
    }

    #[inline]
    fn bytes_mut(&mut self, address: u64, len: usize) -> Option<&mut [u8]> {
        let (start, piece) = self.pieces.range_mut(..=address).next_back()?;
        let at = usize::try_from(address - start).ok()?;
        piece.get_mut(at..)?.get_mut(..len)
    }
}

impl Memory for Arena {
    fn covers(&self, address: u64, len: u64) -> bool {
        usize::try_from(len).is_ok_and(|len| self.bytes(address, len).is_some())
    }

    #[inline]
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MemoryFault> {
        into.copy_from_slice(self.bytes(address, into.len()).ok_or(MemoryFault { address })?);
        Ok(())
    }

    #[inline]
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.bytes_mut(address, bytes.len()).ok_or(MemoryFault { address })?.copy_from_slice(bytes);
        Ok(())
    }

    fn update(&mut self, address: u64, change: impl Fn(u64) -> u64) -> Result<u64, MemoryFault> {
        let bytes = self.bytes_mut(address, 8).and_then(|bytes| bytes.first_chunk_mut());
        let bytes = bytes.ok_or(MemoryFault { address })?;
        let before = u64::from_ne_bytes(*bytes);
        *bytes = change(before).to_ne_bytes();
        Ok(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_apart_and_have_bounds() {
        let mut arena = Arena::default();
        let [a, b] = [5000, 16].map(|len| arena.allocate(len));
        arena.write(a + 4999, &[1]).unwrap();
        arena.write(b, &[2; 16]).unwrap();
        assert_eq!((arena.piece(a)[4999], arena.piece(b)), (1, &[2; 16][..]));
        assert!(arena.covers(a, 5000) && !arena.covers(a, 5001) && !arena.covers(a - 1, 1));
        assert_eq!(arena.write(a + 4999, &[1, 1]), Err(MemoryFault { address: a + 4999 }));
        assert_eq!(arena.read(b + 16, &mut [0]), Err(MemoryFault { address: b + 16 }));
        arena.free(a);
        assert!(!arena.covers(a, 1) && arena.covers(b, 16));
    }

    #[test]
    fn an_update_gives_the_value_before() {
        let mut arena = Arena::default();
        let address = arena.allocate(24);
        assert_eq!(arena.update(address + 8, |value| value + 5), Ok(0));
        assert_eq!(arena.update(address + 8, |value| value * 2), Ok(5));
        assert_eq!(arena.piece(address)[8..16], 10u64.to_ne_bytes());
        assert!(arena.update(address + 17, |value| value).is_err());
    }
}
