//! Shared receive queues: `ibv_create_srq`, `ibv_modify_srq`, `ibv_query_srq`, `ibv_destroy_srq`.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use nichrome_rdma::{CqHandle, SrqAttributes, SrqHandle, XrcHandle};

use crate::adapter::Adapter;
use crate::async_source::AsyncSource;
use crate::completion_queue::CompletionQueue;
use crate::context::Context;
use crate::domain::Domain;
use crate::errno::{Errno, pointer, status};
use crate::header::{ibv_context, ibv_pd, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex};
use crate::object::{Object, cell, known, object, reclaim, zeroed};
use crate::retired;
use crate::xrc_domain::XrcDomain;

/// A shared receive queue.
#[repr(C)]
pub(crate) struct SharedReceiveQueue {
    abi: UnsafeCell<ibv_srq>,
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) handle: SrqHandle,
    pub(crate) events: Arc<AsyncSource>,
}

// SAFETY: `repr(C)`, and the structure is the first field.
unsafe impl Object for SharedReceiveQueue {
    type Abi = ibv_srq;

    fn handle_in(abi: &ibv_srq) -> u32 {
        abi.handle
    }
}

/// Returns the queue that a request is posted to. Checks only its handle.
///
/// # Safety
/// The pointer is to a queue that the program created.
pub(crate) unsafe fn addressed<'a>(srq: *mut ibv_srq) -> Result<&'a SharedReceiveQueue, Errno> {
    // SAFETY: guaranteed by the caller.
    let (this, handle) = unsafe { (object::<SharedReceiveQueue>(srq), (*srq).handle) };
    if handle == this.handle.index() { Ok(this) } else { Err(Errno::NO_ENTRY) }
}

/// Creates a queue. For a queue of an XRC domain, `xrc` has the domain and the completion queue of the
/// receives.
unsafe fn create(
    pd: *mut ibv_pd,
    srq_context: *mut c_void,
    wanted: &mut ibv_srq_attr,
    xrc: Option<(XrcHandle, CqHandle)>,
) -> Result<*mut ibv_srq, Errno> {
    // SAFETY: the program passes a domain that it created.
    let (domain, context) = unsafe { (known::<Domain>(pd)?, (*pd).context) };
    // SAFETY: the program does not close the context during this call.
    let opened = unsafe { Context::known(context) }?;
    let adapter = Arc::clone(&domain.adapter);
    // `ibv_modify_srq` arms the limit: an empty new queue would be below any limit.
    let attributes = SrqAttributes { wrs: wanted.max_wr as usize, sges: wanted.max_sge as usize, limit: 0 };
    let handle = adapter.driver().call(|device| match xrc {
        None => device.create_srq(domain.handle, attributes),
        Some((xrc, cq)) => device.create_xrc_srq(xrc, domain.handle, cq, attributes),
    })?;
    let abi = cell(ibv_srq { context, srq_context, pd, handle: handle.index(), ..zeroed() });
    let mut place = Box::<SharedReceiveQueue>::new_uninit();
    let events = AsyncSource::new(opened.async_events(), place.as_mut_ptr());
    adapter.with_dispatcher(|dispatcher| dispatcher.srqs.insert(handle, Arc::clone(&events)));
    Ok(Box::write(place, SharedReceiveQueue { abi, adapter, handle, events }).into_abi())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_srq(pd: *mut ibv_pd, wanted: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    // SAFETY: the program passes a domain that it created, and attributes.
    pointer(unsafe { create(pd, (*wanted).srq_context, &mut (*wanted).attr, None) })
}

/// `enum ibv_srq_init_attr_mask`: type, protection domain, XRC domain, completion queue.
const MASK_TYPE: u32 = 1;
const MASK_DOMAIN: u32 = 1 << 1;
const MASK_XRC_DOMAIN: u32 = 1 << 2;
const MASK_CQ: u32 = 1 << 3;
/// `enum ibv_srq_type`.
const BASIC: c_int = 0;
const XRC: c_int = 1;

pub(crate) unsafe extern "C" fn create_srq_ex(
    _context: *mut ibv_context,
    wanted: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: the program passes attributes.
    let wanted = unsafe { &mut *wanted };
    let of_xrc = MASK_TYPE | MASK_DOMAIN | MASK_XRC_DOMAIN | MASK_CQ;
    if wanted.comp_mask & MASK_TYPE != 0 && wanted.srq_type == XRC {
        if wanted.comp_mask != of_xrc {
            return pointer(Err(Errno::INVALID));
        }
        // SAFETY: the mask promises that the objects are set.
        return pointer(unsafe {
            let found = known::<XrcDomain>(wanted.xrcd)
                .and_then(|domain| Ok((domain.handle(), known::<CompletionQueue>(wanted.cq.cast())?.handle)));
            found.and_then(|found| create(wanted.pd, wanted.srq_context, &mut wanted.attr, Some(found)))
        });
    }
    let is_basic = wanted.comp_mask & MASK_TYPE == 0 || wanted.srq_type == BASIC;
    if !is_basic || wanted.comp_mask & !(MASK_TYPE | MASK_DOMAIN) != 0 {
        return pointer(Err(Errno::UNSUPPORTED));
    }
    if wanted.comp_mask & MASK_DOMAIN == 0 {
        return pointer(Err(Errno::INVALID));
    }
    // SAFETY: the mask promises that the domain is set.
    pointer(unsafe { create(wanted.pd, wanted.srq_context, &mut wanted.attr, None) })
}

/// Writes the number by which XRC requests name a queue.
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, out: *mut u32) -> c_int {
    // SAFETY: the program passes a queue that it created.
    let found = unsafe { known::<SharedReceiveQueue>(srq) }
        .and_then(|this| Ok(this.adapter.driver().call(|device| device.srq_number(this.handle))?));
    // SAFETY: the program passes memory for a number.
    status(found.map(|number| unsafe { *out = number.value() }))
}

