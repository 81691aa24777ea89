//! The IP header of a frame to segment: parsed once, rewritten per packet.

use nichrome_wire::checksum::Sum;
use nichrome_wire::{
    AddressPair, EtherType, EthernetError, GsoType, IpProtocol, Ipv4Error, Ipv4Header, Ipv4HeaderMut,
    Ipv6Error, Ipv6Extension, Ipv6Header, Ipv6HeaderMut, LinkHeader,
};

use crate::error::SegmentError;

/// An IP packet with consistent lengths, within the frame.
pub(crate) struct IpPacket<'a> {
    /// Offset of the IP header in the frame, in bytes.
    pub(crate) network: usize,
    /// Offset of the transport header in the frame, in bytes.
    pub(crate) transport: usize,
    pub(crate) addresses: AddressPair,
    pub(crate) protocol: IpProtocol,
    /// The transport header and the bytes behind it, without Ethernet padding.
    pub(crate) payload: &'a [u8],
}

impl<'a> IpPacket<'a> {
    pub(crate) fn parse(frame: &'a [u8]) -> Result<Self, SegmentError> {
        let link = LinkHeader::new(frame).ok_or(EthernetError::Truncated(frame.len()))?;
        Self::parse_as(link.ethertype(), link.payload(), link.header_len())
    }

    /// Parses a packet that is at `network` in the frame.
    pub(crate) fn parse_as(
        ethertype: EtherType,
        packet: &'a [u8],
        network: usize,
    ) -> Result<Self, SegmentError> {
        match ethertype {
            EtherType::IPV4 => Self::parse_ipv4(packet, network),
            EtherType::IPV6 => Self::parse_ipv6(packet, network),
            other => Err(SegmentError::NotIp(other)),
        }
    }

    fn parse_ipv4(packet: &'a [u8], network: usize) -> Result<Self, SegmentError> {
        let truncated = |expected| Ipv4Error::Truncated { len: packet.len(), expected };
        let header = Ipv4Header::new(packet).ok_or(truncated(Ipv4Header::LEN))?;
        let (header_len, total_len) = (header.header_len(), header.total_len());
        if header.version() != 4 {
            return Err(Ipv4Error::Version(header.version()).into());
        }
        if header_len < Ipv4Header::LEN {
            return Err(Ipv4Error::HeaderLength(header_len).into());
        }
        if usize::from(total_len) < header_len {
            return Err(Ipv4Error::TotalLength(total_len).into());
        }
        let payload = header.payload().ok_or(truncated(usize::from(total_len)))?;
        if header.is_fragment() {
            return Err(SegmentError::Fragment);
        }
        Ok(Self {
            network,
            transport: network + header_len,
            addresses: AddressPair::V4 { src: header.src(), dst: header.dst() },
            protocol: header.protocol(),
            payload,
        })
    }

    fn parse_ipv6(packet: &'a [u8], network: usize) -> Result<Self, SegmentError> {
        let truncated = |expected| Ipv6Error::Truncated { len: packet.len(), expected };
        let header = Ipv6Header::new(packet).ok_or(truncated(Ipv6Header::LEN))?;
        if header.version() != 6 {
            return Err(Ipv6Error::Version(header.version()).into());
        }
        let payload_len = usize::from(header.payload_len());
        if payload_len == 0 {
            return Err(Ipv6Error::PayloadLength.into());
        }
        let after_header = header.payload().ok_or(truncated(Ipv6Header::LEN + payload_len))?;
        let upper = header.upper_layer()?;
        if upper.fragment.is_some_and(|fragment| !fragment.is_atomic()) {
            return Err(SegmentError::Fragment);
        }
        for extension in header.extensions() {
            check_extension(&extension?)?;
        }
        Ok(Self {
            network,
            transport: network + Ipv6Header::LEN + upper.offset,
            addresses: AddressPair::V6 { src: header.src(), dst: header.dst() },
            protocol: upper.protocol,
            payload: after_header.get(upper.offset..).unwrap_or(&[]),
        })
    }

    /// Returns the offset of the packet's end in the frame, in bytes.
    pub(crate) fn end(&self) -> usize {
        self.transport + self.payload.len()
    }

    /// Checks that the packet ends at `end`, where the surrounding tunnel ends: an offset in the frame, in
    /// bytes.
    pub(crate) fn until(self, end: usize) -> Result<Self, SegmentError> {
        match end - self.end() {
            0 => Ok(self),
            behind => Err(SegmentError::BehindTunneled(behind)),
        }
    }

