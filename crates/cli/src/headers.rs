//! Flow and header offsets of a frame.

use nichrome_lro::{FlowKey, Medium};
use nichrome_wire::{
    EtherType, IpProtocol, Ipv4Header, Ipv6Extensions, Ipv6Header, LinkHeader, Tags, TcpHeader,
};

/// Header offsets of a TCP segment, in bytes from the start of its frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headers {
    pub(crate) flow: FlowKey,
    pub(crate) network: usize,
    pub(crate) transport: usize,
    pub(crate) payload: usize,
    /// End of the IP packet.
    pub(crate) end: usize,
}

impl Headers {
    /// Parses the headers of a packet of `len` bytes, of which `bytes` are the first. `None` if it is not a TCP
    /// segment, is a fragment, or is truncated.
    pub(crate) fn read(bytes: &[u8], len: usize, medium: Medium) -> Option<Self> {
        let link = match medium {
            Medium::Ip => None,
            Medium::Ethernet => Some(LinkHeader::new(bytes).filter(carries_ip)?),
        };
        let network = link.as_ref().map_or(0, LinkHeader::header_len);
        let packet = bytes.get(network..)?;
        let (header_len, packet_len) = match packet.first()? >> 4 {
            4 => ipv4_lengths(&Ipv4Header::new(packet)?)?,
            6 => ipv6_lengths(&Ipv6Header::new(packet)?, packet)?,
            _ => return None,
        };
        let (transport, end) = (network + header_len, network + packet_len);
        let tcp = TcpHeader::new(bytes.get(transport..)?)?;
        let payload = transport + tcp.header_len();
        if tcp.header_len() < TcpHeader::LEN || payload > end || end > len {
            return None;
        }
        let ports = (tcp.src_port(), tcp.dst_port());
        let flow = if packet.first()? >> 4 == 4 {
            let ip = Ipv4Header::new(packet)?;
            FlowKey::ipv4(ip.src(), ip.dst(), ports.0, ports.1)
        } else {
            let ip = Ipv6Header::new(packet)?;
            FlowKey::ipv6(ip.src(), ip.dst(), ports.0, ports.1)
        };
        let tags = link.map(|link| link.tags());
        let vids = tags.iter().flat_map(Tags::as_slice).map(|tag| tag.vid());
        Some(Self { flow: vids.fold(flow, FlowKey::in_vlan), network, transport, payload, end })
    }

    /// Returns the payload length, in bytes.
    pub(crate) fn payload_len(&self) -> usize {
        self.end - self.payload
    }
}

/// Returns true if a frame of this medium has an IP packet, complete or not.
pub(crate) fn is_ip(frame: &[u8], medium: Medium) -> bool {
    match medium {
        Medium::Ip => true,
        Medium::Ethernet => LinkHeader::new(frame).as_ref().is_some_and(carries_ip),
    }
}

fn carries_ip(link: &LinkHeader<'_>) -> bool {
    matches!(link.ethertype(), EtherType::IPV4 | EtherType::IPV6)
}

/// Returns the lengths of IP header and packet if the protocol is TCP.
fn ipv4_lengths(ip: &Ipv4Header<'_>) -> Option<(usize, usize)> {
    let whole = ip.protocol() == IpProtocol::TCP && !ip.is_fragment();
    (whole && ip.header_len() >= Ipv4Header::LEN).then(|| (ip.header_len(), usize::from(ip.total_len())))
}

/// Returns the lengths of IP header with extension headers, and packet, if the protocol is TCP.
fn ipv6_lengths(ip: &Ipv6Header<'_>, packet: &[u8]) -> Option<(usize, usize)> {
    let (mut protocol, mut header_len) = (ip.next_header(), Ipv6Header::LEN);
    for extension in Ipv6Extensions::new(protocol, packet.get(Ipv6Header::LEN..)?) {
        let extension = extension.ok()?;
        if extension.protocol == IpProtocol::FRAGMENT {
            return None;
        }
        protocol = IpProtocol(*extension.bytes.first()?);
        header_len += extension.bytes.len();
    }
    (protocol == IpProtocol::TCP).then(|| (header_len, Ipv6Header::LEN + usize::from(ip.payload_len())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nichrome_wire::{Network, TcpFrame, VlanTag};

    fn read(frame: &[u8], medium: Medium) -> Option<Headers> {
        Headers::read(frame, frame.len(), medium)
    }

    #[test]
    fn flow_and_payload_are_found_behind_tags_and_extension_headers() {
        let mut segment = TcpFrame { payload: vec![7; 100], options: vec![1; 12], ..TcpFrame::default() };
        let headers = read(&segment.build(), Medium::Ethernet).unwrap();
        assert_eq!(headers.flow.to_string(), "10.0.0.1:40000 > 10.0.0.2:5201");
        assert_eq!((headers.network, headers.transport, headers.payload), (14, 34, 66));
        assert_eq!(headers.payload_len(), 100);
        assert_eq!(read(&segment.build_ip(), Medium::Ip).unwrap().payload, 52);

        segment.tags = vec![VlanTag { tpid: EtherType::VLAN, tci: 7 }];
        let mut network = Network::ipv6([1; 16].into(), [2; 16].into());
        if let Network::Ipv6 { next_header, extensions, .. } = &mut network {
            *next_header = IpProtocol::HOP_BY_HOP;
            *extensions = vec![6, 0, 1, 4, 0, 0, 0, 0];
        }
        segment.network = network;
        let headers = read(&segment.build(), Medium::Ethernet).unwrap();
        assert!(headers.flow.to_string().ends_with("vlan 7"), "{}", headers.flow);
        assert_eq!((headers.network, headers.transport, headers.payload_len()), (18, 66, 100));
    }

    #[test]
    fn the_header_is_enough_if_the_length_is_known() {
        let frame = TcpFrame { payload: vec![7; 100], ..TcpFrame::default() }.build();
        let headers = Headers::read(&frame[..54], frame.len(), Medium::Ethernet).unwrap();
        assert_eq!(headers.payload_len(), 100);
    }

    #[test]
    fn truncated_frames_and_frames_other_than_tcp_have_no_flow() {
        let frame = TcpFrame { payload: vec![7; 100], ..TcpFrame::default() }.build();
        for len in 0..frame.len() {
            assert!(read(&frame[..len], Medium::Ethernet).is_none(), "{len}");
        }
        assert!(read(&frame, Medium::Ip).is_none());
        let mut udp = frame.clone();
        udp[23] = 17;
        assert!(read(&udp, Medium::Ethernet).is_none());
        let mut fragment = frame;
        fragment[20] = 0x20;
        assert!(read(&fragment, Medium::Ethernet).is_none());
    }
}
