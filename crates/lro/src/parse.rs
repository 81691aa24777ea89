//! Reading the headers of a frame in one pass.

use nichrome_wire::{
    CommonOptions, Ecn, EtherType, EthernetHeader, IpProtocol, Ipv4Header, Ipv6Header, LinkHeader, SeqNumber,
    TcpHeader,
};

use crate::flow::FlowKey;
use crate::reason::PassReason;
use crate::segment::{Layout, Medium, Segment, Timestamps};
use crate::template::MAX_HEADER;
use crate::usual::{self, NETWORK, OPTIONS, TRANSPORT};

/// What a frame is.
pub(crate) enum Parsed {
    /// A TCP segment.
    Tcp(Segment),
    /// A TCP segment of this flow that is not whole, or whose checksum covers what is not at hand: to be passed on after
    /// what its flow holds. Neither it nor the packet that it is a fragment of brings bytes from `end` on.
    Barrier { flow: FlowKey, end: SeqNumber, reason: PassReason },
    /// Something else, to be passed on.
    Other(PassReason),
}

/// The VLAN identifiers in front of a packet, and how many there are.
type Vlans = ([u16; 2], usize);

const NO_VLAN: Vlans = ([0; 2], 0);

/// Reads the headers of a frame. Never fails: what is not a well-formed TCP segment is something else.
#[inline]
pub(crate) fn parse(frame: &[u8], medium: Medium) -> Parsed {
    match parse_usual(frame, medium) {
        Some(segment) => Parsed::Tcp(segment),
        None => parse_any(frame, medium),
    }
}

/// By far the most frames: a TCP segment in an untagged IPv4 packet without options. All its fields are at constant
/// places, so that one look at the length does for all of them.
pub(crate) struct Usual<'f> {
    frame: &'f [u8],
    ip: Ipv4Header<'f>,
    tcp: TcpHeader<'f>,
    /// Where the packet ends in the frame.
    end: usize,
}

impl<'f> Usual<'f> {
    /// Reads the headers of a frame; `None` where it is not usual.
    #[inline(always)]
    pub(crate) fn read(frame: &'f [u8], medium: Medium) -> Option<Self> {
        let header: &[u8; OPTIONS] = frame.first_chunk()?;
        let ip = Ipv4Header::new(&header[NETWORK..])?;
        let tcp = TcpHeader::new(&header[TRANSPORT..])?;
        let end = NETWORK + usize::from(ip.total_len());
        let is_usual = medium == Medium::Ethernet
            && header[12..15] == [0x08, 0x00, 0x45]
            && ip.protocol() == IpProtocol::TCP
            && !ip.is_fragment()
            && tcp.header_len() >= TcpHeader::LEN
            && TRANSPORT + tcp.header_len() <= end
            && end <= frame.len();
        is_usual.then_some(Self { frame, ip, tcp, end })
    }

    #[inline(always)]
    pub(crate) fn flow(&self) -> FlowKey {
        self.frame.first_chunk().map(usual::flow).unwrap_or_default()
    }

    /// The segment in it.
    #[inline(always)]
    pub(crate) fn segment(&self) -> Option<Segment> {
        let Self { frame, ip, tcp, end } = *self;
        let options = frame.get(OPTIONS..TRANSPORT + tcp.header_len())?;
        let network = Network {
            start: NETWORK,
            end,
            version: 4,
            vlans: NO_VLAN,
            options: false,
            barrier: None,
            usual_checksum: ip.checksum() != 0xFFFF,
            congestion_experienced: ip.ecn() == Ecn::Ce,
        };
        Some(segment(frame, self.flow(), &network, TRANSPORT, tcp, options))
    }
}

/// Reads the headers of a usual frame.
#[inline(always)]
pub(crate) fn parse_usual(frame: &[u8], medium: Medium) -> Option<Segment> {
    Usual::read(frame, medium)?.segment()
}

