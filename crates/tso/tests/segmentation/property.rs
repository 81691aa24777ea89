//! Generated frames: segments equal those that a sender builds, and no input breaks an invariant.

#[path = "../common/invariants.rs"]
mod invariants;

use nichrome_tso::SegmentError;
use nichrome_wire::{
    EtherType, Gso, GsoType, IpProtocol, LinkHeader, Network, SeqNumber, TcpFlags, TcpFrame, VirtioNetHeader,
    VirtioNetRepr, VlanTag,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use invariants::{check_invariants, check_invariants_within};

use crate::common::*;

fn any_tags() -> impl Strategy<Value = Vec<VlanTag>> {
    (any::<bool>(), vec(any::<u16>(), 0..=2)).prop_map(|(provider, tcis)| {
        let outer = if provider { EtherType::QINQ } else { EtherType::VLAN };
        tcis.iter().zip([outer, EtherType::VLAN]).map(|(&tci, tpid)| VlanTag { tpid, tci }).collect()
    })
}

/// Generates IPv4 headers whose options are No-Operation.
fn any_ipv4() -> impl Strategy<Value = Network> {
    any::<(u32, u32, u16, bool, u8, u8)>().prop_flat_map(|(src, dst, ident, dont_fragment, ttl, tos)| {
        (0usize..=10).prop_map(move |words| Network::Ipv4 {
            src: src.into(),
            dst: dst.into(),
            ident,
            dont_fragment,
            ttl,
            tos: nichrome_wire::TrafficClass(tos),
            options: vec![1; words * 4],
        })
    })
}

fn any_ipv6(upper: IpProtocol) -> impl Strategy<Value = Network> {
    let kinds = [IpProtocol::ROUTING, IpProtocol::FRAGMENT, IpProtocol::DESTINATION_OPTIONS];
    let kinds = vec((select(kinds.to_vec()), 0u8..4), 0..3);
    (any::<bool>(), kinds, any::<u128>(), any::<u128>()).prop_map(move |(hop_by_hop, mut kinds, from, to)| {
        if hop_by_hop {
            kinds.insert(0, (IpProtocol::HOP_BY_HOP, 0));
        }
        let mut network = ipv6(&kinds, upper);
        if let Network::Ipv6 { src, dst, .. } = &mut network {
            (*src, *dst) = (from.into(), to.into());
        }
        network
    })
}

fn any_network(upper: IpProtocol) -> impl Strategy<Value = Network> {
    prop_oneof![any_ipv4(), any_ipv6(upper)]
}

/// Generates a segment size and a payload: of several segments, the last full or shorter, or of one.
fn any_sizes() -> impl Strategy<Value = (u16, Vec<u8>)> {
    (1u16..2000, 0usize..8, any::<bool>()).prop_flat_map(|(size, whole, exact)| {
        let last = if exact { 0..1 } else { 0..usize::from(size) };
        last.prop_flat_map(move |last| {
            let len = whole * usize::from(size) + last;
            (Just(size), vec(any::<u8>(), len..=len))
        })
    })
}

fn any_tcp() -> impl Strategy<Value = (TcpFrame, u16)> {
    let numbers = any::<(u32, u32, u16, u16, u16)>();
    let options = (0usize..=10).prop_map(|words| vec![1; words * 4]);
    (any_network(IpProtocol::TCP), any_tags(), numbers, any::<u16>(), options, any_sizes()).prop_map(
        |(network, tags, (seq, ack, flags, window, urgent), src_port, options, (size, payload))| {
            let frame = TcpFrame {
                tags,
                network,
                src_port,
                seq: SeqNumber(seq),
                ack: SeqNumber(ack),
                flags: TcpFlags::from_bits_truncate(flags),
                window,
                urgent,
                options,
                payload,
                ..TcpFrame::default()
            };
            (frame, size)
        },
    )
}

fn any_udp() -> impl Strategy<Value = (UdpFrame, u16)> {
    (any_network(IpProtocol::UDP), any_tags(), any::<u16>(), any_sizes()).prop_map(
        |(network, tags, src_port, (size, payload))| {
            (UdpFrame { tags, src_port, ..UdpFrame::new(network, payload) }, size)
        },
    )
}

/// Generates a virtio header that fits the frame approximately.
fn any_header() -> impl Strategy<Value = VirtioNetHeader> {
    let size = prop_oneof![0u16..20, any::<u16>()];
    let place = (prop_oneof![30u16..80, any::<u16>()], prop_oneof![Just(6u16), Just(16), any::<u16>()]);
    (0u8..4, select(vec![0u8, 1, 3, 4, 5, 0x81, 0x84]), any::<u16>(), size, place).prop_map(
        |(flags, gso_type, hdr_len, gso_size, (csum_start, csum_offset))| VirtioNetHeader {
            flags,
            gso_type,
            hdr_len,
            gso_size,
            csum_start,
            csum_offset,
        },
    )
}

/// Returns EtherType and header of a tunnel for an IP packet: IPv4, IPv6, or PPP over Ethernet. The header's
/// checksum is wrong.
fn tunnel(kind: u8, packet: &[u8]) -> (u16, Vec<u8>) {
    let is_ipv4 = packet.first().is_some_and(|first| first >> 4 == 4);
    let protocol = if is_ipv4 { 4 } else { 41 };
    let len = |more: usize| ((packet.len() + more) as u16).to_be_bytes();
    match kind {
        0 => (0x0800, [&[0x45, 0][..], &len(20), &[0, 7, 0, 0, 64, protocol], &[9; 10]].concat()),
        1 => (0x86DD, [&[0x60, 0, 0, 0][..], &len(0), &[protocol, 9], &[0xFD; 32]].concat()),
        _ => {
            let ppp = if is_ipv4 { 0x21 } else { 0x57 };
            (0x8864, [&[0x11, 0, 0, 7][..], &len(2), &[0, ppp]].concat())
        }
    }
}

/// Puts a frame into a tunnel that a virtio header can describe: IP within IPv4 or IPv6, VXLAN, Geneve or
/// GRE. Also returns by how many bytes the frame has moved. The outer checksums are wrong.
fn in_tunnel(kind: u8, frame: &[u8]) -> (Vec<u8>, usize) {
    let (link, packet) = frame.split_at(LinkHeader::new(frame).unwrap().header_len());
    let is_ipv4 = packet[0] >> 4 == 4;
    let inner_type = if is_ipv4 { [8, 0] } else { [0x86, 0xDD] };
    let in_udp = |port: u16, header: &[u8]| {
        let len = (8 + header.len() + frame.len()) as u16;
        [&[7, 7][..], &port.to_be_bytes(), &len.to_be_bytes(), &[7, 7], header, frame].concat()
    };
    let (protocol, within) = match kind {
        0 | 1 => (if is_ipv4 { 4 } else { 41 }, packet.to_vec()),
        2 => (17, in_udp(4789, &[8, 0, 0, 0, 0, 0, 5, 0])),
        3 => (17, in_udp(6081, &[1, 0, 0x65, 0x58, 0, 0, 5, 0, 1, 2, 3, 0])),
        4 => (47, [&[0, 0][..], &inner_type, packet].concat()),
        _ => (47, [&[0xA0, 0, 0x65, 0x58, 1, 2, 0, 0, 0, 0, 0, 9][..], frame].concat()),
    };
    let len = |more: usize| ((within.len() + more) as u16).to_be_bytes();
    let header = if kind == 1 {
        [&[0x86, 0xDD, 0x60, 0, 0, 0][..], &len(0), &[protocol, 9], &[0xFD; 32]].concat()
    } else {
        [&[8, 0, 0x45, 0][..], &len(20), &[0, 7, 0, 0, 64, protocol], &[9; 10]].concat()
    };
    let whole = [&link[..link.len() - 2], &header, &within].concat();
    let moved = whole.len() - frame.len();
    (whole, moved)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tcp_is_cut_into_what_a_sender_builds((frame, size) in any_tcp(), padding in vec(any::<u8>(), 0..9)) {
        let (mut bytes, virtio) = tcp(&frame, size);
        bytes.extend(padding);
        let packets = cut(&bytes, &virtio).unwrap();
        packets.iter().for_each(|packet| assert_checksums(packet));
        prop_assert_eq!(packets, tcp_segments(&frame, usize::from(size)));
    }

    #[test]
    fn udp_is_cut_into_what_a_sender_builds((frame, size) in any_udp(), padding in vec(any::<u8>(), 0..9)) {
        let (mut bytes, virtio) = frame.to_be_cut(GsoType::UdpL4, size);
        bytes.extend(padding);
        let packets = cut(&bytes, &virtio).unwrap();
        packets.iter().for_each(|packet| assert_checksums(packet));
        prop_assert_eq!(packets, frame.datagrams(usize::from(size)));
    }

    #[test]
    fn udp_is_fragmented_as_a_sender_does((frame, size) in any_udp()) {
        let (bytes, virtio) = frame.to_be_cut(GsoType::Udp, size);
        let fits = frame.payload.len() + 8 <= usize::from(size);
        let want = match frame.network {
            _ if fits => Ok(vec![frame.build()]),
            Network::Ipv6 { .. } => Err(SegmentError::Ipv6Fragmentation),
            Network::Ipv4 { .. } if size < 8 => Err(SegmentError::FragmentSize(size.try_into().unwrap())),
            Network::Ipv4 { .. } => Ok(frame.fragments(usize::from(size & !7))),
        };
        prop_assert_eq!(cut(&bytes, &virtio), want);
    }

    #[test]
    fn any_bytes_keep_every_invariant(bytes in vec(any::<u8>(), 0..200), header in any_header()) {
        check_invariants(&bytes, &header);
    }

    #[test]
    fn damaged_frames_in_tunnels_fit_an_mtu(
        frame in prop_oneof![
            any_tcp().prop_map(|(frame, size)| tcp(&frame, size).0),
            any_udp().prop_map(|(frame, size)| frame.to_be_cut(GsoType::UdpL4, size).0),
        ],
        kind in 0u8..3,
        damage in vec((0usize..160, any::<u8>()), 0..3),
        cut_short in proptest::option::weighted(0.2, 0usize..240),
        mtu in 20u16..1600,
    ) {
        let (link, packet) = frame.split_at(LinkHeader::new(&frame).unwrap().header_len());
        let (ethertype, header) = tunnel(kind, packet);
        let mut frame = [&link[..link.len() - 2], &ethertype.to_be_bytes(), &header, packet].concat();
        for (at, byte) in damage {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        frame.truncate(cut_short.unwrap_or(usize::MAX));
        check_invariants_within(&frame, mtu);
    }

    #[test]
    fn damaged_frames_in_tunnels_keep_every_invariant(
        (frame, virtio, transport) in prop_oneof![
            any_tcp().prop_map(|(frame, size)| {
                let (bytes, virtio) = tcp(&frame, size);
                let transport = transport_at(&bytes, &frame.network);
                (bytes, virtio, transport)
            }),
            any_udp().prop_map(|(frame, size)| {
                let (bytes, virtio) = frame.to_be_cut(GsoType::UdpL4, size);
                let transport = transport_at(&bytes, &frame.network);
                (bytes, virtio, transport)
            }),
        ],
        kind in 0u8..6,
        damage in vec((0usize..200, any::<u8>()), 0..4),
        cut_short in proptest::option::weighted(0.2, 0usize..240),
        mtu in 100u16..1600,
    ) {
        let (mut whole, moved) = in_tunnel(kind, &frame);
        let field = if matches!(virtio.gso, Some(Gso { gso_type: GsoType::UdpL4, .. })) { 6 } else { 16 };
        let header = partial(virtio, transport + moved, field).emit();
        if damage.is_empty() && cut_short.is_none() {
            prop_assert!(cut(&whole, &VirtioNetRepr::parse(&header, whole.len()).unwrap()).is_ok(), "{}", kind);
        }
        for (at, byte) in damage {
            if let Some(place) = whole.get_mut(at) {
                *place = byte;
            }
        }
        whole.truncate(cut_short.unwrap_or(usize::MAX));
        check_invariants(&whole, &header);
        check_invariants_within(&whole, mtu);
    }

    #[test]
    fn damaged_frames_keep_every_invariant(
        (mut frame, header) in prop_oneof![
            any_tcp().prop_map(|(frame, size)| tcp(&frame, size)),
            any_udp().prop_map(|(frame, size)| frame.to_be_cut(GsoType::UdpL4, size)),
            any_udp().prop_map(|(frame, size)| frame.to_be_cut(GsoType::Udp, size)),
        ].prop_map(|(frame, virtio)| (frame, virtio.emit())),
        damage in vec((0usize..120, any::<u8>()), 0..3),
        cut_short in proptest::option::weighted(0.2, 0usize..200),
        other_header in proptest::option::weighted(0.2, any_header()),
    ) {
        for (at, byte) in damage {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        frame.truncate(cut_short.unwrap_or(usize::MAX));
        check_invariants(&frame, &other_header.unwrap_or(header));
    }
}
