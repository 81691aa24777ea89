//! Operations of one side's program that the client has begun, and their chunks.
//!
//! An operation moves its bytes in chunks, one packet each. Chunks of all operations have numbers in one order, so that
//! what is quiet is a number: all chunks before it are answered, and no copy of theirs is on its way any more.
//! Operations complete in the order in which they were posted.
//!
//! **Writes to one place.** Of WRITEs that follow each other to exactly the same bytes, only the last waits for those
//! before it; the others go at once, and complete when it is certain that nothing older can be in memory any more. That
//! is so when bytes of the one, or of a later one, were sent after all before it were quiet, and have arrived
//! ([`Operation::vouches`]). A chunk of theirs that is lost is not sent again when a later one was sent to its place.

use std::collections::VecDeque;

use nichrome_wire::{Instant, SeqNumber};

use crate::core::completion::Status;
use crate::core::receive_queue::ReceiveSlot;

/// Chunks between the first that is not settled and the last that was sent, at most.
const SPAN: usize = 1 << 14;

/// Which way the bytes of an operation go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    /// In RDPs.
    ToServer,
    /// In SDPs, which GDs ask for.
    FromServer,
}

/// Whose memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

/// A stretch of memory, by the addresses that requests use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) side: Side,
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Extent {
    pub(super) const NONE: Self = Self { side: Side::Client, start: 0, end: 0 };

    pub(super) fn new(side: Side, start: u64, len: u32) -> Self {
        Self { side, start, end: start.saturating_add(u64::from(len)) }
    }

    /// The least stretch that holds all of these pieces.
    pub(super) fn around(side: Side, pieces: impl Iterator<Item = (u64, u32)>) -> Self {
        let pieces = pieces.filter(|(_, len)| *len > 0);
        let around = pieces.map(|(start, len)| Self::new(side, start, len)).reduce(|one, other| Self {
            start: one.start.min(other.start),
            end: one.end.max(other.end),
            ..one
        });
        around.unwrap_or(Self::NONE)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.side == other.side && self.start < other.end && other.start < self.end
    }
}

/// What an operation has to do with those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conflict {
    None,
    /// One of them writes what it reads or writes, or copies from what it writes.
    Some,
    /// It is a WRITE to exactly the bytes of the server that the one right before it writes.
    Again,
}

/// An operation that was begun.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    /// The number of its first chunk.
    pub(super) first: u64,
    pub(super) chunks: u32,
    pub(super) transfer: Transfer,
    /// The client's receive that it fills, or uses up.
    pub(super) receive: Option<ReceiveSlot>,
    /// The server's receive that it fills, or uses up: its number.
    pub(super) mirrored: Option<u64>,
    /// It cannot be done: how it completes in its turn, and how its receive does.
    pub(super) failed: Option<(Status, Status)>,
    /// What the atomic found.
    pub(super) before: u64,
    /// Memory that it changes.
    pub(super) writes: Extent,
    /// Whether that is one piece, which its chunks fill from the front on, each by the path MTU.
    pub(super) is_one: bool,
    /// Memory that it reads where operations before it may write.
    pub(super) reads: Extent,
    /// Memory of its own side that it copies from.
    pub(super) source: Extent,
    pub(super) conflict: Conflict,
    /// When it is quiet, operations whose chunks are all before this one are certain.
    pub(super) vouches: u64,
    /// The completion that the server's driver is to acknowledge before it is complete.
    pub(super) told: Option<SeqNumber>,
    /// Its packets may not leave: since when.
    pub(super) held: Option<Instant>,
}

impl Operation {
    pub(super) fn end(&self) -> u64 {
        self.first + u64::from(self.chunks)
    }
}

/// What is known of a chunk that was sent.
#[derive(Clone, Copy, Debug, Default)]
struct Chunk {
    is_answered: bool,
    /// Copies of it that may still change the server's memory.
    copies: u16,
}

