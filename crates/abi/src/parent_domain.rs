//! Thread domains, and parent domains, which combine a protection domain with a thread domain.
//!
//! Both tell a driver how it may lock and allocate its queues. Here every verb locks the device and no queue
//! is in the program's memory: a parent domain is its protection domain under another pointer, and its
//! allocators are not called.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};

use crate::domain::{Domain, Parts};
use crate::errno::{Errno, pointer, status};
use crate::header::{ibv_context, ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr};
use crate::object::{Object, cell, known, reclaim};
use crate::users::Users;

/// A thread domain.
#[repr(C)]
struct ThreadDomain {
    abi: UnsafeCell<ibv_td>,
    users: Users,
}

// SAFETY: `repr(C)`, and the structure is the first field.
unsafe impl Object for ThreadDomain {
    type Abi = ibv_td;

    fn handle_in(_: &ibv_td) -> u32 {
        0
    }
}

pub(crate) unsafe extern "C" fn alloc_td(context: *mut ibv_context, attributes: *mut c_void) -> *mut c_void {
    // SAFETY: the program passes attributes.
    if unsafe { (*attributes.cast::<ibv_td_init_attr>()).comp_mask } != 0 {
        return pointer(Err(Errno::INVALID));
    }
    Box::new(ThreadDomain { abi: cell(ibv_td { context }), users: Users::default() }).into_abi().cast()
}

pub(crate) unsafe extern "C" fn dealloc_td(td: *mut c_void) -> c_int {
    // SAFETY: the program passes a thread domain that it created.
    let free = unsafe { known::<ThreadDomain>(td.cast()) }.map(|this| this.users.are_none());
    let freed = free.and_then(|free| if free { Ok(()) } else { Err(Errno::BUSY) });
    if freed.is_ok() {
        // SAFETY: the program does not use it after this call.
        drop(unsafe { reclaim::<ThreadDomain>(td.cast()) });
    }
    status(freed)
}

/// `enum ibv_parent_domain_init_attr_mask`: allocators and their context; memory that a confidential machine
/// shares.
const KNOWN: u32 = 0b111;

unsafe fn allocate(
    context: *mut ibv_context,
    attributes: &ibv_parent_domain_init_attr,
) -> Result<*mut ibv_pd, Errno> {
    if attributes.comp_mask & !KNOWN != 0 {
        return Err(Errno::INVALID);
    }
    // SAFETY: the program passes domains that it created, or no thread domain.
    let (domain, thread) = unsafe {
        let thread = match attributes.td.is_null() {
            true => None,
            false => Some(known::<ThreadDomain>(attributes.td)?.users.clone()),
        };
        (known::<Domain>(attributes.pd)?, thread)
    };
    let parts = Parts { _domain: domain.users.clone(), _thread: thread };
    Ok(Domain::new(context, &domain.adapter, domain.handle, Some(parts)).into_abi())
}

pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attributes: *mut c_void,
) -> *mut ibv_pd {
    // SAFETY: the program passes attributes.
    pointer(unsafe { allocate(context, &*attributes.cast()) })
}
