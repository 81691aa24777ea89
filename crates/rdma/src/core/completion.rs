//! Work completions.

use nichrome_wire::Instant;
use nichrome_wire::rdma::{ImmediateData, QpNumber, RKey};

/// What became of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What the program called the request.
    pub wr_id: u64,
    /// How it ended. Unless it is success, only this, `wr_id` and `qp` count.
    pub status: Status,
    /// What it was.
    pub operation: CompletedOperation,
    /// The queue pair that it was for.
    pub qp: QpNumber,
    /// Bytes received, read or sent.
    pub len: u32,
    /// What came with a received message.
    pub notice: Option<Notice>,
    /// Who sent a datagram.
    pub source: Option<QpNumber>,
    /// When it completed.
    pub at: Instant,
}

/// What a message brings to the receiver besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Four bytes chosen by the sender.
    Immediate(ImmediateData),
    /// The key that the sender has made invalid here.
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
    /// The binding of a memory window.
    BindWindow,
    /// The invalidation of a key.
    LocalInvalidate,
    /// A receive filled by a SEND.
    Receive,
    /// A receive used up by a WRITE with immediate data.
    ReceiveWithWrite,
}

/// How a work request ended (IBA 11.6.2; `enum ibv_wc_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// It was done.
    Success,
    /// The message is longer than the buffers, or than any message may be.
    LocalLength,
    /// The device cannot do this on this queue pair.
    LocalQpOperation,
    /// A local buffer is not, or not with this right, in a region of the protection domain.
    LocalProtection,
    /// The queue pair was in error before this request was begun.
    Flushed,
    /// A window could not be bound as asked.
    WindowBind,
    /// The peer answered what does not fit the request.
    BadResponse,
    /// The receive queue's own failure, told to a receive.
    LocalAccess,
    /// The peer says that the request was not one it takes.
    RemoteInvalidRequest,
    /// The peer says that its memory may not be reached so.
    RemoteAccess,
    /// The peer could not do it, for a reason of its own.
    RemoteOperation,
    /// No answer, however often it was repeated.
    RetryExceeded,
    /// The peer had no receive for it, however often it was repeated.
    RnrRetryExceeded,
    /// The queue pair went into a fatal state.
    Fatal,
}
