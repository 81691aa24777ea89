//! Work requests, as programs post them.

use std::ops::BitOr;

use nichrome_wire::rdma::{ImmediateData, QKey, QpNumber, RKey};

use super::protection::{Bind, LKey};
use super::slab::Handle;
use crate::core::kind;

/// A piece of the program's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// Its first byte, as the region counts.
    pub address: u64,
    /// Bytes.
    pub len: u32,
    /// The region that it lies in.
    pub lkey: LKey,
}

/// A piece of the peer's memory: where, and by which key. The length is that of the local buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Its first byte, as the peer's region or window counts.
    pub address: u64,
    /// The key that the peer has given.
    pub rkey: RKey,
}

/// What is asked of a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Fills the peer's next receive.
    Send,
    /// Fills the peer's next receive and brings four bytes more.
    SendWithImmediate(ImmediateData),
    /// Fills the peer's next receive and invalidates a key there.
    SendWithInvalidate(RKey),
    /// Copies the local buffers to the peer's memory.
    Write(Remote),
    /// Copies the local buffers to the peer's memory, then completes its next receive.
    WriteWithImmediate(Remote, ImmediateData),
    /// Copies the peer's memory to the local buffers.
    Read(Remote),
    /// Replaces 8 bytes of the peer's memory, a multiple of 8, if they are equal to `compare`; their value before goes
    /// to the local buffer of 8 bytes.
    CompareSwap {
        /// The 8 bytes.
        remote: Remote,
        /// The value that they must have.
        compare: u64,
        /// The value that they get.
        swap: u64,
    },
    /// Adds to 8 bytes of the peer's memory; their value before goes to the local buffer of 8 bytes.
    FetchAdd {
        /// The 8 bytes.
        remote: Remote,
        /// What is added, modulo 2⁶⁴.
        add: u64,
    },
    /// Ends the validity of a key of the device itself.
    LocalInvalidate(RKey),
    /// Binds a memory window of the device itself.
    BindWindow(Bind),
}

/// What a request asks for besides its operation. The bits are those of the verbs (`enum ibv_send_flags`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendFlags(u8);

impl SendFlags {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Not begun before all READs and atomics before it are complete.
    pub const FENCE: Self = Self(1);
    /// Completes visibly also where the queue pair does not make all requests do so.
    pub const SIGNALED: Self = Self(1 << 1);
    /// The completion at the receiver counts as solicited.
    pub const SOLICITED: Self = Self(1 << 2);

    /// Whether all of `other` are set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for SendFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The local bytes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// Buffers in registered memory, read when they are sent and left alone until the request completes.
    Buffers(&'a [Sge]),
    /// Pieces of memory that are read now; their keys are not looked at.
    InlineFrom(&'a [Sge]),
    /// Bytes that are copied now.
    Inline(&'a [u8]),
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipient {
    /// The way there.
    pub address: Handle<kind::Address>,
    /// The queue pair there.
    pub qp: QpNumber,
    /// The key that it wants to see.
    pub qkey: QKey,
}

/// A request for a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRequest<'a> {
    /// What the program calls it.
    pub wr_id: u64,
    /// What is asked.
    pub operation: Operation,
    /// With what.
    pub payload: Payload<'a>,
    /// How.
    pub flags: SendFlags,
    /// To whom, on a queue pair for datagrams; `None` on others.
    pub recipient: Option<Recipient>,
}

impl<'a> SendRequest<'a> {
    /// A signaled request on a connected queue pair.
    pub const fn new(wr_id: u64, operation: Operation, buffers: &'a [Sge]) -> Self {
        let payload = Payload::Buffers(buffers);
        Self { wr_id, operation, payload, flags: SendFlags::SIGNALED, recipient: None }
    }
}

/// A request for a receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveRequest<'a> {
    /// What the program calls it.
    pub wr_id: u64,
    /// Where the message goes, in this order.
    pub buffers: &'a [Sge],
}

/// The bytes of all buffers together; `None` where they are more than `limit`.
pub(crate) fn total_len(buffers: &[Sge], limit: u32) -> Option<u32> {
    let sum: u64 = buffers.iter().map(|sge| u64::from(sge.len)).sum();
    u32::try_from(sum).ok().filter(|sum| *sum <= limit)
}
