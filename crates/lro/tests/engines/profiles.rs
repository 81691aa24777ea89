//! Rules that hold for every profile.

use std::cell::Cell;
use std::io::IoSlice;
use std::rc::Rc;

use crate::common::{Card, Change, Sent, assert_consistent, data, each_profile, first_fragment, ms, tcp, us};
use crate::generated::exchange::datagram;
use crate::generated::tunnel::{Tunnel, Wrapping};
use nichrome_lro::{
    Coalescer, Config, FlushReason, Frame, Hold, Identification, Medium, NetfpgaConfig, NpuConfig, Output,
    Packet, PassReason, Profile, ProfileConfig,
};
use nichrome_wire::{
    Engine, EtherType, Instant, IpProtocol, Network, TcpFlags, TcpFrame, VirtioNetHeader, VlanTag,
};

/// A card of each profile with the default configuration, and the profile for messages.
fn cards() -> [(Profile, Card); 3] {
    Card::of_each_profile(&Config::default())
}

fn vlan(tpid: EtherType, tci: u16) -> VlanTag {
    VlanTag { tpid, tci }
}

/// Frames in all shapes that are merged: IPv4 and IPv6; no, one and two VLAN tags; with and without
/// timestamps.
fn shapes() -> Vec<(&'static str, TcpFrame)> {
    let tags = vec![vlan(EtherType::QINQ, 5), vlan(EtherType::VLAN, 0x6006)];
    let plain = data(0, 100);
    let one_tag = TcpFrame { tags: vec![vlan(EtherType::VLAN, 5)], ..plain.clone() };
    let two_tags = TcpFrame { tags, ..plain.clone() };
    vec![
        ("IPv4", plain.clone()),
        ("IPv6", plain.clone().over_ipv6()),
        ("IPv4, VLAN", one_tag.clone()),
        ("IPv6, VLAN", one_tag.over_ipv6()),
        ("IPv4, QinQ", two_tags.clone()),
        ("IPv6, QinQ, timestamps", two_tags.over_ipv6().timestamps(1, 2)),
    ]
}

#[test]
fn the_connections_that_hold_longest_are_drained_first() {
    let netfpga = NetfpgaConfig { flows: 4, ..NetfpgaConfig::with_timer(ms(1)) };
    let profiles = [
        ProfileConfig::Gro(Hold::For(ms(1))),
        ProfileConfig::Netfpga(netfpga),
        ProfileConfig::Npu(NpuConfig::with_hold(ms(1))),
    ];
    let ports = |card: &mut Card| card.take().iter().map(|sent| tcp(sent.bytes()).src.1).collect::<Vec<_>>();
    for profile in &profiles {
        for (frames, flushed) in [(0, 0), (1, 1), (2, 1), (3, 2), (8, 4), (usize::MAX, 4)] {
            let mut card = Card::new(&Config::default(), profile);
            for src_port in 0..4 {
                for at in [0, 100] {
                    card.receive(&TcpFrame { src_port, ..data(at, 100) });
                }
                card.wait(us(3));
            }
            let name = profile.profile();
            assert_eq!(ports(&mut card), [0; 0], "{name}");
            assert_eq!(
                ports(card.drain_oldest(frames)),
                (0..flushed).collect::<Vec<_>>(),
                "{name}, {frames}"
            );
            assert_eq!(card.flushes(FlushReason::Drain), flushed.into(), "{name}");
            assert_eq!(ports(card.drain()), (flushed..4).collect::<Vec<_>>(), "{name}, {frames}");
            assert_consistent(&card.statistics());
        }
    }
}

