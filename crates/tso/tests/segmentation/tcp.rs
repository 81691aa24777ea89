//! TCP: one test for each rule.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use nichrome_wire::{
    EtherType, GsoType, IpProtocol, Ipv4Header, Network, SeqNumber, TcpFlags, TcpFrame, TcpGsoEcn, TcpHeader,
    VlanTag,
};

use crate::common::*;

/// Returns the packets of `frame`; checks that they equal those that a sender builds, and etherparse's
/// checksums.
fn segments(frame: &TcpFrame, size: u16) -> Vec<Vec<u8>> {
    let (bytes, virtio) = tcp(frame, size);
    let packets = cut(&bytes, &virtio).unwrap();
    for packet in &packets {
        assert_checksums(packet);
        assert_complete(packet);
    }
    assert_eq!(packets, tcp_segments(frame, usize::from(size)));
    packets
}

/// Returns the TCP header and payload of a packet without VLAN tags.
fn tcp_of(packet: &[u8]) -> TcpHeader<'_> {
    match SlicedPacket::from_ethernet(packet).unwrap().transport {
        Some(TransportSlice::Tcp(tcp)) => TcpHeader::new(tcp.slice()).unwrap(),
        other => panic!("not TCP: {other:?}"),
    }
}

fn payload_lens(packets: &[Vec<u8>]) -> Vec<usize> {
    packets.iter().map(|packet| tcp_of(packet).payload().unwrap().len()).collect()
}

fn flags(packets: &[Vec<u8>]) -> Vec<TcpFlags> {
    packets.iter().map(|packet| tcp_of(packet).flags()).collect()
}

#[test]
fn the_last_segment_may_be_shorter() {
    assert_eq!(payload_lens(&segments(&data(4000), 1448)), [1448, 1448, 1104]);
}

#[test]
fn an_exact_multiple_has_no_empty_segment() {
    assert_eq!(payload_lens(&segments(&data(2896), 1448)), [1448, 1448]);
}

#[test]
fn one_byte_more_is_a_segment_of_its_own() {
    assert_eq!(payload_lens(&segments(&data(2897), 1448)), [1448, 1448, 1]);
}

#[test]
fn a_payload_that_fits_is_one_packet() {
    assert_eq!(payload_lens(&segments(&data(1448), 1448)), [1448]);
}

#[test]
fn headers_without_payload_are_one_packet() {
    assert_eq!(payload_lens(&segments(&data(0), 1448)), [0]);
}

#[test]
fn the_longest_frame_with_the_smallest_segments_stays_within_the_bound() {
    let frame = TcpFrame { payload: payload(65_535 - 40), ..TcpFrame::default() };
    assert_eq!(segments(&frame, 1).len(), 65_495);
}

#[test]
fn the_sequence_number_advances_across_the_wrap() {
    let packets = segments(&data(6000), 1500);
    let seqs: Vec<_> = packets.iter().map(|packet| tcp_of(packet).seq().0).collect();
    assert_eq!(seqs, [0xFFFF_F000, 0xFFFF_F5DC, 0xFFFF_FBB8, 0x194]);
}

#[test]
fn the_identification_goes_up_by_one_with_df_as_without() {
    for df in [true, false] {
        let mut frame = data(3000);
        if let Network::Ipv4 { ident, dont_fragment, .. } = &mut frame.network {
            (*ident, *dont_fragment) = (0xFFFF, df);
        }
        let packets = segments(&frame, 1000);
        let idents: Vec<_> =
            packets.iter().map(|packet| Ipv4Header::new(&packet[14..]).unwrap().ident()).collect();
        assert_eq!(idents, [0xFFFF, 0, 1]);
    }
}

#[test]
fn total_length_and_header_checksum_are_each_packets_own() {
    let packets = segments(&data(2000), 1448);
    let total_lens: Vec<_> =
        packets.iter().map(|packet| Ipv4Header::new(&packet[14..]).unwrap().total_len()).collect();
    assert_eq!(total_lens, [20 + 32 + 1448, 20 + 32 + 552]);
}

#[test]
fn fin_and_psh_are_on_the_last_segment_only() {
    let ack = TcpFlags::ACK;
    let packets = segments(&TcpFrame { flags: ack | TcpFlags::FIN | TcpFlags::PSH, ..data(3000) }, 1000);
    assert_eq!(flags(&packets), [ack, ack, ack | TcpFlags::FIN | TcpFlags::PSH]);
}

#[test]
fn cwr_is_on_the_first_segment_only() {
    let (ack, cwr) = (TcpFlags::ACK, TcpFlags::CWR);
    let frame = TcpFrame { flags: ack | cwr, ..data(3000) };
    assert_eq!(flags(&segments(&frame, 1000)), [ack | cwr, ack, ack]);
    let (bytes, _) = tcp(&frame, 1000);
    let packets = cut(&bytes, &virtio(GsoType::TcpV4(TcpGsoEcn::CwrOnFirst), 1000)).unwrap();
    assert_eq!(flags(&packets), [ack | cwr, ack, ack]);
}

