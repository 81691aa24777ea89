//! The content of a packet behind the common header, as types.

use crate::bytes::{array, be32, put};

use super::capability::Capability;
use super::completion::Cqe;
use super::element::{Element, Operands};
use super::error::StarError;
use super::header::CommonHeader;
use super::packet_type::PacketType;

/// Memory of the server that a packet accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The address in the region.
    pub address: u64,
    /// The memory key: an lkey if the capability has [`Rights::ELEMENT`](super::Rights::ELEMENT), else an
    /// rkey.
    pub key: u32,
    /// The granted range.
    pub capability: Capability,
}

impl Span {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 12 + Capability::LEN;
}

const _: () = assert!(PacketType::Rdp.header_len() == CommonHeader::LEN + Span::LEN);

/// An atomic operation of the client on 8 bytes of the server's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Atomic {
    /// The operation.
    pub kind: AtomicKind,
    /// Number of the atomic operation in its connection, from 1 on, modulo 2³². Retransmissions keep it.
    pub ticket: u32,
    /// The values to compare with, swap in or add.
    pub operands: Operands,
}

/// Atomic operations, with the opcodes of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AtomicKind {
    /// Swaps in a value if the memory holds the expected one.
    CompareSwap = 7,
    /// Adds a value, modulo 2⁶⁴.
    FetchAdd = 8,
}

impl Atomic {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 8 + Operands::LEN;

    /// Length of the operand in memory and of the answer, in bytes.
    pub const WORD: u16 = 8;

    /// Returns the new value for the value `before`.
    #[inline]
    pub const fn apply(&self, before: u64) -> u64 {
        let Operands { compare, swap_or_add } = self.operands;
        match self.kind {
            AtomicKind::FetchAdd => before.wrapping_add(swap_or_add),
            AtomicKind::CompareSwap if before == compare => swap_or_add,
            AtomicKind::CompareSwap => before,
        }
    }

    pub(super) fn from_bytes(bytes: &[u8; Self::LEN]) -> Result<Self, StarError> {
        let kind = match bytes[0] {
            7 => AtomicKind::CompareSwap,
            8 => AtomicKind::FetchAdd,
            opcode => return Err(StarError::Opcode(opcode)),
        };
        let word = |at| u64::from_be_bytes(array(bytes, at));
        let operands = Operands { compare: word(8), swap_or_add: word(16) };
        Ok(Self { kind, ticket: be32(bytes, 4), operands })
    }

    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = self.kind as u8;
        put(&mut bytes, 4, self.ticket.to_be_bytes());
        put(&mut bytes, 8, self.operands.compare.to_be_bytes());
        put(&mut bytes, 16, self.operands.swap_or_add.to_be_bytes());
        bytes
    }
}

const _: () = assert!(PacketType::Aop.header_len() == CommonHeader::LEN + Span::LEN + Atomic::LEN);

/// The reason why the server's card refuses a packet. A refused packet touches no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Reason {
    /// The key names no region or window.
    Key = 1,
    /// The key names a memory window; no client is granted one.
    Owner = 2,
    /// The capability or the region does not grant the right.
    Right = 3,
    /// The range exceeds that of the capability or the region.
    Bounds = 4,
    /// The region is invalidated.
    State = 5,
    /// The memory is registered, but no longer mapped.
    Fault = 6,
    /// The requested bytes exceed a packet.
    Length = 7,
    /// The packet has expired, or expires more than a second from now.
    Expired = 8,
    /// No reason given: the card cannot authenticate the sender.
    Denied = 9,
    /// The connection's lease has ended: the client must ask the server's driver for another.
    Lease = 10,
    /// The ticket is neither the last atomic operation of the connection nor the next, or the address is
    /// misaligned.
    Atomic = 11,
}

impl Reason {
    /// All reasons in the order of the codes.
    pub const ALL: [Self; 11] = [
        Self::Key,
        Self::Owner,
        Self::Right,
        Self::Bounds,
        Self::State,
        Self::Fault,
        Self::Length,
        Self::Expired,
        Self::Denied,
        Self::Lease,
        Self::Atomic,
    ];

