//! A whole StaR datagram with typed headers, payload and authentication.

use crate::bytes::{array, be32};
use crate::rdma::{QpNumber, UdpFlow};
use crate::seq::SeqNumber;

use super::capability::Capability;
use super::check::AddressBytes;
use super::completion::Cqe;
use super::element::Element;
use super::error::StarError;
use super::header::{CommonHeader, Flags, common_header};
use super::message::{Atomic, Message, Reason, Span};
use super::packet_type::PacketType;
use super::{AUTHENTICATION_LEN, CHECK_LEN, VERSION};

/// A time in microseconds of the server's clock, modulo 2³².
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stamp(pub u32);

/// Proof that a packet comes from an admitted client, or from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Authentication {
    /// A keyed hash of the addresses and of all bytes before it.
    pub tag: u64,
}

impl Authentication {
    fn from_bytes(bytes: &[u8; AUTHENTICATION_LEN]) -> Self {
        Self { tag: u64::from_be_bytes(*bytes) }
    }

    /// Applies `hash` to the two parts that the tag of a received, authenticated `datagram` covers: the
    /// addresses, and the datagram up to the tag. `None` if it is too short to have a tag.
    pub fn covered<T>(flow: &UdpFlow, datagram: &[u8], hash: impl FnOnce(&[u8], &[u8]) -> T) -> Option<T> {
        let len = datagram.len().checked_sub(AUTHENTICATION_LEN)?;
        Some(hash(AddressBytes::new(&flow.addresses).as_slice(), &datagram[..len]))
    }
}

/// The headers of a packet. Version, type and length derive from the message. [`Flags::REFUSED`],
/// [`Flags::AUTHENTICATED`] and the type's mandatory flags are set when writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr {
    /// The flags; those that the type does not have are not written.
    pub flags: Flags,
    /// The receiver's number of the connection. On RDP, GD and AOP the client's, which the answers copy.
    pub connection: QpNumber,
    /// The sequence number.
    pub sequence: SeqNumber,
    /// RDP, GD and AOP: expiry of the packet. RA and SDP: the server's time. Otherwise 0.
    pub stamp: Stamp,
    /// The content.
    pub message: Message,
}

impl Repr {
    /// Parses `datagram`, a UDP payload; returns headers, payload and authentication. Verifies neither the
    /// check nor the tag: see [`PacketCheck`](super::PacketCheck).
    #[inline]
    pub fn parse(datagram: &[u8]) -> Result<(Self, &[u8], Option<Authentication>), StarError> {
        let short = |expected| StarError::Length { len: datagram.len(), expected };
        let header = CommonHeader::new(datagram).ok_or(short(CommonHeader::LEN + CHECK_LEN))?;
        if header.version() != VERSION {
            return Err(StarError::Version(header.version()));
        }
        let kind = PacketType::new(header.type_code()).ok_or(StarError::Type(header.type_code()))?;
        let flags = header.flags();
        if !kind.allows(flags) {
            return Err(StarError::Flags { kind, flags });
        }
        let connection =
            QpNumber::new(header.connection()).ok_or(StarError::Connection(header.connection()))?;
        let minimum = kind.header_len() + trailer_len(flags);
        let body = datagram.len().checked_sub(minimum).map(|more| {
            let end = kind.header_len() + more;
            &datagram[CommonHeader::LEN..end]
        });
        let body = body.ok_or(short(minimum))?;
        let (message, payload) =
            read_message(kind, &header, body).ok_or(short(minimum + Element::trailing_len(body)))??;
        check_length(&message, &header, payload.len(), datagram.len())?;
        let authentication = if flags.contains(Flags::AUTHENTICATED) {
            datagram.last_chunk().map(Authentication::from_bytes)
        } else {
            None
        };
        Ok((
            Self {
                flags,
                connection,
                sequence: SeqNumber(header.sequence()),
                stamp: Stamp(header.stamp()),
                message,
            },
            payload,
            authentication,
        ))
    }

    /// Returns the length of a datagram with `payload_len` bytes of payload: headers, payload, authentication
    /// if the flags have it, and check.
    #[inline]
    pub fn datagram_len(&self, payload_len: usize) -> usize {
        self.message.header_len() + payload_len + trailer_len(self.flags)
    }

    /// Returns the flags as written.
    #[inline]
    pub(super) fn written_flags(&self) -> Flags {
        let kind = self.message.packet_type();
        let flags = self.flags.without(Flags::REFUSED).within(kind.flags());
        let refused = if self.message.is_refusal() { Flags::REFUSED } else { Flags::NONE };
        let to_server = if kind == PacketType::Cqep { Flags::TO_SERVER } else { Flags::NONE };
        flags | refused | to_server
    }

