//! Unsegmented frames in a tunnel, as a kernel passes on those of its tunnel devices: with a virtio header,
//! and without one, as in a capture.

use nichrome_tso::{Limit, SegmentError, Segments};
use nichrome_wire::{EtherType, GsoType, IpProtocol, Network, TcpFrame};

use super::within::{Tunnel, packets};
use crate::common::{
    TCP4, TCP6, UdpFrame, assert_checksums, cut, data, ipv6, partial, tcp_segments, transport_at, virtio,
};

/// Length of the outer Ethernet header, in bytes.
const LINK: usize = 14;

/// Offset of the checksum in a TCP header, in bytes.
const FIELD: u16 = 16;

/// A segment over IPv4, and one over IPv6, with their segmentation types.
fn inner() -> [(TcpFrame, GsoType); 2] {
    let over_ipv6 = TcpFrame { network: ipv6(&[], IpProtocol::TCP), ..data(3000) };
    [(data(3000), TCP4), (over_ipv6, TCP6)]
}

/// A tunnel over UDP with this tunnel header; the UDP checksum is optional.
#[derive(Clone, Copy, Debug)]
struct InUdp {
    header: &'static [u8],
    has_checksum: bool,
    port: u16,
}

const VXLAN: &[u8] = &[8, 0, 0, 0, 0, 0, 5, 0];
const VXLAN_WITH_POLICY: &[u8] = &[0x88, 0, 0, 7, 0, 0, 5, 0];
const GENEVE: &[u8] = &[0, 0, 0x65, 0x58, 0, 0, 5, 0];
const GENEVE_WITH_OPTIONS: &[u8] = &[3, 0x40, 0x65, 0x58, 0, 0, 5, 0, 1, 2, 3, 1, 4, 5, 6, 7, 1, 3, 2, 0];

impl InUdp {
    /// Returns the `nth` frame with this outer IP header, around `frame`.
    fn around(self, mut outer: Network, frame: &[u8], nth: u16) -> Vec<u8> {
        if let Network::Ipv4 { ident, .. } = &mut outer {
            *ident += nth;
        }
        let at = transport_at(&[0; LINK], &outer) + 6;
        let datagram = UdpFrame::new(outer, [self.header, frame].concat());
        let mut bytes = UdpFrame { dst_port: self.port, ..datagram }.build();
        if !self.has_checksum {
            bytes[at..at + 2].fill(0);
        }
        bytes
    }
}

/// Checks that `whole` in a tunnel is cut to the segments of `whole`, each in that tunnel.
fn assert_cut(
    (whole, gso_type): (TcpFrame, GsoType),
    around: impl Fn(&[u8], u16) -> Vec<u8>,
) -> Vec<Vec<u8>> {
    let frame = around(&whole.build(), 0);
    let start = frame.len() - whole.build().len() + transport_at(&whole.build(), &whole.network);
    let found = cut(&frame, &partial(virtio(gso_type, 1000), start, FIELD)).unwrap();
    let segments = tcp_segments(&whole, 1000);
    let expected: Vec<_> = segments.iter().zip(0..).map(|(segment, nth)| around(segment, nth)).collect();
    assert_eq!(found, expected);
    found
}

#[test]
fn segments_in_tunnels_of_udp_are_cut_with_their_headers() {
    for outer in [Network::default(), ipv6(&[], IpProtocol::UDP)] {
        for inner in inner() {
            for header in [VXLAN, GENEVE, GENEVE_WITH_OPTIONS] {
                for has_checksum in [false, true] {
                    let tunnel = InUdp { header, has_checksum, port: 443 };
                    let found =
                        assert_cut(inner.clone(), |frame, nth| tunnel.around(outer.clone(), frame, nth));
                    if has_checksum {
                        found.iter().for_each(|packet| assert_checksums(packet));
                    }
                }
            }
        }
    }
}

#[test]
fn segments_in_tunnels_of_udp_at_their_ports_are_cut_without_a_virtio_header() {
    for (header, port) in
        [(VXLAN, 4789), (VXLAN_WITH_POLICY, 4789), (GENEVE, 6081), (GENEVE_WITH_OPTIONS, 6081)]
    {
        for has_checksum in [false, true] {
            let tunnel = InUdp { header, has_checksum, port };
            let around = |frame: &[u8], nth| tunnel.around(Network::default(), frame, nth);
            let whole = around(&data(3000).build(), 0);
            let segments = Segments::within_any_tunnel(&whole, Limit::Packet(1500)).unwrap();
            let headers = whole.len() - LINK - 3000;
            let expected: Vec<_> = tcp_segments(&data(3000), 1500 - headers)
                .iter()
                .zip(0..)
                .map(|(frame, nth)| around(frame, nth))
                .collect();
            assert_eq!(packets(segments), expected, "{tunnel:?}");
            let datagrams = Segments::within(&whole, Limit::Packet(1500)).unwrap();
            assert_eq!(datagrams.bytes_remaining(), whole.len() + 2 * (LINK + 28), "{tunnel:?}");
        }
    }
}

#[test]
fn datagrams_at_other_ports_or_with_other_headers_are_in_no_tunnel() {
    let is_cut_as_a_datagram = |tunnel: InUdp| {
        let whole = tunnel.around(Network::default(), &data(3000).build(), 0);
        let limit = Limit::Packet(1500);
        packets(Segments::within_any_tunnel(&whole, limit).unwrap())
            == packets(Segments::within(&whole, limit).unwrap())
    };
    for (header, port, is_plain) in [
        (VXLAN, 4788, true),
        (VXLAN, 4789, false),
        (GENEVE, 4789, true),
        (&[0x48, 0, 0, 0, 0, 0, 5, 0], 4789, true),
        (GENEVE, 6081, false),
        (&[0x40, 0, 0x65, 0x58, 0, 0, 5, 0], 6081, true),
    ] {
        let tunnel = InUdp { header, has_checksum: true, port };
        assert_eq!(is_cut_as_a_datagram(tunnel), is_plain, "{tunnel:?}");
    }
}

