//! RDMA datagrams as Ethernet frames.

use std::net::IpAddr;

use nichrome_rdma::{Datagram, Route};
use nichrome_wire::rdma::{PathMtu, UdpFlow};
use nichrome_wire::{
    AddressPair, EtherType, EthernetHeader, Fragment, HeaderOptions, IpProtocol, Ipv4Error, Ipv4Repr,
    UdpHeader,
};

use crate::HostId;

/// Maximum overhead of a RoCEv2 packet in bytes: IPv4, UDP, BTH, RETH, ICRC.
const OVERHEAD: usize = 20 + 8 + 12 + 16 + 4;
/// The shortest timeout in nanoseconds (IBA 9.7.6.1.3: 4.096 us · 2ⁿ), and the maximum of n.
const SHORTEST_TIMEOUT: u64 = 4096;
const LONGEST_CODE: u8 = 31;
/// Margin of a timeout over two round trips, in nanoseconds.
const MARGIN: u64 = 1_000_000;

/// Builds the frame of a datagram, without UDP checksum as in RoCEv2.
pub(super) fn frame(from: HostId, route: &Route, bytes: &[u8]) -> Result<Vec<u8>, Ipv4Error> {
    let UdpFlow { addresses, src_port, dst_port } = route.flow;
    let to = match addresses.dst() {
        IpAddr::V4(to) => HostId::of_ip(to).unwrap_or_default(),
        IpAddr::V6(_) => HostId::default(),
    };
    let len = UdpHeader::LEN + bytes.len();
    let mut frame = Vec::with_capacity(EthernetHeader::LEN + 20 + len);
    frame.extend_from_slice(&to.mac().0);
    frame.extend_from_slice(&from.mac().0);
    frame.extend_from_slice(&EtherType::IPV4.0.to_be_bytes());
    let header = Ipv4Repr {
        src: from.ip(),
        dst: to.ip(),
        protocol: IpProtocol::UDP,
        ttl: route.hop_limit,
        tos: route.traffic_class,
        ident: 0,
        dont_fragment: true,
        fragment: Fragment::default(),
        options: HeaderOptions::default(),
    };
    header.emit(len, &mut frame)?;
    for field in [src_port, dst_port, len as u16, 0] {
        frame.extend_from_slice(&field.to_be_bytes());
    }
    frame.extend_from_slice(bytes);
    Ok(frame)
}

/// Parses a frame's datagram; `None` if the IPv4 packet is invalid or the UDP header truncated.
pub(super) fn parse(frame: &[u8]) -> Option<Datagram<'_>> {
    let (ip, datagram) = Ipv4Repr::parse(frame.get(EthernetHeader::LEN..)?).ok()?;
    let (header, bytes) = datagram.split_first_chunk::<{ UdpHeader::LEN }>()?;
    let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let addresses = AddressPair::V4 { src: ip.src, dst: ip.dst };
    let flow = UdpFlow { addresses, src_port: port(0), dst_port: port(2) };
    Some(Datagram { flow, traffic_class: ip.tos, bytes })
}

/// Returns the largest path MTU whose packets fit an IP packet of `mtu` bytes.
pub(super) fn path_mtu(mtu: usize) -> PathMtu {
    let all = [PathMtu::B4096, PathMtu::B2048, PathMtu::B1024, PathMtu::B512];
    all.into_iter().find(|path| path.bytes() + OVERHEAD <= mtu).unwrap_or(PathMtu::B256)
}

/// Returns the code of the shortest timeout of at least two round trips plus [`MARGIN`], for this one-way
/// delay.
pub(super) fn timeout(delay: u64) -> u8 {
    let least = 4 * delay + MARGIN;
    (1..LONGEST_CODE).find(|code| SHORTEST_TIMEOUT << code >= least).unwrap_or(LONGEST_CODE)
}

#[cfg(test)]
mod tests {
    use nichrome_wire::TrafficClass;

    use super::*;

    #[test]
    fn a_frame_leads_back_to_its_datagram() {
        let addresses = AddressPair::V4 { src: HostId(1).ip(), dst: HostId(0).ip() };
        let flow = UdpFlow { addresses, src_port: 1000, dst_port: 4791 };
        let route = Route { flow, traffic_class: TrafficClass(2), flow_label: 0, hop_limit: 64 };
        let frame = frame(HostId(1), &route, b"something").unwrap();
        let datagram = parse(&frame).unwrap();
        assert_eq!((datagram.flow, datagram.bytes), (flow, &b"something"[..]));
        assert_eq!(HostId::of(nichrome_wire::LinkHeader::new(&frame).unwrap().dst()), Some(HostId(0)));
        assert!(parse(&frame[..30]).is_none());
    }

    #[test]
    fn packets_fit_and_timeouts_are_longer_than_two_round_trips() {
        assert_eq!([1500, 9000, 4155].map(path_mtu), [PathMtu::B1024, PathMtu::B4096, PathMtu::B2048]);
        assert_eq!([0, 50_000_000].map(timeout), [8, 16]);
    }
}
