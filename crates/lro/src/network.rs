//! The headers up to the transport header, read in one pass: link header, VLAN tags, IP header and extension
//! headers.

use nichrome_wire::{
    Ecn, EtherType, Fragment, IpProtocol, Ipv4Header, Ipv6Extension, Ipv6Header, LinkHeader, PppoeHeader,
    UpperLayer,
};

use crate::flow::FlowKey;
use crate::reason::PassReason;
use crate::segment::Medium;
use crate::tunnel::Tunnel;

/// Positions and fields of the headers before the transport header. Positions are in bytes from the start of
/// the frame.
#[derive(Clone, Copy)]
pub(crate) struct Network {
    /// The IP header.
    pub(crate) start: usize,
    /// The tunnel header before the IP header.
    pub(crate) tunnel: Tunnel,
    /// The transport header.
    pub(crate) transport: usize,
    /// The end of the IP packet.
    pub(crate) end: usize,
    pub(crate) version: u8,
    /// The TCP flow with these addresses and VLANs; its ports are 0.
    pub(crate) addresses: FlowKey,
    pub(crate) options: bool,
    /// Why the packet must pass, although its ports and payload could be read.
    pub(crate) barrier: Option<PassReason>,
    /// There are IPv6 extension headers beside fragment headers.
    pub(crate) extension_headers: bool,
    /// No IPv4 header checksum is 0xFFFF.
    pub(crate) usual_ip_checksum: bool,
    pub(crate) congestion_experienced: bool,
}

impl Network {
    /// Returns the headers as a parser that does not read the content of IPv6 extension headers finds them:
    /// each one is a barrier, because it may change what the TCP checksum covers.
    pub(crate) fn with_opaque_extension_headers(self) -> Self {
        let barrier = if self.extension_headers { Some(PassReason::IpOptions) } else { self.barrier };
        Self { barrier, ..self }
    }
}

/// The VLAN identifiers of a frame, and their number.
type Vlans = ([u16; 2], usize);

const NO_VLAN: Vlans = ([0; 2], 0);

/// Reads the headers before a transport header of `protocol`.
///
/// # Errors
/// The headers are malformed, there is another protocol, or the frame is not a first fragment.
pub(crate) fn read(frame: &[u8], medium: Medium, protocol: IpProtocol) -> Result<Network, PassReason> {
    let (ethertype, start, vlans) = link(frame, medium).ok_or(PassReason::NotTcp)?;
    match ethertype {
        EtherType::IPV4 => ipv4(frame, start, vlans, protocol),
        EtherType::IPV6 => ipv6(frame, start, vlans, protocol),
        _ => Err(PassReason::NotTcp),
    }
}

/// As [`read`], through one tunnel. A first fragment of a tunnel's packet, a packet whose tunnel header has
/// options, and one that ends before the tunnel does are barriers for the flow within.
///
/// # Errors
/// There is no tunnel, the tunnel header is a later fragment's or malformed, or the inner headers cannot be
/// read.
pub(crate) fn read_tunneled(
    frame: &[u8],
    medium: Medium,
    protocol: IpProtocol,
) -> Result<Network, PassReason> {
    let (ethertype, start, vlans) = link(frame, medium).ok_or(PassReason::NotTcp)?;
    let outer = frame.get(start..).ok_or(PassReason::NotTcp)?;
    let within = match ethertype {
        EtherType::IPV4 => through_ipv4(outer)?,
        EtherType::IPV6 => through_ipv6(outer)?,
        EtherType::PPPOE_SESSION => through_pppoe(outer).ok_or(PassReason::NotTcp)?,
        _ => return Err(PassReason::NotTcp),
    };
    let (inner, end) = (start + within.start, start + within.end);
    if within.barrier == Some(PassReason::Fragment) {
        let first = first_part(frame.get(..end).unwrap_or(frame), inner, within.is_ipv4, vlans, protocol)?;
        return Ok(Network { barrier: within.barrier, addresses: first.addresses.in_tunnel(), ..first });
    }
    let read = if within.is_ipv4 { ipv4 } else { ipv6 };
    let network = read(frame, inner, vlans, protocol)?;
    if network.end > end || end > frame.len() {
        return Err(PassReason::NotTcp);
    }
    let trailer = (network.end < end).then_some(PassReason::Trailer);
    Ok(Network {
        tunnel: within.tunnel,
        addresses: network.addresses.in_tunnel(),
        barrier: within.barrier.or(network.barrier).or(trailer),
        usual_ip_checksum: network.usual_ip_checksum && within.usual_ip_checksum,
        ..network
    })
}

