//! The operations of one side's program that the client has begun, in order, and their chunks.
//!
//! An operation moves its bytes in chunks, one packet each. Chunks are numbered consecutively across
//! operations. A chunk is *quiet* when it is answered and the network holds no other copy of it; an operation
//! is quiet when its chunks and all before them are.
//!
//! **Consecutive operations that fill exactly the same bytes of the server.** Only the last waits for those
//! before it. The client sends the others at once, and completes them when no older bytes can reach the
//! memory any more. That is certain if chunks of the operation itself, or of a later one, were sent after all
//! chunks before it were quiet, and have arrived ([`Operation::settles_before`]); or, if each operation is
//! one chunk, if the answers show that its chunk was stored after those before it ([`StorageOrder`]). The
//! client does not retransmit a lost chunk of such an operation if a later chunk to the same bytes was sent.
//!
//! **Consecutive operations that fill exactly the same bytes of the client** do not wait. The client stores
//! the answers itself, and drops a chunk if a later operation has filled its place
//! ([`Pipeline::is_refilled`]).

use std::collections::VecDeque;

use nichrome_wire::star::{Atomic, Stamp};
use nichrome_wire::{Instant, SeqNumber};

use crate::core::completion::Status;
use crate::core::receive_queue::ReceiveSlot;
use crate::core::work::Sge;

/// Maximum number of chunks from the first that is not quiet to the last that was sent; further ones wait.
const SPAN: usize = 1 << 14;

/// The direction of an operation's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    /// In RDPs.
    ToServer,
    /// In SDPs, which GDs request.
    FromServer,
}

/// The host whose memory an extent is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Host {
    Client,
    Server,
}

/// A range of addresses in one host's registered memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) host: Host,
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Extent {
    pub(super) const NONE: Self = Self { host: Host::Client, start: 0, end: 0 };

    pub(super) fn new(host: Host, start: u64, len: u32) -> Self {
        Self { host, start, end: start.saturating_add(u64::from(len)) }
    }

    /// Returns the smallest range that holds all of these buffers.
    pub(super) fn around(host: Host, buffers: impl Iterator<Item = Sge>) -> Self {
        let buffers = buffers.filter(|sge| sge.len > 0).map(|sge| Self::new(host, sge.address, sge.len));
        let around = buffers.reduce(|one, other| Self {
            start: one.start.min(other.start),
            end: one.end.max(other.end),
            ..one
        });
        around.unwrap_or(Self::NONE)
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.host == other.host && self.start < other.end && other.start < self.end
    }
}

/// How an operation's memory overlaps that of unsettled operations before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conflict {
    None,
    /// An earlier operation writes what this one reads or writes, or copies from what this one writes.
    Overlap,
    /// It fills exactly the server's buffer that the operation right before it fills.
    SameBytes,
    /// It fills exactly the client's buffer that the operation right before it fills.
    Refill,
}

/// An operation in progress.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    /// The number of its first chunk.
    pub(super) first: u64,
    pub(super) chunks: u32,
    pub(super) transfer: Transfer,
    /// The client's receive that it consumes.
    pub(super) receive: Option<ReceiveSlot>,
    /// The number of the server's receive that it consumes.
    pub(super) mirrored: Option<u64>,
    /// The statuses of its own completion and of its receive's, if it has failed.
    pub(super) failed: Option<(Status, Status)>,
    /// The value that an atomic of the server found.
    pub(super) before: u64,
    /// The client's atomic operation, which the server's card executes.
    pub(super) atomic: Option<Atomic>,
    /// The client's buffer for the result of an atomic operation, which itself writes the server's memory.
    pub(super) lands: Extent,
    pub(super) writes: Extent,
    /// Whether `writes` is one buffer that the chunks fill from the front, a path MTU each.
    pub(super) is_contiguous: bool,
    /// The client's buffer that it fills so.
    pub(super) fills: Option<Sge>,
    /// The peer's memory that it reads.
    pub(super) reads: Extent,
    /// The initiator's memory that it copies from.
    pub(super) source: Extent,
    pub(super) conflict: Conflict,
    /// Once this operation is quiet, older bytes can no longer overwrite those of an operation whose chunks
    /// are all before this number.
    pub(super) settles_before: u64,
    /// The CQEP for the server's receive. The operation completes when the server's driver has acknowledged
    /// it.
    pub(super) reported: Option<SeqNumber>,
    /// When the egress module first blocked one of its packets after the last one that was sent.
    pub(super) blocked_since: Option<Instant>,
}

