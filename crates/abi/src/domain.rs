//! Protection domains: `ibv_alloc_pd`, `ibv_dealloc_pd`.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::Arc;

use nichrome_rdma::{Device, DomainHandle};

use crate::adapter::Adapter;
use crate::context::Context;
use crate::errno::{Errno, pointer, status};
use crate::header::{ibv_context, ibv_pd};
use crate::object::{Object, cell, known, take_back};

/// A protection domain.
#[repr(C)]
pub(crate) struct Domain {
    abi: UnsafeCell<ibv_pd>,
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) handle: DomainHandle,
}

// SAFETY: `repr(C)`, and the structure is the first field.
unsafe impl Object for Domain {
    type Abi = ibv_pd;

    fn handle_in(abi: &ibv_pd) -> u32 {
        abi.handle
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: the program passes an open context.
    let adapter = Arc::clone(unsafe { Context::of(context) }.adapter());
    let made = adapter.driver.call(Device::create_domain).map_err(Errno::from);
    pointer(made.map(|handle| {
        let abi = cell(ibv_pd { context, handle: handle.index() });
        Box::new(Domain { abi, adapter, handle }).into_abi()
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: the program passes a domain that it created.
    let this = match unsafe { known::<Domain>(pd) } {
        Ok(this) => this,
        Err(errno) => return status(Err(errno)),
    };
    let destroyed = this.adapter.driver.call(|device| device.destroy_domain(this.handle));
    if destroyed.is_ok() {
        // SAFETY: the program does not use it after this call.
        drop(unsafe { take_back::<Domain>(pd) });
    }
    status(destroyed)
}
