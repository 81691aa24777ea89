//! Memory windows: `ibv_alloc_mw`, `ibv_dealloc_mw`.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use nichrome_rdma::{WindowHandle, WindowKind};

use crate::adapter::Adapter;
use crate::domain::Domain;
use crate::errno::{Errno, pointer, status};
use crate::header::{ibv_context, ibv_mw, ibv_pd};
use crate::object::{Object, cell, known, reclaim, reclaim_where};
use crate::retired;

/// A memory window.
#[repr(C)]
pub(crate) struct MemoryWindow {
    abi: UnsafeCell<ibv_mw>,
    adapter: Arc<Adapter>,
    handle: WindowHandle,
}

// SAFETY: `repr(C)`, and the structure is the first field.
unsafe impl Object for MemoryWindow {
    type Abi = ibv_mw;

    fn handle_in(abi: &ibv_mw) -> u32 {
        abi.handle
    }
}

/// Converts `enum ibv_mw_type` to a kind of window.
fn kind(mw_type: c_int) -> Result<WindowKind, Errno> {
    match mw_type {
        1 => Ok(WindowKind::One),
        2 => Ok(WindowKind::Two),
        _ => Err(Errno::INVALID),
    }
}

unsafe fn allocate(pd: *mut ibv_pd, mw_type: c_int) -> Result<*mut ibv_mw, Errno> {
    let kind = kind(mw_type)?;
    // SAFETY: the program passes a domain that it created.
    let (domain, context) = unsafe { (known::<Domain>(pd)?, (*pd).context) };
    let adapter = Arc::clone(&domain.adapter);
    let (handle, key) = adapter.driver().call(|device| {
        let handle = device.create_window(domain.handle, kind)?;
        Ok::<_, Errno>((handle, device.window_key(handle)?.0))
    })?;
    let abi = cell(ibv_mw { context, pd, rkey: key, handle: key >> 8, type_: mw_type });
    Ok(Box::new(MemoryWindow { abi, adapter, handle }).into_abi())
}

pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, mw_type: c_int) -> *mut ibv_mw {
    // SAFETY: the program passes a domain that it created.
    pointer(unsafe { allocate(pd, mw_type) })
}

pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: the program passes a window that it created.
    let this = match unsafe { known::<MemoryWindow>(mw) } {
        Ok(this) => this,
        Err(errno) => return status(Err(errno)),
    };
    let destroyed = this.adapter.driver().call(|device| device.destroy_window(this.handle));
    if destroyed.is_ok() {
        // SAFETY: the program does not use it after this call.
        drop(unsafe { reclaim::<MemoryWindow>(mw) });
    }
    status(destroyed)
}

/// Destroys the windows that the program has left in a context that it closes.
pub(crate) fn destroy_windows_of(context: *const ibv_context) {
    // SAFETY: the program uses no object of a context that it closes.
    for window in unsafe { reclaim_where::<MemoryWindow>(|mw| ptr::eq((*mw).context, context)) } {
        // Fails only if the device has no such window.
        let _ = window.adapter.driver().call(|device| device.destroy_window(window.handle));
        retired::drop_and_keep_memory(window);
    }
}
