//! How a frame becomes packets: their places in it, and the fields that differ between them.

use std::ops::Range;

use nichrome_wire::checksum::Sum;

use crate::checksum;
use crate::fragment::FragmentFields;
use crate::ip::IpPacket;
use crate::place::Place;
use crate::tcp::TcpFields;
use crate::tunnel::Tunnel;
use crate::udp::UdpFields;

/// The packets that are still to be written, by their places in the frame.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Length of the headers that every packet begins with, as the frame does, in bytes.
    pub(crate) header_len: usize,
    /// The payload not sent yet.
    payload: Range<usize>,
    /// Payload of each packet but the last, in bytes; not 0 if there is payload.
    size: usize,
    pub(crate) remaining: usize,
    is_first: bool,
    pub(crate) tunnel: Option<Tunnel>,
    pub(crate) fields: Fields,
}

/// The per-packet fields.
#[derive(Clone, Debug)]
pub(crate) enum Fields {
    /// None: the frame is sent unchanged.
    None,
    /// A checksum over the whole payload, at this offset in it.
    Checksum(u16),
    Tcp(TcpFields),
    Udp(UdpFields),
    Fragment(FragmentFields),
}

impl Fields {
    /// Returns true if the checksum of each payload is needed.
    fn needs_sum(&self) -> bool {
        match self {
            Self::None | Self::Fragment(_) => false,
            Self::Tcp(fields) => fields.needs_sum(),
            Self::Checksum(_) | Self::Udp(_) => true,
        }
    }
}

impl Plan {
    pub(crate) fn new(header_len: usize, payload: Range<usize>, size: usize, fields: Fields) -> Self {
        let remaining = payload.len().div_ceil(size.max(1)).max(1);
        Self { header_len, payload, size, remaining, is_first: true, tunnel: None, fields }
    }

    /// Prepares `packet`, whose transport header has `header_len` bytes.
    pub(crate) fn of(packet: &IpPacket<'_>, header_len: usize, size: usize, fields: Fields) -> Self {
        let header_len = packet.transport + header_len;
        Self::new(header_len, header_len..packet.end(), size, fields)
    }

    /// Sets the tunnel that contains the packets; `None` outside a tunnel.
    pub(crate) fn in_tunnel(self, tunnel: Option<Tunnel>) -> Self {
        Self { tunnel, ..self }
    }

    /// Returns the total length of the remaining packets, in bytes.
    #[inline]
    pub(crate) fn bytes_remaining(&self) -> usize {
        self.remaining * self.header_len + self.payload.len()
    }

    /// Returns the length of the next packet, in bytes; 0 if there is none.
    #[inline]
    pub(crate) fn packet_len(&self) -> usize {
        if self.remaining == 0 { 0 } else { self.header_len + self.payload.len().min(self.size) }
    }

    /// Takes the payload of the next packet; `None` if there is none.
    #[inline]
    pub(crate) fn next_payload(&mut self) -> Option<Range<usize>> {
        if self.remaining == 0 {
            return None;
        }
        let start = self.payload.start;
        self.payload.start += self.payload.len().min(self.size);
        Some(start..self.payload.start)
    }

    /// Returns the sum of a payload, if a checksum needs it.
    #[inline]
    pub(crate) fn sum(&self, payload: &[u8]) -> Sum {
        if self.fields.needs_sum() { Sum::new().add_bytes(payload) } else { Sum::new() }
    }

    /// Writes the per-packet fields of `packet`, whose payload was taken last and has this sum. `packet`
    /// begins with a copy of the header of the frame or of the previous packet.
    #[inline]
    pub(crate) fn write_fields(&mut self, packet: &mut [u8], sum: Sum) {
        let place = Place { is_first: self.is_first, is_last: self.remaining == 1 };
        match &mut self.fields {
            Fields::None => (),
            Fields::Checksum(offset) => {
                checksum::put(&mut packet[self.header_len..], *offset, sum.finish());
            }
            Fields::Tcp(fields) => fields.write(packet, self.header_len, sum, place),
            Fields::Udp(fields) => fields.write(packet, sum),
            Fields::Fragment(fields) => fields.write(packet, self.header_len, place),
        }
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.write(packet);
        }
        self.remaining -= 1;
        self.is_first = false;
    }
}
