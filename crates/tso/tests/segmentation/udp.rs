//! UDP: datagrams and fragments, one test for each rule.

use nichrome_tso::SegmentError;
use nichrome_wire::{EtherType, Fragment, GsoType, IpProtocol, Ipv4Header, Ipv4Repr, Network, VlanTag};

use crate::common::*;

/// Returns the datagrams of `frame`; checks that they equal those that a sender builds, and etherparse's
/// checksums.
fn datagrams(frame: &UdpFrame, size: u16) -> Vec<Vec<u8>> {
    let (bytes, virtio) = frame.to_be_cut(GsoType::UdpL4, size);
    let packets = cut(&bytes, &virtio).unwrap();
    for packet in &packets {
        assert_checksums(packet);
        assert_complete(packet);
    }
    assert_eq!(packets, frame.datagrams(usize::from(size)));
    packets
}

/// Returns the fragments of `frame`; checks that they equal those that a sender builds, with `carried` bytes
/// in each but the last.
fn fragments(frame: &UdpFrame, size: u16, carried: usize) -> Vec<Vec<u8>> {
    let (bytes, virtio) = frame.to_be_cut(GsoType::Udp, size);
    let packets = cut(&bytes, &virtio).unwrap();
    packets.iter().for_each(|packet| assert_complete(packet));
    assert_eq!(packets, frame.fragments(carried));
    packets
}

fn ipv4_of(packet: &[u8]) -> Ipv4Header<'_> {
    Ipv4Header::new(&packet[14..]).unwrap()
}

fn over_ipv4(len: usize) -> UdpFrame {
    UdpFrame::new(Network::default(), payload(len))
}

#[test]
fn each_datagram_has_its_own_length_and_checksum() {
    let packets = datagrams(&over_ipv4(3000), 1472);
    let lengths: Vec<_> = packets.iter().map(|packet| packet.len() - 14 - 20 - 8).collect();
    assert_eq!(lengths, [1472, 1472, 56]);
}

#[test]
fn an_exact_multiple_one_that_fits_and_none_at_all() {
    for (len, count) in [(2944, 2), (1472, 1), (3, 1), (0, 1)] {
        assert_eq!(datagrams(&over_ipv4(len), 1472).len(), count);
    }
}

#[test]
fn the_identification_goes_up_by_one() {
    let mut frame = over_ipv4(30);
    if let Network::Ipv4 { ident, .. } = &mut frame.network {
        *ident = 0xFFFE;
    }
    let idents: Vec<_> = datagrams(&frame, 10).iter().map(|packet| ipv4_of(packet).ident()).collect();
    assert_eq!(idents, [0xFFFE, 0xFFFF, 0]);
}

#[test]
fn datagrams_over_ipv6_with_extension_headers_and_tags() {
    let network = ipv6(&[(IpProtocol::HOP_BY_HOP, 1)], IpProtocol::UDP);
    let tags = vec![VlanTag { tpid: EtherType::VLAN, tci: 7 }];
    assert_eq!(datagrams(&UdpFrame { tags, ..UdpFrame::new(network, payload(3001)) }, 1000).len(), 4);
}

#[test]
fn a_checksum_of_zero_is_sent_as_0xffff() {
    // The last word of the second datagram is chosen so that its checksum is 0.
    for network in [Network::default(), ipv6(&[], IpProtocol::UDP)] {
        let mut frame = UdpFrame::new(network, vec![0; 40]);
        let checksum_of = |frame: &UdpFrame| {
            let packets = datagrams(frame, 20);
            let at = transport_at(&packets[1], &frame.network) + 6;
            u16::from_be_bytes([packets[1][at], packets[1][at + 1]])
        };
        let before = checksum_of(&frame);
        frame.payload[38..].copy_from_slice(&before.to_be_bytes());
        assert_eq!(checksum_of(&frame), 0xFFFF);
    }
}

#[test]
fn fragments_are_multiples_of_eight_bytes() {
    let packets = fragments(&over_ipv4(4000), 1480, 1480);
    let parts: Vec<_> = packets
        .iter()
        .map(|packet| (ipv4_of(packet).fragment().offset.bytes(), ipv4_of(packet).fragment().more_fragments))
        .collect();
    assert_eq!(parts, [(0, true), (1480, true), (2960, false)]);
    assert_eq!(fragments(&over_ipv4(4000), 1487, 1480), packets);
}

#[test]
fn fragments_share_the_identification_and_have_no_df() {
    for packet in fragments(&over_ipv4(4000), 1480, 1480) {
        assert!(ipv4_of(&packet).ident() == 0 && !ipv4_of(&packet).dont_fragment());
    }
}

#[test]
fn a_fragmented_datagrams_checksum_of_zero_is_sent_as_0xffff() {
    let mut frame = UdpFrame::new(Network::default(), vec![0; 40]);
    let checksum_of = |frame: &UdpFrame| {
        let first = &fragments(frame, 16, 16)[0];
        u16::from_be_bytes([first[34 + 6], first[34 + 7]])
    };
    let before = checksum_of(&frame);
    frame.payload[38..].copy_from_slice(&before.to_be_bytes());
    assert_eq!(checksum_of(&frame), 0xFFFF);
}

#[test]
fn fragments_make_up_the_datagram_with_its_checksum_complete() {
    let mut frame = over_ipv4(5001);
    if let Network::Ipv4 { options, .. } = &mut frame.network {
        *options = vec![0x94, 4, 0, 0];
    }
    let mut whole = frame.build();
    let start = transport_at(&whole, &frame.network);
    let parts = fragments(&frame, 1480, 1480);
    let carried: Vec<u8> = parts.iter().flat_map(|packet| packet[start..].to_vec()).collect();
    assert_eq!(carried, whole.split_off(start));
}

#[test]
fn a_datagram_that_fits_is_not_a_fragment() {
    let frame = over_ipv4(1473);
    let (bytes, virtio) = frame.to_be_cut(GsoType::Udp, 1481);
    assert_eq!(cut(&bytes, &virtio).unwrap(), [frame.build()]);
    let ip = Ipv4Repr::parse(&bytes[14..]).unwrap().0;
    assert!(ip.dont_fragment && ip.fragment == Fragment::default());
    let over_ipv6 = UdpFrame::new(ipv6(&[], IpProtocol::UDP), payload(100));
    let (bytes, virtio) = over_ipv6.to_be_cut(GsoType::Udp, 108);
    assert_eq!(cut(&bytes, &virtio).unwrap(), [over_ipv6.build()]);
}

#[test]
fn fragments_below_eight_bytes_are_refused() {
    let (bytes, virtio) = over_ipv4(100).to_be_cut(GsoType::Udp, 7);
    assert_eq!(cut(&bytes, &virtio), Err(SegmentError::FragmentSize(7.try_into().unwrap())));
}

#[test]
fn fragments_over_ipv6_are_refused() {
    let frame = UdpFrame::new(ipv6(&[], IpProtocol::UDP), payload(4000));
    let (bytes, virtio) = frame.to_be_cut(GsoType::Udp, 1448);
    assert_eq!(cut(&bytes, &virtio), Err(SegmentError::Ipv6Fragmentation));
}
