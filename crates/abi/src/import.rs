//! Objects of another context of the process, by their handles: `ibv_import_device` and the import verbs.
//!
//! A program passes the other context's `cmd_fd`, or a copy of that descriptor, which only this process's
//! device can have opened. An imported object is another C structure of the same device object.
//! `ibv_unimport_*` frees that structure only. A verb that destroys an object ends the device object; its
//! other structures may then only be unimported.

use std::ffi::c_int;
use std::sync::Arc;

use crate::adapter::Adapter;
use crate::command_file::is_command_file;
use crate::context::Context;
use crate::device::the_device;
use crate::domain::Domain;
use crate::errno::{Errno, pointer};
use crate::header::{ibv_context, ibv_mr, ibv_pd};
use crate::memory_region::MemoryRegion;
use crate::object::{Object, find, known, reclaim};
use crate::open_device::open;
use crate::sharing::share_objects;

#[unsafe(no_mangle)]
extern "C" fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context {
    let is_ours = Adapter::opened().is_some() && is_command_file(cmd_fd);
    if !is_ours {
        return pointer(Err(Errno::INVALID));
    }
    pointer(open(the_device()).inspect(|_| share_objects()))
}

unsafe fn import_pd(context: *mut ibv_context, handle: u32) -> Result<*mut ibv_pd, Errno> {
    // SAFETY: the program passes an open context.
    let adapter = unsafe { Context::known(context) }?.adapter();
    let of_device = |domain: &Domain| Arc::ptr_eq(adapter, &domain.adapter).then_some(domain.handle);
    let found = find(handle, of_device).ok_or(Errno::NO_ENTRY)?;
    Ok(Domain::new(context, adapter, found, None).into_abi())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_import_pd(context: *mut ibv_context, handle: u32) -> *mut ibv_pd {
    // SAFETY: the program passes an open context, and a handle of a domain that it created.
    pointer(unsafe { import_pd(context, handle) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_unimport_pd(pd: *mut ibv_pd) {
    // SAFETY: the program passes a domain that it imported, and does not use it after this call.
    unsafe {
        if known::<Domain>(pd).is_ok() {
            drop(reclaim::<Domain>(pd));
        }
    }
}

unsafe fn import_mr(pd: *mut ibv_pd, handle: u32) -> Result<*mut ibv_mr, Errno> {
    // SAFETY: the program passes a domain that it created or imported.
    let (domain, context) = unsafe { (known::<Domain>(pd)?, (*pd).context) };
    let of_device = |region: &MemoryRegion| {
        Arc::ptr_eq(&domain.adapter, region.adapter()).then(|| region.imported(pd, context))
    };
    Ok(find(handle, of_device).ok_or(Errno::NO_ENTRY)?.into_abi())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_import_mr(pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr {
    // SAFETY: the program passes a domain that it created or imported, and a handle of a region that it
    // created.
    pointer(unsafe { import_mr(pd, handle) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_unimport_mr(mr: *mut ibv_mr) {
    // SAFETY: the program passes a region that it imported, and does not use it after this call.
    unsafe {
        if known::<MemoryRegion>(mr).is_ok() {
            drop(reclaim::<MemoryRegion>(mr));
        }
    }
}
