//! Frames that cannot be segmented: each violated rule has its error.

use nichrome_tso::{SegmentError, Segments};
use nichrome_wire::{
    EtherType, EthernetError, ExtensionError, GsoType, IpProtocol, Ipv4Error, Ipv6Error, Network, TcpError,
    TcpFrame, UdpError, VirtioNetRepr, VlanTag,
};

use crate::common::*;

const IP: usize = 14;
const TCP_OVER_4: usize = IP + 20;
const TCP_OVER_6: usize = IP + 40;

/// Returns the error for a frame without a partial checksum: the position of one would be checked, too.
fn refusal(frame: &[u8], gso_type: GsoType) -> SegmentError {
    Segments::new(frame, &virtio(gso_type, 1000)).expect_err("the frame is broken")
}

fn over_ipv4() -> Vec<u8> {
    data(3000).build()
}

fn over_ipv6(kinds: &[(IpProtocol, u8)]) -> Vec<u8> {
    TcpFrame { network: ipv6(kinds, IpProtocol::TCP), ..data(3000) }.build()
}

fn udp() -> Vec<u8> {
    UdpFrame::new(Network::default(), payload(3000)).build()
}

fn changed(mut frame: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    frame[at] = byte;
    frame
}

#[test]
fn the_header_must_match_the_frame() {
    let mismatch = |gso_type, version, protocol| SegmentError::Mismatch { gso_type, version, protocol };
    for (frame, gso_type, version, protocol) in [
        (udp(), TCP4, 4, IpProtocol::UDP),
        (over_ipv6(&[]), TCP4, 6, IpProtocol::TCP),
        (over_ipv4(), TCP6, 4, IpProtocol::TCP),
        (over_ipv4(), GsoType::UdpL4, 4, IpProtocol::TCP),
        (over_ipv4(), GsoType::Udp, 4, IpProtocol::TCP),
        (changed(over_ipv4(), IP + 9, 50), TCP4, 4, IpProtocol::ESP),
    ] {
        assert_eq!(refusal(&frame, gso_type), mismatch(gso_type, version, protocol));
    }
    let words = mismatch(TCP4, 6, IpProtocol::UDP).to_string();
    assert_eq!(words, "the virtio header says TCP over IPv4, the frame is UDP over IPv6");
}

#[test]
fn a_frame_that_is_not_ip_is_refused() {
    let arp = changed(over_ipv4(), 13, 6);
    assert_eq!(refusal(&arp, TCP4), SegmentError::NotIp(EtherType::ARP));
    let tags = vec![VlanTag { tpid: EtherType::VLAN, tci: 1 }; 3];
    let three_tags = TcpFrame { tags, ..data(3000) }.build();
    assert_eq!(refusal(&three_tags, TCP4), SegmentError::NotIp(EtherType::VLAN));
}

#[test]
fn a_frame_cut_short_anywhere_is_refused() {
    let tags = vec![VlanTag { tpid: EtherType::VLAN, tci: 1 }];
    let frames = [
        (TcpFrame { tags, ..data(50) }.build(), TCP4),
        (TcpFrame { network: ipv6(&[(IpProtocol::ROUTING, 1)], IpProtocol::TCP), ..data(50) }.build(), TCP6),
        (UdpFrame::new(Network::default(), payload(50)).build(), GsoType::UdpL4),
        (UdpFrame::new(Network::default(), payload(50)).build(), GsoType::Udp),
    ];
    for (frame, gso_type) in frames {
        for len in 0..frame.len() {
            assert!(Segments::new(&frame[..len], &virtio(gso_type, 8)).is_err());
        }
        assert!(Segments::new(&frame, &virtio(gso_type, 8)).is_ok());
    }
    assert_eq!(refusal(&[0; 13], TCP4), EthernetError::Truncated(13).into());
}

#[test]
fn every_broken_ipv4_header_has_its_error() {
    let frame = over_ipv4();
    let len = frame.len() - IP;
    let cases = [
        (changed(frame.clone(), IP, 0x65), Ipv4Error::Version(6)),
        (changed(frame.clone(), IP, 0x44), Ipv4Error::HeaderLength(16)),
        (changed(changed(frame.clone(), IP + 2, 0), IP + 3, 19), Ipv4Error::TotalLength(19)),
        (changed(changed(frame.clone(), IP + 2, 0), IP + 3, 0), Ipv4Error::TotalLength(0)),
        (changed(frame.clone(), IP + 2, 0xFF), Ipv4Error::Truncated { len, expected: 0xFF00 | len & 0xFF }),
        (frame[..IP + 19].to_vec(), Ipv4Error::Truncated { len: 19, expected: 20 }),
    ];
    for (frame, error) in cases {
        assert_eq!(refusal(&frame, TCP4), error.into());
    }
    let empty = changed(changed(frame, IP + 2, 0), IP + 3, 20);
    assert_eq!(refusal(&empty, TCP4), TcpError::Truncated { len: 0, expected: 20 }.into());
}

