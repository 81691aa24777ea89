//! Reads a frame, independently of the engines' parser.

use nichrome_wire::{
    AddressPair, CommonOptions, EtherType, IpProtocol, Ipv4Header, Ipv6Header, LinkHeader, SeqNumber,
    TcpFlags, TcpHeader, UdpHeader,
};

use crate::{FlowKey, Medium};

/// A frame as its receiver sees it.
pub(super) struct Read<'a> {
    pub(super) flow: Option<FlowKey>,
    pub(super) content: Content<'a>,
}

/// The content of a frame.
pub(super) enum Content<'a> {
    /// A TCP segment with right checksums.
    Tcp(Tcp<'a>),
    /// A UDP datagram with right checksums.
    Udp { payload_len: usize },
    /// A TCP segment or UDP datagram with a wrong checksum.
    Corrupt,
    /// A TCP segment that is not parsed: a first fragment, or behind a routing or authentication header or a
    /// home address. A receiver may accept its `len` bytes.
    Opaque { seq: SeqNumber, len: usize },
    /// A frame without a flow, a first fragment that ends before the sequence number, or a UDP datagram
    /// without a checksum or that is not parsed.
    Other,
}

/// A TCP segment.
pub(super) struct Tcp<'a> {
    /// The sequence number of the first byte of the payload.
    pub(super) seq: SeqNumber,
    pub(super) ack: SeqNumber,
    pub(super) flags: TcpFlags,
    /// Type of service or traffic class.
    pub(super) class: u8,
    pub(super) payload: &'a [u8],
    /// True if the segment is more than data: it must come out unchanged.
    pub(super) control: bool,
}

const OTHER: Read<'static> = Read { flow: None, content: Content::Other };

/// An IP packet that holds TCP or UDP.
struct Ip<'a> {
    addresses: AddressPair,
    protocol: IpProtocol,
    class: u8,
    /// The transport header and payload.
    segment: &'a [u8],
    header_is_right: bool,
    options: bool,
    opaque: bool,
}

/// Reads a frame.
pub(super) fn read(frame: &[u8], medium: Medium) -> Read<'_> {
    let Some((packet, vlans)) = link(frame, medium) else { return OTHER };
    let (ip, is_tunneled) = match ip(packet) {
        Some(ip) => (ip, false),
        None => match tunneled(packet, medium) {
            Some(ip) => (ip, true),
            None => return OTHER,
        },
    };
    let Some([a, b, c, d]) = ip.segment.first_chunk() else { return OTHER };
    let (src, dst) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
    let flow = match ip.addresses {
        AddressPair::V4 { src: from, dst: to } => FlowKey::ipv4(from, to, src, dst),
        AddressPair::V6 { src: from, dst: to } => FlowKey::ipv6(from, to, src, dst),
    };
    let flow = vlans.into_iter().flatten().fold(flow, FlowKey::in_vlan);
    let flow = if is_tunneled { flow.in_tunnel() } else { flow };
    if ip.protocol == IpProtocol::UDP { udp(&ip, flow.over_udp()) } else { tcp(&ip, Some(flow)) }
}

fn ip(packet: &[u8]) -> Option<Ip<'_>> {
    match packet.first()? >> 4 {
        4 => ipv4(packet),
        6 => ipv6(packet),
        _ => None,
    }
}

/// Returns the IP packet within an IP packet without options, or within PPPoE, which takes the place of a
/// link header.
fn tunneled(packet: &[u8], medium: Medium) -> Option<Ip<'_>> {
    let (protocol, within, outer_is_right) = match packet {
        [0x11, 0, _, _, high, low, 0, protocol, within @ ..] if medium == Medium::Ethernet => {
            let len = usize::from(u16::from_be_bytes([*high, *low])).checked_sub(2)?;
            (*protocol, within.get(..len)?, true)
        }
        [0x40..=0x4F, ..] => {
            let outer = Ipv4Header::new(packet)?;
            let plain = outer.header_len() == Ipv4Header::LEN && !outer.is_fragment();
            (outer.protocol().0, outer.payload().filter(|_| plain)?, outer.has_valid_checksum())
        }
        [0x60..=0x6F, ..] => {
            let outer = Ipv6Header::new(packet)?;
            (outer.next_header().0, outer.payload()?, true)
        }
        _ => return None,
    };
    let ip = match (protocol, within.first()? >> 4) {
        (4 | 0x21, 4) => ipv4(within)?,
        (41 | 0x57, 6) => ipv6(within)?,
        _ => return None,
    };
    let total = match ip.addresses {
        AddressPair::V4 { .. } => usize::from(Ipv4Header::new(within)?.total_len()),
        AddressPair::V6 { .. } => Ipv6Header::LEN + usize::from(Ipv6Header::new(within)?.payload_len()),
    };
    let is_whole = total == within.len() && ip.protocol == IpProtocol::TCP;
    is_whole.then_some(Ip { header_is_right: ip.header_is_right && outer_is_right, ..ip })
}

