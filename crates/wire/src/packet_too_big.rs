//! ICMP errors of a router for packets that exceed the next link's MTU: ICMP "fragmentation needed and DF
//! set" (RFC 792, RFC 1191 section 4) and ICMPv6 "packet too big" (RFC 4443 section 3.2).
//!
//! | no error is sent for | source |
//! |---|---|
//! | ICMP and ICMPv6 errors and redirects, and fragments of ICMPv6 after the first | RFC 1122 section 3.2.2, RFC 4443 section 2.4 (e) |
//! | IPv4 packets without DF, which a router would fragment | RFC 791 section 2.3 |
//! | IPv4 fragments after the first | RFC 1122 section 3.2.2 |
//! | packets whose source or destination is not a single host: multicast, broadcast, unspecified, loopback | RFC 1122 section 3.2.2 |
//! | non-IP frames, invalid packets, and packets that fit | |
//!
//! RFC 4443 allows errors for multicast; here there is none, since the error's source address is the packet's
//! destination.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::checksum::Sum;
use crate::{
    EtherType, EthernetHeader, EthernetRepr, FlowLabel, Fragment, HeaderOptions, IpProtocol, Ipv4Header,
    Ipv4Repr, Ipv6Header, Ipv6Repr, TrafficClass, UpperLayer,
};

/// Maximum length of an ICMP error including its IP header, in bytes (RFC 1812 section 4.3.2.3). With a lower
/// MTU it is the MTU: the error has DF set, and the way back may have the same MTU.
const LONGEST_V4: usize = 576;

/// Maximum length of an ICMPv6 error, in bytes: the minimum MTU (RFC 4443 section 2.4 (c)).
const LONGEST_V6: usize = Ipv6Header::LEAST_MTU as usize;

/// Length of the ICMP header, in bytes.
const ICMP_LEN: usize = 8;

/// TTL or hop limit of an error.
const HOPS: u8 = 64;

/// Returns the ICMP error for `frame`, which exceeds a link MTU of `mtu` bytes; `None` if none may be sent.
/// Its source is the destination of `frame`; a router would use its own address. A link below IPv6's minimum
/// MTU fragments and reassembles IPv6 packets by itself (RFC 8200 section 5), so the reported MTU is never
/// lower.
pub fn packet_too_big(frame: &[u8], mtu: u16) -> Option<Vec<u8>> {
    let (link, packet) = EthernetRepr::parse(frame).ok().filter(|(link, _)| !link.dst.is_multicast())?;
    let mut answer = Vec::with_capacity(EthernetHeader::LEN + 8 + LONGEST_V6);
    EthernetRepr::new(link.src, link.dst, link.tags(), link.ethertype()).ok()?.emit(&mut answer);
    match link.ethertype() {
        EtherType::IPV4 => answer_ipv4(packet, mtu, &mut answer)?,
        EtherType::IPV6 => answer_ipv6(packet, mtu, &mut answer)?,
        _ => return None,
    }
    Some(answer)
}

fn answer_ipv4(packet: &[u8], mtu: u16, answer: &mut Vec<u8>) -> Option<()> {
    let (ip, payload) = Ipv4Repr::parse(packet).ok()?;
    let len = ip.header_len() + payload.len();
    let is_error = ip.protocol == IpProtocol::ICMP && payload.first().is_none_or(is_icmp_error);
    let fits = len <= usize::from(mtu);
    let is_between_hosts = is_host_v4(ip.src) && is_host_v4(ip.dst);
    if fits || is_error || !ip.dont_fragment || !ip.fragment.is_first() || !is_between_hosts {
        return None;
    }
    let longest = LONGEST_V4.min(usize::from(mtu));
    let quoted = &packet[..len.min(longest.saturating_sub(Ipv4Header::LEN + ICMP_LEN))];
    let header = Ipv4Repr {
        src: ip.dst,
        dst: ip.src,
        protocol: IpProtocol::ICMP,
        ttl: HOPS,
        tos: TrafficClass(0),
        ident: 0,
        dont_fragment: true,
        fragment: Fragment::default(),
        options: HeaderOptions::NONE,
    };
    header.emit(ICMP_LEN + quoted.len(), answer).ok()?;
    // Destination unreachable, fragmentation needed; the lower half of the second word is the MTU.
    write_icmp(3, 4, u32::from(mtu), quoted, Sum::new(), answer);
    Some(())
}