impl Operation {
    pub(super) fn end(&self) -> u64 {
        self.first + u64::from(self.chunks)
    }
}

/// The order in which the server stored RDPs, as RAs prove it: those that one RA names in the order of their
/// numbers, and all of them after those of RAs with earlier stamps. Nothing is known of RAs with equal
/// stamps, nor of copies that were given up.
#[derive(Debug, Default)]
struct StorageOrder {
    /// The latest stamp.
    latest: Option<Stamp>,
    /// Chunks before this one may have been stored before a copy that was given up.
    ordered_from: u64,
}

impl StorageOrder {
    /// Records the stamp of an RA; returns true if its RDPs were stored after those of all RAs before it.
    fn is_latest(&mut self, stamp: Stamp) -> bool {
        let is_latest = self.latest.is_none_or(|latest| (stamp.0.wrapping_sub(latest.0) as i32) > 0);
        if is_latest {
            self.latest = Some(stamp);
        }
        is_latest
    }
}

/// A chunk that was sent.
#[derive(Clone, Copy, Debug, Default)]
struct Chunk {
    is_answered: bool,
    /// RDPs in the network that may still change the server's memory.
    copies: u16,
}

/// The operations of one initiator.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    pub(super) operations: VecDeque<Operation>,
    /// Chunks from `base` to the last that was sent.
    chunks: VecDeque<Chunk>,
    /// The first chunk that is not quiet.
    base: u64,
    /// The first chunk of the next operation.
    end: u64,
    /// Operations at the front that are settled and wait for the acknowledgement of their CQEP.
    pub(super) settled: usize,
    /// Operations at the front that are quiet.
    quiet: usize,
    /// The largest [`Operation::settles_before`] of a quiet operation.
    certain: u64,
    /// The number behind the last chunk that was answered.
    answered: u64,
    order: StorageOrder,
}

impl Pipeline {
    /// Returns the next chunk to send for the first time.
    pub(super) fn next(&self) -> u64 {
        self.base + self.chunks.len() as u64
    }

    /// Returns the number of the next operation's first chunk.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns true if each chunk was sent.
    pub(super) fn is_all_sent(&self) -> bool {
        self.next() == self.end
    }

    /// Returns true if another operation may begin.
    pub(super) fn has_room(&self) -> bool {
        self.chunks.len() < SPAN
    }

    /// Returns true if the newest operation is being sent.
    pub(super) fn is_last_under_way(&self) -> bool {
        self.operations.back().is_some_and(|last| last.first <= self.next())
    }

    pub(super) fn begin(&mut self, operation: Operation) {
        if self.operations.is_empty() {
            // Stamps can be compared for half an hour only.
            self.order.latest = None;
        }
        self.end = operation.end();
        if self.operations.capacity() == 0 {
            // Of many connections, most have one request at a time; by default the queue would begin with
            // room for four.
            self.operations.reserve_exact(1);
        }
        self.operations.push_back(operation);
        self.settle();
    }

    /// Removes the oldest operation.
    pub(super) fn retire(&mut self) -> Option<Operation> {
        self.quiet = self.quiet.saturating_sub(1);
        self.operations.pop_front()
    }

