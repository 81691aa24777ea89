//! Frames without a virtio header, segmented to an MTU or a payload size, also within tunnels.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;

use nichrome_tso::{Limit, SegmentError, Segments};
use nichrome_wire::{
    EtherType, FlowLabel, Fragment, HeaderOptions, IpProtocol, Ipv4Header, Ipv4Repr, Ipv6Repr, Network,
    TcpFrame, TrafficClass,
};

use crate::common::{UdpFrame, assert_checksums, data, ipv6, payload, tcp_segments};

/// Length of an Ethernet header, in bytes.
const LINK: usize = 14;

/// Length of the TCP header of [`data`], in bytes.
const TCP: usize = 32;

pub(crate) fn packets(mut segments: Segments<'_>) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    for _ in 0..segments.remaining() {
        packets.push(Vec::new());
        assert!(segments.append_next(packets.last_mut().unwrap()));
    }
    packets
}

fn within(frame: &[u8], limit: Limit) -> Vec<Vec<u8>> {
    packets(Segments::within(frame, limit).unwrap())
}

fn refusal(frame: &[u8], mtu: u16) -> SegmentError {
    Segments::within(frame, Limit::Packet(mtu)).expect_err("the frame cannot be segmented")
}

/// IPv4 and IPv6 with their header lengths, in bytes.
fn networks(upper: IpProtocol) -> [(Network, usize); 2] {
    [(Network::default(), 20), (ipv6(&[], upper), 40)]
}

fn payload_limit(bytes: u16) -> Limit {
    Limit::Payload(NonZeroU16::new(bytes).unwrap())
}

#[test]
fn packets_fill_the_mtu() {
    for mtu in [1500, 576] {
        for (network, ip) in networks(IpProtocol::TCP) {
            let whole = TcpFrame { network, ..data(3000) };
            let found = within(&whole.build(), Limit::Packet(mtu));
            assert_eq!(found, tcp_segments(&whole, usize::from(mtu) - ip - TCP));
            assert_eq!(found[0].len(), LINK + usize::from(mtu));
        }
        for (network, ip) in networks(IpProtocol::UDP) {
            let whole = UdpFrame::new(network, payload(3000));
            assert_eq!(
                within(&whole.build(), Limit::Packet(mtu)),
                whole.datagrams(usize::from(mtu) - ip - 8)
            );
        }
    }
}

#[test]
fn a_payload_size_is_that_of_each_segment() {
    let (segment, datagram) = (data(3000), UdpFrame::new(Network::default(), payload(3000)));
    assert_eq!(within(&segment.build(), payload_limit(700)), tcp_segments(&segment, 700));
    assert_eq!(within(&datagram.build(), payload_limit(700)), datagram.datagrams(700));
}

#[test]
fn headers_must_leave_room_for_payload() {
    let frame = data(100).build();
    let headers = 20 + TCP;
    for mtu in [0, headers - 1, headers] {
        let limit = mtu as u16;
        assert_eq!(refusal(&frame, limit), SegmentError::NoRoom { headers, limit });
    }
    assert_eq!(within(&frame, Limit::Packet(headers as u16 + 1)).len(), 100);
}