#[test]
fn every_shape_is_merged_with_a_header_that_fits() {
    for (shape, frame) in shapes() {
        for (profile, mut card) in cards() {
            for nth in 0..3 {
                card.receive(&frame.clone().at(nth * 100, 100));
            }
            let sent = card.drain().take_one();
            let (whole, first) = (tcp(sent.bytes()), tcp(&frame.build()));
            assert!(whole.checksums_are_right, "{profile}, {shape}");
            let (seq, options) = (whole.seq, &whole.options);
            assert_eq!(
                (whole.src, whole.dst, seq, options),
                (first.src, first.dst, first.seq, &first.options)
            );
            assert_eq!((&whole.vlans, whole.macs), (&first.vlans, first.macs), "{profile}, {shape}");
            assert_eq!(whole.payload, data(0, 300).payload, "{profile}, {shape}");
            let merged = sent.merged();
            assert_eq!((merged.payloads.len(), merged.mss), (3, 100), "{profile}, {shape}");
        }
    }
}

#[test]
fn the_virtio_header_says_how_to_complete_and_segment_the_packet() {
    for (shape, frame) in shapes() {
        for (profile, mut card) in cards() {
            card.receive(&frame.clone().at(0, 100)).receive(&frame.clone().at(100, 100));
            let header = card.drain().take_one().merged().virtio;
            let is_ipv4 = matches!(frame.network, Network::Ipv4 { .. });
            let link = 14 + 4 * frame.tags.len() as u16;
            let csum_start = link + if is_ipv4 { 20 } else { 40 };
            let expected = VirtioNetHeader {
                flags: VirtioNetHeader::NEEDS_CSUM,
                gso_type: if is_ipv4 { VirtioNetHeader::GSO_TCPV4 } else { VirtioNetHeader::GSO_TCPV6 },
                hdr_len: csum_start + 20 + frame.options.len() as u16,
                gso_size: 100,
                csum_start,
                csum_offset: 16,
            };
            assert_eq!(header, expected, "{profile}, {shape}");
        }
    }
}

#[test]
fn slices_hold_header_and_payloads_and_the_checksum_is_the_pseudo_headers_sum() {
    for profile in each_profile(ms(1)) {
        let mut engine = Coalescer::new(&Config::default(), &profile).unwrap();
        for nth in 0..3 {
            engine.receive(Frame::new(data(nth * 100, 100).build()), Instant::ZERO);
        }
        engine.drain();
        let Some(Output::ToHost(Packet::Aggregate(aggregate))) = engine.poll() else { panic!("{profile:?}") };
        let (mut slices, mut packet) = (Vec::new(), Vec::new());
        aggregate.io_slices(&mut slices);
        aggregate.copy_to(&mut packet);
        assert_eq!(slices.len(), 4);
        let mut joined = slices.iter().flat_map(|slice: &IoSlice<'_>| slice.to_vec()).collect::<Vec<u8>>();
        assert_eq!((joined.len(), aggregate.len()), (packet.len(), packet.len()));
        let pseudo =
            nichrome_wire::checksum::Sum::pseudo_ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 6, 320);
        assert_eq!(joined[50..52], pseudo.fold().to_be_bytes(), "{profile:?}");
        joined[50..52].copy_from_slice(&packet[50..52]);
        assert_eq!(joined, packet, "{profile:?}: nothing else is completed");
    }
}

#[test]
fn flows_that_differ_in_one_thing_are_not_merged() {
    let base = data(100, 100);
    let others = [
        base.clone().with(|frame| frame.src_port = 9),
        base.clone().with(|frame| frame.dst_port = 9),
        base.clone().with(|frame| frame.network = Network::ipv4([10, 0, 0, 3].into(), [10, 0, 0, 2].into())),
        base.clone().with(|frame| frame.network = Network::ipv4([10, 0, 0, 1].into(), [10, 0, 0, 3].into())),
        base.clone().with(|frame| frame.network = Network::ipv4([10, 0, 0, 2].into(), [10, 0, 0, 1].into())),
        TcpFrame { tags: vec![vlan(EtherType::VLAN, 5)], ..base.clone() },
        TcpFrame { tags: vec![vlan(EtherType::VLAN, 5); 2], ..base.clone() },
        base.over_ipv6(),
    ];
    for other in others {
        for (profile, mut card) in cards() {
            card.receive(&data(0, 100)).receive(&other);
            assert_eq!(card.drain().take_lens(), [100, 100], "{profile}, {other:?}");
        }
    }
}

