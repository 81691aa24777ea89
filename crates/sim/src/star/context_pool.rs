//! Contexts of a card that are taken on demand.

/// Contexts of a card that connections take on demand.
#[derive(Clone, Copy, Debug)]
pub(super) struct ContextPool {
    capacity: usize,
    taken: usize,
}

impl ContextPool {
    /// Creates a pool of `capacity` free contexts.
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, taken: 0 }
    }

    /// Takes a context; returns false if none is free.
    pub(super) fn take(&mut self) -> bool {
        let is_free = self.taken < self.capacity;
        self.taken += usize::from(is_free);
        is_free
    }

    /// Frees a context.
    pub(super) fn release(&mut self) {
        self.taken -= 1;
    }
}
