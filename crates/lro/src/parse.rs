//! Reads the headers of a frame in one pass.

use nichrome_wire::{
    CommonOptions, Ecn, EthernetHeader, IpProtocol, Ipv4Header, Ipv6Header, SeqNumber, TcpHeader,
};

use crate::common::{self, NETWORK, OPTIONS, TRANSPORT};
use crate::flow::FlowKey;
use crate::network::{self, Network};
use crate::reason::PassReason;
use crate::segment::{Layout, Medium, Segment, Timestamps, UsualChecksums};
use crate::template::MAX_HEADER;
use crate::tunnel::Tunnel;

/// The kind of a frame.
pub(crate) enum Parsed {
    /// A TCP segment.
    Tcp(Segment),
    /// A TCP segment of this flow that is incomplete (a first fragment), or whose checksum covers unknown
    /// bytes (a routing header, a home address). Its flow is flushed before it passes. The sequence number is
    /// known unless the fragment ends before it.
    Barrier { flow: FlowKey, seq: Option<SeqNumber>, reason: PassReason },
    /// Any other frame, which passes.
    Other(PassReason),
}

/// Reads the headers of a frame. Does not fail: whatever is not a well-formed TCP segment is `Other`.
#[inline]
pub(crate) fn parse(frame: &[u8], medium: Medium) -> Parsed {
    match parse_common(frame, medium) {
        Some(segment) => Parsed::Tcp(segment),
        None => parse_any(frame, medium),
    }
}

/// The common case: a TCP segment in an untagged IPv4 packet without options. Its fields are at constant
/// offsets, so that one length check covers all of them.
pub(crate) struct CommonFrame<'f> {
    frame: &'f [u8],
    ip: Ipv4Header<'f>,
    tcp: TcpHeader<'f>,
    /// The end of the IP packet, in bytes from the start of the frame.
    end: usize,
}

impl<'f> CommonFrame<'f> {
    /// Reads the headers of a frame; `None` if the frame is not a common one.
    #[inline(always)]
    pub(crate) fn read(frame: &'f [u8], medium: Medium) -> Option<Self> {
        let header: &[u8; OPTIONS] = frame.first_chunk()?;
        let ip = Ipv4Header::new(&header[NETWORK..])?;
        let tcp = TcpHeader::new(&header[TRANSPORT..])?;
        let end = NETWORK + usize::from(ip.total_len());
        let is_common = medium == Medium::Ethernet
            && header[12..15] == [0x08, 0x00, 0x45]
            && ip.protocol() == IpProtocol::TCP
            && !ip.is_fragment()
            && tcp.header_len() >= TcpHeader::LEN
            && TRANSPORT + tcp.header_len() <= end
            && end <= frame.len();
        is_common.then_some(Self { frame, ip, tcp, end })
    }

    #[inline(always)]
    pub(crate) fn flow(&self) -> FlowKey {
        self.frame.first_chunk().map(common::flow).unwrap_or_default()
    }

    /// Returns the segment.
    #[inline(always)]
    pub(crate) fn segment(&self) -> Option<Segment> {
        let Self { frame, ip, tcp, end } = *self;
        let options = frame.get(OPTIONS..TRANSPORT + tcp.header_len())?;
        let network = Network {
            start: NETWORK,
            tunnel: Tunnel::None,
            transport: TRANSPORT,
            end,
            version: 4,
            addresses: FlowKey::default(),
            options: false,
            barrier: None,
            extension_headers: false,
            usual_ip_checksum: ip.checksum() != 0xFFFF,
            congestion_experienced: ip.ecn() == Ecn::Ce,
        };
        Some(segment(frame, self.flow(), &network, tcp, options))
    }
}

/// Reads the headers of a common frame; `None` if the frame is not one.
#[inline(always)]
pub(crate) fn parse_common(frame: &[u8], medium: Medium) -> Option<Segment> {
    CommonFrame::read(frame, medium)?.segment()
}

/// Returns the flow of a frame that is probably a TCP segment (untagged, IP without options), at the cost of
/// a few loads. Validates nothing.
#[inline(always)]
pub(crate) fn likely_flow(frame: &[u8], medium: Medium) -> Option<FlowKey> {
    match frame.first_chunk() {
        Some(head) if medium == Medium::Ethernet && common::is_likely(head) => Some(common::flow(head)),
        _ => likely_flow_of_any(frame, medium),
    }
}

