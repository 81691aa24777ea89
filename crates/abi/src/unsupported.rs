//! Unsupported operations: functions that return `EOPNOTSUPP`, and a function table of them, which has no
//! null pointers.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use crate::errno::{Errno, pointer, status};
use crate::header::*;

/// Returns `EOPNOTSUPP`, for functions that return a status. Ignores the arguments: the C calling convention
/// allows a callee to declare fewer than it is called with.
pub(crate) extern "C" fn unsupported_status() -> c_int {
    status(Err(Errno::UNSUPPORTED))
}

/// Returns a null pointer and sets `EOPNOTSUPP`, for functions that return an object. Ignores the arguments.
pub(crate) extern "C" fn unsupported_object() -> *mut c_void {
    pointer(Err(Errno::UNSUPPORTED))
}

/// Defines unsupported functions with the types of the function table.
macro_rules! unsupported {
    ($($name:ident($($type:ty),*) -> $result:ty = $answer:expr;)*) => {$(
        unsafe extern "C" fn $name($(_: $type),*) -> $result { $answer }
    )*};
}

unsupported! {
    query_port(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int = unsupported_status();
    advise_mr(*mut ibv_pd, c_int, u32, *mut ibv_sge, u32) -> c_int = unsupported_status();
    alloc_null_mr(*mut ibv_pd) -> *mut ibv_mr = unsupported_object().cast();
    alloc_parent_domain(*mut ibv_context, *mut c_void) -> *mut ibv_pd = unsupported_object().cast();
    dealloc_td(*mut c_void) -> c_int = unsupported_status();
    alloc_td(*mut ibv_context, *mut c_void) -> *mut c_void = unsupported_object();
    modify_cq(*mut ibv_cq, *mut ibv_modify_cq_attr) -> c_int = unsupported_status();
    query_rt_values(*mut ibv_context, *mut ibv_values_ex) -> c_int = unsupported_status();
    create_cq_ex(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex = unsupported_object().cast();
    query_device_ex(*mut ibv_context, *const c_uint, *mut ibv_device_attr_ex, usize) -> c_int =
        unsupported_status();
    create_qp_ex(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp = unsupported_object().cast();
    open_qp(*mut ibv_context, *mut ibv_qp_open_attr) -> *mut ibv_qp = unsupported_object().cast();
    open_xrcd(*mut ibv_context, *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd = unsupported_object().cast();
    close_xrcd(*mut ibv_xrcd) -> c_int = unsupported_status();
    get_srq_num(*mut ibv_srq, *mut u32) -> c_int = unsupported_status();
    create_srq_ex(*mut ibv_context, *mut ibv_srq_init_attr_ex) -> *mut ibv_srq = unsupported_object().cast();
    alloc_mw(*mut ibv_pd, c_int) -> *mut ibv_mw = unsupported_object().cast();
    bind_mw(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> c_int = unsupported_status();
    dealloc_mw(*mut ibv_mw) -> c_int = unsupported_status();
    poll_cq(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int = -unsupported_status();
    req_notify_cq(*mut ibv_cq, c_int) -> c_int = unsupported_status();
    post_receive_to_shared(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int =
        unsupported_status();
    post_send(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int = unsupported_status();
    post_receive(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int = unsupported_status();
}

/// A function table whose operations are all unsupported.
pub(crate) const TABLE: verbs_context = verbs_context {
    query_port: Some(query_port),
    advise_mr: Some(advise_mr),
    alloc_null_mr: Some(alloc_null_mr),
    read_counters: Some(unsupported_status),
    attach_counters_point_flow: Some(unsupported_status),
    create_counters: Some(unsupported_object),
    destroy_counters: Some(unsupported_status),
    reg_dm_mr: Some(unsupported_object),
    alloc_dm: Some(unsupported_object),
    free_dm: Some(unsupported_status),
    modify_flow_action_esp: Some(unsupported_status),
    destroy_flow_action: Some(unsupported_status),
    create_flow_action_esp: Some(unsupported_object),
    modify_qp_rate_limit: Some(unsupported_status),
    alloc_parent_domain: Some(alloc_parent_domain),
    dealloc_td: Some(dealloc_td),
    alloc_td: Some(alloc_td),
    modify_cq: Some(modify_cq),
    post_srq_ops: Some(unsupported_status),
    destroy_rwq_ind_table: Some(unsupported_status),
    create_rwq_ind_table: Some(unsupported_object),
    destroy_wq: Some(unsupported_status),
    modify_wq: Some(unsupported_status),
    create_wq: Some(unsupported_object),
    query_rt_values: Some(query_rt_values),
    create_cq_ex: Some(create_cq_ex),
    priv_: ptr::null_mut(),
    query_device_ex: Some(query_device_ex),
    ibv_destroy_flow: Some(unsupported_status),
    ABI_placeholder2: Some(unsupported_status),
    ibv_create_flow: Some(unsupported_object),
    ABI_placeholder1: Some(unsupported_status),
    open_qp: Some(open_qp),
    create_qp_ex: Some(create_qp_ex),
    get_srq_num: Some(get_srq_num),
    create_srq_ex: Some(create_srq_ex),
    open_xrcd: Some(open_xrcd),
    close_xrcd: Some(close_xrcd),
    _ABI_placeholder3: 0,
    sz: size_of::<verbs_context>(),
    context: ibv_context {
        device: ptr::null_mut(),
        ops: OPERATIONS,
        cmd_fd: -1,
        async_fd: -1,
        num_comp_vectors: 0,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        abi_compat: ptr::null_mut(),
    },
};

const OPERATIONS: ibv_context_ops = ibv_context_ops {
    _compat_query_device: Some(unsupported_status),
    _compat_query_port: Some(unsupported_status),
    _compat_alloc_pd: Some(unsupported_status),
    _compat_dealloc_pd: Some(unsupported_status),
    _compat_reg_mr: Some(unsupported_status),
    _compat_rereg_mr: Some(unsupported_status),
    _compat_dereg_mr: Some(unsupported_status),
    alloc_mw: Some(alloc_mw),
    bind_mw: Some(bind_mw),
    dealloc_mw: Some(dealloc_mw),
    _compat_create_cq: Some(unsupported_status),
    poll_cq: Some(poll_cq),
    req_notify_cq: Some(req_notify_cq),
    _compat_cq_event: Some(unsupported_status),
    _compat_resize_cq: Some(unsupported_status),
    _compat_destroy_cq: Some(unsupported_status),
    _compat_create_srq: Some(unsupported_status),
    _compat_modify_srq: Some(unsupported_status),
    _compat_query_srq: Some(unsupported_status),
    _compat_destroy_srq: Some(unsupported_status),
    post_srq_recv: Some(post_receive_to_shared),
    _compat_create_qp: Some(unsupported_status),
    _compat_query_qp: Some(unsupported_status),
    _compat_modify_qp: Some(unsupported_status),
    _compat_destroy_qp: Some(unsupported_status),
    post_send: Some(post_send),
    post_recv: Some(post_receive),
    _compat_create_ah: Some(unsupported_status),
    _compat_destroy_ah: Some(unsupported_status),
    _compat_attach_mcast: Some(unsupported_status),
    _compat_detach_mcast: Some(unsupported_status),
    _compat_async_event: Some(unsupported_status),
};