#[test]
fn every_other_flag_is_on_every_segment() {
    let others = TcpFlags::ACK | TcpFlags::URG | TcpFlags::ECE | TcpFlags::AE;
    let packets = segments(&TcpFrame { flags: others, urgent: 7, ..data(3000) }, 1000);
    assert_eq!(flags(&packets), [others; 3]);
}

#[test]
fn reserved_bits_stay_and_count() {
    let (mut bytes, virtio) = tcp(&data(3000), 1000);
    bytes[14 + 20 + 12] |= 0b1010;
    for packet in cut(&bytes, &virtio).unwrap() {
        assert_eq!(tcp_of(&packet).reserved(), 0b101);
        assert_checksums(&packet);
    }
}

#[test]
fn tcp_options_are_on_every_segment() {
    let options: Vec<u8> = (0..40).map(|at| if at % 2 == 0 { 1 } else { 0 }).collect();
    for packet in segments(&TcpFrame { options: options.clone(), ..data(3000) }, 1000) {
        assert_eq!(tcp_of(&packet).options(), Some(&options[..]));
    }
}

#[test]
fn ipv4_options_are_on_every_packet() {
    let mut frame = data(3000);
    if let Network::Ipv4 { options, .. } = &mut frame.network {
        *options = vec![0x94, 4, 0, 0, 1, 1, 1, 0]; // router alert (RFC 2113)
    }
    assert_eq!(payload_lens(&segments(&frame, 1000)), [1000; 3]);
}

#[test]
fn vlan_tags_are_on_every_packet() {
    let tag = |tpid, tci| VlanTag { tpid, tci };
    for tags in [
        vec![tag(EtherType::VLAN, 0x6005)],
        vec![tag(EtherType::QINQ, 5), tag(EtherType::VLAN, 6)],
        vec![tag(EtherType::VLAN, 5), tag(EtherType::VLAN, 6)],
    ] {
        for network in [Network::default(), ipv6(&[], IpProtocol::TCP)] {
            let frame = TcpFrame { tags: tags.clone(), network, ..data(3000) };
            assert_eq!(segments(&frame, 1000).len(), 3);
        }
    }
}

#[test]
fn the_ipv6_payload_length_counts_the_extension_headers() {
    let kinds = [
        (IpProtocol::HOP_BY_HOP, 0),
        (IpProtocol::ROUTING, 2),
        (IpProtocol::FRAGMENT, 0), // an atomic fragment (RFC 6946)
        (IpProtocol::DESTINATION_OPTIONS, 1),
    ];
    let frame = TcpFrame { network: ipv6(&kinds, IpProtocol::TCP), ..data(2000) };
    let packets = segments(&frame, 1000);
    for packet in &packets {
        let sliced = SlicedPacket::from_ethernet(packet).unwrap();
        let Some(NetSlice::Ipv6(ip)) = &sliced.net else { panic!("not IPv6") };
        assert_eq!(ip.header().payload_length(), 8 + 24 + 8 + 16 + 32 + 1000);
    }
    assert_eq!(packets.len(), 2);
}

#[test]
fn the_checksum_field_of_the_whole_does_not_matter() {
    let frame = data(3000);
    let want = tcp_segments(&frame, 1000);
    for field in [[0, 0], [0xFF, 0xFF], [0x12, 0x34]] {
        let (mut bytes, virtio) = tcp(&frame, 1000);
        bytes[14 + 20 + 16..][..2].copy_from_slice(&field);
        assert_eq!(cut(&bytes, &virtio).unwrap(), want);
    }
}

#[test]
fn the_checksum_of_a_segmented_frame_is_always_computed() {
    let frame = data(3000);
    assert_eq!(cut(&frame.build(), &virtio(TCP4, 1000)).unwrap(), tcp_segments(&frame, 1000));
}

#[test]
fn hdr_len_is_only_a_hint() {
    let frame = data(3000);
    for hint in [0, 1, 54, 3000, u16::MAX] {
        let (bytes, mut virtio) = tcp(&frame, 1000);
        if let Some(gso) = &mut virtio.gso {
            gso.hdr_len = hint;
        }
        assert_eq!(cut(&bytes, &virtio).unwrap(), tcp_segments(&frame, 1000));
    }
}

#[test]
fn bytes_after_the_ip_packet_are_left_out() {
    let frame = TcpFrame { seq: SeqNumber(5), ..data(3000) };
    for network in [Network::default(), ipv6(&[], IpProtocol::TCP)] {
        let frame = TcpFrame { network, ..frame.clone() };
        let (mut bytes, virtio) = tcp(&frame, 1000);
        bytes.extend([0xEE; 9]);
        assert_eq!(cut(&bytes, &virtio).unwrap(), tcp_segments(&frame, 1000));
    }
}

#[test]
fn a_wrong_ipv4_header_checksum_of_the_whole_does_not_matter() {
    let frame = data(3000);
    let (mut bytes, virtio) = tcp(&frame, 1000);
    bytes[14 + 10] ^= 0xFF;
    assert_eq!(cut(&bytes, &virtio).unwrap(), tcp_segments(&frame, 1000));
}