/// Operations in order, and their chunks.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    pub(super) operations: VecDeque<Operation>,
    /// Chunks from the first that is not settled to the last that was sent.
    chunks: VecDeque<Chunk>,
    /// The first chunk that is not settled.
    base: u64,
    /// The end of the operations that were begun.
    end: u64,
    /// Operations at the front that are settled, and wait for something else.
    pub(super) settled: usize,
    /// Operations at the front that are quiet.
    quiet: usize,
    /// Nothing older than an operation whose chunks are all before this one can be in memory, once that is quiet.
    certain: u64,
}

impl Pipeline {
    /// The chunk that is sent next for the first time.
    pub(super) fn next(&self) -> u64 {
        self.base + self.chunks.len() as u64
    }

    /// The number of the next operation's first chunk.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Whether each chunk was sent.
    pub(super) fn is_all_sent(&self) -> bool {
        self.next() == self.end
    }

    /// Whether another operation may begin.
    pub(super) fn has_room(&self) -> bool {
        self.chunks.len() < SPAN
    }

    /// Whether the operation that began last is being sent.
    pub(super) fn is_last_under_way(&self) -> bool {
        self.operations.back().is_some_and(|last| last.first <= self.next())
    }

    pub(super) fn begin(&mut self, operation: Operation) {
        self.end = operation.end();
        self.operations.push_back(operation);
        self.settle();
    }

    /// Takes out the oldest operation.
    pub(super) fn retire(&mut self) -> Option<Operation> {
        self.quiet = self.quiet.saturating_sub(1);
        self.operations.pop_front()
    }

    /// The place of the operation that a chunk belongs to; `None` where the chunk is settled, or none.
    #[inline]
    pub(super) fn operation_of(&self, nth: u64) -> Option<usize> {
        let index = self.operations.partition_point(|operation| operation.first <= nth).checked_sub(1)?;
        (nth >= self.base && nth < self.operations[index].end()).then_some(index)
    }

    fn chunk(&mut self, nth: u64) -> Option<&mut Chunk> {
        let index = usize::try_from(nth.checked_sub(self.base)?).ok()?;
        self.chunks.get_mut(index)
    }

