//! The tunnel header around an IP packet to segment: parsed once, rewritten per packet.

use nichrome_wire::checksum::Sum;
use nichrome_wire::{
    AddressPair, EtherType, EthernetError, IpProtocol, LinkHeader, PppoeHeader, UdpHeader, UdpHeaderMut,
    transmitted_checksum,
};

use crate::error::SegmentError;
use crate::ip::{IpFields, IpPacket};
use crate::udp;

/// The destination port of VXLAN (RFC 7348 section 5).
const VXLAN_PORT: u16 = 4789;
/// The flags of a VXLAN header: I (RFC 7348 section 5), and G for a group policy
/// (draft-smith-vxlan-group-policy).
const VXLAN_FLAGS: u8 = 0x08;
const VXLAN_GROUP_POLICY: u8 = 0x80;
/// Length of the VXLAN header, in bytes.
const VXLAN_LEN: usize = 8;
/// The destination port of Geneve (RFC 8926 section 3.3).
const GENEVE_PORT: u16 = 6081;
/// Length of the Geneve header without options (RFC 8926 section 3.4), in bytes.
const GENEVE_LEN: usize = 8;

/// Length of the GRE header without optional fields (RFC 2784 section 2.1), in bytes.
const GRE_LEN: usize = 4;
/// Offset of the checksum in a GRE header that has one, in bytes.
const GRE_CHECKSUM_AT: usize = 4;
/// Length of each optional field of a GRE header: checksum and reserved bits, key (RFC 2890 section 2).
const GRE_FIELD_LEN: usize = 4;

/// An Ethernet frame in a tunnel (RFC 7637 section 3.2).
const BRIDGED: EtherType = EtherType(0x6558);

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
    /// VXLAN (RFC 7348) or Geneve (RFC 8926) within IP.
    Udp {
        ip: IpFields,
        /// Offset of the UDP header in the tunnel header, in bytes.
        transport: usize,
        /// The addresses that the UDP checksum covers; `None` without a checksum.
        covered: Option<AddressPair>,
    },
    /// GRE (RFC 2784) within IP.
    Gre {
        ip: IpFields,
        /// Offset of the GRE header in the tunnel header, in bytes.
        transport: usize,
        has_checksum: bool,
    },
}

impl Tunnel {
    /// Parses the IP packet of a frame or, inside IP or PPP over Ethernet, the inner packet, which must end
    /// where the tunnel's payload ends. Does not enter a tunnel within a tunnel.
    pub(crate) fn enter(frame: &[u8]) -> Result<(Option<Self>, IpPacket<'_>), SegmentError> {
        let link = LinkHeader::new(frame).ok_or(EthernetError::Truncated(frame.len()))?;
        if link.ethertype() == EtherType::PPPOE_SESSION {
            let at = link.header_len();
            let (ethertype, packet) =
                through_pppoe(link.payload()).ok_or(SegmentError::NotIp(link.ethertype()))?;
            let end = at + PppoeHeader::LEN + packet.len();
            let packet = IpPacket::parse_as(ethertype, packet, at + PppoeHeader::LEN)?.until(end)?;
            return Ok((Some(Self { at, kind: Kind::Pppoe }), packet));
        }
        let outer = IpPacket::parse(frame)?;
        let ethertype = match outer.protocol {
            IpProtocol::IPV4 => EtherType::IPV4,
            IpProtocol::IPV6 => EtherType::IPV6,
            _ => return Ok((None, outer)),
        };
        let kind = Kind::Ip(IpFields::read(frame, &outer));
        let packet = IpPacket::parse_as(ethertype, outer.payload, outer.transport)?.until(outer.end())?;
        Ok((Some(Self { at: outer.network, kind }), packet))
    }

    /// As [`Tunnel::enter`], also within VXLAN and Geneve at their ports.
    pub(crate) fn enter_any(frame: &[u8]) -> Result<(Option<Self>, IpPacket<'_>), SegmentError> {
        let (tunnel, outer) = Self::enter(frame)?;
        if tunnel.is_some() || outer.protocol != IpProtocol::UDP {
            return Ok((tunnel, outer));
        }
        let Some(contents) = at_its_port(outer.payload) else { return Ok((None, outer)) };
        let (tunnel, packet) = Self::udp(frame, &outer, &contents)?;
        Ok((Some(tunnel), packet))
    }

    /// Parses the IP packet whose transport header is at `transport`, in a frame with a virtio header: the
    /// frame's own packet, or one inside IP, GRE, or VXLAN or Geneve at any port.
    pub(crate) fn enter_until(
        frame: &[u8],
        transport: u16,
    ) -> Result<(Option<Self>, IpPacket<'_>), SegmentError> {
        let transport = usize::from(transport);
        let outer = IpPacket::parse(frame)?;
        if outer.transport >= transport {
            return Ok((None, outer));
        }
        let is_there = |(_, packet): &(Self, IpPacket<'_>)| packet.transport == transport;
        let entered = match outer.protocol {
            IpProtocol::IPV4 | IpProtocol::IPV6 => return Self::enter(frame),
            IpProtocol::UDP => {
                let payload = outer.payload.get(UdpHeader::LEN..).unwrap_or_default();
                [vxlan(payload), geneve(payload)]
                    .iter()
                    .flatten()
                    .find_map(|contents| Self::udp(frame, &outer, contents).ok().filter(is_there))
            }
            IpProtocol::GRE => Self::gre(frame, &outer).filter(is_there),
            _ => None,
        };
        Ok(entered.map_or((None, outer), |(tunnel, packet)| (Some(tunnel), packet)))
    }

    /// Parses the IP packet in `contents`, which the datagram `outer` carries.
    fn udp<'a>(
        frame: &[u8],
        outer: &IpPacket<'_>,
        contents: &Contents<'a>,
    ) -> Result<(Self, IpPacket<'a>), SegmentError> {
        let has_checksum = udp::check_header(outer)?.checksum() != 0;
        let packet = contents.parse(outer)?;
        let kind = Kind::Udp {
            ip: IpFields::read(frame, outer),
            transport: outer.transport - outer.network,
            covered: has_checksum.then_some(outer.addresses),
        };
        Ok((Self { at: outer.network, kind }, packet))
    }