#[test]
fn packets_without_a_link_header_are_merged() {
    let config = Config { medium: Medium::Ip, ..Config::default() };
    for (profile, mut card) in Card::of_each_profile(&config) {
        for frame in [data(0, 100), data(0, 100).over_ipv6()] {
            card.receive_bytes(frame.build_ip()).receive_bytes(frame.at(100, 100).build_ip());
        }
        let sent = card.drain().take();
        let lens: Vec<usize> = sent.iter().map(|sent| sent.bytes().len()).collect();
        assert!(lens == [240, 260] || lens == [260, 240], "{profile}: {lens:?}");
        assert!(sent.iter().all(|sent| sent.merged().virtio.csum_start <= 40), "{profile}");
    }
}

#[test]
fn nothing_of_a_flow_overtakes_what_is_held_of_it() {
    let control = [TcpFlags::SYN, TcpFlags::FIN, TcpFlags::RST, TcpFlags::URG, TcpFlags::NONE];
    for flags in control {
        for (profile, mut card) in cards() {
            card.receive(&data(0, 100)).receive(&data(100, 100));
            card.receive(&data(200, 0).flags(flags));
            assert_eq!(card.take_lens(), [200, 0], "{profile}, {flags}");
        }
    }
}

#[test]
fn ce_is_never_merged_with_what_is_not() {
    let marked = |at, mark| {
        data(at, 100).with(|frame| match &mut frame.network {
            Network::Ipv4 { tos, .. } => tos.0 |= mark,
            Network::Ipv6 { class, .. } => class.0 |= mark,
        })
    };
    for (profile, mut card) in cards() {
        for (nth, mark) in (0..).zip([2, 2, 3, 3, 2]) {
            card.receive(&marked(nth * 100, mark));
        }
        assert_eq!(card.drain().take_lens(), [200, 200, 100], "{profile}");
    }
}

#[test]
fn cwr_is_never_merged() {
    for (profile, mut card) in cards() {
        for (nth, flags) in (0..).zip([TcpFlags::NONE, TcpFlags::CWR, TcpFlags::CWR, TcpFlags::NONE]) {
            card.receive(&data(nth * 100, 100).flags(flags));
        }
        assert_eq!(card.drain().take_lens(), [100; 4], "{profile}");
        assert_eq!(card.passes(PassReason::CongestionFlags), 2, "{profile}");
    }
}

