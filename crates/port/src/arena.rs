//! Memory for frames that one owner fills, and that other threads drop in any order.
//!
//! An [`Arena`] has blocks for many frames each, and hands out the bytes of a block from its start to its
//! end: the writer needs no length in advance, and frames written one after another are adjacent in the
//! cache. A [`Piece`] is as small as a slice. Dropping it takes one atomic operation and no lock.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::slice;
use std::sync::Arc;

/// Number of other blocks from which on the arena searches all of them for one without pieces.
const MIN_SEARCH_THRESHOLD: usize = 8;

/// Memory that is handed out in order. A block is used again once all its pieces are dropped.
pub struct Arena {
    block: Arc<Block>,
    /// The bytes of `block` that belong to pieces.
    taken: usize,
    /// The other blocks, with pieces or without.
    others: VecDeque<Arc<Block>>,
    /// The number of other blocks from which on all are searched: twice the number of the largest search that
    /// found all blocks in use, and at least [`MIN_SEARCH_THRESHOLD`].
    search_threshold: usize,
    block_len: usize,
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { taken, others, block_len, .. } = self;
        f.debug_struct("Arena")
            .field("taken", taken)
            .field("others", &others.len())
            .field("block_len", block_len)
            .finish_non_exhaustive()
    }
}

impl Arena {
    /// Creates an arena with blocks of `block_len` bytes. A piece keeps its whole block from being used
    /// again.
    ///
    /// # Panics
    /// Blocks would have 4 GB or more.
    pub fn new(block_len: usize) -> Self {
        let (block, others) = (Arc::new(Block::zeroed(block_len)), VecDeque::new());
        Self { block, taken: 0, others, search_threshold: MIN_SEARCH_THRESHOLD, block_len }
    }

    /// Returns the bytes that [`Arena::take`] takes next, `len` or more. Until then, further calls return the
    /// same bytes. Their initial values are unspecified.
    #[inline]
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        if self.block.len() - self.taken < len {
            self.renew(len);
        }
        self.rest()
    }

    /// Skips the next `len` bytes.
    ///
    /// # Panics
    /// [`Arena::room`] returned fewer bytes.
    #[inline]
    pub fn skip(&mut self, len: usize) {
        self.advance(len);
    }

    /// Takes the next `len` bytes.
    ///
    /// # Panics
    /// [`Arena::room`] returned fewer bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Piece {
        let at = self.advance(len);
        Piece { block: Arc::clone(&self.block), at: at as u32, len: len as u32 }
    }

    /// Advances by `len` bytes; returns their offset in the block.
    #[inline]
    fn advance(&mut self, len: usize) -> usize {
        assert!(len <= self.block.len() - self.taken, "no room for {len} bytes");
        let at = self.taken;
        self.taken += len;
        at
    }

    /// Returns the bytes of the block that belong to no piece.
    #[allow(unsafe_code)]
    #[inline]
    fn rest(&mut self) -> &mut [u8] {
        let len = self.block.len() - self.taken;
        // SAFETY: the bytes are in the block. Pieces have only bytes before `taken`, and only this arena,
        // which is mutably borrowed, hands out the bytes behind it.
        unsafe { slice::from_raw_parts_mut(self.block.start().add(self.taken), len) }
    }

    /// Begins a block with room for `len` bytes: the current block or another one if all its pieces are
    /// dropped, else a new one.
    #[cold]
    fn renew(&mut self, len: usize) {
        let is_free = |block: &mut Arc<Block>| Arc::get_mut(block).is_some_and(|block| block.len() >= len);
        if is_free(&mut self.block) {
            self.taken = 0;
            return;
        }
        // Pieces are mostly dropped in the order of their blocks, so only the oldest block is examined,
        // unless there are many.
        let searched = if self.others.len() < self.search_threshold { 1 } else { self.others.len() };
        let block = match self.others.iter_mut().take(searched).position(is_free) {
            Some(free) => {
                self.others.rotate_left(free);
                self.others.pop_front()
            }
            None => {
                self.search_threshold = self.search_threshold.max(2 * searched);
                None
            }
        };
        let block = block.unwrap_or_else(|| Arc::new(Block::zeroed(len.max(self.block_len))));
        let before = mem::replace(&mut self.block, block);
        self.taken = 0;
        // A larger block was for a single frame, and is not kept.
        if before.len() == self.block_len {
            self.others.push_back(before);
        }
    }
}

/// Bytes of an [`Arena`], or of a separate allocation.
pub struct Piece {
    block: Arc<Block>,
    at: u32,
    len: u32,
}

/// Wraps bytes that are in no arena.
///
/// # Panics
/// There are 4 GB or more.
impl From<Vec<u8>> for Piece {
    fn from(bytes: Vec<u8>) -> Self {
        let block = Block::from(bytes);
        Self { at: 0, len: block.len() as u32, block: Arc::new(block) }
    }
}

impl Deref for Piece {
    type Target = [u8];

    #[allow(unsafe_code)]
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are in the block and belong to this piece only, which is borrowed.
        unsafe { slice::from_raw_parts(self.block.start().add(self.at as usize), self.len as usize) }
    }
}

impl DerefMut for Piece {
    #[allow(unsafe_code)]
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the bytes are in the block and belong to this piece only, which is borrowed.
        unsafe { slice::from_raw_parts_mut(self.block.start().add(self.at as usize), self.len as usize) }
    }
}

impl AsRef<[u8]> for Piece {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Piece").field(&&**self).finish()
    }
}

/// Memory that pieces share. Each piece has its own range of bytes.
struct Block(Box<[UnsafeCell<u8>]>);

