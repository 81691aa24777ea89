//! The `gro` profile: a test for each row of its table of cases. The verifier also compares all outputs bit
//! for bit.

use crate::common::{Card, Change, Sent, data, ms, tcp, us};
use nichrome_lro::{
    BadChecksum, ChecksumStatus, Config, DropReason, FlushReason, Frame, Gro, Hold, Identification, Output,
    PassReason, ProfileConfig,
};
use nichrome_wire::{
    Engine, EtherType, FlowLabel, Instant, Network, TcpFlags, TcpFrame, TrafficClass, VirtioNetHeader,
    VlanTag,
};

/// A `gro` with the default configuration except for `change`.
pub(super) fn gro(change: impl FnOnce(&mut Config)) -> Card {
    let mut config = Config::default();
    change(&mut config);
    Card::new(&config, &ProfileConfig::Gro(Hold::For(ms(1))))
}

/// A segment with this identification.
pub(super) fn with_ident(at: u32, value: u16) -> TcpFrame {
    data(at, 100).with(|frame| match &mut frame.network {
        Network::Ipv4 { ident, .. } => *ident = value,
        Network::Ipv6 { .. } => {}
    })
}

#[test]
fn a_run_of_segments_leaves_as_one_packet_after_the_hold_time() {
    let mut card = Card::gro();
    for nth in 0..10 {
        card.receive(&data(nth * 100, 100)).wait(us(10));
    }
    assert!(card.take().is_empty());
    card.wait(us(899));
    assert!(card.take().is_empty(), "the first came 999 µs ago");
    card.wait(us(1));
    assert_eq!(card.take_lens(), [1000]);
    assert_eq!(card.flushes(FlushReason::Timeout), 1);
}

#[test]
fn the_end_of_the_batch_flushes_where_batches_are_held() {
    let mut card = Card::new(&Config::default(), &ProfileConfig::Gro(Hold::Batch));
    card.receive(&data(0, 100)).wait(ms(10_000)).receive(&data(100, 100));
    assert!(card.take().is_empty());
    assert_eq!(card.end_batch().take_lens(), [200]);
    assert_eq!(card.flushes(FlushReason::EndOfBatch), 1);
    let mut card = Card::gro();
    card.receive(&data(0, 100)).end_batch();
    assert!(card.take().is_empty(), "a batch's end means nothing to a hold time");
}

#[test]
fn the_wrap_of_sequence_numbers_does_not_end_an_aggregate() {
    let mut card = Card::gro();
    for nth in 0..4 {
        card.receive(&data(nth * 100, 100).with(|frame| frame.seq.0 = frame.seq.0.wrapping_sub(200)));
    }
    assert_eq!(card.drain().take_lens(), [400]);
}

#[test]
fn control_flushes_the_flow_and_is_passed() {
    let cases: [(TcpFlags, usize, PassReason); 7] = [
        (TcpFlags::SYN, 0, PassReason::Syn),
        (TcpFlags::RST, 0, PassReason::Rst),
        (TcpFlags::URG, 100, PassReason::Urg),
        (TcpFlags::CWR, 100, PassReason::CongestionFlags),
        (TcpFlags::AE, 100, PassReason::CongestionFlags),
        (TcpFlags::NONE, 0, PassReason::PureAck),
        (TcpFlags::FIN, 0, PassReason::Fin),
    ];
    for (flags, len, reason) in cases {
        let mut card = Card::gro();
        card.receive(&data(0, 100)).receive(&data(100, 100)).receive(&data(200, len).flags(flags));
        assert_eq!(card.take_lens(), [200, len], "{flags}");
        assert_eq!((card.flushes(FlushReason::Barrier), card.passes(reason)), (1, 1), "{flags}");
    }
}