#[test]
fn fragments_flush_their_flow_and_are_passed() {
    let mut first = data(200, 100).build();
    first[14 + 6] |= 0x20;
    let mut later = first.clone();
    later[14 + 7] |= 0x10;
    for fragment in [&mut first, &mut later] {
        fragment[24..26].fill(0);
        let sum = nichrome_wire::checksum::checksum(&fragment[14..34]);
        fragment[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    for (profile, mut card) in cards() {
        card.receive(&data(0, 100)).receive(&data(100, 100));
        card.receive_bytes(later.clone());
        assert_eq!(card.take(), [Sent::Frame(later.clone())], "{profile}: it is not known to be of the flow");
        card.receive_bytes(first.clone());
        let sent = card.take();
        assert_eq!(
            (sent[0].merged().payloads.len(), &sent[1]),
            (2, &Sent::Frame(first.clone())),
            "{profile}"
        );
        assert_eq!(card.passes(PassReason::Fragment), 2, "{profile}");
    }
}

/// RFC 791: with an MTU of 68 bytes and 40 bytes of IP options, a first fragment has the ports, the sequence
/// number and no more.
#[test]
fn a_first_fragment_that_ends_within_the_tcp_header_flushes_its_flow() {
    for (len, is_known) in [(0, false), (3, false), (4, true), (8, true), (16, true), (19, true)] {
        for shape in [data(0, 100), data(0, 100).over_ipv6()] {
            let fragment = first_fragment(&shape.clone().at(200, 100), len);
            for (profile, mut card) in cards() {
                card.receive(&shape).receive(&shape.clone().at(100, 100)).receive_bytes(fragment.clone());
                let sent = card.take();
                assert_eq!(sent.len(), if is_known { 2 } else { 1 }, "{profile}, {len} bytes");
                assert_eq!(sent.last(), Some(&Sent::Frame(fragment.clone())), "{profile}, {len} bytes");
                let reason = if is_known { PassReason::Fragment } else { PassReason::Malformed };
                assert_eq!(card.passes(reason), 1, "{profile}, {len} bytes");
            }
        }
    }
}

#[test]
fn routing_and_authentication_headers_are_passed_after_what_is_held() {
    for (kind, words) in [(IpProtocol::ROUTING, 0), (IpProtocol::AH, 4)] {
        let header = [&[IpProtocol::TCP.0, words][..], &vec![0; 6 + 4 * usize::from(words)]].concat();
        let opaque = data(200, 100).over_ipv6().with(|frame| {
            if let Network::Ipv6 { next_header, extensions, .. } = &mut frame.network {
                (*next_header, *extensions) = (kind, header);
            }
        });
        for (profile, mut card) in cards() {
            card.receive(&data(0, 100).over_ipv6()).receive(&data(100, 100).over_ipv6()).receive(&opaque);
            let sent = card.take();
            assert_eq!(sent.len(), 2, "{profile}, {kind}");
            assert_eq!((sent[0].merged().payloads.len(), &sent[1]), (2, &Sent::Frame(opaque.build())));
        }
    }
}

#[test]
fn a_connection_is_coalesced_although_as_many_others_hold_segments_as_there_are_aggregates() {
    let config = Config { max_connections: 16, max_aggregates: 4, udp: true, ..Config::default() };
    for profile in [ProfileConfig::Gro(Hold::For(ms(1))), ProfileConfig::Npu(NpuConfig::with_hold(ms(1)))] {
        let mut card = Card::new(&config, &profile);
        for nth in 0..8 {
            card.receive(&data(0, 100).with(|frame| frame.src_port = 1000 + nth));
        }
        (0..10).for_each(|nth| _ = card.receive(&data(100 * nth, 100)));
        assert_eq!(card.passes(PassReason::PoolEmpty), 0, "{profile:?}");
        assert_eq!(card.drain().take_lens().last(), Some(&1000), "{profile:?}");
    }
}

#[test]
fn the_end_of_a_batch_delivers_all_also_with_fewer_aggregates_than_connections() {
    let config = Config { max_connections: 16, max_aggregates: 4, ..Config::default() };
    for profile in [ProfileConfig::Gro(Hold::Batch), ProfileConfig::Npu(NpuConfig::default())] {
        let mut card = Card::new(&config, &profile);
        let from = |port| data(0, 100).with(|frame| frame.src_port = port).build();
        card.receive_frames((1000..1008).map(|port| Frame::new(from(port))).collect());
        assert_eq!((card.take().len(), card.passes(PassReason::PoolEmpty)), (8, 0), "{profile:?}");
    }
}

/// Positions in headers have 16 bits.
#[test]
fn segments_behind_64_kb_of_extension_headers_are_passed_after_what_is_held() {
    for medium in [Medium::Ethernet, Medium::Ip] {
        for len in (65_384..=65_496).step_by(8) {
            // Destination options of padding, of up to 256 units of 8 bytes each.
            let mut header = Vec::new();
            while header.len() < len {
                let units = (len - header.len()).div_ceil(8).min(256);
                let is_last = header.len() + 8 * units == len;
                let next = if is_last { IpProtocol::TCP } else { IpProtocol::DESTINATION_OPTIONS };
                header.extend([next.0, (units - 1) as u8]);
                header.resize(header.len() + 8 * units - 2, 0);
            }
            let far = data(100, 10).over_ipv6().with(|frame| {
                if let Network::Ipv6 { next_header, extensions, .. } = &mut frame.network {
                    (*next_header, *extensions) = (IpProtocol::DESTINATION_OPTIONS, header);
                }
            });
            let bytes = |frame: &TcpFrame| frame.build().split_off(if medium == Medium::Ip { 14 } else { 0 });
            for profile in each_profile(ms(1)) {
                let mut card = Card::new(&Config { medium, ..Config::default() }, &profile);
                card.receive_bytes(bytes(&data(0, 100).over_ipv6())).receive_bytes(bytes(&far));
                let sent = card.take();
                assert_eq!(sent.last(), Some(&Sent::Frame(bytes(&far))), "{profile:?}, {len}");
                assert_eq!(sent.len(), 2, "{profile:?}, {len}");
            }
        }
    }
}

/// The home address option of a mobile node (RFC 6275 section 6.3), in the recommended place: the TCP
/// checksum covers this address in place of the source address.
#[test]
fn segments_with_a_home_address_are_passed_after_what_is_held_and_their_checksums_are_not_verified() {
    let home = [0xFD; 16];
    let header = [&[IpProtocol::TCP.0, 2, 1, 2, 0, 0, 0xC9, 16][..], &home].concat();
    let away = |at| {
        let mut frame = data(at, 100).over_ipv6();
        if let Network::Ipv6 { src, .. } = &mut frame.network {
            *src = home.into();
        }
        let mut frame = frame.build();
        // Only the TCP checksum covers the home address.
        let care_of = data(at, 100).over_ipv6().build();
        frame[..54].copy_from_slice(&care_of[..54]);
        frame[19] += header.len() as u8;
        frame[20] = IpProtocol::DESTINATION_OPTIONS.0;
        frame.splice(54..54, header.iter().copied());
        frame
    };
    for (profile, mut card) in cards() {
        card.receive(&data(0, 100).over_ipv6()).receive(&data(100, 100).over_ipv6());
        card.receive_bytes(away(200)).receive_bytes(away(300));
        let sent = card.take();
        assert_eq!(sent.len(), 3, "{profile}");
        assert_eq!((sent[0].merged().payloads.len(), &sent[1]), (2, &Sent::Frame(away(200))), "{profile}");
        assert_eq!((&sent[2], card.passes(PassReason::IpOptions)), (&Sent::Frame(away(300)), 2), "{profile}");
    }
}

#[test]
fn what_is_not_tcp_or_malformed_is_passed_as_it_came() {
    let mut udp = data(0, 100).build();
    udp[23] = IpProtocol::UDP.0;
    let mut arp = data(0, 100).build();
    arp[12..14].copy_from_slice(&[8, 6]);
    let mut three_tags = data(0, 100);
    three_tags.tags = vec![vlan(EtherType::VLAN, 5); 3];
    let mut short_header = data(0, 100).build();
    short_header[46] = 0x40;
    let mut long_header = data(0, 10).build();
    long_header[46] = 0xF0;
    let mut other_version = data(0, 100).build();
    other_version[14] = 0x65;
    // An IPv4 header of 16 bytes, followed by bytes that look like a TCP header with a data offset of 20
    // bytes.
    let mut short_ip_header = data(0, 100).build();
    (short_ip_header[14], short_ip_header[42]) = (0x44, 0x50);
    let cut = data(0, 100).build()[..80].to_vec();
    let frames = [
        Vec::new(),
        vec![0; 13],
        udp,
        arp,
        three_tags.build(),
        short_header,
        long_header,
        other_version,
        short_ip_header,
        cut,
    ];
    for (profile, mut card) in cards() {
        card.receive(&data(0, 100));
        for frame in &frames {
            card.receive_bytes(frame.clone());
            assert_eq!(card.take(), [Sent::Frame(frame.clone())], "{profile}");
        }
        let passed = card.passes(PassReason::NotTcp) + card.passes(PassReason::Malformed);
        assert_eq!(passed, frames.len() as u64, "{profile}");
    }
}

#[test]
fn an_ip_packet_shorter_than_its_header_or_longer_than_its_frame_is_malformed() {
    for (total_len, reason) in [
        (19, PassReason::Malformed),
        (20, PassReason::NotTcp),
        (140, PassReason::NotTcp),
        (141, PassReason::Malformed),
    ] {
        let mut frame = data(0, 100).build();
        frame[23] = IpProtocol::UDP.0;
        frame[16..18].copy_from_slice(&u16::to_be_bytes(total_len));
        for (profile, mut card) in cards() {
            card.receive_bytes(frame.clone());
            assert_eq!(card.passes(reason), 1, "{total_len} bytes, {profile}");
        }
    }
}

#[test]
fn a_header_beyond_the_limit_is_passed() {
    let mut frame = data(0, 100).over_ipv6();
    if let Network::Ipv6 { next_header, extensions, .. } = &mut frame.network {
        *next_header = IpProtocol::DESTINATION_OPTIONS;
        // One header of 136 bytes: 54 + 136 + 20 are more than 192.
        *extensions = [&[IpProtocol::TCP.0, 16, 1, 132][..], &[0; 132]].concat();
    }
    for (profile, mut card) in cards() {
        card.receive(&frame).receive(&frame.clone().at(100, 100));
        assert_eq!(card.take_lens(), [100, 100], "{profile}");
        assert_eq!(card.passes(PassReason::IpOptions), 2, "{profile}");
    }
}

#[test]
fn payload_lies_where_it_was_received() {
    for profile in each_profile(ms(1)) {
        let mut engine = Coalescer::new(&Config::default(), &profile).unwrap();
        let frames: Vec<Rc<[u8]>> = (0..3).map(|nth| data(nth * 100, 100).build().into()).collect();
        for frame in &frames {
            engine.receive(Frame::new(Rc::clone(frame)), Instant::ZERO);
        }
        engine.drain();
        let Some(Output::ToHost(Packet::Aggregate(aggregate))) = engine.poll() else { panic!("{profile:?}") };
        for (payload, frame) in aggregate.payloads().zip(&frames) {
            assert!(std::ptr::eq(payload, &frame[54..]), "{profile:?}");
        }
    }
}

/// A buffer that counts the existing ones.
struct Counted(Vec<u8>, Rc<Cell<usize>>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.set(self.1.get() - 1);
    }
}

#[test]
fn buffers_go_back_when_an_output_or_the_engine_is_dropped() {
    for profile in each_profile(ms(1)) {
        let count = Rc::new(Cell::new(0));
        let mut engine = Coalescer::new(&Config::default(), &profile).unwrap();
        for nth in 0..4 {
            count.set(count.get() + 1);
            engine
                .receive(Frame::new(Counted(data(nth * 100, 100).build(), Rc::clone(&count))), Instant::ZERO);
            if nth == 2 {
                engine.drain();
            }
        }
        let output = engine.poll();
        assert_eq!(count.get(), 4, "{profile:?}");
        drop(engine);
        assert_eq!(count.get(), 3, "{profile:?}: the output outlives the engine");
        drop(output);
        assert_eq!(count.get(), 0, "{profile:?}");
    }
}

#[test]
fn time_alone_delivers_everything_and_then_wants_nothing_more() {
    for (profile, mut card) in cards() {
        for nth in 0..3 {
            card.receive(&data(nth * 100, 100)).wait(us(1));
        }
        card.wait(ms(10));
        assert_eq!(card.take_lens(), [300], "{profile}");
        assert_eq!((card.flushes(FlushReason::Timeout), card.engine.poll_timeout()), (1, None), "{profile}");
    }
}

#[test]
fn the_counters_add_up() {
    for (profile, mut card) in cards() {
        let mut corrupt = data(300, 100).build();
        corrupt[60] ^= 1;
        card.receive(&data(0, 100)).receive(&data(100, 100)).receive_bytes(corrupt);
        card.receive(&data(300, 0)).receive(&data(300, 50)).drain();
        let statistics = card.statistics();
        assert_consistent(&statistics);
        assert_eq!((statistics.packets_in, statistics.bytes_in), (5, 3 * 154 + 54 + 104), "{profile}");
        assert_eq!((statistics.aggregates, statistics.segments_aggregated), (1, 2), "{profile}");
        assert_eq!(statistics.mean_segments_per_aggregate(), 2.0);
        let dropped = if profile == Profile::Gro { 0 } else { 1 };
        assert_eq!((statistics.drops.total(), statistics.packets_out), (dropped, 4 - dropped), "{profile}");
        assert_eq!(statistics.bytes_out, 254 + 54 + 104 + 154 * (1 - dropped), "{profile}");
        assert_eq!(statistics.tcp_payload_bytes_in, 350, "{profile}");
        assert_eq!(statistics.tcp_payload_bytes_out, 350 - 100 * dropped, "{profile}");
    }
}

#[test]
fn batches_of_many_connections_are_carried() {
    let config = Config { max_connections: 3000, ..Config::default() };
    for (profile, mut card) in Card::of_each_profile(&config) {
        for nth in 0..4 {
            let frames =
                (0..2500).map(|port| data(nth * 100, 100).with(|frame| frame.src_port = port).build());
            let mut frames: Vec<Vec<u8>> = frames.collect();
            frames.extend([Vec::new(), vec![0; 14], data(0, 0).build()]);
            for batch in frames.chunks(33) {
                card.receive_batch(batch);
            }
        }
        let statistics = card.statistics();
        assert_eq!(statistics.packets_in, 4 * 2503, "{profile}");
        assert_eq!(card.finish().frames, 4 * 2503, "{profile}");
    }
}

#[test]
fn a_packet_says_what_it_contains() {
    let config = Config { udp: true, tunnels: true, ..Config::default() };
    let tcp = |nth: u32| data(nth * 100, 100).build();
    let udp = |nth: u32| datagram(&data(nth * 100, 100), Medium::Ethernet);
    let tunneled = |nth: u32| {
        let mut tunnel = Tunnel { wrapping: Wrapping::Ipv4, ident: nth as u16, step: 0 };
        tunnel.wrap(&tcp(nth), Medium::Ethernet, 0)
    };
    let incrementing = Some(Identification::Incrementing);
    for (frames, is_udp, tunnel) in [
        ([0, 1, 2].map(tcp), false, None),
        ([0, 1, 2].map(udp), true, None),
        ([0, 1, 2].map(tunneled), false, incrementing),
    ] {
        for count in [1, 3] {
            let mut engine = Coalescer::new(&config, &each_profile(ms(1))[0]).unwrap();
            frames[..count].iter().for_each(|frame| engine.receive(Frame::new(frame.clone()), Instant::ZERO));
            assert_eq!(engine.connections(), 1);
            engine.drain();
            let Some(Output::ToHost(packet)) = engine.poll() else { panic!("nothing left") };
            let len = frames[0].len() + (count - 1) * 100;
            assert_eq!((packet.segments(), packet.len(), packet.is_empty()), (count, len, false));
            if let Packet::Aggregate(aggregate) = packet {
                assert!(aggregate.is_udp() == is_udp && !aggregate.is_empty());
                assert_eq!(aggregate.tunnel_identification(), tunnel);
            }
        }
    }
    assert!(Packet::Frame(Frame::new(Vec::new())).is_empty());
}

#[test]
fn flows_that_hold_segments_are_counted() {
    for (profile, mut card) in cards() {
        let mut counts = vec![card.engine.connections()];
        for (at, port) in [(0, 1), (100, 1), (0, 2)] {
            card.receive(&data(at, 100).with(|frame| frame.src_port = port));
            counts.push(card.engine.connections());
        }
        // `netfpga` stores one flow.
        let expected = if profile == Profile::Netfpga { [0, 1, 1, 1] } else { [0, 1, 1, 2] };
        assert_eq!(counts, expected, "{profile}");
    }
}
