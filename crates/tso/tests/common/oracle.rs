//! Checks packets by etherparse, which shares no code with Nichrome.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};

/// Asserts that etherparse reads the packet to its end and computes the packet's checksums.
pub fn assert_checksums(packet: &[u8]) {
    let sliced = SlicedPacket::from_ethernet(packet).expect("headers are well formed");
    assert_ip_checksum(&sliced);
    let (found, computed, len) = match (sliced.net.as_ref().unwrap(), sliced.transport.as_ref().unwrap()) {
        (NetSlice::Ipv4(ip), TransportSlice::Tcp(tcp)) => {
            let (src, dst) = (ip.header().source(), ip.header().destination());
            (tcp.checksum(), tcp.calc_checksum_ipv4(src, dst).unwrap(), tcp.slice().len())
        }
        (NetSlice::Ipv6(ip), TransportSlice::Tcp(tcp)) => {
            let (src, dst) = (ip.header().source(), ip.header().destination());
            (tcp.checksum(), tcp.calc_checksum_ipv6(src, dst).unwrap(), tcp.slice().len())
        }
        (NetSlice::Ipv4(ip), TransportSlice::Udp(udp)) => {
            let (src, dst) = (ip.header().source(), ip.header().destination());
            let computed = udp.to_header().calc_checksum_ipv4_raw(src, dst, udp.payload()).unwrap();
            (udp.checksum(), computed, usize::from(udp.length()))
        }
        (NetSlice::Ipv6(ip), TransportSlice::Udp(udp)) => {
            let (src, dst) = (ip.header().source(), ip.header().destination());
            let computed = udp.to_header().calc_checksum_ipv6_raw(src, dst, udp.payload()).unwrap();
            (udp.checksum(), computed, usize::from(udp.length()))
        }
        other => panic!("neither TCP nor UDP over IP: {other:?}"),
    };
    assert_eq!(found, computed);
    assert_eq!(len, sliced.ip_payload().unwrap().payload.len());
}

/// Asserts that nothing follows the IP packet, and that an IPv4 header has the checksum that etherparse
/// computes.
pub fn assert_complete(packet: &[u8]) {
    let sliced = SlicedPacket::from_ethernet(packet).expect("headers are well formed");
    assert_ip_checksum(&sliced);
    let end = sliced.ip_payload().unwrap().payload.as_ptr_range().end;
    assert_eq!(end, packet.as_ptr_range().end);
}

fn assert_ip_checksum(sliced: &SlicedPacket<'_>) {
    if let NetSlice::Ipv4(ip) = sliced.net.as_ref().unwrap() {
        assert_eq!(ip.header().header_checksum(), ip.header().to_header().calc_header_checksum());
    }
}