    /// Checks that the packet matches the virtio header's segmentation type.
    pub(crate) fn check_type(&self, gso_type: GsoType) -> Result<(), SegmentError> {
        let (version, protocol) = (self.version(), self.protocol);
        let fits = match gso_type {
            GsoType::TcpV4(_) => version == 4 && protocol == IpProtocol::TCP,
            GsoType::TcpV6(_) => version == 6 && protocol == IpProtocol::TCP,
            GsoType::Udp | GsoType::UdpL4 => protocol == IpProtocol::UDP,
        };
        if fits { Ok(()) } else { Err(SegmentError::Mismatch { gso_type, version, protocol }) }
    }

    fn version(&self) -> u8 {
        match self.addresses {
            AddressPair::V4 { .. } => 4,
            AddressPair::V6 { .. } => 6,
        }
    }
}

/// Rejects extension headers that differ between packets or change the pseudo-header.
fn check_extension(extension: &Ipv6Extension<'_>) -> Result<(), SegmentError> {
    match (extension.protocol, extension.bytes) {
        (IpProtocol::AH, _) => Err(SegmentError::Authenticated),
        // Segments left (RFC 8200 section 4.4): if not 0, the checksum covers another destination (section
        // 8.1).
        (IpProtocol::ROUTING, [_, _, _, 1..=255, ..]) => Err(SegmentError::Routed),
        _ if extension.has_home_address() => Err(SegmentError::HomeAddress),
        _ => Ok(()),
    }
}

/// The per-packet fields of the IP header, and the constant part of the header checksum.
#[derive(Clone, Debug)]
pub(crate) enum IpFields {
    /// Checksum sum of the header without total length, identification and checksum; the next packet's
    /// identification.
    V4 {
        sum: Sum,
        ident: u16,
        /// Increment of the identification per packet.
        ident_step: u16,
    },
    V6,
}

impl IpFields {
    /// Reads the fields of `packet` in `frame`.
    pub(crate) fn read(frame: &[u8], packet: &IpPacket<'_>) -> Self {
        let header = &frame[packet.network..packet.transport];
        match (packet.addresses, Ipv4Header::new(header)) {
            (AddressPair::V4 { .. }, Some(ipv4)) => {
                Self::V4 { sum: sum_without(header, &[2, 4, 10]), ident: ipv4.ident(), ident_step: 1 }
            }
            _ => Self::V6,
        }
    }

    /// Makes all packets have the first one's identification.
    pub(crate) fn fix_identification(&mut self) {
        if let Self::V4 { ident_step, .. } = self {
            *ident_step = 0;
        }
    }

    /// Writes the fields of `packet`, which begins with the IP header.
    #[inline]
    pub(crate) fn write(&mut self, packet: &mut [u8]) {
        let len = packet.len();
        match self {
            Self::V4 { sum, ident, ident_step } => {
                let Some(mut header) = Ipv4HeaderMut::new(packet) else { return };
                header.set_total_len(len as u16);
                header.set_ident(*ident);
                header.set_checksum(sum.add_u32(len as u32).add_u32(u32::from(*ident)).finish());
                *ident = ident.wrapping_add(*ident_step);
            }
            Self::V6 => {
                let Some(mut header) = Ipv6HeaderMut::new(packet) else { return };
                header.set_payload_len((len - Ipv6Header::LEN) as u16);
            }
        }
    }
}

/// Sums an IPv4 header without the 16-bit words at the offsets `left_out`, all below 20.
pub(crate) fn sum_without(header: &[u8], left_out: &[usize]) -> Sum {
    let Some((&(mut fixed), options)) = header.split_first_chunk::<{ Ipv4Header::LEN }>() else {
        return Sum::new();
    };
    for &at in left_out {
        fixed[at..at + 2].fill(0);
    }
    Sum::new().add_bytes(&fixed).add_bytes(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nichrome_wire::{Network, TcpFrame};

    fn frame() -> Vec<u8> {
        let mut frame = TcpFrame { payload: vec![1, 2, 3], ..TcpFrame::default() };
        if let Network::Ipv4 { options, .. } = &mut frame.network {
            *options = vec![1; 8];
        }
        frame.build()
    }

    #[test]
    fn padding_is_not_of_the_packet() {
        let mut frame = frame();
        frame.extend([0; 5]);
        let packet = IpPacket::parse(&frame).unwrap();
        assert_eq!((packet.network, packet.transport, packet.payload.len()), (14, 14 + 28, 20 + 3));
    }

    #[test]
    fn fields_outside_the_partial_sum_are_added_for_each_packet() {
        let mut frame = frame();
        let packet = IpPacket::parse(&frame).unwrap();
        let mut fields = IpFields::read(&frame, &packet);
        let before = frame.clone();
        fields.write(&mut frame[14..]);
        assert_eq!(frame, before);
        fields.write(&mut frame[14..]);
        let header = Ipv4Header::new(&frame[14..]).unwrap();
        assert!(header.ident() == 1 && header.has_valid_checksum());
    }
}