#[test]
fn with_accurate_ecn_segments_of_equal_cwr_and_ae_merge_and_come_back() {
    let mut card = gro(|config| config.accurate_ecn = true);
    let flags = [TcpFlags::CWR, TcpFlags::CWR, TcpFlags::CWR | TcpFlags::AE, TcpFlags::CWR | TcpFlags::AE];
    let frames = (0..).zip(flags).map(|(nth, flags)| data(nth * 100, 100).flags(flags).build());
    let frames: Vec<Vec<u8>> = frames.collect();
    for frame in &frames {
        card.receive_bytes(frame.clone());
    }
    let sent = card.drain().take();
    let merged: Vec<_> = sent.iter().map(Sent::merged).collect();
    assert!(merged.iter().all(|merged| merged.virtio.gso_type & VirtioNetHeader::GSO_ECN != 0));
    let segments: Vec<Vec<u8>> = merged.iter().flat_map(|merged| merged.recreated.clone()).collect();
    assert_eq!((merged.len(), segments), (2, frames));
}

#[test]
fn with_accurate_ecn_other_control_flags_are_still_passed() {
    for flags in [TcpFlags::RST, TcpFlags::URG, TcpFlags::SYN] {
        let mut card = gro(|config| config.accurate_ecn = true);
        for nth in 0..2 {
            card.receive(&data(nth * 100, 100).flags(flags | TcpFlags::CWR));
        }
        assert_eq!(card.take_lens(), [100, 100], "{flags}");
    }
}

#[test]
fn data_without_ack_is_passed() {
    let mut card = Card::gro();
    card.receive(&data(0, 100)).receive(&data(100, 100).with(|frame| frame.flags = TcpFlags::PSH));
    assert_eq!(card.take_lens(), [100, 100]);
    assert_eq!(card.passes(PassReason::UnusualFlags), 1);
}

#[test]
fn psh_closes_the_aggregate() {
    let mut card = Card::gro();
    card.receive(&data(0, 100)).receive(&data(100, 100).flags(TcpFlags::PSH));
    let sent = card.take_one();
    assert_eq!(sent.merged().reason, FlushReason::Psh);
    assert!(tcp(sent.bytes()).flags.contains(TcpFlags::PSH));
}

#[test]
fn fin_on_data_closes_the_aggregate_and_is_kept() {
    let mut card = Card::gro();
    card.receive(&data(0, 100)).receive(&data(100, 50).flags(TcpFlags::FIN));
    let sent = card.take_one();
    assert_eq!(sent.merged().reason, FlushReason::Fin);
    assert_eq!(tcp(sent.bytes()).flags, TcpFlags::FIN | TcpFlags::ACK);
}

#[test]
fn psh_and_fin_are_passed_where_nothing_is_held() {
    for (flags, reason) in [(TcpFlags::PSH, PassReason::Psh), (TcpFlags::FIN, PassReason::Fin)] {
        let mut card = Card::gro();
        card.receive(&data(0, 100).flags(flags));
        assert_eq!(card.take_lens(), [100]);
        assert_eq!(card.passes(reason), 1);
    }
}

/// Segments that each differ in one header field that must be equal.
fn unequal_fields() -> Vec<(&'static str, TcpFrame)> {
    let v4 = data(100, 100);
    let v6 = v4.clone().over_ipv6();
    let network =
        |frame: &TcpFrame, change: fn(&mut Network)| frame.clone().with(|frame| change(&mut frame.network));
    vec![
        ("source address of Ethernet", v4.clone().with(|frame| frame.src_mac.0[5] = 9)),
        ("destination address of Ethernet", v4.clone().with(|frame| frame.dst_mac.0[5] = 9)),
        (
            "time to live",
            network(&v4, |ip| {
                if let Network::Ipv4 { ttl, .. } = ip {
                    *ttl = 63;
                }
            }),
        ),
        (
            "ECN mark",
            network(&v4, |ip| {
                if let Network::Ipv4 { tos, .. } = ip {
                    *tos = TrafficClass(3);
                }
            }),
        ),
        (
            "DF",
            network(&v4, |ip| {
                if let Network::Ipv4 { dont_fragment, .. } = ip {
                    *dont_fragment = false;
                }
            }),
        ),
        (
            "hop limit",
            network(&v6, |ip| {
                if let Network::Ipv6 { hop_limit, .. } = ip {
                    *hop_limit = 63;
                }
            }),
        ),
        (
            "traffic class",
            network(&v6, |ip| {
                if let Network::Ipv6 { class, .. } = ip {
                    *class = TrafficClass(0x40);
                }
            }),
        ),
        (
            "flow label",
            network(&v6, |ip| {
                if let Network::Ipv6 { flow_label, .. } = ip {
                    *flow_label = FlowLabel::new(0xF_0001).unwrap();
                }
            }),
        ),
        ("ACK number", v4.clone().with(|frame| frame.ack += 1)),
        ("window", v4.clone().with(|frame| frame.window += 1)),
        ("ECN echo", v4.clone().flags(TcpFlags::ECE)),
        ("urgent pointer", v4.clone().with(|frame| frame.urgent = 1)),
        ("options", v4.clone().timestamps(1, 2)),
    ]
}

