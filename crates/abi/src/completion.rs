//! Converts the engine's completions to `ibv_wc` and its codes.

use std::ffi::{c_int, c_uint};
use std::net::IpAddr;

use nichrome_rdma::{CompletedOperation, Completion, Notice, Status};

use crate::header::ibv_wc;

/// An IP header precedes the payload.
const IBV_WC_GRH: c_uint = 1;
/// The completion carries immediate data.
const IBV_WC_WITH_IMM: c_uint = 1 << 1;
/// The request invalidated a key.
const IBV_WC_WITH_INV: c_uint = 1 << 3;

/// Returns `enum ibv_wc_flags`.
pub(crate) fn flags(completion: &Completion) -> c_uint {
    let notice = match completion.notice {
        None => 0,
        Some(Notice::Immediate(_)) => IBV_WC_WITH_IMM,
        Some(Notice::Invalidated(_)) => IBV_WC_WITH_INV,
    };
    notice | if completion.source.is_some() { IBV_WC_GRH } else { 0 }
}

/// Returns the immediate data in network byte order, or the invalidated key, or 0.
pub(crate) fn notice(completion: &Completion) -> u32 {
    match completion.notice {
        None => 0,
        Some(Notice::Immediate(data)) => u32::from_ne_bytes(data.0),
        Some(Notice::Invalidated(key)) => key.0,
    }
}

/// The service level in completions of datagrams, which RoCEv2 does not use. mlx5 stores the type of the
/// network header there (1: IPv6, 2: IPv4). UCX relies on this with every device, to find the sender's GID
/// before the payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServiceLevel(u8);

impl ServiceLevel {
    /// Returns the service level for a device at `address`.
    pub(crate) fn at(address: IpAddr) -> Self {
        Self(if address.is_ipv4() { 2 } else { 1 })
    }

    /// Returns the service level of a completion; 0 if it is not of a datagram.
    pub(crate) fn of(self, completion: &Completion) -> u8 {
        if completion.source.is_some() { self.0 } else { 0 }
    }
}

/// Converts a completion to the structure that `ibv_poll_cq` fills in.
pub(crate) fn as_structure(completion: &Completion, level: ServiceLevel) -> ibv_wc {
    ibv_wc {
        wr_id: completion.wr_id,
        status: status_code(completion.status),
        opcode: opcode(completion.operation),
        vendor_err: 0,
        byte_len: completion.len,
        imm_data: notice(completion),
        qp_num: completion.qp.value(),
        src_qp: completion.source.map_or(0, nichrome_rdma::QpNumber::value),
        wc_flags: flags(completion),
        pkey_index: 0,
        slid: 0,
        sl: level.of(completion),
        dlid_path_bits: 0,
    }
}

/// Returns the `enum ibv_wc_opcode`.
pub(crate) fn opcode(operation: CompletedOperation) -> c_int {
    match operation {
        CompletedOperation::Send => 0,
        CompletedOperation::Write => 1,
        CompletedOperation::Read => 2,
        CompletedOperation::CompareSwap => 3,
        CompletedOperation::FetchAdd => 4,
        CompletedOperation::BindWindow => 5,
        CompletedOperation::LocalInvalidate => 6,
        CompletedOperation::Flush => 8,
        CompletedOperation::AtomicWrite => 9,
        CompletedOperation::Receive => 128,
        CompletedOperation::ReceiveWithWrite => 129,
    }
}

/// Returns the `enum ibv_wc_status`.
pub(crate) fn status_code(status: Status) -> c_int {
    match status {
        Status::Success => 0,
        Status::LocalLength => 1,
        Status::LocalQpOperation => 2,
        Status::LocalProtection => 4,
        Status::Flushed => 5,
        Status::WindowBind => 6,
        Status::BadResponse => 7,
        Status::LocalAccess => 8,
        Status::RemoteInvalidRequest => 9,
        Status::RemoteAccess => 10,
        Status::RemoteOperation => 11,
        Status::RetryExceeded => 12,
        Status::RnrRetryExceeded => 13,
        Status::Fatal => 19,
    }
}