// SAFETY: a shared reference gives out only the address of the bytes. Each access to them states why no other
// access conflicts with it.
#[allow(unsafe_code)]
unsafe impl Sync for Block {}

impl Block {
    fn zeroed(len: usize) -> Self {
        check_len(len);
        Self::from(vec![0; len])
    }

    #[inline]
    fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn start(&self) -> *mut u8 {
        UnsafeCell::raw_get(self.0.as_ptr())
    }
}

impl From<Vec<u8>> for Block {
    fn from(bytes: Vec<u8>) -> Self {
        check_len(bytes.len());
        Self(bytes.into_iter().map(UnsafeCell::new).collect())
    }
}

/// # Panics
/// Offsets in a block of this length do not fit 32 bits.
fn check_len(len: usize) {
    assert!(u32::try_from(len).is_ok(), "pieces are within 4 GB");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc;
    use std::thread;

    /// Takes a piece and fills it with `byte`.
    fn filled(arena: &mut Arena, len: usize, byte: u8) -> Piece {
        arena.room(len)[..len].fill(byte);
        arena.take(len)
    }

    #[test]
    fn pieces_keep_their_bytes_until_they_are_dropped() {
        let mut arena = Arena::new(10);
        let first = filled(&mut arena, 4, 1);
        arena.skip(1);
        let mut second = filled(&mut arena, 5, 2);
        let third = filled(&mut arena, 3, 3);
        second[0] = 9;
        assert_eq!((&*first, second.as_ref(), &*third), (&[1; 4][..], &[9, 2, 2, 2, 2][..], &[3; 3][..]));
        assert_eq!(arena.others.len(), 1);
        assert_eq!(format!("{third:?}"), "Piece([3, 3, 3])");
        assert!(filled(&mut arena, 0, 0).is_empty());
    }

    #[test]
    fn a_block_is_used_again_once_all_its_pieces_are_dropped() {
        let mut arena = Arena::new(10);
        let memory = arena.room(10).as_ptr();
        let (first, second) = (filled(&mut arena, 4, 1), filled(&mut arena, 4, 2));
        assert_eq!(arena.room(2).as_ptr(), memory.wrapping_add(8));
        drop((first, second));
        assert_eq!(arena.room(2).as_ptr(), memory.wrapping_add(8), "the bytes may have been written");
        assert_eq!(arena.room(3).as_ptr(), memory);
        let long = filled(&mut arena, 8, 3);
        let other = filled(&mut arena, 8, 4);
        drop(long);
        assert_ne!(other.as_ptr(), memory);
        assert_eq!(arena.room(8).as_ptr(), memory, "the other block is free");
        drop(other);
    }

    #[test]
    fn one_piece_that_is_kept_does_not_keep_other_blocks_from_use() {
        let mut arena = Arena::new(10);
        let kept: Vec<Piece> =
            (0..2 * MIN_SEARCH_THRESHOLD).map(|nth| filled(&mut arena, 8, nth as u8)).collect();
        let mut most = 0;
        for _ in 0..100_000 / if cfg!(miri) { 100 } else { 1 } {
            let (first, second) = (filled(&mut arena, 8, 0), filled(&mut arena, 8, 0));
            drop((second, first));
            most = most.max(arena.others.len());
        }
        assert!(most <= 2 * (kept.len() + 2), "{most}");
        assert!(kept.iter().enumerate().all(|(nth, piece)| **piece == [nth as u8; 8]));
    }

    #[test]
    fn a_larger_piece_has_a_block_of_its_own_that_is_not_kept() {
        let mut arena = Arena::new(10);
        let small = filled(&mut arena, 4, 1);
        let large = filled(&mut arena, 1000, 2);
        let next = filled(&mut arena, 8, 3);
        assert_eq!((small.len(), large.len(), next.len()), (4, 1000, 8));
        assert!(arena.others.iter().all(|block| block.len() == 10));
    }

    #[test]
    #[should_panic(expected = "no room for 11 bytes")]
    fn no_more_is_taken_than_there_is_room_for() {
        let mut arena = Arena::new(10);
        arena.room(10);
        arena.take(11);
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn a_failure_to_make_room_gives_nobodys_bytes_away() {
        let mut arena = Arena::new(10);
        let piece = filled(&mut arena, 10, 1);
        let room = AssertUnwindSafe(|| arena.room(1 << 32).len());
        assert!(catch_unwind(room).is_err());
        arena.room(10).fill(2);
        assert_eq!(*piece, [1; 10]);
    }

    #[test]
    fn a_piece_may_have_bytes_of_its_own() {
        let mut piece = Piece::from(vec![1, 2, 3]);
        piece[2] = 7;
        assert_eq!(*piece, [1, 2, 7]);
        assert!(Piece::from(Vec::new()).is_empty());
    }

    #[test]
    fn pieces_dropped_on_other_threads_free_their_blocks() {
        let mut arena = Arena::new(64);
        let (senders, threads): (Vec<_>, Vec<_>) = (0..3)
            .map(|_| {
                let (sender, receiver) = mpsc::sync_channel::<(u8, Piece)>(8);
                let check = move || receiver.into_iter().all(|(byte, piece)| *piece == [byte; 20]);
                (sender, thread::spawn(check))
            })
            .unzip();
        let pieces = if cfg!(miri) { 300 } else { 30_000 };
        for nth in 0..pieces {
            let byte = nth as u8;
            senders[nth % 3].send((byte, filled(&mut arena, 20, byte))).unwrap();
        }
        drop(senders);
        assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
        // At most 30 pieces are in flight.
        assert!(arena.others.len() <= 60, "{}", arena.others.len());
    }
}
