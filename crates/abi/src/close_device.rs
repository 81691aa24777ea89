//! Closes contexts: `ibv_close_device`.
//!
//! When a program closes a device's file, the kernel destroys what the program has left there: no peer reaches its memory any
//! more. So does this library with queue pairs, memory windows and regions. What else a context leaves keeps the device open.

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::context::Context;
use crate::errno::status;
use crate::header::ibv_context;
use crate::live_objects;
use crate::memory_region::deregister_left;
use crate::memory_window::destroy_left_windows;
use crate::queue_pair::destroy_left_qps;
use crate::retired;

/// Contexts that share objects, as descriptors of one file do: none with left objects is destroyed before the last of them closes.
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

/// Makes all contexts that are open now share their objects.
pub(crate) fn share_objects() {
    shared().open.extend(Context::all_open());
}

/// Closes a context. Returns those whose objects no open context shares.
#[allow(clippy::vec_box)]
fn close(context: Box<Context>) -> Vec<Box<Context>> {
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

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    // SAFETY: `known` finds an open context, which the program does not use after this call.
    let taken = unsafe { Context::known(context).map(|_| Context::take_back(context)) };
    status(taken.map(|context| {
        for context in close(context) {
            let address = context.address();
            destroy_left_qps(address);
            // A region is in use while a window is bound to it.
            destroy_left_windows(address);
            deregister_left(address);
            // SAFETY: nothing is read.
            unsafe { retired::keep(context, drop) };
        }
    }))
}