    /// Whether the chunk need not be sent again: it was answered, or is given up.
    pub(super) fn is_done(&self, nth: u64) -> bool {
        let index = nth.checked_sub(self.base).and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| self.chunks.get(index)).is_none_or(|chunk| chunk.is_answered)
    }

    /// A packet of this chunk of the operation at `index` has left, which writes to the server's memory where it is an
    /// RDP.
    #[inline]
    pub(super) fn chunk_sent(&mut self, index: usize, nth: u64) {
        let is_unsafe = self.is_ahead(index, nth);
        let operation = &mut self.operations[index];
        if nth == self.base + self.chunks.len() as u64 {
            self.chunks.push_back(Chunk::default());
            if is_unsafe {
                operation.vouches = operation.vouches.min(self.base + u64::from(operation.chunks));
            }
        }
        let transfer = operation.transfer;
        if let Some(chunk) = self.chunk(nth)
            && transfer == Transfer::ToServer
        {
            chunk.copies = chunk.copies.saturating_add(1);
        }
    }

    /// Whether the operation at `index` is a WRITE to where the one right before it writes, of which the same chunk is
    /// not quiet.
    fn is_ahead(&self, index: usize, nth: u64) -> bool {
        let operation = &self.operations[index];
        operation.conflict == Conflict::Again && nth >= self.base + u64::from(operation.chunks)
    }

    /// Whether the operation right after the one at `index` is a WRITE to exactly the same bytes.
    fn is_followed(&self, index: usize) -> bool {
        self.operations.get(index + 1).is_some_and(|next| next.conflict == Conflict::Again)
    }

    /// Whether a chunk of a WRITE to where the one before it writes waits for that: the last of them does.
    pub(super) fn is_last_and_ahead(&self, index: usize, nth: u64) -> bool {
        !self.is_followed(index) && self.is_ahead(index, nth)
    }

    /// Whether a lost chunk need not be sent again, as a later WRITE to its place was sent. Then that one, or one after
    /// it, makes its operation certain.
    pub(super) fn supersede(&mut self, nth: u64) -> bool {
        let Some(index) = self.operation_of(nth).filter(|index| self.is_followed(*index)) else {
            return false;
        };
        let next = self.next();
        let operation = &mut self.operations[index];
        if nth + u64::from(operation.chunks) >= next {
            return false;
        }
        operation.vouches = 0;
        if let Some(chunk) = self.chunk(nth) {
            chunk.is_answered = true;
        }
        self.settle();
        true
    }

    /// A packet of this chunk was answered; whether it is the first that was.
    #[inline]
    pub(super) fn chunk_answered(&mut self, nth: u64) -> bool {
        let Some(chunk) = self.chunk(nth) else { return false };
        chunk.copies = chunk.copies.saturating_sub(1);
        let first = !std::mem::replace(&mut chunk.is_answered, true);
        self.settle();
        first
    }

    /// A packet of this chunk is on its way no more.
    pub(super) fn copy_gone(&mut self, nth: u64) {
        if let Some(chunk) = self.chunk(nth) {
            chunk.copies = chunk.copies.saturating_sub(1);
        }
        self.settle();
    }

    fn settle(&mut self) {
        while self.chunks.front().is_some_and(|chunk| chunk.is_answered && chunk.copies == 0) {
            self.chunks.pop_front();
            self.base += 1;
        }
        while let Some(operation) = self.operations.get(self.quiet)
            && operation.failed.is_none()
            && self.is_quiet(operation)
        {
            self.certain = self.certain.max(operation.vouches);
            self.quiet += 1;
        }
    }

    fn is_quiet(&self, operation: &Operation) -> bool {
        self.base >= operation.end()
    }

    /// Whether an operation is settled: its bytes have arrived, and nothing older can overwrite them.
    pub(super) fn is_settled(&self, operation: &Operation) -> bool {
        self.is_quiet(operation) && self.certain >= operation.end()
    }

    /// How the oldest operation fails, which is not settled: all before one that has failed are quiet. It may be another,
    /// which that one was to make certain.
    pub(super) fn failure(&self) -> Option<(Status, Status)> {
        let operation = self.operations.get(self.quiet)?;
        operation.failed.filter(|_| self.is_first(operation))
    }

    /// Whether all before an operation is settled.
    pub(super) fn is_first(&self, operation: &Operation) -> bool {
        self.base >= operation.first
    }

    /// Whether an operation that begins behind all others has to do with what some of them write.
    pub(super) fn has_conflict(&self, writes: &Extent, reads: &Extent) -> bool {
        self.conflicts_before(self.operations.len(), writes, reads, 1)
    }

    /// Whether one of the first `count` operations writes what is read or written here, or copies from what is written
    /// here. Of the first that is not quiet, what it has still to write counts: chunks of `mtu` bytes are quiet.
    pub(super) fn conflicts_before(&self, count: usize, writes: &Extent, reads: &Extent, mtu: u64) -> bool {
        let mut unsettled =
            self.operations.range(self.settled..count).filter(|earlier| !self.is_quiet(earlier));
        unsettled.any(|earlier| {
            let left = self.left_of(earlier, mtu);
            left.overlaps(writes) || left.overlaps(reads) || earlier.source.overlaps(writes)
        })
    }

    fn left_of(&self, operation: &Operation, mtu: u64) -> Extent {
        let Extent { side, start, end } = operation.writes;
        let quiet = self.base.saturating_sub(operation.first).saturating_mul(mtu);
        Extent {
            side,
            start: if operation.is_one { start.saturating_add(quiet).min(end) } else { start },
            end,
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.operations.clear();
        self.chunks.clear();
        (self.base, self.certain) = (self.end, self.end);
        (self.settled, self.quiet) = (0, 0);
    }
}
