//! Counts the users of an object, which cannot be destroyed while it has any.

use std::sync::Arc;

/// Counts the users of an object: each holds a clone.
#[derive(Clone, Default)]
pub(crate) struct Users(Arc<()>);

impl Users {
    pub(crate) fn are_none(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}