/// A packet in a tunnel. Positions are in bytes from the tunnel header.
struct Within {
    tunnel: Tunnel,
    /// The inner packet is IPv4, else IPv6.
    is_ipv4: bool,
    start: usize,
    end: usize,
    /// Why the packet must pass: the tunnel header is a first fragment's, or has options.
    barrier: Option<PassReason>,
    usual_ip_checksum: bool,
}

/// Returns true if a tunnel with this protocol number carries IPv4, false if it carries IPv6.
///
/// # Errors
/// It carries no IP.
fn ip_within(protocol: IpProtocol) -> Result<bool, PassReason> {
    match protocol {
        IpProtocol::IPV4 => Ok(true),
        IpProtocol::IPV6 => Ok(false),
        _ => Err(PassReason::NotTcp),
    }
}

fn through_ipv4(outer: &[u8]) -> Result<Within, PassReason> {
    let ip = Ipv4Header::new(outer).filter(|ip| ip.version() == 4 && ip.header_len() >= Ipv4Header::LEN);
    let ip = ip.ok_or(PassReason::NotTcp)?;
    let is_ipv4 = ip_within(ip.protocol())?;
    let has_options = ip.header_len() > Ipv4Header::LEN;
    Ok(Within {
        tunnel: Tunnel::Ipv4,
        is_ipv4,
        start: ip.header_len(),
        end: usize::from(ip.total_len()),
        barrier: barrier_of(ip.is_fragment().then(|| ip.fragment()), has_options)?,
        usual_ip_checksum: ip.checksum() != 0xFFFF,
    })
}

fn through_ipv6(outer: &[u8]) -> Result<Within, PassReason> {
    let ip = Ipv6Header::new(outer).filter(|ip| ip.version() == 6).ok_or(PassReason::NotTcp)?;
    let upper = ip.upper_layer().map_err(|_| PassReason::NotTcp)?;
    let is_ipv4 = ip_within(upper.protocol)?;
    Ok(Within {
        tunnel: Tunnel::Ipv6,
        is_ipv4,
        start: Ipv6Header::LEN + upper.offset,
        end: Ipv6Header::LEN + usize::from(ip.payload_len()),
        barrier: barrier_of(upper.fragment.map(|header| header.fragment), upper.offset > 0)?,
        usual_ip_checksum: true,
    })
}

/// Returns why a packet must pass whose tunnel header is a fragment's, or has options.
///
/// # Errors
/// The packet is a later fragment, whose flow is unknown.
fn barrier_of(fragment: Option<Fragment>, has_options: bool) -> Result<Option<PassReason>, PassReason> {
    match fragment {
        Some(fragment) if !fragment.is_first() => Err(PassReason::Fragment),
        Some(_) => Ok(Some(PassReason::Fragment)),
        None => Ok(has_options.then_some(PassReason::IpOptions)),
    }
}

/// Reads the first part of an IP packet at `start`, whose rest is in other fragments of its tunnel: addresses
/// and the position of the transport header.
fn first_part(
    frame: &[u8],
    start: usize,
    is_ipv4: bool,
    vlans: Vlans,
    protocol: IpProtocol,
) -> Result<Network, PassReason> {
    let packet = frame.get(start..).ok_or(PassReason::Malformed)?;
    let (addresses, offset, upper, is_later) = if is_ipv4 {
        let ip = Ipv4Header::new(packet).filter(|ip| ip.version() == 4).ok_or(PassReason::Malformed)?;
        let addresses = FlowKey::ipv4(ip.src(), ip.dst(), 0, 0);
        (addresses, ip.header_len().max(Ipv4Header::LEN), ip.protocol(), !ip.fragment().is_first())
    } else {
        let ip = Ipv6Header::new(packet).filter(|ip| ip.version() == 6).ok_or(PassReason::Malformed)?;
        let rest = packet.get(Ipv6Header::LEN..).unwrap_or_default();
        let upper = UpperLayer::find(ip.next_header(), rest).map_err(|_| PassReason::Malformed)?;
        let is_later = upper.fragment.is_some_and(|header| !header.fragment.is_first());
        (FlowKey::ipv6(ip.src(), ip.dst(), 0, 0), Ipv6Header::LEN + upper.offset, upper.protocol, is_later)
    };
    if upper != protocol {
        return Err(PassReason::NotTcp);
    }
    if is_later {
        return Err(PassReason::Fragment);
    }
    Ok(Network {
        start,
        tunnel: Tunnel::None,
        transport: start + offset,
        end: frame.len(),
        version: if is_ipv4 { 4 } else { 6 },
        addresses: addresses.with_vlans(vlans),
        options: false,
        barrier: None,
        extension_headers: false,
        usual_ip_checksum: true,
        congestion_experienced: false,
    })
}

