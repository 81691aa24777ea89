//! The common budget of bytes for the clients' copies of their servers' queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes that are left for all connections of a device.
#[derive(Clone, Debug)]
pub(super) struct MirrorPool(Arc<AtomicUsize>);

/// The bytes that one connection has taken, which it gives back when it ends.
#[derive(Debug)]
pub(super) struct PoolShare {
    pool: MirrorPool,
    bytes: usize,
}

impl MirrorPool {
    pub(super) fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// Returns the share of a connection, which has taken nothing yet.
    pub(super) fn share(&self) -> PoolShare {
        PoolShare { pool: self.clone(), bytes: 0 }
    }
}

impl PoolShare {
    /// Grows the share to `bytes`. Returns false if the connection would then have more than it leaves to all
    /// others: so a few servers cannot take everything.
    pub(super) fn grow_to(&mut self, bytes: usize) -> bool {
        let Some(more) = bytes.checked_sub(self.bytes).filter(|more| *more > 0) else { return true };
        let take = |left: usize| left.checked_sub(more).filter(|left| bytes <= *left);
        let is_taken = self.pool.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
        if is_taken {
            self.bytes = bytes;
        }
        is_taken
    }

    pub(super) fn is_none(&self) -> bool {
        self.bytes == 0
    }

    pub(super) fn give_back(&mut self) {
        self.pool.0.fetch_add(std::mem::take(&mut self.bytes), Ordering::Relaxed);
    }
}

impl Drop for PoolShare {
    fn drop(&mut self) {
        self.give_back();
    }
}
