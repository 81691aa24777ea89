//! Closes contexts: `ibv_close_device`.
//!
//! When a program closes a device's file, the kernel destroys what the program has left there: no peer reaches its memory any
//! more. So does this library with queue pairs, memory windows and regions. What else a context leaves keeps the device open.

use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::context::Context;
use crate::errno::status;
use crate::header::ibv_context;
use crate::memory_region::deregister_left;
use crate::memory_window::destroy_left_windows;
use crate::queue_pair::destroy_left_qps;
use crate::retired;

/// Closed contexts whose objects still exist. Boxed: their objects' structures point to them.
#[allow(clippy::vec_box)]
struct Closed {
    /// Whether an import has made contexts share objects, as descriptors of one file do: none is destroyed before the last context
    /// closes.
    is_shared: bool,
    contexts: Vec<Box<Context>>,
}

static CLOSED: Mutex<Closed> = Mutex::new(Closed { is_shared: false, contexts: Vec::new() });

fn closed() -> MutexGuard<'static, Closed> {
    CLOSED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes all open contexts share their objects.
pub(crate) fn share_objects() {
    closed().is_shared = true;
}

/// Adds a closed context. Returns those whose objects no open context shares.
#[allow(clippy::vec_box)]
fn add(context: Box<Context>) -> Vec<Box<Context>> {
    let mut closed = closed();
    closed.contexts.push(context);
    if closed.is_shared && Context::is_any_open() {
        return Vec::new();
    }
    closed.is_shared = false;
    std::mem::take(&mut closed.contexts)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    // SAFETY: `known` finds an open context, which the program does not use after this call.
    let taken = unsafe { Context::known(context).map(|_| Context::take_back(context)) };
    status(taken.map(|context| {
        for context in add(context) {
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
