//! Work requests.

use std::ffi::{c_int, c_uint, c_void};

use super::{ibv_ah, ibv_mw, ibv_mw_bind_info};

super::abi! {
    /// A piece of memory.
    struct ibv_sge { addr: u64, length: u32, lkey: u32 }

    /// A piece of memory without a key.
    struct ibv_data_buf { addr: *mut c_void, length: usize }

    /// A receive.
    struct ibv_recv_wr { wr_id: u64, next: *mut ibv_recv_wr, sg_list: *mut ibv_sge, num_sge: c_int }

    /// A send. `imm_data` is also the key to invalidate; `wr` and `bind_mw` depend on the opcode.
    struct ibv_send_wr {
        wr_id: u64,
        next: *mut ibv_send_wr,
        sg_list: *mut ibv_sge,
        num_sge: c_int,
        opcode: c_int,
        send_flags: c_uint,
        imm_data: u32,
        wr: Target,
        qp_type: u32,
        bind_mw: Bind,
    }
}

/// Where a send goes.
#[repr(C)]
#[derive(Clone, Copy)]
pub union Target {
    /// WRITE and READ.
    pub rdma: Rdma,
    /// Atomic operations.
    pub atomic: Atomic,
    /// SENDs of a UD queue pair.
    pub ud: Datagram,
}

/// Where a WRITE goes, or a READ comes from.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Rdma {
    /// In the remote process.
    pub remote_addr: u64,
    /// Of the remote region.
    pub rkey: u32,
}

/// What an atomic operation does, and where.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Atomic {
    /// In the remote process.
    pub remote_addr: u64,
    /// What is compared, or added.
    pub compare_add: u64,
    /// What is stored if it was equal.
    pub swap: u64,
    /// Of the remote region.
    pub rkey: u32,
}

/// Where a datagram goes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Datagram {
    /// The address.
    pub ah: *mut ibv_ah,
    /// The queue pair there.
    pub remote_qpn: u32,
    /// Its key.
    pub remote_qkey: u32,
}

/// The bind of a memory window.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Bind {
    /// The window.
    pub mw: *mut ibv_mw,
    /// The key that it gets.
    pub rkey: u32,
    /// What it is bound to.
    pub bind_info: ibv_mw_bind_info,
}