fn through_pppoe(outer: &[u8]) -> Option<Within> {
    let header = PppoeHeader::new(outer)?;
    Some(Within {
        tunnel: Tunnel::Pppoe,
        is_ipv4: header.ethertype() == EtherType::IPV4,
        start: PppoeHeader::LEN,
        end: header.end(),
        barrier: None,
        usual_ip_checksum: true,
    })
}

/// Returns the EtherType, the position after the link header, and the VLANs.
fn link(frame: &[u8], medium: Medium) -> Option<(EtherType, usize, Vlans)> {
    if medium == Medium::Ip {
        let is_ipv6 = frame.first().is_some_and(|first| first >> 4 == 6);
        return Some((if is_ipv6 { EtherType::IPV6 } else { EtherType::IPV4 }, 0, NO_VLAN));
    }
    let header = LinkHeader::new(frame)?;
    let tags = header.tags();
    let mut vlans = ([0; 2], tags.len());
    for (vid, tag) in vlans.0.iter_mut().zip(tags.as_slice()) {
        *vid = tag.vid();
    }
    Some((header.ethertype(), header.header_len(), vlans))
}

fn ipv4(frame: &[u8], start: usize, vlans: Vlans, protocol: IpProtocol) -> Result<Network, PassReason> {
    let ip = frame.get(start..).and_then(Ipv4Header::new).ok_or(PassReason::Malformed)?;
    let header_len = ip.header_len();
    let total_len = usize::from(ip.total_len());
    let end = start + total_len;
    if ip.version() != 4 || header_len < Ipv4Header::LEN || total_len < header_len || end > frame.len() {
        return Err(PassReason::Malformed);
    }
    if ip.protocol() != protocol {
        return Err(PassReason::NotTcp);
    }
    let fragment = ip.fragment();
    if !fragment.is_first() {
        return Err(PassReason::Fragment);
    }
    Ok(Network {
        start,
        tunnel: Tunnel::None,
        transport: start + header_len,
        end,
        version: 4,
        addresses: FlowKey::ipv4(ip.src(), ip.dst(), 0, 0).with_vlans(vlans),
        options: header_len > Ipv4Header::LEN,
        barrier: fragment.more_fragments.then_some(PassReason::Fragment),
        extension_headers: false,
        usual_ip_checksum: ip.checksum() != 0xFFFF,
        congestion_experienced: ip.ecn() == Ecn::Ce,
    })
}

fn ipv6(frame: &[u8], start: usize, vlans: Vlans, protocol: IpProtocol) -> Result<Network, PassReason> {
    let header = frame.get(start..).and_then(Ipv6Header::new).filter(|ip| ip.version() == 6);
    let (ip, payload) = header.and_then(|ip| Some((ip, ip.payload()?))).ok_or(PassReason::Malformed)?;
    let mut transport = start + Ipv6Header::LEN;
    let mut barrier = None;
    let mut extension_headers = false;
    if ip.next_header() != protocol {
        let upper = ip.upper_layer().map_err(|_| PassReason::Malformed)?;
        if upper.protocol != protocol {
            return Err(PassReason::NotTcp);
        }
        if let Some(header) = upper.fragment {
            if !header.fragment.is_first() {
                return Err(PassReason::Fragment);
            }
            // An atomic fragment is a whole packet, but its fragment header could not be re-created.
            barrier = Some(PassReason::Fragment);
        }
        // A routing header or a home address changes an address that the checksum covers; AH signs fields
        // that merging changes.
        let is_opaque = |extension: &Ipv6Extension<'_>| {
            matches!(extension.protocol, IpProtocol::ROUTING | IpProtocol::AH) || extension.has_home_address()
        };
        for extension in ip.extensions().map_while(Result::ok) {
            extension_headers |= extension.protocol != IpProtocol::FRAGMENT;
            if is_opaque(&extension) {
                barrier = Some(PassReason::IpOptions);
            }
        }
        transport += upper.offset;
    }
    Ok(Network {
        start,
        tunnel: Tunnel::None,
        transport,
        end: start + Ipv6Header::LEN + payload.len(),
        version: 6,
        addresses: FlowKey::ipv6(ip.src(), ip.dst(), 0, 0).with_vlans(vlans),
        options: false,
        barrier,
        extension_headers,
        usual_ip_checksum: true,
        congestion_experienced: ip.ecn() == Ecn::Ce,
    })
}
