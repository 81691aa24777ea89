//! UDP datagrams in `gro`: a test for each row of their table of cases. The verifier also compares all
//! outputs bit for bit.

use crate::common::{Card, Change, Sent, assert_consistent, data, each_profile, ms, tcp};
use crate::generated::exchange;
use nichrome_lro::{
    BadChecksum, Config, DropReason, FlushReason, Frame, Gro, Hold, Identification, Medium, Output, Packet,
    PassReason, Profile, ProfileConfig,
};
use nichrome_wire::checksum::{Sum, checksum};
use nichrome_wire::{
    Engine, Instant, IpProtocol, Network, TcpFrame, VirtioNetHeader, VlanTag, transmitted_checksum,
};

/// A `gro` that coalesces UDP, with the default configuration except for `change`.
fn card_with(change: impl FnOnce(&mut Config)) -> Card {
    let mut config = Config { udp: true, ..Config::default() };
    change(&mut config);
    Card::new(&config, &ProfileConfig::Gro(Hold::For(ms(1))))
}

fn card() -> Card {
    card_with(|_| {})
}

/// The fields of a datagram with `len` bytes, `nth` in its flow.
fn fields(nth: u16, len: usize) -> TcpFrame {
    data(u32::from(nth) * 1000, len).with(|fields| {
        if let Network::Ipv4 { ident, .. } = &mut fields.network {
            *ident = nth;
        }
    })
}

fn build(fields: &TcpFrame) -> Vec<u8> {
    exchange::datagram(fields, Medium::Ethernet)
}

fn datagram(nth: u16, len: usize) -> Vec<u8> {
    build(&fields(nth, len))
}

/// Returns the UDP payload lengths of the outputs since the last call, as etherparse reads them. Checks their
/// checksums.
fn take_lens(card: &mut Card) -> Vec<usize> {
    card.take().iter().map(|sent| payload_len(sent.bytes())).collect()
}

fn payload_len(frame: &[u8]) -> usize {
    let packet = etherparse::SlicedPacket::from_ethernet(frame).expect("headers are well formed");
    let Some(etherparse::TransportSlice::Udp(udp)) = &packet.transport else { panic!("not UDP: {packet:?}") };
    let (header, payload) = (udp.to_header(), udp.payload());
    let computed = match packet.net.as_ref().expect("there is an IP header") {
        etherparse::NetSlice::Ipv4(ip) => header.calc_checksum_ipv4(&ip.header().to_header(), payload),
        etherparse::NetSlice::Ipv6(ip) => header.calc_checksum_ipv6(&ip.header().to_header(), payload),
        etherparse::NetSlice::Arp(_) => panic!("not IP"),
    };
    assert!(header.checksum == 0 || computed == Ok(header.checksum), "{header:?}");
    payload.len()
}

/// Receives datagrams of these lengths and returns the payload lengths of the outputs.
fn lens_of(lens: &[usize]) -> Vec<usize> {
    let mut card = card();
    for (nth, len) in lens.iter().enumerate() {
        card.receive_bytes(datagram(nth as u16, *len));
    }
    card.drain();
    take_lens(&mut card)
}

#[test]
fn datagrams_of_one_size_are_merged_in_every_shape() {
    let tag = VlanTag { tpid: nichrome_wire::EtherType::VLAN, tci: 5 };
    let tagged = TcpFrame { tags: vec![tag], ..fields(0, 100) };
    for shape in [fields(0, 100), fields(0, 100).over_ipv6(), tagged.clone(), tagged.over_ipv6()] {
        let mut card = card();
        for _ in 0..5 {
            card.receive_bytes(build(&shape));
        }
        let sent = card.drain().take_one();
        assert_eq!(payload_len(sent.bytes()), 500);
        let Sent::Merged(merged) = sent else { panic!("not merged") };
        let is_ipv4 = matches!(shape.network, Network::Ipv4 { .. });
        let transport = 14 + 4 * shape.tags.len() as u16 + if is_ipv4 { 20 } else { 40 };
        let expected = VirtioNetHeader {
            flags: VirtioNetHeader::NEEDS_CSUM,
            gso_type: VirtioNetHeader::GSO_UDP_L4,
            hdr_len: transport + 8,
            gso_size: 100,
            csum_start: transport,
            csum_offset: 6,
        };
        assert_eq!((merged.virtio, merged.identification), (expected, Identification::Fixed));
        assert_eq!(merged.recreated, vec![build(&shape); 5]);
    }
}

