//! Creates and destroys queue pairs.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use nichrome_rdma::{QpConfig, QpHandle, QpType, Signaling, XrcHandle};

use crate::adapter::Adapter;
use crate::async_source::{AsyncSource, AsyncSources};
use crate::cancellation::Uncancelled;
use crate::completion_queue::CompletionQueue;
use crate::context::Context;
use crate::doctor::record;
use crate::domain::Domain;
use crate::errno::{Errno, pointer, status};
use crate::extended_post;
use crate::header::{
    ibv_context, ibv_cq, ibv_pd, ibv_qp, ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex,
    ibv_qp_open_attr, ibv_sge, ibv_srq, ibv_xrcd,
};
use crate::object::{Object, cell, find, known, object, reclaim, zeroed};
use crate::queue_pair::{Flush, QueuePair, capacities, capacity, kind, type_code};
use crate::request_builder::Builder;
use crate::retired;
use crate::shared_qp::SharedQp;
use crate::shared_receive_queue::SharedReceiveQueue;
use crate::xrc_domain::XrcDomain;

/// Attributes of a new queue pair, common to both verbs.
#[derive(Clone, Copy)]
struct InitAttributes {
    pd: *mut ibv_pd,
    qp_context: *mut c_void,
    send_cq: *mut ibv_cq,
    recv_cq: *mut ibv_cq,
    srq: *mut ibv_srq,
    cap: ibv_qp_cap,
    qp_type: c_int,
    sq_sig_all: c_int,
}

unsafe fn config(init: &InitAttributes) -> Result<QpConfig, Errno> {
    let mut capacity = capacity(&init.cap);
    // At least as many inline bytes as the request's scatter-gather list occupies, as on rxe: some programs
    // send a few bytes inline without having asked for the capacity.
    capacity.inline = capacity.inline.max(capacity.send_sges * size_of::<ibv_sge>());
    let kind = kind(init.qp_type)?;
    if !init.srq.is_null() || kind == QpType::XrcSend {
        (capacity.receive_wrs, capacity.receive_sges) = (0, 0);
    }
    // SAFETY: the program passes objects that it created.
    unsafe {
        Ok(QpConfig {
            kind,
            domain: known::<Domain>(init.pd)?.handle,
            send_cq: known::<CompletionQueue>(init.send_cq.cast())?.handle,
            // An XRC initiator receives nothing, so the program may pass no receive CQ.
            receive_cq: match (kind, init.recv_cq.is_null()) {
                (QpType::XrcSend, true) => known::<CompletionQueue>(init.send_cq.cast())?.handle,
                _ => known::<CompletionQueue>(init.recv_cq.cast())?.handle,
            },
            srq: match init.srq.is_null() {
                true => None,
                false => Some(known::<SharedReceiveQueue>(init.srq)?.handle),
            },
            capacity,
            signaling: if init.sq_sig_all == 0 { Signaling::Requested } else { Signaling::All },
        })
    }
}

/// Creates a queue pair, and writes its capacities to `init`.
unsafe fn create(init: &mut InitAttributes, builder: Option<Builder>) -> Result<*mut ibv_qp, Errno> {
    record("ibv_create_qp");
    // SAFETY: guaranteed by the caller.
    let config = unsafe { config(init) }?;
    let InitAttributes { pd, qp_context, send_cq, recv_cq, srq, qp_type, .. } = *init;
    // SAFETY: the program passes a domain that it created.
    let (domain, context) = unsafe { (object::<Domain>(pd), (*pd).context) };
    // SAFETY: the program does not close the context during this call.
    let opened = unsafe { Context::known(context) }?;
    let adapter = Arc::clone(&domain.adapter);
    let handle = adapter.driver().call(|device| device.create_qp(config))?;
    init.cap = capacities(&config.capacity);
    let mut abi: ibv_qp_ex = zeroed();
    abi.qp_base = ibv_qp { context, qp_context, pd, send_cq, recv_cq, srq, qp_type, ..abi.qp_base };
    finish(opened, abi, (adapter, handle), None, builder)
}