    /// Passes the encoded headers in pieces to `put`; returns false if the packet cannot have `payload_len`
    /// bytes of payload.
    #[inline]
    pub(super) fn write(&self, payload_len: usize, mut put: impl FnMut(&[u8])) -> bool {
        let Some(length) = self.message.length_field(payload_len) else { return false };
        let first = VERSION << 4 | self.message.packet_type() as u8;
        let (connection, sequence) = (self.connection.value(), self.sequence.0);
        put(&common_header(first, self.written_flags(), length, connection, sequence, self.stamp.0));
        match self.message {
            Message::Wqep(element) => element.write(&mut put),
            Message::Cqep(cqe) => put(&cqe.to_bytes()),
            Message::Rdp(span) | Message::Gd(span, _) | Message::Aop(span, _) => {
                put(&span.address.to_be_bytes());
                put(&span.key.to_be_bytes());
                put(&span.capability.to_bytes());
                if let Message::Aop(_, atomic) = self.message {
                    put(&atomic.to_bytes());
                }
            }
            Message::Ea | Message::Ra(_) | Message::Sdp(_) => {}
        }
        true
    }
}

/// Returns the length behind the payload, in bytes.
#[inline]
const fn trailer_len(flags: Flags) -> usize {
    if flags.contains(Flags::AUTHENTICATED) { AUTHENTICATION_LEN } else { CHECK_LEN }
}

/// Parses message and payload; `None` if the bytes end within the headers.
#[inline]
fn read_message<'a>(
    kind: PacketType,
    header: &CommonHeader<'_>,
    body: &'a [u8],
) -> Option<Result<(Message, &'a [u8]), StarError>> {
    let outcome = || match header.flags().contains(Flags::REFUSED) {
        false => Ok(Ok(header.length())),
        true => Reason::new(header.length()).map(Err).ok_or(StarError::Reason(header.length())),
    };
    let plain = |message| Some(Ok((message, body)));
    match kind {
        PacketType::Wqep => {
            let (element, payload) = Element::read(body)?;
            Some(element.map(|element| (Message::Wqep(element), payload)))
        }
        PacketType::Cqep => {
            let (bytes, payload) = body.split_first_chunk()?;
            Some(Cqe::from_bytes(bytes).map(|cqe| (Message::Cqep(cqe), payload)))
        }
        PacketType::Ea => plain(Message::Ea),
        PacketType::Ra => Some(outcome().map(|outcome| (Message::Ra(outcome), body))),
        PacketType::Sdp => Some(outcome().map(|outcome| (Message::Sdp(outcome.map(|_| ())), body))),
        PacketType::Rdp | PacketType::Gd | PacketType::Aop => {
            let (bytes, payload) = body.split_first_chunk::<{ Span::LEN }>()?;
            let (_, capability) = bytes.split_last_chunk()?;
            let capability = match Capability::from_bytes(capability) {
                Ok(capability) => capability,
                Err(error) => return Some(Err(error)),
            };
            let span = Span { address: u64::from_be_bytes(array(bytes, 0)), key: be32(bytes, 8), capability };
            let (message, payload) = match kind {
                PacketType::Rdp => (Message::Rdp(span), payload),
                PacketType::Gd => (Message::Gd(span, header.length()), payload),
                _ => {
                    let (atomic, payload) = payload.split_first_chunk()?;
                    match Atomic::from_bytes(atomic) {
                        Ok(atomic) => (Message::Aop(span, atomic), payload),
                        Err(error) => return Some(Err(error)),
                    }
                }
            };
            Some(Ok((message, payload)))
        }
    }
}

/// Checks the length field against the payload.
#[inline]
fn check_length(
    message: &Message,
    header: &CommonHeader<'_>,
    payload_len: usize,
    len: usize,
) -> Result<(), StarError> {
    if message.length_field(payload_len) == Some(header.length()) {
        return Ok(());
    }
    let around = len - payload_len;
    match message {
        Message::Cqep(_) | Message::Ea | Message::Aop(..) if payload_len == 0 => {
            Err(StarError::UnusedLength { kind: message.packet_type(), length: header.length() })
        }
        Message::Wqep(_) | Message::Rdp(_) | Message::Sdp(Ok(())) => {
            Err(StarError::Length { len, expected: around + usize::from(header.length()) })
        }
        _ => Err(StarError::Length { len, expected: around }),
    }
}
