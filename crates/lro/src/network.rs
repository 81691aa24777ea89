//! The headers up to the transport header, read in one pass: link header, VLAN tags, IP header and extension
//! headers.

use nichrome_wire::{Ecn, EtherType, IpProtocol, Ipv4Header, Ipv6Header, LinkHeader};

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
    /// No IPv4 header checksum is 0xFFFF.
    pub(crate) usual_ip_checksum: bool,
    pub(crate) congestion_experienced: bool,
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

/// As [`read`], through one tunnel.
///
/// # Errors
/// There is no tunnel, the tunnel header has options, is a fragment's or malformed, or the inner headers
/// cannot be read.
pub(crate) fn read_tunneled(
    frame: &[u8],
    medium: Medium,
    protocol: IpProtocol,
) -> Result<Network, PassReason> {
    let (ethertype, start, vlans) = link(frame, medium).ok_or(PassReason::NotTcp)?;
    let outer = frame.get(start..).ok_or(PassReason::NotTcp)?;
    let (tunnel, is_ipv4, end) = match ethertype {
        EtherType::IPV4 => through_ipv4(outer),
        EtherType::IPV6 => through_ipv6(outer),
        EtherType::PPPOE_SESSION => through_pppoe(outer),
        _ => None,
    }
    .ok_or(PassReason::NotTcp)?;
    let within = start + tunnel.len();
    let read = if is_ipv4 { ipv4 } else { ipv6 };
    let network = read(frame, within, vlans, protocol)?;
    if network.end != start + end {
        return Err(PassReason::NotTcp);
    }
    let is_usual = tunnel != Tunnel::Ipv4 || Ipv4Header::new(outer).is_some_and(|ip| ip.checksum() != 0xFFFF);
    Ok(Network {
        tunnel,
        addresses: network.addresses.in_tunnel(),
        usual_ip_checksum: network.usual_ip_checksum && is_usual,
        ..network
    })
}

/// A tunnel, whether its inner packet is IPv4 (else IPv6), and the end of the inner packet in bytes from the
/// tunnel header.
type Within = (Tunnel, bool, usize);

/// Returns whether a tunnel with this protocol number carries IPv4; `None` if it carries no IP.
fn ip_within(protocol: IpProtocol) -> Option<bool> {
    match protocol {
        IpProtocol::IPV4 => Some(true),
        IpProtocol::IPV6 => Some(false),
        _ => None,
    }
}

fn through_ipv4(outer: &[u8]) -> Option<Within> {
    let ip = Ipv4Header::new(outer).filter(|ip| ip.version() == 4 && ip.header_len() == Ipv4Header::LEN)?;
    let is_ipv4 = ip_within(ip.protocol()).filter(|_| !ip.is_fragment())?;
    Some((Tunnel::Ipv4, is_ipv4, usize::from(ip.total_len())))
}

fn through_ipv6(outer: &[u8]) -> Option<Within> {
    let ip = Ipv6Header::new(outer).filter(|ip| ip.version() == 6)?;
    Some((Tunnel::Ipv6, ip_within(ip.next_header())?, Ipv6Header::LEN + usize::from(ip.payload_len())))
}

/// Reads PPPoE session data (RFC 2516 section 6): version and type 1, code 0, session, length, PPP protocol.
fn through_pppoe(outer: &[u8]) -> Option<Within> {
    let [0x11, 0, _, _, high, low, 0, protocol] = outer.first_chunk()? else { return None };
    let is_ipv4 = match protocol {
        0x21 => true,
        0x57 => false,
        _ => return None,
    };
    Some((Tunnel::Pppoe, is_ipv4, 6 + usize::from(u16::from_be_bytes([*high, *low]))))
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
        usual_ip_checksum: ip.checksum() != 0xFFFF,
        congestion_experienced: ip.ecn() == Ecn::Ce,
    })
}

fn ipv6(frame: &[u8], start: usize, vlans: Vlans, protocol: IpProtocol) -> Result<Network, PassReason> {
    let header = frame.get(start..).and_then(Ipv6Header::new).filter(|ip| ip.version() == 6);
    let (ip, payload) = header.and_then(|ip| Some((ip, ip.payload()?))).ok_or(PassReason::Malformed)?;
    let mut transport = start + Ipv6Header::LEN;
    let mut barrier = None;
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
        // A routing header changes the address that the checksum covers; AH signs fields that merging changes.
        let mut extensions = ip.extensions().map_while(Result::ok);
        if extensions.any(|extension| matches!(extension.protocol, IpProtocol::ROUTING | IpProtocol::AH)) {
            barrier = Some(PassReason::IpOptions);
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
        usual_ip_checksum: true,
        congestion_experienced: ip.ecn() == Ecn::Ce,
    })
}