/// `enum ibv_srq_attr_mask`.
const MASK_SIZE: c_int = 1;
const MASK_LIMIT: c_int = 1 << 1;

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_srq(srq: *mut ibv_srq, wanted: *mut ibv_srq_attr, mask: c_int) -> c_int {
    // SAFETY: the program passes a queue that it created.
    let this = match unsafe { known::<SharedReceiveQueue>(srq) } {
        Ok(this) => this,
        Err(errno) => return status(Err(errno)),
    };
    // SAFETY: the program passes attributes.
    let wanted = unsafe { &*wanted };
    if mask & !(MASK_SIZE | MASK_LIMIT) != 0 {
        return status(Err(Errno::INVALID));
    }
    let wrs = (mask & MASK_SIZE != 0).then_some(wanted.max_wr as usize);
    let limit = (mask & MASK_LIMIT != 0).then_some(wanted.srq_limit as usize);
    status(this.adapter.driver().call(|device| device.modify_srq(this.handle, wrs, limit)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, out: *mut ibv_srq_attr) -> c_int {
    // SAFETY: the program passes a queue that it created.
    let this = match unsafe { known::<SharedReceiveQueue>(srq) } {
        Ok(this) => this,
        Err(errno) => return status(Err(errno)),
    };
    let found = this.adapter.driver().call(|device| device.query_srq(this.handle));
    status(found.map(|SrqAttributes { wrs, sges, limit }| {
        // SAFETY: the program passes memory for attributes.
        unsafe {
            *out = ibv_srq_attr { max_wr: wrs as u32, max_sge: sges as u32, srq_limit: limit as u32 };
        }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    // SAFETY: the program passes a queue that it created.
    let this = match unsafe { known::<SharedReceiveQueue>(srq) } {
        Ok(this) => this,
        Err(errno) => return status(Err(errno)),
    };
    let destroyed = this.adapter.driver().call(|device| device.destroy_srq(this.handle));
    if destroyed.is_ok() {
        this.adapter.with_dispatcher(|dispatcher| dispatcher.srqs.remove(&this.handle));
        this.events.retire();
        // SAFETY: after this call the program does not use the queue, or calls functions of the new context,
        // which only return errors. The C structure is the first field.
        unsafe {
            retired::drop_queue_and_keep_memory(reclaim::<SharedReceiveQueue>(srq), |srq| {
                (*srq.cast::<ibv_srq>()).context = retired::failing_context();
            });
        }
    }
    status(destroyed)
}
