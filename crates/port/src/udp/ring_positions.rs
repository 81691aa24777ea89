//! The shared state of a ring: the writer's and the reader's positions, and the reader's request for a
//! wake-up.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Positions count bytes since the ring was created, and never wrap.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct RingPositions {
    /// End of the last message. Stored by the writer.
    tail: CachePadded<AtomicU64>,
    /// End of the last message that was read. Stored by the reader.
    head: CachePadded<AtomicU64>,
    /// Nonzero if the reader needs no wake-up: it is awake, or a wake-up is on its way.
    is_woken: CachePadded<AtomicU32>,
}

/// Aligns to two cache lines, which processors prefetch together, so that the two sides do not share a line
/// (false sharing).
#[derive(Debug, Default)]
#[repr(C, align(128))]
struct CachePadded<T>(T);

impl RingPositions {
    /// Publishes the writer's messages up to `tail`. Returns true if the writer must wake the reader.
    #[inline]
    pub(crate) fn publish(&self, tail: u64) -> bool {
        self.tail.0.store(tail, Ordering::Release);
        self.is_woken.0.swap(1, Ordering::AcqRel) == 0
    }

    /// Requests a wake-up for the reader at the next message. The reader clears the last wake-up before this
    /// call, and polls the ring once more after it.
    #[inline]
    pub(crate) fn request_wake_up(&self) {
        self.is_woken.0.swap(0, Ordering::AcqRel);
    }

    /// Returns the end of the last message.
    #[inline]
    pub(crate) fn tail(&self) -> u64 {
        self.tail.0.load(Ordering::Acquire)
    }

    /// Returns the end of the last message that was read.
    #[inline]
    pub(crate) fn head(&self) -> u64 {
        self.head.0.load(Ordering::Acquire)
    }

    /// Releases the bytes before `head` to the writer.
    #[inline]
    pub(crate) fn free(&self, head: u64) {
        self.head.0.store(head, Ordering::Release);
    }
}