/// As [`likely_flow`], for frames that are not common ones.
#[inline(never)]
fn likely_flow_of_any(frame: &[u8], medium: Medium) -> Option<FlowKey> {
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

/// Reads the headers of any frame.
#[inline(never)]
pub(crate) fn parse_any(frame: &[u8], medium: Medium) -> Parsed {
    match network::read(frame, medium, IpProtocol::TCP) {
        Ok(network) => tcp(frame, &network),
        Err(reason) => Parsed::Other(reason),
    }
}

/// As [`parse`], without reading the content of IPv6 extension headers: any of them makes the segment a
/// [`Parsed::Barrier`].
#[inline]
pub(crate) fn parse_without_extensions(frame: &[u8], medium: Medium) -> Parsed {
    if let Some(segment) = parse_common(frame, medium) {
        return Parsed::Tcp(segment);
    }
    match network::read(frame, medium, IpProtocol::TCP) {
        Ok(network) => tcp(frame, &network.with_opaque_extension_headers()),
        Err(reason) => Parsed::Other(reason),
    }
}

/// Reads the headers of a TCP segment within a tunnel.
#[inline(never)]
pub(crate) fn parse_tunneled(frame: &[u8], medium: Medium) -> Parsed {
    match network::read_tunneled(frame, medium, IpProtocol::TCP) {
        Ok(network) => tcp(frame, &network),
        Err(reason) => Parsed::Other(reason),
    }
}

fn tcp(frame: &[u8], ip: &Network) -> Parsed {
    /// Longest TCP header in bytes.
    const LONGEST: usize = 60;
    let Some(bytes) = frame.get(ip.transport..ip.end) else { return Parsed::Other(PassReason::Malformed) };
    // A layout has 16-bit positions.
    if ip.transport + LONGEST > usize::from(u16::MAX) {
        return barrier(bytes, ip, PassReason::IpOptions);
    }
    if let Some(reason) = ip.barrier {
        return barrier(bytes, ip, reason);
    }
    let Some(tcp) = TcpHeader::new(bytes) else { return Parsed::Other(PassReason::Malformed) };
    let flow = ip.addresses.with_ports(tcp.src_port(), tcp.dst_port());
    match tcp.options() {
        Some(options) => Parsed::Tcp(segment(frame, flow, ip, tcp, options)),
        None => Parsed::Other(PassReason::Malformed),
    }
}

/// Reads the flow of a segment that passes for `reason`. A first fragment may end within the TCP header (RFC
/// 791: an MTU of 68 bytes, with IP options), but contains the ports and the sequence number. A first
/// fragment of a tunnel's packet cuts the inner packet anywhere: it may lack the sequence number, or the
/// ports.
fn barrier(bytes: &[u8], ip: &Network, reason: PassReason) -> Parsed {
    let Some([a, b, c, d]) = bytes.first_chunk().copied() else {
        return Parsed::Other(PassReason::Malformed);
    };
    let flow = ip.addresses.with_ports(u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    let seq = bytes[4..].first_chunk().copied().map(|seq| SeqNumber(u32::from_be_bytes(seq)));
    Parsed::Barrier { flow, seq, reason }
}

/// Returns the segment whose TCP header is at `ip.transport`.
#[inline(always)]
fn segment(frame: &[u8], flow: FlowKey, ip: &Network, tcp: TcpHeader<'_>, options: &[u8]) -> Segment {
    let common = CommonOptions::classify(options);
    let timestamps = match common {
        CommonOptions::Timestamps { value, echo } => Some(Timestamps { value, echo }),
        _ => None,
    };
    let headers = ip.transport + TcpHeader::LEN + options.len();
    Segment {
        flow,
        layout: Layout {
            network: ip.start as u8,
            tunnel: ip.tunnel,
            transport: ip.transport as u16,
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
        usual_checksums: UsualChecksums { ip: ip.usual_ip_checksum, tcp: tcp.checksum() != 0xFFFF },
    }
}

/// Returns the offset of the timestamp values in options of timestamps and padding only.
#[inline]
fn timestamps_at(options: &[u8]) -> u8 {
    const NO_OPERATION: u8 = 1;
    if let [NO_OPERATION, NO_OPERATION, 8, ..] = options {
        return 4;
    }
    let padding = options.iter().take_while(|byte| **byte == NO_OPERATION).count();
    padding as u8 + 2
}
