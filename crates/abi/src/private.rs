//! Private symbols that other libraries of rdma-core import: driver libraries (mlx5, efa, ...) and librdmacm.
//!
//! With these symbols the libraries load beside this one. Each function returns `EOPNOTSUPP` or does nothing:
//! the drivers' devices do not exist here.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::{fs, ptr};

use crate::errno::{Errno, minus_one};
use crate::unsupported::{unsupported_object, unsupported_status};

/// Defines functions that return `EOPNOTSUPP`. They ignore their arguments.
macro_rules! unsupported {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            unsupported_status()
        }
    )*};
}

/// Defines functions that return a null pointer and set `EOPNOTSUPP`. They ignore their arguments.
macro_rules! objects_unsupported {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> *mut c_void {
            unsupported_object()
        }
    )*};
}

// Kernel commands, with which drivers implement verbs.
unsupported! {
    ibv_cmd_advise_mr
    ibv_cmd_alloc_dm
    ibv_cmd_alloc_dmah
    ibv_cmd_alloc_mw
    ibv_cmd_alloc_pd
    ibv_cmd_attach_mcast
    ibv_cmd_close_xrcd
    ibv_cmd_create_ah
    ibv_cmd_create_comp_cntr
    ibv_cmd_create_counters
    ibv_cmd_create_cq
    ibv_cmd_create_cq_ex
    ibv_cmd_create_cq_ex2
    ibv_cmd_create_flow
    ibv_cmd_create_flow_action_esp
    ibv_cmd_create_qp
    ibv_cmd_create_qp_ex
    ibv_cmd_create_qp_ex2
    ibv_cmd_create_rwq_ind_table
    ibv_cmd_create_srq
    ibv_cmd_create_srq_ex
    ibv_cmd_create_wq
    ibv_cmd_dealloc_mw
    ibv_cmd_dealloc_pd
    ibv_cmd_dereg_mr
    ibv_cmd_destroy_ah
    ibv_cmd_destroy_comp_cntr
    ibv_cmd_destroy_counters
    ibv_cmd_destroy_cq
    ibv_cmd_destroy_flow
    ibv_cmd_destroy_flow_action
    ibv_cmd_destroy_qp
    ibv_cmd_destroy_rwq_ind_table
    ibv_cmd_destroy_srq
    ibv_cmd_destroy_wq
    ibv_cmd_detach_mcast
    ibv_cmd_export_dmabuf_fd
    ibv_cmd_free_dm
    ibv_cmd_free_dmah
    ibv_cmd_get_context
    ibv_cmd_inc_comp_cntr
    ibv_cmd_inc_err_comp_cntr
    ibv_cmd_modify_cq
    ibv_cmd_modify_flow_action_esp
    ibv_cmd_modify_qp
    ibv_cmd_modify_qp_ex
    ibv_cmd_modify_srq
    ibv_cmd_modify_wq
    ibv_cmd_open_qp
    ibv_cmd_open_xrcd
    ibv_cmd_poll_cq
    ibv_cmd_post_recv
    ibv_cmd_post_send
    ibv_cmd_post_srq_recv
    ibv_cmd_qp_attach_comp_cntr
    ibv_cmd_query_comp_cntr_caps
    ibv_cmd_query_context
    ibv_cmd_query_device
    ibv_cmd_query_device_any
    ibv_cmd_query_mr
    ibv_cmd_query_port
    ibv_cmd_query_port_speed
    ibv_cmd_query_qp
    ibv_cmd_query_srq
    ibv_cmd_read_comp_cntr
    ibv_cmd_read_counters
    ibv_cmd_read_err_comp_cntr
    ibv_cmd_reg_dm_mr
    ibv_cmd_reg_dmabuf_mr
    ibv_cmd_reg_mr
    ibv_cmd_reg_mr_ex
    ibv_cmd_req_notify_cq
    ibv_cmd_rereg_mr
    ibv_cmd_resize_cq
    ibv_cmd_set_comp_cntr
    ibv_cmd_set_err_comp_cntr
    ibv_dmabuf_heap_cc_shared_init
    ibv_dmabuf_heap_destroy
    ibv_dmabuf_heap_free
    execute_ioctl
}

// Unsupported verbs: device memory, DMA buffers, completion counters.
unsupported! {
    ibv_resolve_eth_l2_from_gid
    ibv_dealloc_dmah
    ibv_destroy_comp_cntr
    ibv_inc_comp_cntr
    ibv_inc_err_comp_cntr
    ibv_qp_attach_comp_cntr
    ibv_read_comp_cntr
    ibv_read_err_comp_cntr
    ibv_set_comp_cntr
    ibv_set_err_comp_cntr
    _ibv_query_comp_cntr_caps
}

objects_unsupported! {
    ibv_import_dm
    ibv_reg_dmabuf_mr
    ibv_alloc_dmah
    ibv_create_comp_cntr
    ibv_dmabuf_heap_alloc
    _verbs_init_and_alloc_context
    verbs_open_device
}

/// Defines functions that do nothing.
macro_rules! no_operations {
    ($($(#[$meta:meta])* $name:ident)*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        extern "C" fn $name() {}
    )*};
}

no_operations! {
    /// Imports of device memory always fail.
    ibv_unimport_dm
    /// Drivers register when they are loaded. They are never called, as they have no device here.
    verbs_register_driver_34
    /// As above.
    verbs_register_driver_57
    /// As above.
    verbs_register_driver_59
    /// As above.
    verbs_register_driver_64
    /// As above.
    verbs_register_driver_65
    /// Never called: the driver has no device here.
    verbs_set_ops
    /// Never called: the driver has no device here.
    verbs_uninit_context
    /// Never called: the driver has no device here.
    verbs_init_cq
    /// Discards the drivers' log messages.
    __verbs_log
}

/// Whether drivers may destroy the objects of an unplugged device. Unused: drivers have no device here.
#[unsafe(no_mangle)]
static verbs_allow_disassociate_destroy: bool = false;

#[unsafe(no_mangle)]
extern "C" fn __ioctl_final_num_attrs(_count: c_uint, _last: *mut c_void) -> c_uint {
    0
}

/// Returns −1: DMA buffers cannot be exported.
#[unsafe(no_mangle)]
extern "C" fn ibv_dm_export_dmabuf_fd() -> c_int {
    minus_one(Err(Errno::UNSUPPORTED))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// Reads a file without its final newline into `out`, null-terminated. Returns the number of bytes, or −1.
unsafe fn read_file(parts: &[*const c_char], out: *mut c_char, size: usize) -> c_int {
    // SAFETY: the caller passes C strings.
    let parts = parts.iter().map(|part| unsafe { CStr::from_ptr(*part) }.to_string_lossy());
    let path = parts.collect::<Vec<_>>().join("/");
    let Ok(mut bytes) = fs::read(path) else { return -1 };
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    bytes.truncate(size.saturating_sub(1));
    if size > 0 {
        bytes.push(0);
    }
    // SAFETY: the caller passes memory for `size` bytes.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr().cast(), out, bytes.len()) };
    bytes.len().saturating_sub(1) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_read_sysfs_file(
    folder: *const c_char,
    file: *const c_char,
    out: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: the caller passes C strings, and memory for `size` bytes.
    unsafe { read_file(&[folder, file], out, size) }
}

/// Fails with `ENOENT`: for this library the device has no folder in `/sys`.
#[unsafe(no_mangle)]
extern "C" fn ibv_read_ibdev_sysfs_file() -> c_int {
    minus_one(Err(Errno(libc::ENOENT)))
}