#[test]
fn datagrams_are_passed_where_the_option_is_off_and_by_the_other_profiles() {
    for (udp, profile) in
        each_profile(ms(1)).into_iter().flat_map(|profile| [(false, profile), (true, profile)])
    {
        let mut card = Card::new(&Config { udp, ..Config::default() }, &profile);
        card.receive_bytes(datagram(0, 100)).receive_bytes(datagram(1, 100)).drain();
        let merges = udp && profile.profile() == Profile::Gro;
        assert_eq!(take_lens(&mut card), if merges { vec![200] } else { vec![100, 100] });
        assert_eq!(card.passes(PassReason::NotTcp), if merges { 0 } else { 2 });
    }
}

#[test]
fn the_flows_that_hold_longest_are_drained_first_tcp_before_udp() {
    for (frames, lens) in
        [(2, vec![]), (3, vec![200]), (4, vec![200]), (5, vec![200, 202]), (9, vec![200, 202])]
    {
        let mut card = card();
        for len in [100, 101] {
            for nth in 0..2 {
                card.receive_bytes(build(&TcpFrame { src_port: len, ..fields(nth, len.into()) }));
            }
        }
        card.receive(&data(0, 100)).receive(&data(100, 100));
        let sent = card.drain_oldest(frames).take();
        assert_eq!(tcp(sent[0].bytes()).payload.len(), 200);
        assert_eq!(sent[1..].iter().map(|sent| payload_len(sent.bytes())).collect::<Vec<_>>(), lens);
        card.drain();
        assert_consistent(&card.statistics());
    }
}

#[test]
fn a_shorter_datagram_ends_the_aggregate_and_a_longer_one_begins_the_next() {
    assert_eq!(lens_of(&[100, 100, 50, 100]), [250, 100]);
    assert_eq!(lens_of(&[100, 101, 101]), [100, 202]);
    assert_eq!(lens_of(&[1, 1, 1]), [3]);
}

#[test]
fn an_aggregate_has_at_most_64_datagrams_and_65535_bytes() {
    assert_eq!(lens_of(&[100; 130]), [6400, 6400, 200]);
    assert_eq!(lens_of(&[8000; 9]), [64_000, 8000]);
    let mut card = card_with(|config| config.max_segments = 3);
    let burst: Vec<_> = (0..7).map(|nth| datagram(nth, 100)).collect();
    card.receive_batch(&burst).drain();
    assert_eq!(take_lens(&mut card), [300, 300, 100]);
    assert_eq!(card.flushes(FlushReason::MaxSegments), 2);
}

#[test]
fn an_unequal_field_begins_a_new_aggregate() {
    type Alter = fn(&mut TcpFrame);
    let changes: [Alter; 3] = [
        |fields| {
            if let Network::Ipv4 { ttl, .. } = &mut fields.network {
                *ttl = 3;
            }
        },
        |fields| {
            if let Network::Ipv4 { tos, .. } = &mut fields.network {
                tos.0 = 3;
            }
        },
        |fields| {
            if let Network::Ipv4 { ident, .. } = &mut fields.network {
                *ident = 77;
            }
        },
    ];
    for change in changes {
        let mut card = card();
        card.receive_bytes(datagram(0, 100)).receive_bytes(datagram(1, 100));
        card.receive_bytes(build(&fields(2, 100).with(change))).drain();
        assert_eq!(take_lens(&mut card), [200, 100]);
        assert_eq!(card.flushes(FlushReason::UnequalField), 1);
    }
}