    /// Parses the IP packet that `outer` contains as GRE, without sequence numbers.
    fn gre<'a>(frame: &[u8], outer: &IpPacket<'a>) -> Option<(Self, IpPacket<'a>)> {
        let [flags, version, ..] = *outer.payload else { return None };
        let has_checksum = flags & 0x80 != 0;
        let has_key = flags & 0x20 != 0;
        if flags & !0xA0 != 0 || version != 0 {
            return None;
        }
        let len = GRE_LEN + GRE_FIELD_LEN * (usize::from(has_checksum) + usize::from(has_key));
        let contents =
            Contents { ethertype: ethertype_at(outer.payload, 2)?, bytes: outer.payload.get(len..)? };
        let packet = contents.parse(outer).ok()?;
        let kind = Kind::Gre {
            ip: IpFields::read(frame, outer),
            transport: outer.transport - outer.network,
            has_checksum,
        };
        Some((Self { at: outer.network, kind }, packet))
    }

    /// Makes all packets have the first one's identification in the tunnel header.
    pub(crate) fn fix_identification(&mut self) {
        match &mut self.kind {
            Kind::Ip(ip) | Kind::Udp { ip, .. } | Kind::Gre { ip, .. } => ip.fix_identification(),
            Kind::Pppoe => {}
        }
    }

    /// Writes the per-packet fields of the tunnel header into `packet`, which is otherwise complete.
    pub(crate) fn write(&mut self, packet: &mut [u8]) {
        let tunneled = &mut packet[self.at..];
        match &mut self.kind {
            Kind::Ip(fields) => fields.write(tunneled),
            Kind::Pppoe => {
                let len = (tunneled.len() - PppoeHeader::UNCOVERED) as u16;
                tunneled[4..6].copy_from_slice(&len.to_be_bytes());
            }
            Kind::Udp { ip, transport, covered } => {
                ip.write(tunneled);
                write_datagram(&mut tunneled[*transport..], *covered);
            }
            Kind::Gre { ip, transport, has_checksum } => {
                ip.write(tunneled);
                if *has_checksum {
                    write_gre_checksum(&mut tunneled[*transport..]);
                }
            }
        }
    }
}

/// What a tunnel contains: an IP packet, or an Ethernet frame.
struct Contents<'a> {
    ethertype: EtherType,
    bytes: &'a [u8],
}

impl<'a> Contents<'a> {
    /// Parses the IP packet, which must end where the contents and `outer` end.
    fn parse(&self, outer: &IpPacket<'_>) -> Result<IpPacket<'a>, SegmentError> {
        let end = outer.end();
        let at = end - self.bytes.len();
        if self.ethertype != BRIDGED {
            return IpPacket::parse_as(self.ethertype, self.bytes, at)?.until(end);
        }
        let link = LinkHeader::new(self.bytes).ok_or(EthernetError::Truncated(self.bytes.len()))?;
        IpPacket::parse_as(link.ethertype(), link.payload(), at + link.header_len())?.until(end)
    }
}

/// Reads a datagram to the port of VXLAN or Geneve; `None` for another port or another header.
fn at_its_port(datagram: &[u8]) -> Option<Contents<'_>> {
    let payload = datagram.get(UdpHeader::LEN..)?;
    match UdpHeader::new(datagram)?.dst_port() {
        VXLAN_PORT if payload.first()? & !VXLAN_GROUP_POLICY == VXLAN_FLAGS => vxlan(payload),
        GENEVE_PORT => geneve(payload),
        _ => None,
    }
}

/// Reads the payload of a datagram as VXLAN.
fn vxlan(payload: &[u8]) -> Option<Contents<'_>> {
    Some(Contents { ethertype: BRIDGED, bytes: payload.get(VXLAN_LEN..)? })
}

/// Reads the payload of a datagram as Geneve, with any options.
fn geneve(payload: &[u8]) -> Option<Contents<'_>> {
    let [first, ..] = *payload else { return None };
    let (version, options) = (first >> 6, usize::from(first & 0x3F));
    if version != 0 {
        return None;
    }
    Some(Contents { ethertype: ethertype_at(payload, 2)?, bytes: payload.get(GENEVE_LEN + 4 * options..)? })
}

fn ethertype_at(header: &[u8], at: usize) -> Option<EtherType> {
    header.get(at..)?.first_chunk().map(|bytes| EtherType(u16::from_be_bytes(*bytes)))
}

/// Writes the checksum of a GRE header over the header and the packet behind it, which is otherwise complete.
fn write_gre_checksum(packet: &mut [u8]) {
    let Some(field) = packet.get_mut(GRE_CHECKSUM_AT..GRE_CHECKSUM_AT + 2) else { return };
    field.fill(0);
    let checksum = Sum::new().add_bytes(packet).finish();
    packet[GRE_CHECKSUM_AT..GRE_CHECKSUM_AT + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// Writes length and checksum of a UDP datagram, which is otherwise complete.
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

/// Returns the protocol and the bytes of the packet in PPPoE session data.
fn through_pppoe(data: &[u8]) -> Option<(EtherType, &[u8])> {
    let header = PppoeHeader::new(data)?;
    Some((header.ethertype(), data.get(PppoeHeader::LEN..header.end())?))
}