#[test]
fn every_broken_ipv6_header_has_its_error() {
    let frame = over_ipv6(&[]);
    let len = frame.len() - IP;
    let cases = [
        (changed(frame.clone(), IP, 0x40), Ipv6Error::Version(4)),
        (changed(frame.clone(), IP + 4, 0xFF), {
            Ipv6Error::Truncated { len, expected: 40 + (0xFF00 | (len - 40) & 0xFF) }
        }),
        (frame[..IP + 39].to_vec(), Ipv6Error::Truncated { len: 39, expected: 40 }),
    ];
    for (frame, error) in cases {
        assert_eq!(refusal(&frame, TCP6), error.into());
    }
}

#[test]
fn a_jumbogram_is_refused() {
    let jumbogram = changed(changed(over_ipv6(&[(IpProtocol::HOP_BY_HOP, 0)]), IP + 4, 0), IP + 5, 0);
    assert_eq!(refusal(&jumbogram, TCP6), Ipv6Error::PayloadLength.into());
}

#[test]
fn a_fragment_is_refused() {
    for (at, byte) in [(6, 0x20), (6, 0x01), (7, 0x01)] {
        assert_eq!(refusal(&changed(over_ipv4(), IP + at, byte), TCP4), SegmentError::Fragment);
    }
    let frame = over_ipv6(&[(IpProtocol::FRAGMENT, 0)]);
    for (at, byte) in [(2, 0x01), (3, 0x08), (3, 0x01)] {
        assert_eq!(refusal(&changed(frame.clone(), TCP_OVER_6 + at, byte), TCP6), SegmentError::Fragment);
    }
}

#[test]
fn extension_headers_that_cannot_be_repeated_are_refused() {
    assert_eq!(refusal(&over_ipv6(&[(IpProtocol::AH, 0)]), TCP6), SegmentError::Authenticated);
    let mut routed = over_ipv6(&[(IpProtocol::ROUTING, 2)]);
    assert!(Segments::new(&routed, &virtio(TCP6, 1000)).is_ok());
    routed[TCP_OVER_6 + 3] = 1;
    assert_eq!(refusal(&routed, TCP6), SegmentError::Routed);
    let mut away = over_ipv6(&[(IpProtocol::DESTINATION_OPTIONS, 2)]);
    assert!(Segments::new(&away, &virtio(TCP6, 1000)).is_ok());
    away[TCP_OVER_6 + 2..TCP_OVER_6 + 8].copy_from_slice(&[1, 2, 0, 0, 0xC9, 16]);
    assert_eq!(refusal(&away, TCP6), SegmentError::HomeAddress);
}

#[test]
fn a_broken_extension_header_is_refused() {
    let frame = changed(over_ipv6(&[(IpProtocol::DESTINATION_OPTIONS, 0)]), TCP_OVER_6, 0);
    assert_eq!(refusal(&frame, TCP6), ExtensionError::HopByHopNotFirst.into());
    let frame = TcpFrame { network: ipv6(&[(IpProtocol::ROUTING, 0)], IpProtocol::TCP), ..data(100) }.build();
    let frame = changed(frame, TCP_OVER_6 + 1, 200);
    assert_eq!(refusal(&frame, TCP6), ExtensionError::Truncated(IpProtocol::ROUTING).into());
}

#[test]
fn a_broken_tcp_header_is_refused() {
    let frame = changed(over_ipv4(), TCP_OVER_4 + 12, 0x40);
    assert_eq!(refusal(&frame, TCP4), TcpError::HeaderLength(16).into());
    let headers = TcpFrame::default().build();
    let longer = changed(headers.clone(), TCP_OVER_4 + 12, 0x60);
    assert_eq!(refusal(&longer, TCP4), TcpError::Truncated { len: 20, expected: 24 }.into());
    let shorter = changed(headers, IP + 3, 39);
    assert_eq!(refusal(&shorter, TCP4), TcpError::Truncated { len: 19, expected: 20 }.into());
}

#[test]
fn a_broken_udp_header_is_refused() {
    let frame = udp();
    for gso_type in [GsoType::UdpL4, GsoType::Udp] {
        let length = 3009;
        let longer = changed(frame.clone(), TCP_OVER_4 + 5, length as u8);
        assert_eq!(refusal(&longer, gso_type), SegmentError::UdpLength { length, carried: 3008 });
        let short = changed(changed(frame.clone(), IP + 2, 0), IP + 3, 27);
        assert_eq!(refusal(&short, gso_type), UdpError::Truncated { len: 7, expected: 8 }.into());
    }
}

#[test]
fn a_checksum_elsewhere_than_in_the_transport_header_is_refused() {
    let frame = over_ipv4();
    let at = |start, offset| partial(virtio(TCP4, 1000), start, offset);
    for (start, offset) in [(14, 16), (34, 6), (34, 17), (0xFFFF, 16)] {
        let (start_field, field) = (start as u16, 16);
        let error = SegmentError::NotTheChecksum { start: start_field, offset, transport: TCP_OVER_4, field };
        assert_eq!(cut(&frame, &at(start, offset)), Err(error));
    }
    assert!(cut(&frame, &at(TCP_OVER_4, 16)).is_ok());
    let datagram: VirtioNetRepr = partial(virtio(GsoType::UdpL4, 1000), TCP_OVER_4, 16);
    assert!(matches!(cut(&udp(), &datagram), Err(SegmentError::NotTheChecksum { field: 6, .. })));
}
