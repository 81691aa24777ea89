//! Contexts of open devices.

use std::ffi::{c_int, c_void};

use libc::{pthread_mutex_t, timespec};

use super::{ibv_context_ops, ibv_device};

/// `__VERBS_ABI_IS_EXTENDED`, the value of `abi_compat` if the context is the last field of a
/// `verbs_context`.
pub const VERBS_ABI_IS_EXTENDED: *mut c_void = usize::MAX as *mut c_void;

super::abi! {
    /// The context of an open device.
    struct ibv_context {
        device: *mut ibv_device,
        ops: ibv_context_ops,
        cmd_fd: c_int,
        async_fd: c_int,
        num_comp_vectors: c_int,
        mutex: pthread_mutex_t,
        abi_compat: *mut c_void,
    }

    /// The values of `ibv_query_rt_values_ex`: the device's clock.
    struct ibv_values_ex { comp_mask: u32, raw_clock: timespec }
}
