//! What the two sides of a ring in shared memory tell each other: positions, and whether the reader must be woken.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Positions count bytes and never wrap.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct RingPositions {
    /// The end of the last message; stored by the writer.
    tail: OnLineOfItsOwn<AtomicU64>,
    /// The end of what is read; stored by the reader.
    head: OnLineOfItsOwn<AtomicU64>,
    /// Not 0 if the writer has woken the reader, which has not gone to rest since.
    is_woken: OnLineOfItsOwn<AtomicU32>,
}

/// Two lines of the cache: processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(C, align(128))]
struct OnLineOfItsOwn<T>(T);

impl RingPositions {
    /// The writer publishes messages up to `tail`; returns true if it must wake the reader.
    #[inline]
    pub(crate) fn publish(&self, tail: u64) -> bool {
        self.tail.0.store(tail, Ordering::Release);
        self.is_woken.0.swap(1, Ordering::AcqRel) == 0
    }

    /// The reader will sleep: the next message wakes it. It must clear its wake-up before this, and look for messages once more after it.
    #[inline]
    pub(crate) fn rest(&self) {
        self.is_woken.0.swap(0, Ordering::AcqRel);
    }

    /// The end of the last message.
    #[inline]
    pub(crate) fn tail(&self) -> u64 {
        self.tail.0.load(Ordering::Acquire)
    }

    /// The end of what is read.
    #[inline]
    pub(crate) fn head(&self) -> u64 {
        self.head.0.load(Ordering::Acquire)
    }

    /// The reader has read up to `head`: the writer may overwrite it.
    #[inline]
    pub(crate) fn free(&self, head: u64) {
        self.head.0.store(head, Ordering::Release);
    }
}
