//! What a packet says besides the common header, as types.

use super::capability::Capability;
use super::completion::Cqe;
use super::element::Element;
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
}

impl Reason {
    /// Every reason, in the order of the codes.
    pub const ALL: [Self; 10] = [
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
    ];

    /// The reason of this code; `None` where there is none.
    pub const fn new(code: u16) -> Option<Self> {
        match code {
            1..=10 => Some(Self::ALL[code as usize - 1]),
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
    /// The payload is what the GD with this sequence number asked for; or why there is none.
    Sdp(Result<(), Reason>),
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
            Self::Ra(Err(reason)) | Self::Sdp(Err(reason)) => Some(*reason as u16),
        }
    }

    /// Whether this is a refusal.
    #[inline]
    pub(super) const fn is_refusal(&self) -> bool {
        matches!(self, Self::Ra(Err(_)) | Self::Sdp(Err(_)))
    }
}
