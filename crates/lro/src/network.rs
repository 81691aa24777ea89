//! The network layer of a frame, read in one pass: link header, VLAN tags, IP header and extension headers.

use nichrome_wire::{Ecn, EtherType, IpProtocol, Ipv4Header, Ipv6Header, LinkHeader};

use crate::flow::FlowKey;
use crate::reason::PassReason;
use crate::segment::Medium;

/// What the headers before a transport header say.
#[derive(Clone, Copy)]
pub(crate) struct Network {
    /// Where the IP header is in the frame.
    pub(crate) start: usize,
    /// Where the transport header is in the frame.
    pub(crate) transport: usize,
    /// Where the packet ends in the frame.
    pub(crate) end: usize,
    pub(crate) version: u8,
    /// The TCP flow with these addresses and VLANs, and ports 0.
    pub(crate) addresses: FlowKey,
    pub(crate) options: bool,
    /// Why the packet must be passed on, although ports and payload can be read.
    pub(crate) barrier: Option<PassReason>,
    pub(crate) usual_checksum: bool,
    pub(crate) congestion_experienced: bool,
}

/// The VLAN identifiers in front of a packet, and how many there are.
type Vlans = ([u16; 2], usize);

const NO_VLAN: Vlans = ([0; 2], 0);

/// Reads the headers before a transport header of this protocol.
///
/// # Errors
/// The headers are malformed, announce something else, or the frame is not the first fragment.
pub(crate) fn read(frame: &[u8], medium: Medium, protocol: IpProtocol) -> Result<Network, PassReason> {
    if medium == Medium::Ip {
        return match frame.first().map(|first| first >> 4) {
            Some(6) => ipv6(frame, 0, NO_VLAN, protocol),
            _ => ipv4(frame, 0, NO_VLAN, protocol),
        };
    }
    let header = LinkHeader::new(frame).ok_or(PassReason::NotTcp)?;
    let tags = header.tags();
    let mut vlans = ([0; 2], tags.len());
    for (vid, tag) in vlans.0.iter_mut().zip(tags.as_slice()) {
        *vid = tag.vid();
    }
    match header.ethertype() {
        EtherType::IPV4 => ipv4(frame, header.header_len(), vlans, protocol),
        EtherType::IPV6 => ipv6(frame, header.header_len(), vlans, protocol),
        _ => Err(PassReason::NotTcp),
    }
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
        transport: start + header_len,
        end,
        version: 4,
        addresses: FlowKey::ipv4(ip.src(), ip.dst(), 0, 0).with_vlans(vlans),
        options: header_len > Ipv4Header::LEN,
        barrier: fragment.more_fragments.then_some(PassReason::Fragment),
        usual_checksum: ip.checksum() != 0xFFFF,
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
    Ok(Network {
        start,
        transport,
        end: start + Ipv6Header::LEN + payload.len(),
        version: 6,
        addresses: FlowKey::ipv6(ip.src(), ip.dst(), 0, 0).with_vlans(vlans),
        options: false,
        barrier,
        usual_checksum: true,
        congestion_experienced: ip.ecn() == Ecn::Ce,
    })
}
