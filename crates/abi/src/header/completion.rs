//! Completion queues, their events, and completions.

use std::ffi::{c_int, c_uint, c_void};

use libc::{pthread_cond_t, pthread_mutex_t};

use super::{ibv_context, ibv_pd, ibv_qp};

super::abi! {
    /// A completion channel.
    struct ibv_comp_channel { context: *mut ibv_context, fd: c_int, refcnt: c_int }

    /// A completion queue.
    struct ibv_cq {
        context: *mut ibv_context,
        channel: *mut ibv_comp_channel,
        cq_context: *mut c_void,
        handle: u32,
        cqe: c_int,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        comp_events_completed: u32,
        async_events_completed: u32,
    }

    /// A work completion. `imm_data` is a union with the invalidated key.
    struct ibv_wc {
        wr_id: u64,
        status: c_int,
        opcode: c_int,
        vendor_err: u32,
        byte_len: u32,
        imm_data: u32,
        qp_num: u32,
        src_qp: u32,
        wc_flags: c_uint,
        pkey_index: u16,
        slid: u16,
        sl: u8,
        dlid_path_bits: u8,
    }

    /// Options of `ibv_start_poll`: none.
    struct ibv_poll_cq_attr { comp_mask: u32 }

    /// Tag matching: none.
    struct ibv_wc_tm_info { tag: u64, priv_: u32 }

    /// A completion queue with extended polling.
    struct ibv_cq_ex {
        context: *mut ibv_context,
        channel: *mut ibv_comp_channel,
        cq_context: *mut c_void,
        handle: u32,
        cqe: c_int,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        comp_events_completed: u32,
        async_events_completed: u32,
        comp_mask: u32,
        status: c_int,
        wr_id: u64,
        start_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int>,
        next_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> c_int>,
        end_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex)>,
        read_opcode: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> c_int>,
        read_vendor_err: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
        read_byte_len: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
        read_imm_data: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
        read_qp_num: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
        read_src_qp: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
        read_wc_flags: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> c_uint>,
        read_slid: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
        read_sl: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u8>,
        read_dlid_path_bits: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u8>,
        read_completion_ts: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u64>,
        read_cvlan: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u16>,
        read_flow_tag: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
        read_tm_info: Option<unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_wc_tm_info)>,
        read_completion_wallclock_ns: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u64>,
    }

    /// Event moderation: completions and microseconds per event.
    struct ibv_moderate_cq { cq_count: u16, cq_period: u16 }

    /// Attributes of `ibv_modify_cq`.
    struct ibv_modify_cq_attr { attr_mask: u32, moderate: ibv_moderate_cq }

    /// Attributes of a new completion queue.
    struct ibv_cq_init_attr_ex {
        cqe: u32,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: u32,
        wc_flags: u64,
        comp_mask: u32,
        flags: u32,
        parent_domain: *mut ibv_pd,
    }

    /// An asynchronous event. `element` is a union of pointers to the object and the port number.
    struct ibv_async_event { element: *mut ibv_qp, event_type: c_int }
}
