//! Flow and header offsets of a frame.

use nichrome_lro::{FlowKey, Medium};
use nichrome_wire::{
    EtherType, IpProtocol, Ipv4Header, Ipv6Extensions, Ipv6Header, LinkHeader, PppoeHeader, Tags, TcpHeader,
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
    /// Parses the headers of a packet of `len` bytes, of which `bytes` are the first. `None` if it is not a
    /// TCP segment, is a fragment, or is truncated.
    pub(crate) fn read(bytes: &[u8], len: usize, medium: Medium) -> Option<Self> {
        let (ethertype, network, tags) = link(bytes, medium)?;
        let is_ip = matches!(ethertype, EtherType::IPV4 | EtherType::IPV6);
        is_ip.then(|| Self::of_packet(bytes, len, network, tags)).flatten()
    }

    /// As [`Headers::read`], of a packet within a tunnel: IP within IP, or PPP over Ethernet.
    pub(crate) fn read_tunneled(bytes: &[u8], len: usize, medium: Medium) -> Option<Self> {
        let (ethertype, start, tags) = link(bytes, medium)?;
        let network = start + tunnel_len(ethertype, bytes.get(start..)?)?;
        let headers = Self::of_packet(bytes, len, network, tags)?;
        Some(Self { flow: headers.flow.in_tunnel(), ..headers })
    }

    /// Parses the headers of the IP packet at offset `network`.
    fn of_packet(bytes: &[u8], len: usize, network: usize, tags: Tags) -> Option<Self> {
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
        let vids = tags.as_slice().iter().map(|tag| tag.vid());
        Some(Self { flow: vids.fold(flow, FlowKey::in_vlan), network, transport, payload, end })
    }

    /// Returns the payload length, in bytes.
    pub(crate) fn payload_len(&self) -> usize {
        self.end - self.payload
    }
}

/// Returns true if a frame of this medium has an IP packet, complete or not.
pub(crate) fn is_ip(frame: &[u8], medium: Medium) -> bool {
    medium == Medium::Ip
        || LinkHeader::new(frame)
            .is_some_and(|link| matches!(link.ethertype(), EtherType::IPV4 | EtherType::IPV6))
}

/// Returns the EtherType, the length of the link header, and the VLAN tags.
fn link(bytes: &[u8], medium: Medium) -> Option<(EtherType, usize, Tags)> {
    match medium {
        Medium::Ethernet => {
            let link = LinkHeader::new(bytes)?;
            Some((link.ethertype(), link.header_len(), link.tags()))
        }
        Medium::Ip => {
            let is_ipv6 = bytes.first()? >> 4 == 6;
            Some((if is_ipv6 { EtherType::IPV6 } else { EtherType::IPV4 }, 0, Tags::default()))
        }
    }
}

/// Returns the length of a tunnel header that an IP packet follows.
fn tunnel_len(ethertype: EtherType, outer: &[u8]) -> Option<usize> {
    let is_ip = |protocol| matches!(protocol, IpProtocol::IPV4 | IpProtocol::IPV6);
    let (is_tunnel, len) = match ethertype {
        EtherType::IPV4 => {
            let ip = Ipv4Header::new(outer)?;
            let is_plain = ip.header_len() == Ipv4Header::LEN && !ip.is_fragment();
            (is_plain && is_ip(ip.protocol()), Ipv4Header::LEN)
        }
        EtherType::IPV6 => (is_ip(Ipv6Header::new(outer)?.next_header()), Ipv6Header::LEN),
        EtherType::PPPOE_SESSION => (PppoeHeader::new(outer).is_some(), PppoeHeader::LEN),
        _ => return None,
    };
    is_tunnel.then_some(len)
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
