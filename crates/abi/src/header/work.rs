//! Work requests.

use std::ffi::{c_int, c_uint, c_void};

use super::{ibv_ah, ibv_mw, ibv_mw_bind_info};

super::abi! {
    /// A scatter-gather element.
    struct ibv_sge { addr: u64, length: u32, lkey: u32 }

    /// A piece of inline data.
    struct ibv_data_buf { addr: *mut c_void, length: usize }

    /// A receive work request.
    struct ibv_recv_wr { wr_id: u64, next: *mut ibv_recv_wr, sg_list: *mut ibv_sge, num_sge: c_int }

    /// A send work request. `imm_data` is a union with the key to invalidate; `wr` and `bind_mw` depend on
    /// the opcode.
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

/// The remote target of a send work request.
#[repr(C)]
#[derive(Clone, Copy)]
pub union Target {
    /// Of WRITEs and READs.
    pub rdma: Rdma,
    /// Of atomic operations.
    pub atomic: Atomic,
    /// Of SENDs of a UD queue pair.
    pub ud: Datagram,
}

/// The remote memory of a WRITE or READ.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Rdma {
    /// Address in the remote process.
    pub remote_addr: u64,
    /// Key of the remote region.
    pub rkey: u32,
}

/// The operands and remote memory of an atomic operation.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Atomic {
    /// Address in the remote process.
    pub remote_addr: u64,
    /// The value to compare with, or to add.
    pub compare_add: u64,
    /// The value to store if the comparison succeeds.
    pub swap: u64,
    /// Key of the remote region.
    pub rkey: u32,
}

/// The recipient of a datagram.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Datagram {
    /// Address handle.
    pub ah: *mut ibv_ah,
    /// Number of the remote queue pair.
    pub remote_qpn: u32,
    /// Q_Key of the remote queue pair.
    pub remote_qkey: u32,
}

/// The bind of a memory window.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Bind {
    /// The window.
    pub mw: *mut ibv_mw,
    /// The window's key after the bind.
    pub rkey: u32,
    /// The range and access rights.
    pub bind_info: ibv_mw_bind_info,
}