fn answer_ipv6(packet: &[u8], mtu: u16, answer: &mut Vec<u8>) -> Option<()> {
    let mtu = mtu.max(Ipv6Header::LEAST_MTU);
    let (ip, payload) = Ipv6Repr::parse(packet).ok()?;
    let len = Ipv6Header::LEN + payload.len();
    let upper = UpperLayer::find(ip.next_header, payload).ok()?;
    let is_error = upper.protocol == IpProtocol::ICMPV6 && is_icmpv6_error(&upper, payload);
    let is_between_hosts = is_host_v6(ip.src) && is_host_v6(ip.dst);
    if len <= usize::from(mtu) || is_error || !is_between_hosts {
        return None;
    }
    let quoted = &packet[..len.min(LONGEST_V6 - Ipv6Header::LEN - ICMP_LEN)];
    let header = Ipv6Repr {
        src: ip.dst,
        dst: ip.src,
        next_header: IpProtocol::ICMPV6,
        hop_limit: HOPS,
        traffic_class: TrafficClass(0),
        flow_label: FlowLabel::default(),
    };
    let len = ICMP_LEN + quoted.len();
    header.emit(len, answer).ok()?;
    let pseudo_header = Sum::pseudo_ipv6(header.src, header.dst, IpProtocol::ICMPV6.0, len as u32);
    write_icmp(2, 0, u32::from(mtu), quoted, pseudo_header, answer);
    Some(())
}

/// Appends the message with a checksum that continues `sum`.
fn write_icmp(kind: u8, code: u8, word: u32, quoted: &[u8], sum: Sum, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend([kind, code, 0, 0]);
    out.extend(word.to_be_bytes());
    out.extend(quoted);
    let sum = sum.add_bytes(&out[start..]).finish();
    out[start + 2..start + 4].copy_from_slice(&sum.to_be_bytes());
}

/// Matches destination unreachable, source quench, redirect, time exceeded, parameter problem.
fn is_icmp_error(kind: &u8) -> bool {
    matches!(kind, 3 | 4 | 5 | 11 | 12)
}

/// Matches errors and redirects, and fragments whose type is unknown.
fn is_icmpv6_error(upper: &UpperLayer, payload: &[u8]) -> bool {
    let is_later_fragment = upper.fragment.is_some_and(|header| !header.fragment.is_first());
    is_later_fragment || payload.get(upper.offset).is_none_or(|kind| *kind < 128 || *kind == 137)
}

fn is_host_v4(address: Ipv4Addr) -> bool {
    let [class, ..] = address.octets();
    class != 0 && class < 224 && !address.is_loopback()
}

