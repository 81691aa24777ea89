//! Shared receive queues.

use std::ffi::{c_int, c_void};

use libc::{pthread_cond_t, pthread_mutex_t};

use super::{ibv_context, ibv_cq, ibv_pd, ibv_xrcd};

super::abi! {
    /// Capacity, and the limit: fewer posted receives than this raise SRQ_LIMIT_REACHED.
    struct ibv_srq_attr { max_wr: u32, max_sge: u32, srq_limit: u32 }

    /// Attributes of a new shared receive queue.
    struct ibv_srq_init_attr { srq_context: *mut c_void, attr: ibv_srq_attr }

    /// Tag matching: none.
    struct ibv_tm_cap { max_num_tags: u32, max_ops: u32 }

    /// Extended attributes of a new shared receive queue.
    struct ibv_srq_init_attr_ex {
        srq_context: *mut c_void,
        attr: ibv_srq_attr,
        comp_mask: u32,
        srq_type: c_int,
        pd: *mut ibv_pd,
        xrcd: *mut ibv_xrcd,
        cq: *mut ibv_cq,
        tm_cap: ibv_tm_cap,
    }

    /// A shared receive queue.
    struct ibv_srq {
        context: *mut ibv_context,
        srq_context: *mut c_void,
        pd: *mut ibv_pd,
        handle: u32,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        events_completed: u32,
    }
}
