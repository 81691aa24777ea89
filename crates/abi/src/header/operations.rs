//! The function tables of a context, which the inline functions of `infiniband/verbs.h` call.

use std::ffi::{c_int, c_uint, c_void};

use super::{
    ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_device_attr_ex, ibv_modify_cq_attr, ibv_mr,
    ibv_mw, ibv_mw_bind, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_init_attr_ex, ibv_qp_open_attr, ibv_recv_wr,
    ibv_send_wr, ibv_sge, ibv_srq, ibv_srq_init_attr_ex, ibv_values_ex, ibv_wc, ibv_xrcd, ibv_xrcd_init_attr,
};

/// An obsolete or unsupported operation, declared without its arguments.
type Other = Option<unsafe extern "C" fn() -> c_int>;

super::abi! {
    /// The operations at the start of every context.
    struct ibv_context_ops {
        _compat_query_device: Other,
        _compat_query_port: Other,
        _compat_alloc_pd: Other,
        _compat_dealloc_pd: Other,
        _compat_reg_mr: Other,
        _compat_rereg_mr: Other,
        _compat_dereg_mr: Other,
        alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, c_int) -> *mut ibv_mw>,
        bind_mw: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> c_int>,
        dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
        _compat_create_cq: Other,
        poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
        req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
        _compat_cq_event: Other,
        _compat_resize_cq: Other,
        _compat_destroy_cq: Other,
        _compat_create_srq: Other,
        _compat_modify_srq: Other,
        _compat_query_srq: Other,
        _compat_destroy_srq: Other,
        post_srq_recv: Option<unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
        _compat_create_qp: Other,
        _compat_query_qp: Other,
        _compat_modify_qp: Other,
        _compat_destroy_qp: Other,
        post_send: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int>,
        post_recv: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
        _compat_create_ah: Other,
        _compat_destroy_ah: Other,
        _compat_attach_mcast: Other,
        _compat_detach_mcast: Other,
        _compat_async_event: Other,
    }

    /// A context with the newer operations before it. New fields are added at the front; programs hold a
    /// pointer to `context`, and `sz` is the size of the whole structure in bytes.
    struct verbs_context {
        query_port: Option<unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int>,
        advise_mr: Option<unsafe extern "C" fn(*mut ibv_pd, c_int, u32, *mut ibv_sge, u32) -> c_int>,
        alloc_null_mr: Option<unsafe extern "C" fn(*mut ibv_pd) -> *mut ibv_mr>,
        read_counters: Other,
        attach_counters_point_flow: Other,
        create_counters: Option<unsafe extern "C" fn() -> *mut c_void>,
        destroy_counters: Other,
        reg_dm_mr: Option<unsafe extern "C" fn() -> *mut c_void>,
        alloc_dm: Option<unsafe extern "C" fn() -> *mut c_void>,
        free_dm: Other,
        modify_flow_action_esp: Other,
        destroy_flow_action: Other,
        create_flow_action_esp: Option<unsafe extern "C" fn() -> *mut c_void>,
        modify_qp_rate_limit: Other,
        alloc_parent_domain: Option<unsafe extern "C" fn(*mut ibv_context, *mut c_void) -> *mut ibv_pd>,
        dealloc_td: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
        alloc_td: Option<unsafe extern "C" fn(*mut ibv_context, *mut c_void) -> *mut c_void>,
        modify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, *mut ibv_modify_cq_attr) -> c_int>,
        post_srq_ops: Other,
        destroy_rwq_ind_table: Other,
        create_rwq_ind_table: Option<unsafe extern "C" fn() -> *mut c_void>,
        destroy_wq: Other,
        modify_wq: Other,
        create_wq: Option<unsafe extern "C" fn() -> *mut c_void>,
        query_rt_values: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_values_ex) -> c_int>,
        create_cq_ex: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex>,
        priv_: *mut c_void,
        query_device_ex:
        Option<unsafe extern "C" fn(*mut ibv_context, *const c_uint, *mut ibv_device_attr_ex, usize) -> c_int>,
        ibv_destroy_flow: Other,
        ABI_placeholder2: Other,
        ibv_create_flow: Option<unsafe extern "C" fn() -> *mut c_void>,
        ABI_placeholder1: Other,
        open_qp: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_open_attr) -> *mut ibv_qp>,
        create_qp_ex: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp>,
        get_srq_num: Option<unsafe extern "C" fn(*mut ibv_srq, *mut u32) -> c_int>,
        create_srq_ex: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_srq_init_attr_ex) -> *mut ibv_srq>,
        open_xrcd: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd>,
        close_xrcd: Option<unsafe extern "C" fn(*mut ibv_xrcd) -> c_int>,
        _ABI_placeholder3: u64,
        sz: usize,
        context: ibv_context,
    }
}