#[test]
fn the_packet_in_a_tunnel_of_udp_ends_with_the_datagram() {
    let tunnel = InUdp { header: VXLAN, has_checksum: true, port: 4789 };
    let frame = data(3000).build();
    let refusal = |inner: &[u8]| {
        Segments::within_any_tunnel(&tunnel.around(Network::default(), inner, 0), Limit::Packet(1500)).err()
    };
    assert_eq!(refusal(&frame), None);
    // Two datagrams that were merged.
    let behind = VXLAN.len() + frame.len();
    assert_eq!(refusal(&[&frame, VXLAN, &frame].concat()), Some(SegmentError::BehindTunneled(behind)));
    assert!(matches!(refusal(&frame[..frame.len() - 1]), Some(SegmentError::Ipv4(_))));
    assert_eq!(refusal(&[0; 3000]), Some(SegmentError::NotIp(EtherType(0))));
}

#[test]
fn segments_in_gre_are_cut_with_its_header() {
    const CHECKSUM: u8 = 0x80;
    const KEY: u8 = 0x20;
    for inner in inner() {
        for flags in [0, KEY, CHECKSUM, CHECKSUM | KEY] {
            for is_bridged in [false, true] {
                let gre = |frame: &[u8]| {
                    let ethertype = if is_bridged { &[0x65, 0x58] } else { &frame[12..14] };
                    let mut packet = [&[flags, 0], ethertype].concat();
                    packet.extend([0; 4].iter().take(if flags & CHECKSUM == 0 { 0 } else { 4 }));
                    packet.extend([0, 0, 0, 7].iter().take(if flags & KEY == 0 { 0 } else { 4 }));
                    packet.extend(&frame[if is_bridged { 0 } else { LINK }..]);
                    if flags & CHECKSUM != 0 {
                        let sum = packet.chunks(2).map(|word| {
                            u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or_default())
                        });
                        // Fewer than 2^16 words, so folding twice is enough.
                        let folded = (0..2).fold(sum.sum::<u32>(), |sum, _| (sum & 0xFFFF) + (sum >> 16));
                        packet[4..6].copy_from_slice(&(!folded as u16).to_be_bytes());
                    }
                    packet
                };
                assert_cut(inner.clone(), |frame, nth| {
                    Tunnel::Ipv4.around_protocol(IpProtocol::GRE, &gre(frame), nth)
                });
                assert_cut(inner.clone(), |frame, nth| {
                    Tunnel::Ipv6.around_protocol(IpProtocol::GRE, &gre(frame), nth)
                });
            }
        }
    }
}

#[test]
fn segments_in_ip_are_cut_with_its_header() {
    for tunnel in [Tunnel::Ipv4, Tunnel::Ipv6] {
        for (whole, gso_type) in inner() {
            let frame = tunnel.around(&whole.build(), 0);
            let start = transport_at(&whole.build(), &whole.network) + tunnel.header_len();
            let virtio = partial(virtio(gso_type, 1000), start, FIELD);
            let segments = tcp_segments(&whole, 1000);
            let expected: Vec<_> =
                segments.iter().zip(0..).map(|(segment, nth)| tunnel.around(segment, nth)).collect();
            assert_eq!(cut(&frame, &virtio).unwrap(), expected, "{tunnel:?}");
            // The outer checksum may cover a checksum that is left partial.
            assert_eq!(Segments::new(&frame, &virtio).unwrap().leave_tcp_checksums(), None);
        }
    }
}

#[test]
fn a_packet_ends_with_the_tunnel_that_contains_it() {
    let (whole, gso_type) = &inner()[0];
    let frame = whole.build();
    for tunnel in [Tunnel::Ipv4, Tunnel::Ipv6, Tunnel::Pppoe] {
        let refusal = |inner: &[u8]| Segments::within(&tunnel.around(inner, 0), Limit::Packet(1500)).err();
        assert_eq!(refusal(&frame), None, "{tunnel:?}");
        let longer = [&frame[..], &[7; 5]].concat();
        assert_eq!(refusal(&longer), Some(SegmentError::BehindTunneled(5)), "{tunnel:?}");
    }
    // Bytes follow the inner packet: the datagram is not taken for a tunnel, so UDP contradicts the virtio
    // header.
    let tunnel = InUdp { header: VXLAN, has_checksum: false, port: 443 };
    let longer = tunnel.around(Network::default(), &[&frame[..], &[7; 5]].concat(), 0);
    let start = longer.len() - frame.len() - 5 + transport_at(&frame, &whole.network);
    let refused = cut(&longer, &partial(virtio(*gso_type, 1000), start, FIELD));
    assert!(matches!(refused, Err(SegmentError::Mismatch { .. })), "{refused:?}");
}

#[test]
fn a_checksum_elsewhere_in_a_datagram_is_not_that_of_a_tunnel() {
    let (whole, gso_type) = &inner()[0];
    let tunnel = InUdp { header: VXLAN, has_checksum: false, port: 443 };
    let frame = tunnel.around(Network::default(), &whole.build(), 0);
    let start = frame.len() - whole.build().len() + transport_at(&whole.build(), &whole.network);
    for wrong in [start - 1, start + 1] {
        let refused = cut(&frame, &partial(virtio(*gso_type, 1000), wrong, FIELD));
        assert!(matches!(refused, Err(SegmentError::Mismatch { .. })), "{refused:?}");
    }
}
