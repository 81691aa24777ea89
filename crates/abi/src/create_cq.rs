//! Creates, resizes, moderates and destroys completion queues.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use nichrome_rdma::Moderation;

use crate::async_source::AsyncSource;
use crate::comp_channel::CompChannel;
use crate::completion::ServiceLevel;
use crate::completion_queue::CompletionQueue;
use crate::context::Context;
use crate::cq_notifier::CqNotifier;
use crate::errno::{Errno, pointer, status};
use crate::extended_poll;
use crate::header::{
    ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_modify_cq_attr,
};
use crate::object::{Object, cell, known, reclaim, zeroed};
use crate::retired;

/// Attributes of a new completion queue, common to both verbs.
struct InitAttributes {
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
}

unsafe fn create(init: &InitAttributes) -> Result<*mut ibv_cq_ex, Errno> {
    let InitAttributes { context, cqe, cq_context, channel, comp_vector } = *init;
    // SAFETY: the program passes an open context.
    let opened = unsafe { Context::known(context) }?;
    let capacity = usize::try_from(cqe).map_err(|_| Errno::INVALID)?;
    if comp_vector != 0 {
        return Err(Errno::INVALID);
    }
    let adapter = Arc::clone(opened.adapter());
    // SAFETY: the program passes a channel that it created, or a null pointer.
    let comp_channel = unsafe { if channel.is_null() { None } else { Some(known::<CompChannel>(channel)?) } };
    let handle = adapter.driver().call(|device| device.create_cq(capacity))?;
    let mut abi: ibv_cq_ex = zeroed();
    (abi.context, abi.channel, abi.cq_context, abi.cqe) = (context, channel, cq_context, cqe);
    abi.handle = handle.index();
    extended_poll::fill(&mut abi);
    let mut place = Box::<CompletionQueue>::new_uninit();
    let cq = place.as_mut_ptr().cast::<ibv_cq_ex>();
    let asynchronous = AsyncSource::new(opened.async_events(), cq);
    let events =
        CqNotifier::new(comp_channel.map(|channel| Arc::clone(&channel.events)), asynchronous, cq.cast());
    adapter.with_dispatcher(|dispatcher| dispatcher.cqs.insert(handle, Arc::clone(&events)));
    let channel = comp_channel.map(|channel| channel.users.clone());
    let service_level = ServiceLevel::at(adapter.address());
    let (abi, polled) = (cell(abi), UnsafeCell::new(None));
    let queue = CompletionQueue { abi, adapter, handle, events, _channel: channel, service_level, polled };
    Ok(Box::write(place, queue).into_abi())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    let init = InitAttributes { context, cqe, cq_context, channel, comp_vector };
    // SAFETY: the program passes an open context, and a channel that it created or a null pointer.
    pointer(unsafe { create(&init) }).cast()
}

/// `enum ibv_cq_init_attr_mask`: flags.
const MASK_FLAGS: u32 = 1;
/// `IBV_CREATE_CQ_ATTR_SINGLE_THREADED`, the only supported flag. It has no effect: polls lock the queue in
/// any case.
const SINGLE_THREADED: u32 = 1;

pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attributes: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: the program passes attributes.
    let attributes = unsafe { &*attributes };
    let has_flags = attributes.comp_mask & MASK_FLAGS != 0 && attributes.flags & !SINGLE_THREADED != 0;
    if has_flags || attributes.wc_flags & !extended_poll::SUPPORTED_FIELDS != 0 {
        return pointer(Err(Errno::UNSUPPORTED));
    }
    let init = InitAttributes {
        context,
        cqe: attributes.cqe as c_int,
        cq_context: attributes.cq_context,
        channel: attributes.channel,
        comp_vector: attributes.comp_vector as c_int,
    };
    // SAFETY: the program passes an open context, and a channel that it created or a null pointer.
    pointer(unsafe { create(&init) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: the program passes a queue that it created.
    let this = match unsafe { known::<CompletionQueue>(cq.cast()) } {
        Ok(this) => this,
        Err(errno) => return status(Err(errno)),
    };
    let destroyed = this.adapter.driver().call(|device| device.destroy_cq(this.handle));
    if destroyed.is_ok() {
        this.adapter.with_dispatcher(|dispatcher| dispatcher.cqs.remove(&this.handle));
        this.end_wait();
        CqNotifier::retire(&this.events);
        // SAFETY: after this call the program does not use the queue, or calls functions that
        // `install_failing_operations` has installed, which only return errors.
        unsafe {
            retired::drop_queue_and_keep_memory(reclaim::<CompletionQueue>(cq.cast()), |cq| {
                CompletionQueue::install_failing_operations(cq);
            });
        };
    }
    status(destroyed)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    // SAFETY: the program passes a queue that it created.
    let this = match unsafe { known::<CompletionQueue>(cq.cast()) } {
        Ok(this) => this,
        Err(errno) => return status(Err(errno)),
    };
    let Ok(capacity) = usize::try_from(cqe) else { return status(Err(Errno::INVALID)) };
    let resized = this.adapter.driver().call(|device| device.resize_cq(this.handle, capacity));
    if resized.is_ok() {
        // SAFETY: the program does not read the size during this call.
        unsafe { (*cq).cqe = cqe };
    }
    status(resized)
}

/// `enum ibv_cq_attr_mask`: the event moderation.
const IBV_CQ_ATTR_MODERATE: u32 = 1;

pub(crate) unsafe extern "C" fn modify_cq(cq: *mut ibv_cq, attributes: *mut ibv_modify_cq_attr) -> c_int {
    // SAFETY: the program passes a queue that it created.
    let this = match unsafe { known::<CompletionQueue>(cq.cast()) } {
        Ok(this) => this,
        Err(errno) => return status(Err(errno)),
    };
    // SAFETY: the program passes attributes.
    let attributes = unsafe { &*attributes };
    if attributes.attr_mask & !IBV_CQ_ATTR_MODERATE != 0 {
        return status(Err(Errno::INVALID));
    }
    if attributes.attr_mask == 0 {
        return 0;
    }
    let moderate = attributes.moderate;
    let moderation = Moderation { count: moderate.cq_count, period_us: moderate.cq_period };
    status(this.adapter.driver().call(|device| device.moderate_cq(this.handle, moderation)))
}
