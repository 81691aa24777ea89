//! Frames with a virtio header whose segmentation is pending within a tunnel, as a kernel passes on those of its tunnel devices.

use nichrome_tso::{SegmentError, Segments};
use nichrome_wire::{GsoType, IpProtocol, Network, TcpFrame};

use super::within::Tunnel;
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

/// Whether the datagrams of VXLAN have a checksum.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Checksum {
    None,
    Own,
}

/// Returns the `nth` frame of VXLAN with this outer IP header, around `frame`.
fn vxlan(mut outer: Network, checksum: Checksum, frame: &[u8], nth: u16) -> Vec<u8> {
    if let Network::Ipv4 { ident, .. } = &mut outer {
        *ident += nth;
    }
    let at = transport_at(&[0; LINK], &outer) + 6;
    let payload = [&[8, 0, 0, 0, 0, 0, 5, 0], frame].concat();
    let mut bytes = UdpFrame::new(outer, payload).build();
    if checksum == Checksum::None {
        bytes[at..at + 2].fill(0);
    }
    bytes
}

#[test]
fn segments_in_vxlan_are_cut_with_its_headers() {
    for outer in [Network::default(), ipv6(&[], IpProtocol::UDP)] {
        for (whole, gso_type) in inner() {
            for checksum in [Checksum::None, Checksum::Own] {
                let around = |frame: &[u8], nth| vxlan(outer.clone(), checksum, frame, nth);
                let frame = around(&whole.build(), 0);
                let start = frame.len() - whole.build().len() + transport_at(&whole.build(), &whole.network);
                let found = cut(&frame, &partial(virtio(gso_type, 1000), start, FIELD)).unwrap();
                let segments = tcp_segments(&whole, 1000);
                let expected: Vec<_> =
                    segments.iter().zip(0..).map(|(segment, nth)| around(segment, nth)).collect();
                assert_eq!(found, expected, "{checksum:?}");
                if checksum == Checksum::Own {
                    found.iter().for_each(|packet| assert_checksums(packet));
                }
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
fn a_checksum_elsewhere_in_a_datagram_is_not_that_of_a_tunnel() {
    let (whole, gso_type) = &inner()[0];
    let frame = vxlan(Network::default(), Checksum::None, &whole.build(), 0);
    let start = frame.len() - whole.build().len() + transport_at(&whole.build(), &whole.network);
    for wrong in [start - 1, start + 1] {
        let refused = cut(&frame, &partial(virtio(*gso_type, 1000), wrong, FIELD));
        assert!(matches!(refused, Err(SegmentError::Mismatch { .. })), "{refused:?}");
    }
}
