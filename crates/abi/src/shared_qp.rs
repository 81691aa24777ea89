//! What the structures of one queue pair share: `ibv_open_qp` returns further structures for a target of XRC.

use std::sync::{Mutex, MutexGuard, PoisonError};

use nichrome_rdma::AddressVector;

use crate::address_handle;
use crate::header::ibv_ah_attr;
use crate::object::zeroed;

/// The part of a queue pair that is common to its structures.
pub(crate) struct SharedQp {
    /// The path as the program gave it, with the fields that RoCE ignores. Locked under the device's lock only.
    path: Mutex<ibv_ah_attr>,
}

impl SharedQp {
    pub(crate) fn new() -> Self {
        Self { path: Mutex::new(zeroed()) }
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
