//! Opens contexts: `ibv_open_device`.

use std::ffi::c_int;
use std::sync::Arc;

use crate::adapter::Adapter;
use crate::command_file::command_fd;
use crate::context::Context;
use crate::doctor::record;
use crate::errno::{Errno, pointer};
use crate::event_queue::EventQueue;
use crate::fork::prepare_for_forks;
use crate::header::{VERBS_ABI_IS_EXTENDED, ibv_context, ibv_device, verbs_context};
use crate::{
    bind_mw, create_cq, create_qp, memory_region, memory_window, parent_domain, poll_cq, port, post,
    query_device, shared_receive_queue, unsupported, xrc_domain,
};

/// Returns a context's function table; operations that it does not set return `EOPNOTSUPP`.
fn operations(device: *mut ibv_device, async_fd: c_int) -> verbs_context {
    let mut table = unsupported::TABLE;
    table.query_port = Some(port::query_port);
    table.advise_mr = Some(memory_region::advise_mr);
    table.alloc_parent_domain = Some(parent_domain::alloc_parent_domain);
    table.dealloc_td = Some(parent_domain::dealloc_td);
    table.alloc_td = Some(parent_domain::alloc_td);
    table.modify_cq = Some(create_cq::modify_cq);
    table.query_rt_values = Some(query_device::query_rt_values);
    table.create_cq_ex = Some(create_cq::create_cq_ex);
    table.query_device_ex = Some(query_device::query_device_ex);
    table.create_qp_ex = Some(create_qp::create_qp_ex);
    table.open_qp = Some(create_qp::open_qp);
    table.get_srq_num = Some(shared_receive_queue::get_srq_num);
    table.create_srq_ex = Some(shared_receive_queue::create_srq_ex);
    table.open_xrcd = Some(xrc_domain::open_xrcd);
    table.close_xrcd = Some(xrc_domain::close_xrcd);
    let context = &mut table.context;
    context.ops.alloc_mw = Some(memory_window::alloc_mw);
    context.ops.bind_mw = Some(bind_mw::bind_mw);
    context.ops.dealloc_mw = Some(memory_window::dealloc_mw);
    context.ops.poll_cq = Some(poll_cq::poll_cq);
    context.ops.req_notify_cq = Some(poll_cq::req_notify_cq);
    context.ops.post_srq_recv = Some(post::post_srq_recv);
    context.ops.post_send = Some(post::post_send);
    context.ops.post_recv = Some(post::post_recv);
    (context.device, context.cmd_fd, context.async_fd) = (device, command_fd(), async_fd);
    (context.num_comp_vectors, context.abi_compat) = (1, VERBS_ABI_IS_EXTENDED);
    table
}

pub(crate) fn open(device: *mut ibv_device) -> Result<*mut ibv_context, Errno> {
    prepare_for_forks();
    let adapter = Adapter::open()?;
    let async_events = Arc::new(EventQueue::new()?);
    let operations = operations(device, async_events.fd());
    Ok(Context::into_abi(operations, adapter, async_events))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    pointer(open(device).inspect(|_| record("ibv_open_device")))
}