/// Creates an XRC target (`IBV_QPT_XRC_RECV`) in an XRC domain.
unsafe fn create_target(xrcd: *mut ibv_xrcd, qp_context: *mut c_void) -> Result<*mut ibv_qp, Errno> {
    record("ibv_create_qp");
    // SAFETY: the program passes a domain that it opened.
    let (domain, context) = unsafe { (known::<XrcDomain>(xrcd)?, (*xrcd).context) };
    // SAFETY: the program does not close the context during this call.
    let opened = unsafe { Context::known(context) }?;
    let (adapter, xrc) = (Arc::clone(domain.adapter()), domain.handle());
    let handle = adapter.driver().call(|device| device.create_xrc_target(xrc))?;
    let mut abi: ibv_qp_ex = zeroed();
    let qp_type = type_code(QpType::XrcReceive);
    abi.qp_base = ibv_qp { context, qp_context, qp_type, ..abi.qp_base };
    finish(opened, abi, (adapter, handle), Some(xrc), None)
}

/// Sets the queue pair number in a structure whose other fields are set, and creates the program's object
/// from it.
fn finish(
    opened: &Context,
    mut abi: ibv_qp_ex,
    (adapter, handle): (Arc<Adapter>, QpHandle),
    xrc: Option<XrcHandle>,
    builder: Option<Builder>,
) -> Result<*mut ibv_qp, Errno> {
    let number = adapter.driver().call(|device| device.qp_number(handle))?.value();
    (abi.qp_base.handle, abi.qp_base.qp_num) = (number, number);
    if builder.is_some() {
        extended_post::fill(&mut abi);
    }
    let mut place = Box::<QueuePair>::new_uninit();
    let events = AsyncSource::new(opened.async_events(), place.as_mut_ptr());
    let sources = Arc::new(AsyncSources::default());
    adapter.with_dispatcher(|dispatcher| {
        sources.add(&events);
        dispatcher.qps.insert(handle, Arc::clone(&sources));
    });
    let wr_flush = builder.is_some().then_some(extended_post::flush as Flush);
    let builder = builder.map(UnsafeCell::new);
    let (abi, shared) = (cell(abi), Arc::new(SharedQp::new()));
    let made = QueuePair { abi, wr_flush, adapter, handle, events, sources, shared, xrc, builder };
    Ok(Box::write(place, made).into_abi().cast())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, attributes: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: the program passes attributes.
    let ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all } =
        unsafe { *attributes };
    let mut init = InitAttributes { pd, qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all };
    // SAFETY: the attributes name objects that the program created, and may be written.
    pointer(unsafe { create(&mut init, None).inspect(|_| (*attributes).cap = init.cap) })
}

/// `enum ibv_qp_init_attr_mask`: protection domain, XRC domain, creation flags, operations of extended
/// posting.
const MASK_DOMAIN: u32 = 1;
const MASK_XRC_DOMAIN: u32 = 1 << 1;
const MASK_FLAGS: u32 = 1 << 2;
const MASK_SEND_OPERATIONS: u32 = 1 << 6;

pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attributes: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the program passes attributes.
    let all = unsafe { &mut *attributes };
    let has = |mask| all.comp_mask & mask != 0;
    if kind(all.qp_type) == Ok(QpType::XrcReceive) {
        if !has(MASK_XRC_DOMAIN) {
            return pointer(Err(Errno::INVALID));
        }
        // SAFETY: the mask promises that the XRC domain is set.
        return pointer(unsafe { create_target(all.xrcd, all.qp_context) });
    }
    let has_others = has(!(MASK_DOMAIN | MASK_FLAGS | MASK_SEND_OPERATIONS));
    if has_others || has(MASK_FLAGS) && all.create_flags != 0 {
        return pointer(Err(Errno::UNSUPPORTED));
    }
    if !has(MASK_DOMAIN) {
        return pointer(Err(Errno::INVALID));
    }
    let has_builder = has(MASK_SEND_OPERATIONS);
    // SAFETY: the program passes an open context.
    let transport = match unsafe { Context::known(context) } {
        Ok(opened) => opened.adapter().driver().transport(),
        Err(errno) => return pointer(Err(errno)),
    };
    let supported = kind(all.qp_type).map(|kind| extended_post::supported_operations(transport, kind));
    if has_builder && supported.is_ok_and(|supported| all.send_ops_flags & !supported != 0) {
        return pointer(Err(Errno::UNSUPPORTED));
    }
    let ibv_qp_init_attr_ex { pd, qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all, .. } = *all;
    let mut init = InitAttributes { pd, qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all };
    // SAFETY: the attributes name objects that the program created.
    pointer(unsafe { create(&mut init, has_builder.then(Builder::default)) }.inspect(|_| all.cap = init.cap))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    // The device leaves the queue pair's multicast groups and closes their sockets; close(2) is a
    // cancellation point.
    let _uncancelled = Uncancelled::begin();
    // SAFETY: the program passes a queue pair that it created.
    let this = match unsafe { known::<QueuePair>(qp.cast()) } {
        Ok(this) => this,
        Err(errno) => return status(Err(errno)),
    };
    let is_last = this.shared.remove_structure();
    let destroyed = match is_last {
        true => this.adapter.driver().destroy_qp(this.handle).inspect_err(|_| this.shared.undo_removal()),
        false => Ok(()),
    };
    if destroyed.is_ok() {
        this.end_events(is_last);
        this.events.retire();
        // SAFETY: after this call the program does not use the queue pair, or calls functions that
        // `install_failing_operations` has installed, which only return errors.
        unsafe {
            retired::drop_queue_and_keep_memory(reclaim::<QueuePair>(qp.cast()), |qp| {
                QueuePair::install_failing_operations(qp);
            });
        };
    }
    status(destroyed)
}

