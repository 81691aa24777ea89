//! Work completions.

use nichrome_wire::Instant;
use nichrome_wire::rdma::{ImmediateData, QpNumber, RKey};

/// A completion queue entry (CQE): the result of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The program's identifier of the request.
    pub wr_id: u64,
    /// The result. Unless it is success, only `status`, `wr_id` and `qp` are valid.
    pub status: Status,
    /// The kind of request.
    pub operation: CompletedOperation,
    /// The queue pair of the request.
    pub qp: QpNumber,
    /// Bytes received, read or sent.
    pub len: u32,
    /// Immediate data or invalidated key of a received message.
    pub notice: Option<Notice>,
    /// Source queue pair of a received datagram.
    pub source: Option<QpNumber>,
    /// Time of completion.
    pub at: Instant,
}

/// Data of a received message beside its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Immediate data.
    Immediate(ImmediateData),
    /// The local key that the message invalidated.
    Invalidated(RKey),
}

/// The kind of request that completed (`enum ibv_wc_opcode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompletedOperation {
    /// A SEND of any kind.
    Send,
    /// A WRITE, with immediate data or without.
    Write,
    /// A READ.
    Read,
    /// A compare and swap.
    CompareSwap,
    /// A fetch and add.
    FetchAdd,
    /// A FLUSH.
    Flush,
    /// An ATOMIC WRITE.
    AtomicWrite,
    /// The binding of a memory window.
    BindWindow,
    /// The invalidation of a key.
    LocalInvalidate,
    /// A receive filled by a SEND.
    Receive,
    /// A receive consumed by a WRITE with immediate data.
    ReceiveWithWrite,
}

/// The result of a work request (IBA 11.6.2; `enum ibv_wc_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Success.
    Success,
    /// The message exceeds the receive's buffers or the maximum message length.
    LocalLength,
    /// The queue pair could not execute the request.
    LocalQpOperation,
    /// A local buffer is outside the protection domain's regions, or its region lacks the right.
    LocalProtection,
    /// The queue pair moved to ERROR before the request completed.
    Flushed,
    /// A window could not be bound as requested.
    WindowBind,
    /// The peer's response does not match the request.
    BadResponse,
    /// Local access error; received from StaR peers only.
    LocalAccess,
    /// NAK: the peer rejected the request as invalid.
    RemoteInvalidRequest,
    /// NAK: the peer denied access to its memory.
    RemoteAccess,
    /// NAK: the peer failed to execute the request.
    RemoteOperation,
    /// No response to any retransmission.
    RetryExceeded,
    /// RNR NAK in response to every retry.
    RnrRetryExceeded,
    /// The queue pair failed fatally.
    Fatal,
}
