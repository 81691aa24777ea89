//! Protection domains, memory regions and windows.

use std::ffi::{c_int, c_uint, c_void};

use super::ibv_context;

super::abi! {
    /// A protection domain.
    struct ibv_pd { context: *mut ibv_context, handle: u32 }

    /// A thread domain.
    struct ibv_td { context: *mut ibv_context }

    /// Attributes of a new thread domain.
    struct ibv_td_init_attr { comp_mask: u32 }

    /// An XRC domain.
    struct ibv_xrcd { context: *mut ibv_context }

    /// Attributes of `ibv_open_xrcd`.
    struct ibv_xrcd_init_attr { comp_mask: u32, fd: c_int, oflags: c_int }

    /// Attributes of a new parent domain.
    struct ibv_parent_domain_init_attr {
        pd: *mut ibv_pd,
        td: *mut ibv_td,
        comp_mask: u32,
        alloc: Option<unsafe extern "C" fn()>,
        free: Option<unsafe extern "C" fn()>,
        pd_context: *mut c_void,
    }

    /// A memory region.
    struct ibv_mr {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        handle: u32,
        lkey: u32,
        rkey: u32,
    }

    /// A memory window.
    struct ibv_mw { context: *mut ibv_context, pd: *mut ibv_pd, rkey: u32, handle: u32, type_: c_int }

    /// The range and access rights of a bind.
    struct ibv_mw_bind_info { mr: *mut ibv_mr, addr: u64, length: u64, mw_access_flags: c_uint }

    /// A bind of a type 1 window.
    struct ibv_mw_bind { wr_id: u64, send_flags: c_uint, bind_info: ibv_mw_bind_info }
}
