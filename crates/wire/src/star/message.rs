//! What a packet says besides the common header, as types.

use crate::bytes::{array, be32, put};

use super::capability::Capability;
use super::completion::Cqe;
use super::element::{Element, Operands};
use super::error::StarError;
use super::header::CommonHeader;
use super::packet_type::PacketType;

/// Memory of the server that a packet wants to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The first byte, as the region or window counts.
    pub address: u64,
    /// The key: a local one if the capability is of an element, else a remote one.
    pub key: u32,
    /// What the packet may reach.
    pub capability: Capability,
}

impl Span {
    /// Bytes on the wire.
    pub const LEN: usize = 12 + Capability::LEN;
}

const _: () = assert!(PacketType::Rdp.header_len() == CommonHeader::LEN + Span::LEN);

/// An atomic operation of the client on 8 bytes of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Atomic {
    /// What it does.
    pub kind: AtomicKind,
    /// Counts the atomic operations of the connection from 1 on, modulo 2³²: copies of one have the same.
    pub ticket: u32,
    /// What it compares with, swaps in or adds.
    pub operands: Operands,
}

/// The kinds of atomic operation, by the opcodes of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AtomicKind {
    /// Swaps in a value if another is found.
    CompareSwap = 7,
    /// Adds a value, modulo 2⁶⁴.
    FetchAdd = 8,
}

impl Atomic {
    /// Bytes on the wire.
    pub const LEN: usize = 8 + Operands::LEN;

    /// Bytes that it changes, and of the answer.
    pub const WORD: u16 = 8;

    /// The value that follows `before`.
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

/// Why the server's card refuses a packet. It then has touched no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Reason {
    /// No region or window has this key.
    Key = 1,
    /// The key is of another protection domain.
    Owner = 2,
    /// The key does not give this right.
    Right = 3,
    /// The bytes are not all within what the key names.
    Bounds = 4,
    /// The region or window is invalid now.
    State = 5,
    /// The memory is registered, but not there any more.
    Fault = 6,
    /// More bytes are wanted than fit in a packet.
    Length = 7,
    /// The packet has expired, or expires too far in the future.
    Expired = 8,
    /// The card gives no reason: it does not know who asks.
    Denied = 9,
    /// The lease of the connection has ended: the client is to ask the server's driver for another.
    Lease = 10,
    /// Neither the last atomic operation of the connection nor the next, or bytes that are not aligned.
    Atomic = 11,
}

impl Reason {
    /// Every reason, in the order of the codes.
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

    /// The reason of this code; `None` where there is none.
    pub const fn new(code: u16) -> Option<Self> {
        match code {
            1..=11 => Some(Self::ALL[code as usize - 1]),
            _ => None,
        }
    }
}

/// What a packet says besides the common header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// An element; the payload is its segments or inline bytes.
    Wqep(Element),
    /// A completion.
    Cqep(Cqe),
    /// All elements before the sequence number have come.
    Ea,
    /// Store the payload there.
    Rdp(Span),
    /// The RDP with this sequence number is stored, or why it is not. Bit n of the bitmap: so is the one n + 1 before it.
    Ra(Result<u16, Reason>),
    /// Send so many bytes from there.
    Gd(Span, u16),
    /// The payload is what the GD or AOP with this sequence number asked for; or why there is none.
    Sdp(Result<(), Reason>),
    /// Change 8 bytes there, unless the operation with this ticket is done, and send what they were.
    Aop(Span, Atomic),
}

impl Message {
    /// What packets that say this are.
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

    /// The memory of the server that a packet for its card wants to reach.
    #[inline]
    pub const fn span(&self) -> Option<&Span> {
        match self {
            Self::Rdp(span) | Self::Gd(span, _) | Self::Aop(span, _) => Some(span),
            _ => None,
        }
    }

    /// As [`Self::span`], to be changed.
    #[inline]
    pub const fn span_mut(&mut self) -> Option<&mut Span> {
        match self {
            Self::Rdp(span) | Self::Gd(span, _) | Self::Aop(span, _) => Some(span),
            _ => None,
        }
    }

    /// Bytes of the headers before the payload.
    #[inline]
    pub(super) const fn header_len(&self) -> usize {
        let more = match self {
            Self::Wqep(element) => element.header_len() - Element::LEN,
            _ => 0,
        };
        self.packet_type().header_len() + more
    }

    /// The length field of a packet with `payload_len` bytes of payload; `None` where it cannot have so many.
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

    /// Whether this is a refusal.
    #[inline]
    pub(super) const fn is_refusal(&self) -> bool {
        matches!(self, Self::Ra(Err(_)) | Self::Sdp(Err(_)))
    }
}