#[test]
fn a_fixed_identification_is_in_all_packets() {
    for frame in [data(3000).build(), UdpFrame::new(Network::default(), payload(3000)).build()] {
        let idents = |segments: Segments<'_>| -> Vec<u16> {
            let packets = packets(segments);
            packets.iter().for_each(|packet| assert_checksums(packet));
            packets.iter().map(|packet| Ipv4Header::new(&packet[LINK..]).unwrap().ident()).collect()
        };
        let first = Ipv4Header::new(&frame[LINK..]).unwrap().ident();
        let mut segments = Segments::within(&frame, payload_limit(1000)).unwrap();
        assert_eq!(idents(segments.clone()), [first, first + 1, first + 2]);
        segments.fix_identification();
        assert_eq!(idents(segments), [first; 3]);
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Tunnel {
    Ipv4,
    Ipv6,
    Pppoe,
}

impl Tunnel {
    const ALL: [Self; 3] = [Self::Ipv4, Self::Ipv6, Self::Pppoe];

    /// Returns the frame in this tunnel. The identification in the tunnel header is 100 + `nth`.
    pub(crate) fn around(self, frame: &[u8], nth: u16) -> Vec<u8> {
        let packet = &frame[LINK..];
        let upper = if packet[0] >> 4 == 4 { IpProtocol::IPV4 } else { IpProtocol::IPV6 };
        self.around_protocol(upper, packet, nth)
    }

    /// As [`Self::around`], for a packet of any protocol.
    pub(crate) fn around_protocol(self, upper: IpProtocol, packet: &[u8], nth: u16) -> Vec<u8> {
        let mut out = TcpFrame::default().build()[..12].to_vec();
        match self {
            Self::Ipv4 => {
                out.extend([0x08, 0x00]);
                let ip = Ipv4Repr {
                    src: Ipv4Addr::new(192, 0, 2, 1),
                    dst: Ipv4Addr::new(192, 0, 2, 2),
                    protocol: upper,
                    ttl: 64,
                    tos: TrafficClass::default(),
                    ident: 100 + nth,
                    dont_fragment: true,
                    fragment: Fragment::default(),
                    options: HeaderOptions::new(&[]).unwrap(),
                };
                ip.emit(packet.len(), &mut out).unwrap();
            }
            Self::Ipv6 => {
                out.extend([0x86, 0xDD]);
                let ip = Ipv6Repr {
                    src: Ipv6Addr::LOCALHOST,
                    dst: Ipv6Addr::LOCALHOST,
                    next_header: upper,
                    hop_limit: 64,
                    traffic_class: TrafficClass::default(),
                    flow_label: FlowLabel::default(),
                };
                ip.emit(packet.len(), &mut out).unwrap();
            }
            Self::Pppoe => {
                out.extend([0x88, 0x64, 0x11, 0, 0, 7]);
                out.extend((packet.len() as u16 + 2).to_be_bytes());
                out.extend([0, if upper == IpProtocol::IPV4 { 0x21 } else { 0x57 }]);
            }
        }
        out.extend(packet);
        out
    }

    pub(crate) const fn header_len(self) -> usize {
        match self {
            Self::Ipv4 => 20,
            Self::Ipv6 => 40,
            Self::Pppoe => 8,
        }
    }
}

#[test]
fn packets_with_their_tunnel_header_fill_the_mtu() {
    for tunnel in Tunnel::ALL {
        for (network, ip) in networks(IpProtocol::TCP) {
            let whole = TcpFrame { network, ..data(3000) };
            let segments = tcp_segments(&whole, 1500 - tunnel.header_len() - ip - TCP);
            let expected = |step: u16| -> Vec<Vec<u8>> {
                segments.iter().zip(0..).map(|(segment, nth)| tunnel.around(segment, nth * step)).collect()
            };
            let frame = tunnel.around(&whole.build(), 0);
            let mut found = Segments::within(&frame, Limit::Packet(1500)).unwrap();
            assert_eq!(packets(found.clone()), expected(1), "{tunnel:?}");
            found.fix_tunnel_identification();
            assert_eq!(packets(found), expected(0), "{tunnel:?}");
        }
    }
}

#[test]
fn frames_without_tcp_or_udp_are_refused() {
    let mut esp = data(3000).build();
    esp[LINK + 9] = 50;
    assert_eq!(refusal(&esp, 1500), SegmentError::OtherProtocol(IpProtocol::ESP));
    let twice = Tunnel::Ipv4.around(&Tunnel::Ipv4.around(&data(3000).build(), 0), 0);
    assert_eq!(refusal(&twice, 1500), SegmentError::OtherProtocol(IpProtocol::IPV4));
    let pppoe = Tunnel::Pppoe.around(&data(3000).build(), 0);
    // Version and type, code, PPP protocol.
    for at in [LINK, LINK + 1, LINK + 6, LINK + 7] {
        let mut other = pppoe.clone();
        other[at] = 0xC0;
        assert_eq!(refusal(&other, 1500), SegmentError::NotIp(EtherType::PPPOE_SESSION));
    }
}