#[test]
fn what_cannot_be_merged_is_passed_after_what_its_flow_holds() {
    type Alter = fn(Vec<u8>) -> Vec<u8>;
    let without_checksum: Alter = |mut frame| {
        frame[40..42].fill(0);
        frame
    };
    let wrong_checksum: Alter = |mut frame| {
        frame[50] ^= 1;
        frame
    };
    let with_trailer: Alter = |frame| [frame, vec![0; 4]].concat();
    // With a checksum that is right.
    let wrong_length: Alter = |mut frame| {
        frame[39] -= 1;
        frame[41] += 1;
        frame
    };
    let cases = [
        (without_checksum, PassReason::NoChecksum),
        (wrong_checksum, PassReason::BadChecksum),
        (with_trailer, PassReason::Trailer),
        (wrong_length, PassReason::Malformed),
        (|_| datagram(2, 0), PassReason::EmptyDatagram),
    ];
    for (alter, reason) in cases {
        let mut card = card();
        card.receive_bytes(datagram(0, 100)).receive_bytes(datagram(1, 100));
        let altered = alter(datagram(2, 100));
        let sent = card.receive_bytes(altered.clone()).take();
        assert_eq!((sent.len(), sent[1].bytes()), (2, &altered[..]), "{reason:?}");
        assert_eq!((payload_len(sent[0].bytes()), card.passes(reason)), (200, 1), "{reason:?}");
        card.receive_batch(&[datagram(0, 100), datagram(1, 100), altered.clone(), datagram(3, 100)]).drain();
        let sent = card.take();
        assert_eq!((sent.len(), sent[1].bytes(), card.passes(reason)), (3, &altered[..], 2), "{reason:?}");
    }
    let mut card = card();
    let mut fragment = datagram(1, 100);
    fragment[20] |= 0x20; // more fragments
    fragment[24..26].fill(0);
    let sum = checksum(&fragment[14..34]);
    fragment[24..26].copy_from_slice(&sum.to_be_bytes());
    card.receive_bytes(datagram(0, 100)).receive_bytes(fragment);
    assert_eq!((card.take().len(), card.passes(PassReason::Fragment)), (2, 1));
}

#[test]
fn a_wrong_checksum_is_dropped_where_the_configuration_says_so() {
    let mut card = card_with(|config| config.bad_checksum = Some(BadChecksum::Drop));
    let mut wrong = datagram(0, 100);
    wrong[50] ^= 1;
    card.receive_bytes(wrong.clone());
    assert_eq!(card.take(), [Sent::Dropped(wrong, DropReason::UdpChecksum)]);
}

#[test]
fn flows_are_merged_beside_each_other_and_beside_tcp_with_the_same_ports() {
    let mut card = card();
    for nth in 0..4 {
        for port in [1, 2, 3] {
            card.receive_bytes(build(&fields(nth, 100).with(|fields| fields.src_port = port)));
        }
        card.receive(&data(u32::from(nth) * 100, 100).with(|frame| frame.src_port = 2));
    }
    let sent = card.drain().take();
    assert_eq!(sent.iter().map(|sent| sent.merged().payloads.len()).collect::<Vec<_>>(), [4; 4]);
}

#[test]
fn a_full_table_flushes_what_was_held_longest() {
    let mut card = card_with(|config| config.max_connections = 2);
    for port in 1..=3 {
        card.receive_bytes(build(&fields(0, 100).with(|fields| fields.src_port = port)));
    }
    assert_eq!((take_lens(&mut card), card.flushes(FlushReason::Evicted)), (vec![100], 1));
}

#[test]
fn datagrams_leave_after_the_hold_time_or_with_the_batch() {
    let mut card = card();
    card.receive_bytes(datagram(0, 100)).receive_bytes(datagram(1, 100)).wait(ms(1));
    assert_eq!((take_lens(&mut card), card.flushes(FlushReason::Timeout)), (vec![200], 1));
    let config = Config { udp: true, ..Config::default() };
    let mut card = Card::new(&config, &ProfileConfig::Gro(Hold::Batch));
    card.receive_bytes(datagram(0, 100)).wait(ms(100)).receive_bytes(datagram(1, 100));
    assert!(card.take().is_empty());
    card.end_batch();
    assert_eq!((take_lens(&mut card), card.engine.connections()), (vec![200], 1));
}

