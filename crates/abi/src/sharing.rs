//! Contexts that share objects (`ibv_import_device`), as duplicate descriptors of one file do. A closed
//! context that has objects left is destroyed when the last context that shares them closes.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::context::Context;
use crate::live_objects;

#[allow(clippy::vec_box)]
struct Shared {
    /// Addresses of the open contexts.
    open: BTreeSet<usize>,
    /// The closed contexts that have objects left. Boxed: the structures of these objects point to them.
    closed: Vec<Box<Context>>,
}

static SHARED: Mutex<Shared> = Mutex::new(Shared { open: BTreeSet::new(), closed: Vec::new() });

fn shared() -> MutexGuard<'static, Shared> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The locked contexts.
pub(crate) struct Held {
    _shared: MutexGuard<'static, Shared>,
}

/// Locks the contexts until the result is dropped: for a process that is about to fork.
pub(crate) fn hold() -> Held {
    Held { _shared: shared() }
}

/// Makes all contexts that are open now share their objects.
pub(crate) fn share_objects() {
    shared().open.extend(Context::all_open());
}

/// Closes a context. Returns the closed contexts whose objects no open context shares any more.
#[allow(clippy::vec_box)]
pub(crate) fn close(context: Box<Context>) -> Vec<Box<Context>> {
    let mut shared = shared();
    let is_shared = shared.open.remove(&context.address().addr());
    let mut ended = Vec::new();
    // SAFETY: live objects begin with their C structures.
    if is_shared && unsafe { live_objects::any_of(context.address()) } {
        shared.closed.push(context);
    } else {
        ended.push(context);
    }
    if shared.open.is_empty() {
        ended.append(&mut shared.closed);
    }
    ended
}