#[test]
fn a_segment_with_an_unequal_field_is_held_anew() {
    for (field, second) in unequal_fields() {
        let mut card = Card::gro();
        let first = TcpFrame { network: first_network(&second), ..data(0, 100) };
        card.receive(&first).receive(&second);
        assert_eq!(card.take_lens(), [100], "{field}");
        assert_eq!(card.flushes(FlushReason::UnequalField), 1, "{field}");
        card.receive(&second.clone().at(100, 100));
        assert_eq!(card.drain().take_lens(), [200], "{field}: the new one goes on");
    }
}

/// The default network header of the frame's IP version.
fn first_network(frame: &TcpFrame) -> Network {
    match frame.network {
        Network::Ipv4 { .. } => Network::default(),
        Network::Ipv6 { .. } => data(0, 0).over_ipv6().network,
    }
}

#[test]
fn reserved_bits_are_kept_apart() {
    let mut card = Card::gro();
    let mut second = data(100, 100).build();
    second[14 + 20 + 12] |= 0b0100;
    let sum = nichrome_wire::checksum::update(u16::from_be_bytes([second[50], second[51]]), 0x5010, 0x5410);
    second[50..52].copy_from_slice(&sum.to_be_bytes());
    card.receive(&data(0, 100)).receive_bytes(second);
    assert_eq!(card.drain().take_lens(), [100, 100]);
}

#[test]
fn equal_timestamps_and_other_equal_options_merge() {
    let sack = |at| TcpFrame { options: [&[1, 1, 5, 10][..], &[7; 8]].concat(), ..data(at, 100) };
    for frame in [|at| data(at, 100).timestamps(5, 6), sack] {
        let mut card = Card::gro();
        card.receive(&frame(0)).receive(&frame(100));
        assert_eq!(card.drain().take_lens(), [200]);
    }
}

#[test]
fn what_is_out_of_order_flushes_the_flow_and_is_held_anew() {
    for (case, at) in [("a gap", 200), ("an overlap", 50), ("an old number", 0), ("a keepalive", 99)] {
        let mut card = Card::gro();
        card.receive(&data(0, 100)).receive(&data(at, if at == 99 { 1 } else { 100 }));
        assert_eq!(card.take_lens(), [100], "{case}");
        assert_eq!(card.flushes(FlushReason::OutOfOrder), 1, "{case}");
        assert_eq!(card.drain().take().len(), 1, "{case}");
    }
}

#[test]
fn a_longer_segment_is_held_anew() {
    let mut card = Card::gro();
    card.receive(&data(0, 100)).receive(&data(100, 101));
    assert_eq!(card.take_lens(), [100]);
    assert_eq!(card.flushes(FlushReason::LongSegment), 1);
}

#[test]
fn a_shorter_segment_is_the_last() {
    let mut card = Card::gro();
    card.receive(&data(0, 100)).receive(&data(100, 99));
    assert_eq!(card.take_one().merged().reason, FlushReason::ShortSegment);
}

#[test]
fn an_aggregate_ends_at_its_limits() {
    let mut card = gro(|config| config.max_bytes = 576);
    for nth in 0..6 {
        card.receive(&data(nth * 100, 100));
    }
    assert_eq!(card.take_lens(), [500], "40 bytes of headers and 500 are 540, one more were 640");
    assert_eq!(card.flushes(FlushReason::MaxLength), 1);
    let mut card = gro(|config| config.max_segments = 3);
    for nth in 0..4 {
        card.receive(&data(nth * 100, 100));
    }
    assert_eq!(card.take_lens(), [300]);
    assert_eq!(card.flushes(FlushReason::MaxSegments), 1);
}