/// `enum ibv_qp_open_attr_mask`: number, XRC domain, context, type.
const OPEN_REQUIRED: u32 = 1 | 1 << 1 | 1 << 3;
const OPEN_CONTEXT: u32 = 1 << 2;

/// Returns another `ibv_qp` structure for an XRC target of this process.
unsafe fn open_target(attributes: &ibv_qp_open_attr) -> Result<*mut ibv_qp, Errno> {
    let ibv_qp_open_attr { comp_mask, qp_num, xrcd, qp_context, qp_type } = *attributes;
    let is_target = kind(qp_type) == Ok(QpType::XrcReceive);
    if comp_mask & !OPEN_CONTEXT != OPEN_REQUIRED || !is_target {
        return Err(Errno::INVALID);
    }
    // SAFETY: the program passes a domain that it opened.
    let (domain, context) = unsafe { (known::<XrcDomain>(xrcd)?, (*xrcd).context) };
    // SAFETY: the program does not close the context during this call.
    let opened = unsafe { Context::known(context) }?;
    let (adapter, xrc) = (Arc::clone(domain.adapter()), Some(domain.handle()));
    // Another thread may destroy the found structure, but not the queue pair once `add_structure` has counted
    // the new structure.
    let found = find(qp_num, |qp: &QueuePair| {
        let is_target = qp.xrc == xrc && Arc::ptr_eq(&qp.adapter, &adapter) && qp.shared.add_structure();
        is_target.then(|| (qp.handle, Arc::clone(&qp.sources), Arc::clone(&qp.shared)))
    });
    let (handle, sources, shared) = found.ok_or(Errno::INVALID)?;
    let mut abi: ibv_qp_ex = zeroed();
    abi.qp_base = ibv_qp { context, qp_type, handle: qp_num, qp_num, ..abi.qp_base };
    abi.qp_base.qp_context = if comp_mask & OPEN_CONTEXT != 0 { qp_context } else { ptr::null_mut() };
    let mut place = Box::<QueuePair>::new_uninit();
    let events = AsyncSource::new(opened.async_events(), place.as_mut_ptr());
    let (of_adapter, of_target, source) = (Arc::clone(&adapter), Arc::clone(&sources), Arc::clone(&events));
    let (abi, builder) = (cell(abi), None);
    let made = QueuePair { abi, wr_flush: None, adapter, handle, events, sources, shared, xrc, builder };
    let abi = Box::write(place, made).into_abi();
    // Only now: an event points to the structure, and `ibv_ack_async_event` looks the structure up.
    of_adapter.with_dispatcher(|_| of_target.add(&source));
    Ok(abi.cast())
}

pub(crate) unsafe extern "C" fn open_qp(
    _context: *mut ibv_context,
    attributes: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    // SAFETY: the program passes attributes.
    pointer(unsafe { open_target(&*attributes) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: the program passes a queue pair that it created.
    let has_builder = unsafe { known::<QueuePair>(qp.cast()) }.is_ok_and(|qp| qp.builder.is_some());
    if has_builder { qp.cast() } else { ptr::null_mut() }
}

/// Returns 0: the device does not guarantee that a message's bytes arrive in order.
#[unsafe(no_mangle)]
extern "C" fn ibv_query_qp_data_in_order(_qp: *mut ibv_qp, _opcode: c_int, _flags: u32) -> c_int {
    0
}