    /// Returns the index of a chunk's operation; `None` if the chunk is quiet, or was never part of an
    /// operation.
    #[inline]
    pub(super) fn operation_of(&self, nth: u64) -> Option<usize> {
        if nth < self.base {
            return None;
        }
        let holds = |index: &usize| {
            let operation = self.operations.get(*index);
            operation.is_some_and(|operation| (operation.first..operation.end()).contains(&nth))
        };
        // Chunks are mostly sent and answered in order.
        let last = self.operations.len().wrapping_sub(1);
        [last, last.wrapping_sub(1), self.quiet].into_iter().find(holds).or_else(|| {
            let behind = self.operations.partition_point(|operation| operation.first <= nth);
            behind.checked_sub(1).filter(holds)
        })
    }

    fn chunk(&mut self, nth: u64) -> Option<&mut Chunk> {
        let index = usize::try_from(nth.checked_sub(self.base)?).ok()?;
        self.chunks.get_mut(index)
    }

    /// Returns the chunk, if it was sent and is not settled.
    fn unsettled(&self, nth: u64) -> Option<&Chunk> {
        let index = usize::try_from(nth.checked_sub(self.base)?).ok()?;
        self.chunks.get(index)
    }

    /// Returns true if the chunk needs no retransmission: it was answered or superseded.
    pub(super) fn is_done(&self, nth: u64) -> bool {
        self.unsettled(nth).is_none_or(|chunk| chunk.is_answered)
    }

    /// Returns true if the chunk's operation has failed.
    pub(super) fn has_failed(&self, nth: u64) -> bool {
        self.operation_of(nth).is_some_and(|index| self.operations[index].failed.is_some())
    }

    /// Returns true if more than one RDP of the chunk may still change the server's memory.
    pub(super) fn has_other_copies(&self, nth: u64) -> bool {
        self.unsettled(nth).is_some_and(|chunk| chunk.copies > 1)
    }

    /// Records that a packet of this chunk of the operation at `index` left.
    #[inline]
    pub(super) fn chunk_sent(&mut self, index: usize, nth: u64) {
        let is_unsafe = self.is_ahead(index, nth);
        let operation = &mut self.operations[index];
        operation.blocked_since = None;
        if nth == self.base + self.chunks.len() as u64 {
            self.chunks.push_back(Chunk::default());
            if is_unsafe {
                operation.settles_before =
                    operation.settles_before.min(self.base + u64::from(operation.chunks));
            }
        }
        let transfer = operation.transfer;
        if let Some(chunk) = self.chunk(nth)
            && transfer == Transfer::ToServer
        {
            chunk.copies = chunk.copies.saturating_add(1);
        }
    }

    /// Returns true if the operation at `index` rewrites the bytes of the one before it, whose same chunk is
    /// not quiet.
    fn is_ahead(&self, index: usize, nth: u64) -> bool {
        let operation = &self.operations[index];
        operation.conflict == Conflict::SameBytes && nth >= self.base + u64::from(operation.chunks)
    }

    /// Returns true if the operation after the one at `index` rewrites its bytes.
    fn is_rewritten(&self, index: usize) -> bool {
        self.operations.get(index + 1).is_some_and(|next| next.conflict == Conflict::SameBytes)
    }

    /// Returns true if a chunk waits for the same chunk of the operation before it. Only chunks of the last
    /// of several operations to the same bytes do.
    pub(super) fn is_last_and_ahead(&self, index: usize, nth: u64) -> bool {
        !self.is_rewritten(index) && self.is_ahead(index, nth)
    }

    /// Drops a lost chunk if the same chunk of a later operation to the same bytes was sent. That operation
    /// then settles_before for the chunk's operation. Returns true if the chunk was dropped.
    pub(super) fn supersede(&mut self, nth: u64) -> bool {
        let Some(index) = self.operation_of(nth).filter(|index| self.is_rewritten(*index)) else {
            return false;
        };
        let next = self.next();
        let operation = &mut self.operations[index];
        if nth + u64::from(operation.chunks) >= next {
            return false;
        }
        operation.settles_before = 0;
        if let Some(chunk) = self.chunk(nth) {
            chunk.is_answered = true;
        }
        self.settle();
        true
    }

