//! Protection domains: `ibv_alloc_pd`, `ibv_dealloc_pd`.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::Arc;

use nichrome_rdma::{Device, DomainHandle};

use crate::adapter::Adapter;
use crate::context::Context;
use crate::errno::{Errno, pointer, status};
use crate::header::{ibv_context, ibv_pd};
use crate::object::{Object, cell, known, reclaim};
use crate::users::Users;

/// A protection domain.
#[repr(C)]
pub(crate) struct Domain {
    abi: UnsafeCell<ibv_pd>,
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) handle: DomainHandle,
    /// The parent domains and buffers of this domain.
    pub(crate) users: Users,
    /// The parts of a parent domain; `None` for a protection domain.
    pub(crate) parts: Option<Parts>,
}

impl Domain {
    /// Returns a structure for a domain of the device.
    pub(crate) fn new(
        context: *mut ibv_context,
        adapter: &Arc<Adapter>,
        handle: DomainHandle,
        parts: Option<Parts>,
    ) -> Box<Self> {
        let abi = cell(ibv_pd { context, handle: handle.index() });
        Box::new(Self { abi, adapter: Arc::clone(adapter), handle, users: Users::default(), parts })
    }
}

/// The domains that a parent domain consists of; they cannot be destroyed before it.
pub(crate) struct Parts {
    pub(crate) _domain: Users,
    pub(crate) _thread: Option<Users>,
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
    pointer(unsafe { Context::known(context) }.and_then(|opened| {
        let adapter = Arc::clone(opened.adapter());
        let handle = adapter.driver().call(Device::create_domain)?;
        Ok(Domain::new(context, &adapter, handle, None).into_abi())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: the program passes a domain that it created.
    let this = match unsafe { known::<Domain>(pd) } {
        Ok(this) => this,
        Err(errno) => return status(Err(errno)),
    };
    let destroyed = match this.parts {
        _ if !this.users.are_none() => Err(Errno::BUSY),
        Some(_) => Ok(()),
        None => this.adapter.driver().call(|device| device.destroy_domain(this.handle)).map_err(Errno::from),
    };
    if destroyed.is_ok() {
        // SAFETY: the program does not use it after this call.
        drop(unsafe { reclaim::<Domain>(pd) });
    }
    status(destroyed)
}