    /// Decodes a reason; `None` if unknown.
    pub const fn new(code: u16) -> Option<Self> {
        match code {
            1..=11 => Some(Self::ALL[code as usize - 1]),
            _ => None,
        }
    }
}

/// The content of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// An element; the payload is its segments or inline data.
    Wqep(Element),
    /// A completion.
    Cqep(Cqe),
    /// Acknowledges all elements before the sequence number.
    Ea,
    /// Stores the payload in the range.
    Rdp(Span),
    /// Acknowledges or refuses the RDP with this sequence number. Bit n of the bitmap acknowledges the
    /// RDP n + 1 before it.
    Ra(Result<u16, Reason>),
    /// Requests this many bytes from the range.
    Gd(Span, u16),
    /// The response to the GD or AOP with this sequence number: the payload, or a refusal.
    Sdp(Result<(), Reason>),
    /// Changes 8 bytes in the range, unless the operation with this ticket was done before, and requests
    /// their previous value.
    Aop(Span, Atomic),
}

impl Message {
    /// Returns the packet type.
    #[inline]
    pub const fn packet_type(&self) -> PacketType {
        match self {
            Self::Wqep(_) => PacketType::Wqep,
            Self::Cqep(_) => PacketType::Cqep,
            Self::Ea => PacketType::Ea,
            Self::Rdp(_) => PacketType::Rdp,
            Self::Ra(_) => PacketType::Ra,
            Self::Gd(..) => PacketType::Gd,
            Self::Sdp(_) => PacketType::Sdp,
            Self::Aop(..) => PacketType::Aop,
        }
    }

    /// Returns the range that a packet for the server's card accesses.
    #[inline]
    pub const fn span(&self) -> Option<&Span> {
        match self {
            Self::Rdp(span) | Self::Gd(span, _) | Self::Aop(span, _) => Some(span),
            _ => None,
        }
    }

    /// As [`Self::span`], mutable.
    #[inline]
    pub const fn span_mut(&mut self) -> Option<&mut Span> {
        match self {
            Self::Rdp(span) | Self::Gd(span, _) | Self::Aop(span, _) => Some(span),
            _ => None,
        }
    }

    /// Returns the length of the headers before the payload, in bytes.
    #[inline]
    pub(super) const fn header_len(&self) -> usize {
        let more = match self {
            Self::Wqep(element) => element.header_len() - Element::LEN,
            _ => 0,
        };
        self.packet_type().header_len() + more
    }

    /// Returns the length field for `payload_len` bytes of payload; `None` if the packet cannot have so many.
    #[inline]
    pub(super) fn length_field(&self, payload_len: usize) -> Option<u16> {
        let payload_len = u16::try_from(payload_len).ok()?;
        match self {
            Self::Wqep(element) => element.payload_len().filter(|len| *len == payload_len),
            Self::Rdp(_) | Self::Sdp(Ok(())) => Some(payload_len),
            _ if payload_len > 0 => None,
            Self::Cqep(_) | Self::Ea => Some(0),
            Self::Ra(Ok(field)) | Self::Gd(_, field) => Some(*field),
            Self::Aop(..) => Some(Atomic::WORD),
            Self::Ra(Err(reason)) | Self::Sdp(Err(reason)) => Some(*reason as u16),
        }
    }

    /// Returns true for a refusal.
    #[inline]
    pub(super) const fn is_refusal(&self) -> bool {
        matches!(self, Self::Ra(Err(_)) | Self::Sdp(Err(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As IBA 9.4.5 has it: the new value of each operation.
    #[test]
    fn a_comparison_swaps_only_what_it_finds_and_an_addition_wraps() {
        let apply = |kind, compare, swap_or_add, before| {
            Atomic { kind, ticket: 1, operands: Operands { compare, swap_or_add } }.apply(before)
        };
        assert_eq!(apply(AtomicKind::CompareSwap, 7, 9, 7), 9);
        assert_eq!(apply(AtomicKind::CompareSwap, 7, 9, 8), 8);
        assert_eq!(apply(AtomicKind::FetchAdd, 7, 9, 8), 17);
        assert_eq!(apply(AtomicKind::FetchAdd, 8, 3, u64::MAX), 2);
    }
}
