//! Work requests.

use std::ops::BitOr;

use nichrome_wire::rdma::{Feth, ImmediateData, QKey, QpNumber, RKey, SrqNumber};

use super::protection::{Bind, LKey};
use super::slab::Handle;
use crate::core::kind;

/// A local buffer: a scatter/gather entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// Address of the first byte, in the region's I/O addresses.
    pub address: u64,
    /// Length in bytes.
    pub len: u32,
    /// Key of the region.
    pub lkey: LKey,
}

/// Memory of the peer. Its length is that of the request's local buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Address of the first byte, in the I/O addresses of the peer's region or window.
    pub address: u64,
    /// Remote key of the region or window.
    pub rkey: RKey,
}

/// The operation of a send queue request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Fills the peer's next receive.
    Send,
    /// Fills the peer's next receive and delivers four bytes of immediate data.
    SendWithImmediate(ImmediateData),
    /// Fills the peer's next receive and invalidates a key there.
    SendWithInvalidate(RKey),
    /// Copies the local buffers to the peer's memory.
    Write(Remote),
    /// Copies the local buffers to the peer's memory, then completes its next receive.
    WriteWithImmediate(Remote, ImmediateData),
    /// Copies the peer's memory to the local buffers.
    Read(Remote),
    /// Replaces 8 bytes of the peer's memory if they equal `compare`; the local buffer receives their
    /// original value.
    CompareSwap {
        /// The 8 bytes; the address is a multiple of 8.
        remote: Remote,
        /// The expected value.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// Adds to 8 bytes of the peer's memory; the local buffer receives their original value.
    FetchAdd {
        /// The 8 bytes; the address is a multiple of 8.
        remote: Remote,
        /// The summand, modulo 2⁶⁴.
        add: u64,
    },
    /// Makes earlier writes to the peer's memory visible or persistent there. Completes when they are.
    Flush {
        /// The first byte, or any byte of the region.
        remote: Remote,
        /// Bytes of the range; ignored for a region.
        len: u32,
        /// Where writes are placed, and which.
        scope: Feth,
    },
    /// Writes 8 bytes of the peer's memory at once: no reader sees a part of them. The address is a multiple
    /// of 8.
    AtomicWrite(Remote),
    /// Invalidates a key of the local device.
    LocalInvalidate(RKey),
    /// Binds a memory window of the local device.
    BindWindow(Bind),
}

/// Flags of a send queue request, with the bit values of `enum ibv_send_flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendFlags(u8);

impl SendFlags {
    /// No flags.
    pub const NONE: Self = Self(0);
    /// Starts only after all earlier READs and atomics have completed.
    pub const FENCE: Self = Self(1);
    /// Generates a CQE on success, also under [`Signaling::Requested`](crate::Signaling::Requested).
    pub const SIGNALED: Self = Self(1 << 1);
    /// Raises a solicited event at the receiver.
    pub const SOLICITED: Self = Self(1 << 2);

    /// Returns true if all of `other` are set.
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

/// The local data of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// Buffers in registered memory, read at transmission. The program does not change them until the request
    /// completes.
    Buffers(&'a [Sge]),
    /// Buffers whose bytes are copied when the request is posted. Their keys are ignored.
    InlineFrom(&'a [Sge]),
    /// Bytes that are copied when the request is posted.
    Inline(&'a [u8]),
}

/// The destination of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipient {
    /// Address handle of the path.
    pub address: Handle<kind::Address>,
    /// Number of the destination queue pair.
    pub qp: QpNumber,
    /// Q_Key of the destination queue pair.
    pub qkey: QKey,
}

/// A send queue request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRequest<'a> {
    /// The program's identifier, returned in the completion.
    pub wr_id: u64,
    /// The operation.
    pub operation: Operation,
    /// The local data.
    pub payload: Payload<'a>,
    /// The flags.
    pub flags: SendFlags,
    /// The destination, on UD queue pairs; `None` on others.
    pub recipient: Option<Recipient>,
    /// The peer's shared receive queue, on XRC queue pairs; `None` on others.
    pub srq: Option<SrqNumber>,
}

impl<'a> SendRequest<'a> {
    /// Creates a signaled request for a connected queue pair.
    pub const fn new(wr_id: u64, operation: Operation, buffers: &'a [Sge]) -> Self {
        let payload = Payload::Buffers(buffers);
        Self { wr_id, operation, payload, flags: SendFlags::SIGNALED, recipient: None, srq: None }
    }
}

/// A receive queue request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveRequest<'a> {
    /// The program's identifier, returned in the completion.
    pub wr_id: u64,
    /// The buffers that the message fills, in order.
    pub buffers: &'a [Sge],
}

/// Returns the total length of buffers in bytes; `None` above `u32::MAX`.
pub(crate) fn total_len(buffers: &[Sge]) -> Option<u32> {
    let sum: u64 = buffers.iter().map(|sge| u64::from(sge.len)).sum();
    sum.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_that_is_given_twice_is_set() {
        let flags = SendFlags::FENCE | SendFlags::SIGNALED | SendFlags::FENCE;
        let flags =
            [SendFlags::FENCE, SendFlags::SIGNALED, SendFlags::SOLICITED].map(|flag| flags.contains(flag));
        assert_eq!(flags, [true, true, false]);
    }
}