    /// Returns true if the last operation fills this buffer of the client, and none before writes bytes of
    /// `reads`.
    pub(super) fn is_refill(&self, fills: Option<Sge>, reads: &Extent) -> bool {
        let last = self.operations.back().and_then(|last| last.fills);
        fills.is_some() && fills == last && !self.has_conflict(&Extent::NONE, reads)
    }

    /// Returns true if a later operation has filled the place of this chunk of the operation at `index`.
    pub(super) fn is_refilled(&self, index: usize, nth: u64) -> bool {
        let Some(chunks) = self.operations.get(index).map(|operation| operation.chunks) else { return false };
        let behind = self.operations.range(index + 1..);
        let refills = behind.take_while(|later| later.conflict == Conflict::Refill);
        let refilled = refills.zip(1..).map(|(later, turn)| (later, nth + turn * u64::from(chunks)));
        let mut answered = refilled.take_while(|(_, chunk)| *chunk < self.answered);
        answered.any(|(later, chunk)| {
            later.failed.is_none() && self.unsettled(chunk).is_some_and(|state| state.is_answered)
        })
    }

    /// Records an answer to a packet of this chunk. Returns true for the first.
    #[inline]
    pub(super) fn chunk_answered(&mut self, nth: u64) -> bool {
        let Some(chunk) = self.chunk(nth) else { return false };
        chunk.copies = chunk.copies.saturating_sub(1);
        let first = !std::mem::replace(&mut chunk.is_answered, true);
        self.answered = self.answered.max(nth + 1);
        self.settle();
        first
    }

    /// Records the answer to a packet of this chunk that the network no longer holds.
    pub(super) fn stored_in_time(&mut self, nth: u64) {
        if let Some(chunk) = self.chunk(nth) {
            chunk.is_answered = true;
        }
        self.settle();
    }

    /// Records an RA with this stamp. `last` is the chunk that the RA names last, if it is this initiator's.
    /// If the stamp is the latest, all chunks that were answered before, by this RA or others, were stored
    /// before `last`.
    pub(super) fn stored_last(&mut self, last: Option<u64>, stamp: Stamp) {
        let is_latest = self.order.is_latest(stamp);
        let Some(last) = last.filter(|last| is_latest && *last >= self.order.ordered_from) else { return };
        let behind = self.operations.partition_point(|operation| operation.first <= last);
        let Some(index) = behind.checked_sub(1) else { return };
        let (base, is_quiet) = (self.base, index < self.quiet);
        let operation = &mut self.operations[index];
        if operation.conflict != Conflict::SameBytes || operation.chunks != 1 || operation.first != last {
            return;
        }
        let settles_before = operation.end().min(base + 1);
        if is_quiet {
            self.certain = self.certain.max(settles_before);
        } else {
            operation.settles_before = operation.settles_before.max(settles_before);
        }
    }