#[test]
fn frames_are_passed_where_the_driver_has_every_aggregate() {
    let config = Config { udp: true, max_aggregates: 1, ..Config::default() };
    let mut gro = Gro::new(&config, Hold::Batch).unwrap();
    (0..2).for_each(|nth| gro.receive(Frame::new(datagram(nth, 100)), Instant::ZERO));
    gro.drain();
    let aggregate = gro.poll();
    assert!(matches!(aggregate, Some(Output::ToHost(Packet::Aggregate(_)))));
    gro.receive(Frame::new(datagram(2, 100)), Instant::ZERO);
    assert!(matches!(gro.poll(), Some(Output::ToHost(Packet::Frame(_)))));
    drop(aggregate);
    gro.receive(Frame::new(datagram(3, 100)), Instant::ZERO);
    assert!(gro.poll().is_none(), "the aggregate came back");
    assert_eq!(gro.statistics().passes.get(PassReason::PoolEmpty), 1);
}

#[test]
fn a_flow_is_flushed_for_another_where_all_aggregates_are_held() {
    let mut card = card_with(|config| config.max_aggregates = 1);
    for port in [1, 2] {
        card.receive_bytes(build(&fields(0, 100).with(|fields| fields.src_port = port)));
    }
    assert_eq!((take_lens(&mut card), card.flushes(FlushReason::Evicted)), (vec![100], 1));
}

#[test]
fn a_flow_of_tcp_is_flushed_for_one_of_udp_where_all_aggregates_are_held_and_the_other_way_round() {
    let mut card = card_with(|config| config.max_aggregates = 2);
    card.receive(&data(0, 101)).receive(&data(0, 102).with(|frame| frame.src_port = 2));
    card.receive_bytes(datagram(0, 100));
    assert_eq!((card.take_lens(), card.flushes(FlushReason::Evicted)), (vec![101], 1), "the oldest");
    card.receive_bytes(datagram(1, 100)).receive(&data(200, 103));
    let sent = card.take();
    assert_eq!((payload_len(sent[0].bytes()), tcp(sent[1].bytes()).payload.len()), (200, 103));
    assert_eq!(card.passes(PassReason::PoolEmpty), 1, "the driver has what was merged");
    card.drain().take();
    card.receive_bytes(datagram(2, 100))
        .receive_bytes(build(&fields(0, 99).with(|fields| fields.src_port = 3)));
    card.receive(&data(303, 104));
    assert_eq!((take_lens(&mut card), card.flushes(FlushReason::Evicted)), (vec![100], 3), "the oldest");
    assert_eq!((card.drain().take().len(), card.passes(PassReason::PoolEmpty)), (2, 1));
}