/// Two segments and one with a bit of its payload flipped.
fn with_a_corrupt_one(card: &mut Card) {
    let mut corrupt = data(200, 100).build();
    *corrupt.last_mut().unwrap() ^= 1;
    card.receive(&data(0, 100)).receive(&data(100, 100)).receive_bytes(corrupt);
}

#[test]
fn a_wrong_checksum_flushes_the_flow_and_is_left_to_the_host() {
    let mut card = Card::gro();
    with_a_corrupt_one(&mut card);
    assert_eq!(card.take_lens(), [200, 100]);
    assert_eq!(card.passes(PassReason::BadChecksum), 1);
}

#[test]
fn a_wrong_checksum_is_dropped_where_the_configuration_says_so() {
    let mut card = gro(|config| config.bad_checksum = Some(BadChecksum::Drop));
    with_a_corrupt_one(&mut card);
    let sent = card.take();
    assert!(matches!(sent[..], [Sent::Merged(_), Sent::Dropped(_, DropReason::TcpChecksum)]), "{sent:?}");
    let mut corrupt = data(200, 100).build();
    corrupt[14 + 8] ^= 1; // time to live
    card.receive_bytes(corrupt);
    assert_eq!((card.drops(DropReason::TcpChecksum), card.drops(DropReason::IpChecksum)), (1, 1));
}

#[test]
fn verified_and_unfinished_checksums_are_not_computed() {
    let unfinished = |at| {
        let mut frame = data(at, 100).build();
        frame[50..52].copy_from_slice(&[0x12, 0x34]);
        frame
    };
    for status in [ChecksumStatus::Verified, ChecksumStatus::Unfinished] {
        let mut card = Card::gro().unverified();
        for nth in 0..2 {
            card.receive_frame(Frame { buffer: unfinished(nth * 100), checksum: status });
        }
        let sent = card.drain().take_one();
        assert!(tcp(sent.bytes()).checksums_are_right, "the whole has a right one, {status:?}");
    }
}

#[test]
fn padding_flushes_the_flow_and_is_passed_with_it() {
    for more_acked in [0, 1] {
        let mut card = Card::gro();
        let mut padded = data(100, 100).with(|frame| frame.ack += more_acked).build();
        padded.extend([0; 6]);
        card.receive(&data(0, 100)).receive_bytes(padded.clone());
        assert_eq!(card.take()[1], Sent::Frame(padded));
        assert_eq!(card.passes(PassReason::Trailer), 1);
    }
}

#[test]
fn a_checksum_that_no_sender_computes_flushes_the_flow_and_is_passed() {
    let mut cases = Vec::new();
    for (next, more_acked) in [(0, 0), (1, 0), (1, 1)] {
        // The urgent pointer, which the engine ignores without URG, makes the checksum 0. 0xFFFF is
        // equivalent.
        let mut odd = with_ident(100, next).with(|frame| frame.ack += more_acked).build();
        odd.copy_within(50..52, 52);
        odd[50..52].fill(0xFF);
        let urgent = u16::from_be_bytes([odd[52], odd[53]]);
        cases.push((with_ident(0, 0).with(|frame| frame.urgent = urgent), odd));
        // This identification makes the IPv4 header checksum 0.
        let plain = with_ident(100, 0).build();
        let ident = u16::from_be_bytes([plain[24], plain[25]]);
        let mut odd = with_ident(100, ident).with(|frame| frame.ack += more_acked).build();
        assert_eq!(odd[24..26], [0; 2]);
        odd[24..26].fill(0xFF);
        cases.push((with_ident(0, ident - next), odd));
    }
    for (first, odd) in cases {
        for is_batch in [false, true] {
            let mut card = Card::gro();
            if is_batch {
                card.receive_batch(&[first.build(), odd.clone(), with_ident(200, 0).build()]);
            } else {
                card.receive(&first).receive_bytes(odd.clone());
            }
            assert_eq!(card.take().get(1), Some(&Sent::Frame(odd.clone())));
            let passes = (card.passes(PassReason::UnusualChecksum), card.passes(PassReason::BadChecksum));
            assert_eq!(passes, (1, 0));
        }
    }
}

