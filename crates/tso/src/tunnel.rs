//! The tunnel header around an IP packet to segment: parsed once, rewritten per packet.

use nichrome_wire::{
    AddressPair, EtherType, EthernetError, IpProtocol, LinkHeader, UdpHeaderMut, transmitted_checksum,
};

use crate::error::SegmentError;
use crate::ip::{IpFields, IpPacket};
use crate::udp;

/// Length of the PPPoE and PPP headers, in bytes.
const PPPOE_LEN: usize = 8;
/// Bytes of them that PPPoE's length field does not cover.
const PPPOE_UNCOVERED: usize = 6;

/// Length of the UDP and VXLAN headers (RFC 7348 section 5), in bytes.
const VXLAN_LEN: usize = 16;

/// A tunnel header, at `at` in the frame, in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Tunnel {
    pub(crate) at: usize,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// IPv4 (RFC 2003, RFC 4213) or IPv6 (RFC 2473).
    Ip(IpFields),
    /// PPP over Ethernet (RFC 2516 section 6).
    Pppoe,
    /// VXLAN (RFC 7348) within IP.
    Vxlan {
        ip: IpFields,
        /// Offset of the UDP header in the tunnel header, in bytes.
        transport: usize,
        /// The addresses that the UDP checksum covers; `None` without a checksum.
        covered: Option<AddressPair>,
    },
}

impl Tunnel {
    /// Parses the IP packet of a frame, within its tunnel if there is one. A tunnel within a tunnel is not entered.
    pub(crate) fn enter(frame: &[u8]) -> Result<(Option<Self>, IpPacket<'_>), SegmentError> {
        let link = LinkHeader::new(frame).ok_or(EthernetError::Truncated(frame.len()))?;
        if link.ethertype() == EtherType::PPPOE_SESSION {
            let at = link.header_len();
            let (ethertype, packet) =
                through_pppoe(link.payload()).ok_or(SegmentError::NotIp(link.ethertype()))?;
            let packet = IpPacket::parse_as(ethertype, packet, at + PPPOE_LEN)?;
            return Ok((Some(Self { at, kind: Kind::Pppoe }), packet));
        }
        let outer = IpPacket::parse(frame)?;
        let ethertype = match outer.protocol {
            IpProtocol::IPV4 => EtherType::IPV4,
            IpProtocol::IPV6 => EtherType::IPV6,
            _ => return Ok((None, outer)),
        };
        let kind = Kind::Ip(IpFields::read(frame, &outer));
        let packet = IpPacket::parse_as(ethertype, outer.payload, outer.transport)?;
        Ok((Some(Self { at: outer.network, kind }), packet))
    }

    /// Parses the IP packet whose transport header is at `transport` in a frame with a virtio header: the frame's own, or that
    /// within a tunnel, which may also be VXLAN, at any port.
    pub(crate) fn enter_until(
        frame: &[u8],
        transport: u16,
    ) -> Result<(Option<Self>, IpPacket<'_>), SegmentError> {
        let outer = IpPacket::parse(frame)?;
        match outer.protocol {
            _ if outer.transport >= usize::from(transport) => Ok((None, outer)),
            IpProtocol::IPV4 | IpProtocol::IPV6 => Self::enter(frame),
            IpProtocol::UDP => match Self::vxlan(frame, &outer) {
                Some((tunnel, packet)) if packet.transport == usize::from(transport) => {
                    Ok((Some(tunnel), packet))
                }
                _ => Ok((None, outer)),
            },
            _ => Ok((None, outer)),
        }
    }

    /// Parses the IP packet that the datagram `outer` would contain as VXLAN.
    fn vxlan<'a>(frame: &[u8], outer: &IpPacket<'a>) -> Option<(Self, IpPacket<'a>)> {
        let has_checksum = udp::check_header(outer).ok()?.checksum() != 0;
        let link = LinkHeader::new(outer.payload.get(VXLAN_LEN..)?)?;
        let at = outer.transport + VXLAN_LEN + link.header_len();
        let packet = IpPacket::parse_as(link.ethertype(), link.payload(), at).ok()?;
        let kind = Kind::Vxlan {
            ip: IpFields::read(frame, outer),
            transport: outer.transport - outer.network,
            covered: has_checksum.then_some(outer.addresses),
        };
        Some((Self { at: outer.network, kind }, packet))
    }

    /// Makes all packets have the first one's identification in the tunnel header.
    pub(crate) fn fix_identification(&mut self) {
        match &mut self.kind {
            Kind::Ip(ip) | Kind::Vxlan { ip, .. } => ip.fix_identification(),
            Kind::Pppoe => {}
        }
    }

    /// Writes the fields of the header in a packet, which is complete but for them.
    pub(crate) fn write(&mut self, packet: &mut [u8]) {
        let tunneled = &mut packet[self.at..];
        match &mut self.kind {
            Kind::Ip(fields) => fields.write(tunneled),
            Kind::Pppoe => {
                let len = (tunneled.len() - PPPOE_UNCOVERED) as u16;
                tunneled[4..6].copy_from_slice(&len.to_be_bytes());
            }
            Kind::Vxlan { ip, transport, covered } => {
                ip.write(tunneled);
                write_datagram(&mut tunneled[*transport..], *covered);
            }
        }
    }
}

/// Writes length and checksum of a UDP datagram, which is complete but for them.
fn write_datagram(datagram: &mut [u8], covered: Option<AddressPair>) {
    let length = datagram.len();
    let Some(mut header) = UdpHeaderMut::new(datagram) else { return };
    header.set_length(length as u16);
    header.set_checksum(0);
    let Some(addresses) = covered else { return };
    let sum = addresses.pseudo_header(IpProtocol::UDP, length as u32).add_bytes(datagram);
    if let Some(mut header) = UdpHeaderMut::new(datagram) {
        header.set_checksum(transmitted_checksum(sum.finish()));
    }
}

/// Returns the protocol and the bytes of a packet in PPPoE session data: version and type 1, code 0, session, length,
/// PPP protocol.
fn through_pppoe(data: &[u8]) -> Option<(EtherType, &[u8])> {
    let ([0x11, 0, _, _, high, low, 0, protocol], _) = data.split_first_chunk()? else { return None };
    let ethertype = match protocol {
        0x21 => EtherType::IPV4,
        0x57 => EtherType::IPV6,
        _ => return None,
    };
    let end = PPPOE_UNCOVERED + usize::from(u16::from_be_bytes([*high, *low]));
    Some((ethertype, data.get(PPPOE_LEN..end)?))
}