/// The flow of a frame that is likely a TCP segment (untagged, IP without options) at the cost of a few loads; not a check
/// of anything.
#[inline(always)]
pub(crate) fn likely_flow(frame: &[u8], medium: Medium) -> Option<FlowKey> {
    let start = if medium == Medium::Ethernet { EthernetHeader::LEN } else { 0 };
    let packet: &[u8; Ipv4Header::LEN + 4] = frame.get(start..)?.first_chunk()?;
    let ip = Ipv4Header::new(packet)?;
    if packet[0] == 0x45 && ip.protocol() == IpProtocol::TCP {
        let [.., a, b, c, d] = *packet;
        let (src_port, dst_port) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        return Some(FlowKey::ipv4(ip.src(), ip.dst(), src_port, dst_port));
    }
    likely_flow_v6(frame.get(start..)?)
}

fn likely_flow_v6(packet: &[u8]) -> Option<FlowKey> {
    let ip = Ipv6Header::new(packet).filter(|ip| ip.version() == 6 && ip.next_header() == IpProtocol::TCP)?;
    let [a, b, c, d] = *packet.get(Ipv6Header::LEN..)?.first_chunk()?;
    Some(FlowKey::ipv6(ip.src(), ip.dst(), u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
}

/// Reads the headers of a frame that is not usual.
#[inline(never)]
pub(crate) fn parse_any(frame: &[u8], medium: Medium) -> Parsed {
    if medium == Medium::Ip {
        return match frame.first().map(|first| first >> 4) {
            Some(6) => ipv6(frame, 0, NO_VLAN),
            _ => ipv4(frame, 0, NO_VLAN),
        };
    }
    let Some(header) = LinkHeader::new(frame) else { return Parsed::Other(PassReason::NotTcp) };
    let tags = header.tags();
    let mut vlans = ([0; 2], tags.len());
    for (vid, tag) in vlans.0.iter_mut().zip(tags.as_slice()) {
        *vid = tag.vid();
    }
    match header.ethertype() {
        EtherType::IPV4 => ipv4(frame, header.header_len(), vlans),
        EtherType::IPV6 => ipv6(frame, header.header_len(), vlans),
        _ => Parsed::Other(PassReason::NotTcp),
    }
}

/// What the IP header says, for the TCP header behind it.
#[derive(Clone, Copy)]
struct Network {
    /// Where the IP header is in the frame.
    start: usize,
    /// Where the packet ends in the frame.
    end: usize,
    version: u8,
    vlans: Vlans,
    options: bool,
    barrier: Option<PassReason>,
    usual_checksum: bool,
    congestion_experienced: bool,
}

fn ipv4(frame: &[u8], start: usize, vlans: Vlans) -> Parsed {
    let Some(ip) = frame.get(start..).and_then(Ipv4Header::new) else {
        return Parsed::Other(PassReason::Malformed);
    };
    let header_len = ip.header_len();
    let total_len = usize::from(ip.total_len());
    let end = start + total_len;
    if ip.version() != 4 || header_len < Ipv4Header::LEN || total_len < header_len || end > frame.len() {
        return Parsed::Other(PassReason::Malformed);
    }
    if ip.protocol() != IpProtocol::TCP {
        return Parsed::Other(PassReason::NotTcp);
    }
    let fragment = ip.fragment();
    if !fragment.is_first() {
        return Parsed::Other(PassReason::Fragment);
    }
    let flow = |src_port, dst_port| FlowKey::ipv4(ip.src(), ip.dst(), src_port, dst_port);
    let options = header_len > Ipv4Header::LEN;
    let network = Network {
        start,
        end,
        version: 4,
        vlans,
        options,
        barrier: fragment.more_fragments.then_some(PassReason::Fragment),
        usual_checksum: ip.checksum() != 0xFFFF,
        congestion_experienced: ip.ecn() == Ecn::Ce,
    };
    tcp(frame, start + header_len, network, flow)
}

fn ipv6(frame: &[u8], start: usize, vlans: Vlans) -> Parsed {
    let header = frame.get(start..).and_then(Ipv6Header::new).filter(|ip| ip.version() == 6);
    let Some((ip, payload)) = header.and_then(|ip| Some((ip, ip.payload()?))) else {
        return Parsed::Other(PassReason::Malformed);
    };
    let mut transport = start + Ipv6Header::LEN;
    let mut barrier = None;
    if ip.next_header() != IpProtocol::TCP {
        let Ok(upper) = ip.upper_layer() else { return Parsed::Other(PassReason::Malformed) };
        if upper.protocol != IpProtocol::TCP {
            return Parsed::Other(PassReason::NotTcp);
        }
        if let Some(header) = upper.fragment {
            if !header.fragment.is_first() {
                return Parsed::Other(PassReason::Fragment);
            }
            // An atomic fragment is a whole packet, but one whose fragment header nothing would re-create.
            barrier = Some(PassReason::Fragment);
        }
        // A routing header changes the address that the checksum covers; AH signs fields that merging changes.
        let mut extensions = ip.extensions().map_while(Result::ok);
        if extensions.any(|extension| matches!(extension.protocol, IpProtocol::ROUTING | IpProtocol::AH)) {
            barrier = Some(PassReason::IpOptions);
        }
        transport += upper.offset;
    }
    let flow = |src_port, dst_port| FlowKey::ipv6(ip.src(), ip.dst(), src_port, dst_port);
    let end = start + Ipv6Header::LEN + payload.len();
    tcp(
        frame,
        transport,
        Network {
            start,
            end,
            version: 6,
            vlans,
            options: false,
            barrier,
            usual_checksum: true,
            congestion_experienced: ip.ecn() == Ecn::Ce,
        },
        flow,
    )
}

fn tcp(frame: &[u8], transport: usize, ip: Network, flow: impl Fn(u16, u16) -> FlowKey) -> Parsed {
    let Some(tcp) = frame.get(transport..ip.end).and_then(TcpHeader::new) else {
        return Parsed::Other(PassReason::Malformed);
    };
    let mut flow = flow(tcp.src_port(), tcp.dst_port());
    if ip.vlans.1 > 0 {
        flow = flow.with_vlans(ip.vlans);
    }
    if let Some(reason) = ip.barrier {
        return Parsed::Barrier { flow, end: tcp.seq() + u32::from(u16::MAX), reason };
    }
    match tcp.options() {
        Some(options) => Parsed::Tcp(segment(frame, flow, &ip, transport, tcp, options)),
        None => Parsed::Other(PassReason::Malformed),
    }
}

/// The segment whose TCP header is at `transport`.
#[inline(always)]
fn segment(
    frame: &[u8],
    flow: FlowKey,
    ip: &Network,
    transport: usize,
    tcp: TcpHeader<'_>,
    options: &[u8],
) -> Segment {
    let common = CommonOptions::classify(options);
    let timestamps = match common {
        CommonOptions::Timestamps { value, echo } => Some(Timestamps { value, echo }),
        _ => None,
    };
    let headers = transport + TcpHeader::LEN + options.len();
    Segment {
        flow,
        layout: Layout {
            network: ip.start as u16,
            transport: transport as u16,
            payload: headers as u16,
            version: ip.version,
            timestamps: if timestamps.is_some() { timestamps_at(options) } else { 0 },
        },
        seq: tcp.seq(),
        ack: tcp.ack(),
        flags: tcp.flags(),
        window: tcp.window(),
        payload_len: (ip.end - headers) as u32,
        timestamps,
        other_options: common == CommonOptions::Other,
        ip_options: ip.options || headers > MAX_HEADER,
        trailer: ip.end < frame.len(),
        congestion_experienced: ip.congestion_experienced,
        usual_checksums: tcp.checksum() != 0xFFFF && ip.usual_checksum,
    }
}

/// Where the values start in options that hold timestamps and padding only.
#[inline]
fn timestamps_at(options: &[u8]) -> u8 {
    const NO_OPERATION: u8 = 1;
    if let [NO_OPERATION, NO_OPERATION, 8, ..] = options {
        return 4;
    }
    let padding = options.iter().take_while(|byte| **byte == NO_OPERATION).count();
    padding as u8 + 2
}
