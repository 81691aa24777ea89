//! The tunnel header around an IP packet to segment: parsed once, rewritten per packet.

use nichrome_wire::{EtherType, EthernetError, IpProtocol, LinkHeader};

use crate::error::SegmentError;
use crate::ip::{IpFields, IpPacket};

/// Length of the PPPoE and PPP headers, in bytes.
const PPPOE_LEN: usize = 8;
/// Bytes of them that PPPoE's length field does not cover.
const PPPOE_UNCOVERED: usize = 6;

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

    /// Makes all packets have the first one's identification in the tunnel header.
    pub(crate) fn fix_identification(&mut self) {
        if let Kind::Ip(fields) = &mut self.kind {
            fields.fix_identification();
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
        }
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
