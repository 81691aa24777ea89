//! Contexts that share objects, as descriptors of one file do: none with left objects is destroyed before the
//! last of them closes.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::context::Context;
use crate::live_objects;

#[allow(clippy::vec_box)]
struct Shared {
    /// Addresses of the open ones.
    open: BTreeSet<usize>,
    /// The closed ones that have left objects. Boxed: their objects' structures point to them.
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

/// Closes a context. Returns those whose objects no open context shares.
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
