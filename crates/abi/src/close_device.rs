//! Closes contexts: `ibv_close_device`.
//!
//! When a program closes a device's file, the kernel destroys the objects that the program left open, so that
//! no peer can access its memory any more. This library destroys the context's queue pairs, memory windows
//! and regions. Other objects that the program left open (CQs, PDs) keep the device open.

use std::ffi::c_int;

use crate::cancellation::Uncancelled;
use crate::context::Context;
use crate::errno::status;
use crate::header::ibv_context;
use crate::memory_region::deregister_regions_of;
use crate::memory_window::destroy_windows_of;
use crate::queue_pair::destroy_qps_of;
use crate::retired;
use crate::sharing::close;

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    let _uncancelled = Uncancelled::begin();
    // SAFETY: `known` finds an open context, which the program does not use after this call.
    let taken = unsafe { Context::known(context).map(|_| Context::reclaim(context)) };
    status(taken.map(|context| {
        for context in close(context) {
            let address = context.address();
            destroy_qps_of(address);
            // A region is in use while a window is bound to it.
            destroy_windows_of(address);
            deregister_regions_of(address);
            retired::drop_and_keep_memory(context);
        }
    }))
}
