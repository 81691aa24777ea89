//! Invariants that span formats: whole frames, whole and broken.

use std::hint::black_box;
use std::net::{Ipv4Addr, Ipv6Addr};

use nichrome_wire::{
    AddressPair, CommonOptions, EtherType, EthernetRepr, FlowLabel, Fragment, HeaderOptions, IpProtocol,
    Ipv4Header, Ipv4HeaderMut, Ipv4Repr, Ipv6Header, Ipv6Repr, LinkHeader, MacAddr, Network, SeqNumber, Tags,
    TcpFlags, TcpFrame, TcpHeader, TcpOptions, TcpRepr, TrafficClass, UdpChecksum, UdpHeader, UdpRepr,
    VlanTag,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::oracle::{assert_etherparse_agrees, rebuild};

fn any_tags() -> impl Strategy<Value = Vec<VlanTag>> {
    let outer = prop_oneof![Just(EtherType::VLAN), Just(EtherType::QINQ)];
    (outer, vec(any::<u16>(), 0..=2)).prop_map(|(outer, tcis)| {
        let tpids = [outer, EtherType::VLAN];
        tcis.iter().zip(tpids).map(|(&tci, tpid)| VlanTag { tpid, tci }).collect()
    })
}

/// Options of the kinds that etherparse knows, and unknown ones, at most 40 bytes.
fn any_tcp_options() -> impl Strategy<Value = Vec<u8>> {
    let option = prop_oneof![
        Just(vec![1]),
        any::<[u8; 2]>().prop_map(|mss| [&[2, 4][..], &mss].concat()),
        any::<u8>().prop_map(|shift| vec![3, 3, shift]),
        Just(vec![4, 2]),
        vec(any::<[u8; 8]>(), 1..=4).prop_map(|blocks| {
            let length = 2 + 8 * blocks.len() as u8;
            [&[5, length][..], blocks.as_flattened()].concat()
        }),
        any::<[u8; 8]>().prop_map(|stamps| [&[8, 10][..], &stamps].concat()),
        vec(any::<u8>(), 0..8).prop_map(|data| [&[253, 2 + data.len() as u8][..], &data].concat()),
    ];
    vec(option, 0..5).prop_map(|options| {
        let mut all = Vec::new();
        for option in options {
            if all.len() + option.len() <= 40 {
                all.extend(option);
            }
        }
        all
    })
}

/// Extension headers in an order that RFC 8200 recommends, ending in TCP, and the type of the first.
fn any_extensions() -> impl Strategy<Value = (IpProtocol, Vec<u8>)> {
    let kinds = [
        IpProtocol::HOP_BY_HOP,
        IpProtocol::ROUTING,
        IpProtocol::FRAGMENT,
        IpProtocol::AH,
        IpProtocol::DESTINATION_OPTIONS,
    ];
    (proptest::sample::subsequence(kinds.to_vec(), 0..=5), vec(1u8..4, 5)).prop_map(|(kinds, lengths)| {
        let mut bytes = Vec::new();
        for (place, &kind) in kinds.iter().enumerate() {
            let next = kinds.get(place + 1).copied().unwrap_or(IpProtocol::TCP).0;
            match kind {
                // An atomic fragment.
                IpProtocol::FRAGMENT => bytes.extend([next, 0, 0, 0, 1, 2, 3, 4]),
                // 16, 24, 32 bytes in units of 4, minus 2.
                IpProtocol::AH => {
                    let length = 8 + 8 * usize::from(lengths[place]);
                    bytes.extend([next, (length / 4 - 2) as u8]);
                    bytes.resize(bytes.len() + length - 2, 0xAA);
                }
                // 8, 16, 24 bytes of padding options in units of 8, minus 1.
                _ => {
                    let length = 8 * usize::from(lengths[place]);
                    bytes.extend([next, lengths[place] - 1, 1, (length - 4) as u8]);
                    bytes.resize(bytes.len() + length - 4, 0);
                }
            }
        }
        (kinds.first().copied().unwrap_or(IpProtocol::TCP), bytes)
    })
}

fn any_network() -> impl Strategy<Value = Network> {
    let addresses = any::<(Ipv4Addr, Ipv4Addr)>();
    let ipv4 = (addresses, any::<(u16, bool, u8, u8)>(), vec(any::<u8>(), 0..=40)).prop_map(
        |((src, dst), (ident, dont_fragment, ttl, tos), options)| {
            let tos = TrafficClass(tos);
            Network::Ipv4 { src, dst, ident, dont_fragment, ttl, tos, options }
        },
    );
    let addresses = any::<(Ipv6Addr, Ipv6Addr)>();
    let ipv6 = (addresses, any::<(u8, u8)>(), 0u32..=0xF_FFFF, any_extensions()).prop_map(
        |((src, dst), (hop_limit, class), flow_label, (next_header, extensions))| {
            let (class, flow_label) = (TrafficClass(class), FlowLabel::new(flow_label).unwrap());
            Network::Ipv6 { src, dst, hop_limit, class, flow_label, next_header, extensions }
        },
    );
    prop_oneof![ipv4, ipv6]
}

fn any_frame() -> impl Strategy<Value = TcpFrame> {
    let link = (any::<[u8; 6]>(), any::<[u8; 6]>(), any_tags());
    let numbers = any::<(u16, u16, u32, u32, u16, u16, u16)>();
    (link, any_network(), numbers, any_tcp_options(), vec(any::<u8>(), 0..200)).prop_map(
        |((src_mac, dst_mac, tags), network, numbers, options, payload)| {
            let (src_port, dst_port, seq, ack, flags, window, urgent) = numbers;
            TcpFrame {
                src_mac: MacAddr(src_mac),
                dst_mac: MacAddr(dst_mac),
                tags,
                network,
                src_port,
                dst_port,
                seq: SeqNumber(seq),
                ack: SeqNumber(ack),
                flags: TcpFlags::from_bits_truncate(flags),
                window,
                urgent,
                options,
                payload,
            }
        },
    )
}

/// A valid frame with up to four bytes overwritten, then cut or padded.
fn broken_frame() -> impl Strategy<Value = Vec<u8>> {
    let overwrites = vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (any_frame(), overwrites, any::<bool>(), any::<prop::sample::Index>()).prop_map(
        |(frame, overwrites, cut, len)| {
            let mut bytes = frame.build();
            // Overwrites bytes of the headers only: the payload cannot be invalid.
            let headers = bytes.len() - frame.payload.len();
            for (at, byte) in overwrites {
                bytes[at.index(headers)] = byte;
            }
            if cut {
                bytes.truncate(len.index(bytes.len()));
            } else {
                bytes.resize(bytes.len() + len.index(64), 0);
            }
            bytes
        },
    )
}

/// Reads all that views and representations offer of `bytes`, taken for each format in turn.
fn read_as_everything(bytes: &[u8]) {
    const ADDRESSES: AddressPair = AddressPair::V4 { src: Ipv4Addr::LOCALHOST, dst: Ipv4Addr::LOCALHOST };
    black_box(LinkHeader::new(bytes).map(|h| (h.dst(), h.src(), h.tags(), h.ethertype(), h.payload())));
    black_box(EthernetRepr::parse(bytes).is_ok());
    black_box(Ipv4Repr::parse(bytes).is_ok());
    black_box(Ipv6Repr::parse(bytes).is_ok());
    black_box(TcpRepr::parse(bytes, &ADDRESSES).is_ok());
    black_box(UdpRepr::parse(bytes, &ADDRESSES).is_ok());
    if let Some(ip) = Ipv4Header::new(bytes) {
        black_box((ip.fragment(), ip.options(), ip.payload(), ip.has_valid_checksum(), ip.src(), ip.dst()));
    }
    if let Some(ip) = Ipv6Header::new(bytes) {
        black_box((
            ip.flow_label(),
            ip.payload(),
            ip.upper_layer().is_ok(),
            ip.extensions().count(),
            ip.src(),
            ip.dst(),
        ));
    }
    if let Some(tcp) = TcpHeader::new(bytes) {
        black_box((tcp.flags(), tcp.options(), tcp.payload()));
    }
    black_box(UdpHeader::new(bytes).map(|udp| udp.payload()));
    black_box((TcpOptions::new(bytes).count(), CommonOptions::classify(bytes)));
    if let Some(mut ip) = Ipv4HeaderMut::new(&mut bytes.to_vec()) {
        ip.fill_checksum();
    }
}

/// Whether etherparse 0.19 misreads the frame: it takes offset and flag of an IPv6 fragment header in the
/// wrong order and does not leave out the reserved bits (its issue 150).
fn is_misread_by_etherparse(frame: &[u8]) -> bool {
    let ip = LinkHeader::new(frame).and_then(|link| Ipv6Header::new(link.payload()));
    ip.filter(|ip| ip.version() == 6).is_some_and(|ip| {
        ip.extensions()
            .flatten()
            .any(|header| header.protocol == IpProtocol::FRAGMENT && header.bytes[2..4] != [0, 0])
    })
}

proptest! {
    #[test]
    fn etherparse_agrees_on_any_frame(frame in any_frame()) {
        assert_etherparse_agrees(&frame.build());
    }

    #[test]
    fn any_frame_is_rebuilt_from_what_was_parsed(frame in any_frame(), padding in 0usize..20) {
        let mut bytes = frame.build();
        bytes.resize(bytes.len() + padding, 0);
        prop_assert_eq!(rebuild(&bytes), Ok(bytes));
    }

    #[test]
    fn broken_frames_never_panic(bytes in broken_frame(), from in any::<prop::sample::Index>()) {
        read_as_everything(&bytes);
        // Each format where it starts in the frame, and everything where nothing starts.
        for header in [14, 18, 22, 34, 54, from.index(bytes.len() + 1)] {
            read_as_everything(bytes.get(header..).unwrap_or(&[]));
        }
    }

    #[test]
    fn etherparse_agrees_on_broken_frames_that_are_still_valid(bytes in broken_frame()) {
        if let Ok(rebuilt) = rebuild(&bytes) {
            if !is_misread_by_etherparse(&bytes) {
                assert_etherparse_agrees(&bytes);
            }
            // `rebuilt` may differ from `bytes`: reserved bits are cleared, and the checksum with them.
            let rebuilt_again = rebuild(&rebuilt);
            prop_assert_eq!(rebuilt_again, Ok(rebuilt));
        }
    }

    #[test]
    fn etherparse_agrees_on_udp(
        addresses in any::<(Ipv4Addr, Ipv4Addr)>(),
        ports in any::<(u16, u16)>(),
        absent: bool,
        payload in vec(any::<u8>(), 0..100),
    ) {
        let checksum = if absent { UdpChecksum::Absent } else { UdpChecksum::Present };
        let udp = UdpRepr { src_port: ports.0, dst_port: ports.1, checksum };
        let ip = Ipv4Repr {
            src: addresses.0,
            dst: addresses.1,
            protocol: IpProtocol::UDP,
            ttl: 1,
            tos: TrafficClass::default(),
            ident: 0,
            dont_fragment: true,
            fragment: Fragment::default(),
            options: HeaderOptions::NONE,
        };
        let mut frame = Vec::new();
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        EthernetRepr::new(mac, mac, Tags::NONE, EtherType::IPV4).unwrap().emit(&mut frame);
        ip.emit(UdpHeader::LEN + payload.len(), &mut frame).unwrap();
        let pair = AddressPair::V4 { src: ip.src, dst: ip.dst };
        udp.emit(&pair, &payload, &mut frame).unwrap();
        assert_etherparse_agrees(&frame);
        let expected = etherparse::UdpHeader::with_ipv4_checksum(
            ports.0,
            ports.1,
            &etherparse::Ipv4Header::new(0, 1, etherparse::IpNumber::UDP, ip.src.octets(), ip.dst.octets()).unwrap(),
            &payload,
        );
        let ours = UdpHeader::new(&frame[34..]).unwrap().checksum();
        prop_assert_eq!(ours, if absent { 0 } else { expected.unwrap().checksum });
    }
}