#[test]
fn a_full_table_gives_up_the_flow_held_longest() {
    let mut card = gro(|config| config.max_connections = 3);
    let flow = |port: u16, at| data(at, 100).with(|frame| frame.src_port = port);
    for port in 1..=3 {
        card.receive(&flow(port, 0)).wait(us(1));
    }
    card.receive(&flow(1, 100)).receive(&flow(4, 0));
    assert_eq!(card.take_lens(), [200], "flow 1 is the oldest, though it was used last");
    assert_eq!(card.flushes(FlushReason::Evicted), 1);
}

#[test]
fn each_flow_is_held_for_its_own_time() {
    let mut card = Card::gro();
    let other = data(0, 100).with(|frame| frame.src_port += 1);
    card.receive(&data(0, 100)).wait(us(100)).receive(&other).wait(us(100));
    card.receive(&data(100, 100).with(|frame| frame.ack += 1));
    assert_eq!(card.take_lens(), [100], "another ACK number");
    for (wait, expected) in [(us(899), vec![]), (us(2), vec![100]), (us(98), vec![]), (us(2), vec![100])] {
        assert_eq!(card.wait(wait).take_lens(), expected);
    }
}

#[test]
fn what_finds_no_aggregate_is_passed() {
    let config = Config { max_aggregates: 1, ..Config::default() };
    let mut gro = Gro::new(&config, Hold::Batch).unwrap();
    let mut receive = |at: u32| {
        let psh = if at % 200 == 100 { TcpFlags::PSH } else { TcpFlags::NONE };
        gro.receive(Frame::new(data(at, 100).flags(psh).build()), Instant::ZERO);
        gro.poll()
    };
    assert!(receive(0).is_none());
    let aggregate = receive(100);
    assert!(matches!(aggregate, Some(Output::ToHost(nichrome_lro::Packet::Aggregate(_)))));
    assert!(matches!(receive(200), Some(Output::ToHost(nichrome_lro::Packet::Frame(_)))));
    drop(aggregate);
    assert!(receive(400).is_none(), "the aggregate came back");
    assert_eq!(gro.statistics().passes.get(PassReason::PoolEmpty), 1);
}

#[test]
fn the_identification_is_kept_as_a_rule() {
    for (rule, idents) in
        [(Identification::Incrementing, [0xFFFE, 0xFFFF, 0]), (Identification::Fixed, [7, 7, 7])]
    {
        let mut card = Card::gro();
        for (nth, ident) in (0..).zip(idents) {
            card.receive(&with_ident(nth * 100, ident));
        }
        let sent = card.drain().take_one();
        assert_eq!((sent.merged().payloads.len(), sent.merged().identification), (3, rule));
    }
    let mut card = Card::gro();
    for (nth, ident) in (0..).zip([7, 9, 11]) {
        card.receive(&with_ident(nth * 100, ident));
    }
    assert_eq!(card.drain().take_lens(), [100, 100, 100], "steps of two are no rule");
}

#[test]
fn vlan_tags_with_their_priority_are_matched_and_kept() {
    let tagged = |at, tci| TcpFrame { tags: vec![VlanTag { tpid: EtherType::VLAN, tci }], ..data(at, 100) };
    let mut card = Card::gro();
    card.receive(&tagged(0, 5)).receive(&tagged(100, 5)).receive(&tagged(200, 0x2005));
    let sent = card.take_one();
    assert_eq!(&sent.bytes()[12..18], [0x81, 0, 0, 5, 8, 0]);
    assert_eq!(card.flushes(FlushReason::UnequalField), 1, "another priority");
}

#[test]
fn a_segment_alone_leaves_as_it_came() {
    let mut card = Card::gro();
    let frame = data(0, 100).timestamps(1, 2).build();
    card.receive_bytes(frame.clone()).wait(ms(1));
    assert_eq!(card.take_one(), Sent::Frame(frame));
    assert_eq!(card.statistics().aggregates, 0);
}