/// Recomputes the checksums of a datagram over IPv4 without options.
fn complete(frame: &mut [u8]) {
    let (ip, udp) = frame[14..].split_at_mut(20);
    ip[10..12].fill(0);
    let sum = checksum(ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    udp[6..8].fill(0);
    let sum = Sum::new().add_bytes(&ip[12..20]).add_u32(17).add_u32(udp.len() as u32).add_bytes(udp).finish();
    udp[6..8].copy_from_slice(&transmitted_checksum(sum).to_be_bytes());
}

/// Flips each bit of the headers in the second of three datagrams. Its checksums are right, so that it
/// differs from the others in that field only.
#[test]
fn a_datagram_that_differs_in_a_header_bit_is_not_merged() {
    let is_merged_with = |at: usize, flip: u8, is_batch: bool| {
        let mut frames = [0, 1, 2].map(|nth| datagram(nth, 100));
        frames[1][at] ^= flip;
        complete(&mut frames[1]);
        let mut card = card_with(|config| (config.max_connections, config.max_aggregates) = (64, 8));
        card.receive_all(&frames, is_batch);
        let second = &frames[1][42..];
        card.drain().take().iter().any(|sent| match sent {
            Sent::Merged(merged) => merged.payloads.iter().any(|payload| payload == second),
            _ => false,
        })
    };
    // The flip that gives it the identification of the first one; and the checksums, which are recomputed.
    let is_equal = |at: usize, bit: u8| (at, bit) == (19, 1) || [24, 25, 40, 41].contains(&at);
    for is_batch in [false, true] {
        assert!(is_merged_with(0, 0, is_batch));
        for (at, bit) in (0..14 + 20 + 8).flat_map(|at| (0..8).map(move |bit| (at, 1 << bit))) {
            assert_eq!(is_merged_with(at, bit, is_batch), is_equal(at, bit), "byte {at}, bit {bit:#x}");
        }
    }
}

#[test]
fn the_identifications_of_datagrams_are_the_same_or_go_up_by_one() {
    for (idents, expected) in [
        ([8, 9, 10, 11], vec![400]),
        ([8, 8, 8, 8], vec![400]),
        ([8, 9, 10, 10], vec![300, 100]),
        ([8, 8, 8, 9], vec![300, 100]),
        ([8, 10, 12, 14], vec![100; 4]),
    ] {
        let frames = idents.map(|ident| datagram(ident, 100));
        for is_batch in [false, true] {
            let mut card = card();
            card.receive_all(&frames, is_batch);
            card.drain();
            assert_eq!(take_lens(&mut card), expected, "{idents:?}, together {is_batch}");
        }
    }
}

/// An IP checksum of 0xFFFF is right where 0 is, and a datagram may have no checksum; the engine could
/// re-create neither.
#[test]
fn a_checksum_that_would_not_be_re_created_is_not_merged() {
    let ip_checksum = 24..26;
    let udp_checksum = 40..42;
    let zero = (2..=u16::MAX).find(|ident| datagram(*ident, 100)[ip_checksum.clone()] == [0; 2]).unwrap();
    for (place, value, expected) in [
        (&ip_checksum, [0; 2], vec![300]),
        (&ip_checksum, [0xFF; 2], vec![200, 100]),
        (&udp_checksum, [0; 2], vec![200, 100]),
    ] {
        let mut frames = [zero - 2, zero - 1, zero].map(|ident| datagram(ident, 100));
        frames[2][place.clone()].copy_from_slice(&value);
        let receive: [&dyn Fn(&mut Card); 3] = [
            &|card| frames.iter().for_each(|frame| _ = card.receive_bytes(frame.clone())),
            &|card| _ = card.receive_batch(&frames),
            &|card| _ = card.receive_frames(frames.iter().cloned().map(Frame::verified).collect()),
        ];
        for (nth, receive) in receive.into_iter().enumerate() {
            let mut card = card();
            receive(&mut card);
            card.drain();
            assert_eq!(take_lens(&mut card), expected, "{value:?} at {place:?}, {nth}");
        }
    }
}

#[test]
fn a_packet_of_datagrams_is_as_long_as_the_limit_and_no_longer() {
    for (max_bytes, expected) in [(588, vec![560]), (587, vec![420, 140])] {
        for is_batch in [false, true] {
            let mut card = card_with(|config| config.max_bytes = max_bytes);
            let frames: Vec<_> = (0..4).map(|nth| datagram(nth, 140)).collect();
            card.receive_all(&frames, is_batch);
            card.drain();
            assert_eq!(take_lens(&mut card), expected, "{max_bytes}, {is_batch}");
        }
    }
}

#[test]
fn datagrams_with_options_or_a_header_of_more_than_192_bytes_are_passed() {
    let with_options = |frame: TcpFrame| {
        frame.with(|frame| match &mut frame.network {
            Network::Ipv4 { options, .. } => *options = vec![1; 4],
            Network::Ipv6 { .. } => {}
        })
    };
    let extended = |frame: TcpFrame, words: u8| {
        frame.over_ipv6().with(|frame| {
            if let Network::Ipv6 { next_header, extensions, .. } = &mut frame.network {
                let len = usize::from(words) * 8;
                *next_header = IpProtocol::DESTINATION_OPTIONS;
                *extensions = vec![0; len];
                extensions[..4].copy_from_slice(&[IpProtocol::UDP.0, words - 1, 1, (len - 4) as u8]);
            }
        })
    };
    // 40 bytes of IPv6, 144 or 152 of options, 8 of UDP.
    for (change, passes) in [
        (&with_options as &dyn Fn(TcpFrame) -> TcpFrame, 2),
        (&|frame| extended(frame, 18), 0),
        (&|frame| extended(frame, 19), 2),
    ] {
        let mut card = card_with(|config| config.medium = Medium::Ip);
        for nth in 0..2 {
            card.receive_bytes(exchange::datagram(&change(fields(nth, 100)), Medium::Ip));
        }
        assert_eq!(card.drain().take().len(), if passes == 0 { 1 } else { 2 });
        assert_eq!(card.passes(PassReason::IpOptions), passes);
    }
}
