//! Opening and closing the device.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::offset_of;
use std::sync::Arc;

use crate::adapter::Adapter;
use crate::async_event::AsyncEvents;
use crate::doctor::record;
use crate::errno::{Errno, pointer};
use crate::event_queue::EventQueue;
use crate::header::{VERBS_ABI_IS_EXTENDED, ibv_context, ibv_device, verbs_context};
use crate::object::cell;
use crate::{
    attributes, completion_queue, memory_window, port, post, queue_pair, shared_receive_queue, unsupported,
};

/// An open device.
#[repr(C)]
pub(crate) struct Context {
    abi: UnsafeCell<verbs_context>,
    adapter: Arc<Adapter>,
    async_events: Arc<AsyncEvents>,
}

impl Context {
    /// The context behind a pointer of the program, which is to the last field of its structure.
    ///
    /// # Safety
    /// `ibv_open_device` gave the pointer, and the context is open while `'a` lasts.
    pub(crate) unsafe fn of<'a>(context: *mut ibv_context) -> &'a Self {
        // SAFETY: the field is so many bytes into the structure, which is the context's first field.
        unsafe { &*Self::start(context) }
    }

    /// Where the context of a pointer begins.
    unsafe fn start(context: *mut ibv_context) -> *mut Self {
        // SAFETY: as the caller says, the pointer is to this field of a whole `Context`.
        unsafe { context.byte_sub(offset_of!(verbs_context, context)).cast() }
    }

    pub(crate) fn adapter(&self) -> &Arc<Adapter> {
        &self.adapter
    }

    pub(crate) fn async_events(&self) -> &Arc<AsyncEvents> {
        &self.async_events
    }
}

/// What inline functions of the header find; what is not here answers that it is not supported.
fn operations(device: *mut ibv_device, async_fd: c_int) -> verbs_context {
    let mut table = unsupported::TABLE;
    table.query_port = Some(port::query_port);
    table.modify_cq = Some(completion_queue::modify_cq);
    table.query_rt_values = Some(attributes::query_rt_values);
    table.create_cq_ex = Some(completion_queue::create_cq_ex);
    table.query_device_ex = Some(attributes::query_device_ex);
    table.create_qp_ex = Some(queue_pair::create_qp_ex);
    table.create_srq_ex = Some(shared_receive_queue::create_srq_ex);
    let context = &mut table.context;
    context.ops.alloc_mw = Some(memory_window::alloc_mw);
    context.ops.bind_mw = Some(memory_window::bind_mw);
    context.ops.dealloc_mw = Some(memory_window::dealloc_mw);
    context.ops.poll_cq = Some(completion_queue::poll_cq);
    context.ops.req_notify_cq = Some(completion_queue::req_notify_cq);
    context.ops.post_srq_recv = Some(post::post_srq_recv);
    context.ops.post_send = Some(post::post_send);
    context.ops.post_recv = Some(post::post_recv);
    (context.device, context.cmd_fd, context.async_fd) = (device, -1, async_fd);
    (context.num_comp_vectors, context.abi_compat) = (1, VERBS_ABI_IS_EXTENDED);
    table
}

fn open(device: *mut ibv_device) -> Result<*mut ibv_context, Errno> {
    let adapter = Adapter::open()?;
    let async_events = Arc::new(EventQueue::new()?);
    let abi = cell(operations(device, async_events.fd()));
    let opened = Box::into_raw(Box::new(Context { abi, adapter, async_events }));
    // SAFETY: the field is inside of what was made just now.
    Ok(unsafe { opened.byte_add(offset_of!(verbs_context, context)) }.cast())
}

#[unsafe(no_mangle)]
extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    pointer(open(device).inspect(|_| record("ibv_open_device")))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    // SAFETY: the program passes an open context, and does not use it any more.
    drop(unsafe { Box::from_raw(Context::start(context)) });
    0
}