/// Reads a UDP datagram.
fn udp<'a>(ip: &Ip<'a>, flow: FlowKey) -> Read<'a> {
    let Some(header) = UdpHeader::new(ip.segment) else { return OTHER };
    let whole = usize::from(header.length()) == ip.segment.len() && !ip.opaque;
    let sum = ip.addresses.pseudo_header(IpProtocol::UDP, ip.segment.len() as u32).add_bytes(ip.segment);
    let content = if !whole || header.checksum() == 0 {
        Content::Other
    } else if !ip.header_is_right || sum.finish() != 0 {
        Content::Corrupt
    } else {
        Content::Udp { payload_len: ip.segment.len() - UdpHeader::LEN }
    };
    Read { flow: Some(flow), content }
}

/// Reads a TCP segment.
fn tcp<'a>(ip: &Ip<'a>, flow: Option<FlowKey>) -> Read<'a> {
    if ip.opaque {
        return Read { flow, content: opaque(ip.segment) };
    }
    let Some(header) = TcpHeader::new(ip.segment) else { return OTHER };
    let Some((options, payload)) = header.split() else { return OTHER };
    let sum = ip.addresses.pseudo_header(IpProtocol::TCP, ip.segment.len() as u32).add_bytes(ip.segment);
    if !ip.header_is_right || sum.finish() != 0 {
        return Read { flow, content: Content::Corrupt };
    }
    let flags = header.flags();
    let plain = TcpFlags::ACK | TcpFlags::PSH | TcpFlags::ECE;
    let control = payload.is_empty()
        || !flags.contains(TcpFlags::ACK)
        || !flags.difference(plain).is_empty()
        || ip.options
        || CommonOptions::classify(options) == CommonOptions::Other;
    let seq = header.seq() + u32::from(flags.contains(TcpFlags::SYN));
    let tcp = Tcp { seq, ack: header.ack(), flags, class: ip.class, payload, control };
    Read { flow, content: Content::Tcp(tcp) }
}

/// Reads a segment that is not parsed and may end within its header.
fn opaque(segment: &[u8]) -> Content<'_> {
    let Some([_, _, _, _, seq @ ..]) = segment.first_chunk::<8>() else { return Content::Other };
    let payload = TcpHeader::new(segment).and_then(|header| header.split());
    let len = payload.map_or(0, |(_, payload)| payload.len());
    Content::Opaque { seq: SeqNumber(u32::from_be_bytes(*seq)), len }
}

/// Returns the IP packet or PPPoE session data after the link header, and the VLAN identifiers.
fn link(frame: &[u8], medium: Medium) -> Option<(&[u8], [Option<u16>; 2])> {
    if medium == Medium::Ip {
        return Some((frame, [None; 2]));
    }
    let header = LinkHeader::new(frame)?;
    let announced = match header.ethertype() {
        EtherType::IPV4 => 4,
        EtherType::IPV6 => 6,
        EtherType::PPPOE_SESSION => 1,
        _ => return None,
    };
    let tags = header.tags();
    let vlan = |nth: usize| tags.as_slice().get(nth).map(|tag| tag.vid());
    let version = header.payload().first()? >> 4;
    (version == announced).then_some((header.payload(), [vlan(0), vlan(1)]))
}

/// Returns true if packets of this protocol have a flow.
fn is_read(protocol: IpProtocol) -> bool {
    [IpProtocol::TCP, IpProtocol::UDP].contains(&protocol)
}

fn ipv4(packet: &[u8]) -> Option<Ip<'_>> {
    let ip = Ipv4Header::new(packet)?;
    let fragment = ip.fragment();
    let segment = ip.payload().filter(|_| is_read(ip.protocol()) && fragment.is_first())?;
    Some(Ip {
        addresses: AddressPair::V4 { src: ip.src(), dst: ip.dst() },
        protocol: ip.protocol(),
        class: ip.tos().0,
        segment,
        header_is_right: ip.has_valid_checksum(),
        options: ip.header_len() > Ipv4Header::LEN,
        opaque: fragment.more_fragments,
    })
}

fn ipv6(packet: &[u8]) -> Option<Ip<'_>> {
    let ip = Ipv6Header::new(packet)?;
    let upper = ip.upper_layer().ok().filter(|upper| is_read(upper.protocol))?;
    // A routing header or a home address changes an address that the checksum covers.
    let mut extensions = ip.extensions().flatten();
    let opaque = extensions.any(|extension| {
        [IpProtocol::ROUTING, IpProtocol::AH, IpProtocol::FRAGMENT].contains(&extension.protocol)
            || extension.has_home_address()
    });
    let is_first = upper.fragment.is_none_or(|header| header.fragment.is_first());
    Some(Ip {
        addresses: AddressPair::V6 { src: ip.src(), dst: ip.dst() },
        protocol: upper.protocol,
        class: ip.traffic_class().0,
        segment: ip.payload().filter(|_| is_first)?.get(upper.offset..)?,
        header_is_right: true,
        options: false,
        opaque,
    })
}