fn is_host_v6(address: Ipv6Addr) -> bool {
    !address.is_unspecified() && !address.is_loopback() && !address.is_multicast()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use etherparse::{Icmpv4Type, Icmpv6Type, NetSlice, SlicedPacket, TransportSlice, icmpv4};
    use proptest::prelude::*;

    use super::*;
    use crate::checksum::checksum;
    use crate::{MacAddr, Network, Tags, TcpFrame, VlanTag};

    const TAG: VlanTag = VlanTag { tpid: EtherType::VLAN, tci: 7 };

    fn frame(network: Network, len: usize) -> TcpFrame {
        TcpFrame { network, payload: vec![7; len], tags: vec![TAG], ..TcpFrame::default() }
    }

    fn v4(edit: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let network = Network::ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let mut bytes = TcpFrame { tags: vec![], ..frame(network, 1460) }.build();
        edit(&mut bytes[14..]);
        bytes[24..26].fill(0);
        let sum = checksum(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    fn v6(edit: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let host = |last| Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, last);
        let mut bytes = TcpFrame { tags: vec![], ..frame(Network::ipv6(host(1), host(2)), 1440) }.build();
        edit(&mut bytes[14..]);
        bytes
    }

    proptest! {
        /// etherparse reads the answer: to the sender, from the receiver, with a right checksum, and a quote.
        #[test]
        fn a_long_packet_is_answered(is_v4: bool, mtu in 68..1330u16, len in 1280..9000usize) {
            let (src, dst): (IpAddr, IpAddr) = if is_v4 {
                (Ipv4Addr::new(10, 0, 0, 1).into(), Ipv4Addr::new(10, 0, 0, 2).into())
            } else {
                (Ipv6Addr::from([0xFD; 16]).into(), Ipv6Addr::from([0xFC; 16]).into())
            };
            let network = match (src, dst) {
                (IpAddr::V4(src), IpAddr::V4(dst)) => Network::ipv4(src, dst),
                (IpAddr::V6(src), IpAddr::V6(dst)) => Network::ipv6(src, dst),
                _ => unreachable!(),
            };
            let asked = frame(network, len);
            let long = asked.build();
            let answer = packet_too_big(&long, mtu).unwrap();
            let sliced = SlicedPacket::from_ethernet(&answer).unwrap();
            let link = EthernetRepr::parse(&answer).unwrap().0;
            prop_assert_eq!((link.dst, link.src), (asked.src_mac, asked.dst_mac));
            prop_assert_eq!(Some(link.tags()), Tags::from_slice(&[TAG]));
            let quoted = match (sliced.net, sliced.transport) {
                (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Icmpv4(icmp))) => {
                    let header = ip.header().to_header();
                    prop_assert_eq!(header.header_checksum, header.calc_header_checksum());
                    prop_assert_eq!((header.source, header.destination), match (dst, src) {
                        (IpAddr::V4(dst), IpAddr::V4(src)) => (dst.octets(), src.octets()),
                        _ => unreachable!(),
                    });
                    let needed = icmpv4::DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: mtu };
                    prop_assert_eq!(icmp.icmp_type(), Icmpv4Type::DestinationUnreachable(needed));
                    prop_assert_eq!(checksum(icmp.slice()), 0);
                    prop_assert_eq!(header.total_len, mtu.min(576));
                    icmp.payload().to_vec()
                }
                (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Icmpv6(icmp))) => {
                    let addresses = (ip.header().source(), ip.header().destination());
                    prop_assert_eq!(addresses, match (dst, src) {
                        (IpAddr::V6(dst), IpAddr::V6(src)) => (dst.octets(), src.octets()),
                        _ => unreachable!(),
                    });
                    prop_assert_eq!(icmp.icmp_type(), Icmpv6Type::PacketTooBig { mtu: mtu.max(1280).into() });
                    prop_assert!(icmp.is_checksum_valid(addresses.0, addresses.1));
                    prop_assert_eq!(answer.len(), 18 + 1280);
                    icmp.payload().to_vec()
                }
                other => panic!("{other:?}"),
            };
            prop_assert_eq!(&quoted[..], &long[18..][..quoted.len()]);
        }
    }

    #[test]
    fn packets_that_a_router_would_not_answer_get_no_answer() {
        let answered = |frame: Vec<u8>| packet_too_big(&frame, 1400).is_some();
        assert!(answered(v4(|_| {})) && answered(v6(|_| {})));
        let icmp = |kind| v4(move |ip| (ip[9], ip[20]) = (1, kind));
        let icmpv6 = |kind| v6(move |ip| (ip[6], ip[40]) = (58, kind));
        assert!(answered(icmp(8)) && answered(icmpv6(128)));
        for frame in [
            icmp(3),
            icmp(5),
            icmp(11),
            icmpv6(1),
            icmpv6(2),
            icmpv6(137),
            v4(|ip| ip[6] = 0),
            v4(|ip| ip[7] = 1),
            v4(|ip| ip[12] = 0),
            v4(|ip| ip[12] = 127),
            v4(|ip| ip[16] = 224),
            v4(|ip| ip[16..20].fill(255)),
            v6(|ip| ip[8..24].fill(0)),
            v6(|ip| ip[24] = 0xFF),
            v4(|_| {})[..1200].to_vec(),
            [&MacAddr::BROADCAST.0[..], &v4(|_| {})[6..]].concat(),
            [&v4(|_| {})[..12], &[8, 6], &v4(|_| {})[14..]].concat(),
        ] {
            assert!(!answered(frame.clone()), "{:02x?}", &frame[..60]);
        }
        assert!(packet_too_big(&v4(|_| {}), 1500).is_none() && packet_too_big(&v6(|_| {}), 1500).is_none());
    }

    /// RFC 4443 section 2.4 (e): no error answers an error. A later fragment does not contain its message's
    /// type.
    #[test]
    fn of_a_fragmented_icmpv6_message_the_first_fragment_is_answered() {
        let fragment = |offset: u16| {
            v6(move |ip| {
                ip[6] = 44;
                ip[40..48].copy_from_slice(&[58, 0, (offset >> 8) as u8, offset as u8 | 1, 0, 0, 0, 7]);
                ip[48] = 128;
            })
        };
        assert!(packet_too_big(&fragment(0), 1400).is_some());
        assert!(packet_too_big(&fragment(1448), 1400).is_none());
    }

    #[test]
    fn an_ipv6_packet_that_every_link_must_take_is_not_answered() {
        let host = |last| Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, last);
        let packet = |len: usize| frame(Network::ipv6(host(1), host(2)), len - 40 - 20).build();
        assert!(
            packet_too_big(&packet(1280), 1000).is_none() && packet_too_big(&packet(1281), 1000).is_some()
        );
    }
}