    /// Records that the network no longer holds one of the chunk's packets. It may have been stored at any
    /// time before.
    pub(super) fn copy_gone(&mut self, nth: u64) {
        self.order.ordered_from = self.next();
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
            self.certain = self.certain.max(operation.settles_before);
            self.quiet += 1;
        }
    }

    fn is_quiet(&self, operation: &Operation) -> bool {
        self.base >= operation.end()
    }

    /// Returns true if an operation's bytes have arrived and no older packet can overwrite them.
    pub(super) fn is_settled(&self, operation: &Operation) -> bool {
        self.is_quiet(operation) && self.certain >= operation.end()
    }

    /// Returns the failure of the first operation that is not quiet, once all chunks before it are quiet.
    /// Earlier operations may be unsettled: those for which the failed one was to vouch.
    pub(super) fn failure(&self) -> Option<(Status, Status)> {
        let operation = self.operations.get(self.quiet)?;
        operation.failed.filter(|_| self.is_first(operation))
    }

    /// Returns true if all chunks before an operation are quiet.
    pub(super) fn is_first(&self, operation: &Operation) -> bool {
        self.base >= operation.first
    }

    /// Returns true if an operation that begins now overlaps an unsettled one.
    pub(super) fn has_conflict(&self, writes: &Extent, reads: &Extent) -> bool {
        self.conflicts_before(self.operations.len(), writes, reads, 1)
    }

    /// Returns true if one of the first `count` operations still writes bytes of `writes` or `reads`, or
    /// copies from `writes`. The quiet chunks of an operation, of `mtu` bytes each, no longer count.
    pub(super) fn conflicts_before(&self, count: usize, writes: &Extent, reads: &Extent, mtu: u64) -> bool {
        if writes.is_empty() && reads.is_empty() {
            return false;
        }
        let mut unsettled =
            self.operations.range(self.settled..count).filter(|earlier| !self.is_quiet(earlier));
        unsettled.any(|earlier| {
            let left = self.left_of(earlier, mtu);
            let (source, lands) = (&earlier.source, &earlier.lands);
            left.overlaps(writes)
                || left.overlaps(reads)
                || source.overlaps(writes)
                || lands.overlaps(writes)
                || lands.overlaps(reads)
        })
    }

    fn left_of(&self, operation: &Operation, mtu: u64) -> Extent {
        let Extent { host, start, end } = operation.writes;
        let quiet = self.base.saturating_sub(operation.first).saturating_mul(mtu);
        Extent {
            host,
            start: if operation.is_contiguous { start.saturating_add(quiet).min(end) } else { start },
            end,
        }
    }

    /// Drops all operations.
    pub(super) fn clear(&mut self) {
        self.operations.clear();
        self.chunks.clear();
        (self.base, self.certain) = (self.end, self.end);
        (self.settled, self.quiet) = (0, 0);
        self.order = StorageOrder::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Extent = Extent { host: Host::Server, start: 0, end: 8 };

    /// A WRITE of one chunk to [`PLACE`].
    fn write(first: u64) -> Operation {
        Operation {
            first,
            chunks: 1,
            transfer: Transfer::ToServer,
            receive: None,
            mirrored: None,
            failed: None,
            before: 0,
            atomic: None,
            lands: Extent::NONE,
            writes: PLACE,
            is_contiguous: true,
            fills: None,
            reads: Extent::NONE,
            source: Extent::NONE,
            conflict: if first == 0 { Conflict::None } else { Conflict::SameBytes },
            settles_before: first + 1,
            reported: None,
            blocked_since: None,
        }
    }

    /// Three WRITEs to one place, of which a copy of the first is under way twice; all are answered.
    fn answered(gives_up: impl FnOnce(&mut Pipeline)) -> Pipeline {
        let mut pipeline = Pipeline::default();
        (0..3).for_each(|nth| pipeline.begin(write(nth)));
        for (index, nth) in [(0, 0), (0, 0), (1, 1), (2, 2)] {
            pipeline.chunk_sent(index, nth);
        }
        pipeline.chunk_answered(0);
        gives_up(&mut pipeline);
        (1..3).for_each(|nth| _ = pipeline.chunk_answered(nth));
        pipeline
    }

    #[test]
    fn the_order_of_storage_settles_writes_that_were_sent_together() {
        let settled = |pipeline: &Pipeline| {
            pipeline.operations.iter().filter(|operation| pipeline.is_settled(operation)).count()
        };
        let both_answered = |pipeline: &mut Pipeline| _ = pipeline.chunk_answered(0);
        let mut pipeline = answered(both_answered);
        assert_eq!(settled(&pipeline), 1, "nothing is known of the order");
        pipeline.stored_last(None, Stamp(9));
        pipeline.stored_last(Some(2), Stamp(9));
        assert_eq!(settled(&pipeline), 1, "of equal stamps neither");
        pipeline.stored_last(Some(2), Stamp(10));
        assert_eq!(settled(&pipeline), 3);

        let mut pipeline = answered(|pipeline| pipeline.copy_gone(0));
        pipeline.stored_last(Some(2), Stamp(9));
        assert_eq!(settled(&pipeline), 1, "the copy may have been stored after the last WRITE");
    }
}
