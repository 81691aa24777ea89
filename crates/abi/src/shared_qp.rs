//! The state that the `ibv_qp` structures of one queue pair share: `ibv_open_qp` returns further structures
//! for an XRC target.
//!
//! The queue pair is destroyed with its last structure. Threads may destroy the last two structures at the
//! same time, or open another meanwhile: the count decides which thread destroys the last.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nichrome_rdma::AddressVector;

use crate::address_handle;
use crate::header::ibv_ah_attr;
use crate::object::zeroed;

/// The part of a queue pair that is common to its structures.
pub(crate) struct SharedQp {
    /// Number of structures that are not being destroyed.
    structures: AtomicUsize,
    /// The path as the program gave it, with the fields that RoCE ignores. Locked under the device's lock
    /// only.
    path: Mutex<ibv_ah_attr>,
}

impl SharedQp {
    /// Returns the state of a queue pair with one structure.
    pub(crate) fn new() -> Self {
        Self { structures: AtomicUsize::new(1), path: Mutex::new(zeroed()) }
    }

    /// Counts one more structure. Returns false if the last one is being destroyed.
    pub(crate) fn add_structure(&self) -> bool {
        let one_more = |structures| (structures > 0).then_some(structures + 1);
        self.structures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Counts one structure fewer. Returns true if it was the last: the caller destroys the queue pair.
    pub(crate) fn remove_structure(&self) -> bool {
        self.structures.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Counts a structure again after its queue pair could not be destroyed.
    pub(crate) fn undo_removal(&self) {
        self.structures.fetch_add(1, Ordering::Relaxed);
    }

    fn path(&self) -> MutexGuard<'_, ibv_ah_attr> {
        self.path.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the path that the program has set.
    pub(crate) fn set_path(&self, given: &ibv_ah_attr) {
        *self.path() = *given;
    }

    /// Returns the attributes of the queue pair's current path, as the program gave them.
    pub(crate) fn attributes_of(&self, current: &AddressVector) -> ibv_ah_attr {
        let given = *self.path();
        match address_handle::vector(&given) {
            Ok(vector) if vector == *current => given,
            _ => address_handle::attributes(current),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn of_structures_removed_at_the_same_time_one_is_the_last_and_none_is_added_then() {
        for _ in 0..100 {
            let shared = Arc::new(SharedQp::new());
            assert!(shared.add_structure());
            let remove = |shared: Arc<SharedQp>| move || shared.remove_structure();
            let removing = [(); 2].map(|()| thread::spawn(remove(Arc::clone(&shared))));
            let last =
                removing.into_iter().filter_map(|thread| thread.join().ok()).filter(|last| *last).count();
            assert_eq!(last, 1);
            assert!(!shared.add_structure());
        }
    }

    #[test]
    fn a_structure_whose_removal_is_undone_is_counted() {
        let shared = SharedQp::new();
        assert!(shared.remove_structure());
        shared.undo_removal();
        assert!(shared.add_structure() && !shared.remove_structure() && shared.remove_structure());
    }
}
