//! The `netfpga` profile: a test for each rule of its table. The verifier also compares all outputs as
//! streams.

use crate::common::{Card, Change, Sent, data, ms, tcp, us};
use nichrome_lro::{
    BadChecksum, Config, DropReason, FlushReason, Frame, Netfpga, NetfpgaConfig, Output, Packet, PassReason,
    ProfileConfig,
};
use nichrome_wire::{
    Engine, EtherType, Instant, IpProtocol, Network, SeqNumber, TcpFlags, TcpFrame, TrafficClass, VlanTag,
};

/// A `netfpga` with the default configuration except for `change`.
fn netfpga(change: impl FnOnce(&mut Config)) -> Card {
    let mut config = Config::default();
    change(&mut config);
    Card::new(&config, &ProfileConfig::Netfpga(NetfpgaConfig::with_timer(ms(1))))
}

#[test]
fn the_timer_that_the_first_packet_started_closes_the_aggregate() {
    let mut card = Card::netfpga();
    for nth in 0..4 {
        card.receive(&data(nth * 100, 100)).wait(us(249));
    }
    assert!(card.take().is_empty());
    card.wait(us(4));
    assert_eq!(card.take_lens(), [400]);
    assert_eq!(card.flushes(FlushReason::Timeout), 1);
    assert!(card.wait(ms(100)).take().is_empty());
}

#[test]
fn the_maximum_length_closes_the_aggregate() {
    let mut card = netfpga(|config| config.max_bytes = 576);
    for nth in 0..5 {
        card.receive(&data(nth * 100, 100));
    }
    assert_eq!(card.take_lens(), [500], "closed as soon as no more fits");
    assert_eq!(card.flushes(FlushReason::MaxLength), 1);
    let mut card = netfpga(|config| config.max_segments = 2);
    for nth in 0..3 {
        card.receive(&data(nth * 100, 100));
    }
    assert_eq!(card.take_lens(), [200]);
    assert_eq!((card.flushes(FlushReason::MaxLength), card.flushes(FlushReason::MaxSegments)), (0, 1));
    let mut card = netfpga(|config| (config.max_segments, config.max_bytes) = (2, 576));
    card.receive(&data(0, 268)).receive(&data(268, 268));
    assert_eq!((card.take_lens(), card.flushes(FlushReason::MaxLength)), (vec![536], 1), "both");
}

#[test]
fn a_segment_that_would_be_too_much_starts_anew() {
    let mut card = netfpga(|config| config.max_bytes = 576);
    card.receive(&data(0, 100)).receive(&data(100, 100)).receive(&data(200, 400));
    assert_eq!(card.take_lens(), [200]);
    assert_eq!(card.flushes(FlushReason::MaxLength), 1);
    assert_eq!(card.drain().take_lens(), [400]);
}

#[test]
fn another_flow_closes_the_aggregate_and_starts_anew() {
    let mut card = Card::netfpga();
    let other = data(0, 50).with(|frame| frame.dst_port = 80);
    card.receive(&data(0, 100)).receive(&data(100, 100)).receive(&other);
    assert_eq!(card.take_lens(), [200]);
    assert_eq!(card.flushes(FlushReason::FlowMismatch), 1);
    assert_eq!(card.drain().take_lens(), [50]);
}

#[test]
fn what_is_not_eligible_closes_its_own_flow_first_and_is_forwarded_untouched() {
    let cases: [(TcpFlags, usize, PassReason); 9] = [
        (TcpFlags::PSH, 100, PassReason::Psh),
        (TcpFlags::SYN, 0, PassReason::Syn),
        (TcpFlags::FIN, 100, PassReason::Fin),
        (TcpFlags::FIN, 0, PassReason::Fin),
        (TcpFlags::URG, 100, PassReason::Urg),
        (TcpFlags::RST, 0, PassReason::Rst),
        (TcpFlags::CWR, 100, PassReason::CongestionFlags),
        (TcpFlags::AE, 100, PassReason::CongestionFlags),
        (TcpFlags::NONE, 0, PassReason::PureAck),
    ];
    for (flags, len, reason) in cases {
        let mut card = Card::netfpga();
        let special = data(200, len).flags(flags);
        card.receive(&data(0, 100)).receive(&data(100, 100)).receive(&special);
        let sent = card.take();
        assert_eq!(sent.len(), 2, "{flags}");
        assert_eq!(
            (sent[0].merged().reason, &sent[1]),
            (FlushReason::Barrier, &Sent::Frame(special.build()))
        );
        assert_eq!(card.passes(reason), 1, "{flags}");
    }
}

#[test]
fn what_is_not_eligible_leaves_another_flow_alone() {
    let mut card = Card::netfpga();
    let ack = data(0, 0).with(|frame| frame.src_port = 9);
    card.receive(&data(0, 100)).receive(&ack).receive(&data(100, 100));
    assert_eq!(card.take_lens(), [0]);
    assert_eq!(card.drain().take_lens(), [200]);
}

#[test]
fn options_but_timestamps_are_not_eligible() {
    let mut card = Card::netfpga();
    let options: [&[u8]; 3] = [&[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2], &[3, 3, 7, 0], &[253, 4, 0, 0]];
    for option in options {
        card.receive(&TcpFrame { options: option.to_vec(), ..data(0, 100) });
    }
    assert_eq!((card.take_lens(), card.passes(PassReason::TcpOptions)), (vec![100; 3], 3));
    card.receive(&data(100, 100).timestamps(1, 2));
    assert!(card.take().is_empty());
}

#[test]
fn ip_options_and_extension_headers_are_not_eligible() {
    let mut card = Card::netfpga();
    let v4 = data(0, 100).with(|frame| match &mut frame.network {
        Network::Ipv4 { options, .. } => *options = vec![1; 4],
        Network::Ipv6 { .. } => {}
    });
    let v6 = data(0, 100).over_ipv6().with(|frame| match &mut frame.network {
        Network::Ipv6 { next_header, extensions, .. } => {
            *next_header = IpProtocol::DESTINATION_OPTIONS;
            *extensions = vec![IpProtocol::TCP.0, 0, 1, 4, 0, 0, 0, 0];
        }
        Network::Ipv4 { .. } => {}
    });
    card.receive(&v4).receive(&v6);
    assert_eq!((card.take_lens(), card.passes(PassReason::IpOptions)), (vec![100; 2], 2));
}

#[test]
fn out_of_order_segments_are_forwarded_after_the_aggregate() {
    for (case, at) in [("a gap", 300), ("an overlap", 150), ("an old number", 0)] {
        let mut card = Card::netfpga();
        card.receive(&data(0, 100)).receive(&data(100, 100)).receive(&data(at, 100));
        assert_eq!(card.take_lens(), [200, 100], "{case}");
        assert_eq!((card.flushes(FlushReason::OutOfOrder), card.passes(PassReason::OutOfOrder)), (1, 1));
    }
}

#[test]
fn sequence_numbers_wrap() {
    let mut card = Card::netfpga();
    for nth in 0..4 {
        card.receive(&data(nth * 100, 100).with(|frame| frame.seq.0 = frame.seq.0.wrapping_sub(150)));
    }
    assert_eq!(card.drain().take_lens(), [400]);
}

#[test]
fn a_wrong_checksum_is_dropped_and_disturbs_nothing() {
    let mut card = Card::netfpga();
    let mut corrupt = data(100, 100).build();
    *corrupt.last_mut().unwrap() ^= 1;
    card.receive(&data(0, 100)).receive_bytes(corrupt).receive(&data(100, 100));
    assert!(matches!(card.take()[..], [Sent::Dropped(_, DropReason::TcpChecksum)]));
    assert_eq!(card.drain().take_lens(), [200]);
}

#[test]
fn a_wrong_checksum_is_passed_where_the_configuration_says_so() {
    let mut card = netfpga(|config| config.bad_checksum = Some(BadChecksum::Pass));
    let mut corrupt = data(100, 100).build();
    *corrupt.last_mut().unwrap() ^= 1;
    card.receive(&data(0, 100)).receive_bytes(corrupt);
    assert_eq!((card.take_lens(), card.passes(PassReason::BadChecksum)), (vec![100, 100], 1));
}

#[test]
fn unequal_marks_tags_and_flags_start_anew() {
    let marked = |class| {
        data(100, 100).with(|frame| match &mut frame.network {
            Network::Ipv4 { tos, .. } => *tos = TrafficClass(class),
            Network::Ipv6 { .. } => {}
        })
    };
    let tag = |tci| VlanTag { tpid: EtherType::VLAN, tci };
    let cases = [
        ("CE", data(0, 100), marked(3)),
        ("type of service", data(0, 100), marked(0x40)),
        ("ECN echo", data(0, 100), data(100, 100).flags(TcpFlags::ECE)),
        ("timestamps", data(0, 100), data(100, 100).timestamps(1, 2)),
        (
            "priority of the VLAN tag",
            TcpFrame { tags: vec![tag(5)], ..data(0, 100) },
            TcpFrame { tags: vec![tag(0x2005)], ..data(100, 100) },
        ),
    ];
    for (case, first, second) in cases {
        let mut card = Card::netfpga();
        card.receive(&first).receive(&second);
        assert_eq!((card.take_lens(), card.flushes(FlushReason::UnequalField)), (vec![100], 1), "{case}");
        assert_eq!(card.drain().take_lens(), [100], "{case}");
    }
}

#[test]
fn the_whole_has_the_first_sequence_and_timestamps_and_the_last_ack_and_window() {
    let mut card = Card::netfpga();
    for (nth, (ack, window)) in (0..).zip([(1, 500), (1000, 600), (900, 700)]) {
        let segment = data(nth * 100, 100).timestamps(70 + nth, 80 + nth);
        card.receive(&segment.with(|frame| (frame.ack, frame.window) = (SeqNumber(ack), window)));
    }
    let sent = card.drain().take_one();
    let whole = tcp(sent.bytes());
    assert_eq!((whole.seq, whole.ack, whole.window), (1, 1000, 600), "900 is older than 1000");
    assert_eq!(whole.options, [1, 1, 8, 10, 0, 0, 0, 70, 0, 0, 0, 80]);
    assert!(whole.checksums_are_right);
}

#[test]
fn an_older_timestamp_is_not_merged() {
    let mut card = Card::netfpga();
    card.receive(&data(0, 100).timestamps(u32::MAX, 1)).receive(&data(100, 100).timestamps(3, 1));
    assert!(card.take().is_empty(), "3 is newer: timestamps wrap");
    card.receive(&data(200, 100).timestamps(2, 1));
    assert_eq!((card.take_lens(), card.flushes(FlushReason::UnequalField)), (vec![200], 1));
}

#[test]
fn identification_and_ethernet_addresses_do_not_matter() {
    let mut card = Card::netfpga();
    let other = data(100, 100).with(|frame| {
        frame.src_mac.0[5] = 9;
        if let Network::Ipv4 { ident, .. } = &mut frame.network {
            *ident = 4711;
        }
    });
    card.receive(&data(0, 100)).receive(&other);
    let sent = card.drain().take_one();
    assert_eq!(&sent.bytes()[..14], &data(0, 0).build()[..14], "the first one's");
}

#[test]
fn another_ttl_starts_anew() {
    let v4 = data(100, 100).with(|frame| match &mut frame.network {
        Network::Ipv4 { ttl, .. } => *ttl -= 1,
        Network::Ipv6 { .. } => {}
    });
    let v6 = data(100, 100).over_ipv6().with(|frame| match &mut frame.network {
        Network::Ipv6 { hop_limit, .. } => *hop_limit -= 1,
        Network::Ipv4 { .. } => {}
    });
    for (first, second) in [(data(0, 100), v4), (data(0, 100).over_ipv6(), v6)] {
        let mut card = Card::netfpga();
        card.receive(&first).receive(&second);
        assert_eq!((card.take_lens(), card.flushes(FlushReason::UnequalField)), (vec![100], 1));
    }
}

/// Receives segments of `count` flows in turn.
fn in_turn(card: &mut Card, count: u16, rounds: u32) {
    for nth in 0..rounds {
        for flow in 0..count {
            card.receive(&data(nth * 100, 100).with(|frame| frame.src_port = 4000 + flow)).wait(us(1));
        }
    }
}

#[test]
fn as_many_flows_aggregate_as_the_store_holds() {
    for flows in [1, 4, 8, 16] {
        let netfpga = NetfpgaConfig { timer: ms(1), flows };
        let mut card = Card::new(&Config::default(), &ProfileConfig::Netfpga(netfpga));
        in_turn(&mut card, flows as u16, 3);
        assert!(card.take().is_empty());
        card.receive(&data(0, 7).with(|frame| frame.src_port = 9));
        assert_eq!((card.take_lens(), card.flushes(FlushReason::FlowMismatch)), (vec![300], 1), "the oldest");
        assert_eq!(card.drain().take_lens().len(), flows);
    }
}

#[test]
fn the_flow_that_started_first_is_closed_whichever_came_last() {
    let mut card =
        Card::new(&Config::default(), &ProfileConfig::Netfpga(NetfpgaConfig { timer: ms(1), flows: 2 }));
    let port = |frame: TcpFrame, port| frame.with(|frame| frame.src_port = port);
    card.receive(&port(data(0, 100), 1)).receive(&port(data(0, 50), 2)).receive(&port(data(100, 100), 1));
    card.receive(&port(data(0, 10), 3));
    assert_eq!(card.take_lens(), [200]);
    card.wait(ms(2));
    assert_eq!((card.take_lens(), card.flushes(FlushReason::Timeout)), (vec![50, 10], 2));
}

#[test]
fn more_flows_than_16_are_refused() {
    for flows in [0, 17] {
        let netfpga = NetfpgaConfig { timer: ms(1), flows };
        let error = Netfpga::<Vec<u8>>::new(&Config::default(), &netfpga).err().unwrap().to_string();
        assert_eq!(error, format!("flows is {flows}: it must be from 1 to 16"));
    }
}

#[test]
fn a_trailer_beyond_the_padding_is_not_eligible() {
    for (trailer, passes) in [(8, 0), (9, 1)] {
        let mut card = Card::netfpga();
        let mut padded = data(100, 100).build();
        padded.resize(padded.len() + trailer, 0);
        card.receive(&data(0, 100)).receive_bytes(padded);
        assert_eq!(card.passes(PassReason::Trailer), passes, "{trailer} bytes");
        assert_eq!(card.flushes(FlushReason::Barrier), passes);
    }
}

/// A segment behind `chain` bytes of destination options.
fn behind_options(chain: usize) -> TcpFrame {
    data(0, 100).over_ipv6().with(|frame| match &mut frame.network {
        Network::Ipv6 { next_header, extensions, .. } => {
            *next_header = IpProtocol::DESTINATION_OPTIONS;
            *extensions = [&[IpProtocol::TCP.0, (chain / 8 - 1) as u8][..], &vec![1; chain - 2]].concat();
        }
        Network::Ipv4 { .. } => {}
    })
}

#[test]
fn checksums_behind_extension_headers_are_not_verified() {
    let mut card = Card::netfpga();
    let mut wrong = behind_options(16).at(100, 100).build();
    *wrong.last_mut().unwrap() ^= 1;
    card.receive(&data(0, 100).over_ipv6()).receive_bytes(wrong.clone());
    assert_eq!(card.take().get(1), Some(&Sent::Frame(wrong)));
    assert_eq!((card.passes(PassReason::IpOptions), card.flushes(FlushReason::Barrier)), (1, 1));
}

/// The engine does not read the content of extension headers, such as a home address (RFC 6275); TCP headers
/// behind them may be malformed.
#[test]
fn nothing_overtakes_behind_extension_headers() {
    let home_address = data(100, 100).over_ipv6().with(|frame| match &mut frame.network {
        Network::Ipv6 { next_header, extensions, .. } => {
            *next_header = IpProtocol::DESTINATION_OPTIONS;
            *extensions = [&[IpProtocol::TCP.0, 2, 1, 2, 0, 0, 0xC9, 16][..], &[0xFD; 16]].concat();
        }
        Network::Ipv4 { .. } => {}
    });
    let fragment = [IpProtocol::TCP.0, 0, 0, 0, 0, 0, 0, 7];
    for segment in [home_address, behind_options(16).at(100, 100)] {
        let whole = segment.build();
        let tcp = whole.len() - 120;
        let mut malformed = whole.clone();
        malformed[tcp + 12] = 4 << 4;
        let mut cut = whole[..tcp + 4].to_vec();
        cut[18..20].copy_from_slice(&((tcp + 4 - 54) as u16).to_be_bytes());
        let mut atomic_fragment = whole.clone();
        atomic_fragment[54] = IpProtocol::FRAGMENT.0;
        atomic_fragment.splice(tcp..tcp, fragment);
        atomic_fragment[18..20].copy_from_slice(&((whole.len() + 8 - 54) as u16).to_be_bytes());
        for behind in [whole, malformed, cut, atomic_fragment] {
            let mut card = Card::netfpga();
            card.receive(&data(0, 100).over_ipv6()).receive_bytes(behind.clone());
            assert_eq!(card.take().get(1), Some(&Sent::Frame(behind)));
            assert_eq!((card.passes(PassReason::IpOptions), card.flushes(FlushReason::Barrier)), (1, 1));
        }
    }
}

#[test]
fn headers_out_of_the_parsers_reach_close_every_aggregate() {
    // 14 + 40 + 176 + 20 = 250 bytes end within 256; 8 more do not.
    for (chain, closed) in [(176, 0), (184, 2)] {
        let mut card =
            Card::new(&Config::default(), &ProfileConfig::Netfpga(NetfpgaConfig { timer: ms(1), flows: 4 }));
        in_turn(&mut card, 2, 2);
        card.receive(&behind_options(chain));
        assert_eq!(card.flushes(FlushReason::Barrier), closed, "{chain} bytes");
        assert_eq!(card.passes(PassReason::IpOptions), 1);
        assert_eq!(card.take_lens().last(), Some(&100));
    }
}

#[test]
fn segments_of_any_length_merge_and_the_longest_is_the_mss() {
    let mut card = Card::netfpga();
    card.receive(&data(0, 50)).receive(&data(50, 120)).receive(&data(170, 1));
    let sent = card.drain().take_one();
    assert_eq!((sent.merged().mss, sent.merged().payloads.len()), (120, 3));
}

#[test]
fn pool_empty_passes_the_segment() {
    let config = Config { max_aggregates: 1, ..Config::default() };
    let mut netfpga = Netfpga::new(&config, &NetfpgaConfig::with_timer(ms(1))).unwrap();
    netfpga.receive(Frame::new(data(0, 100).build()), Instant::ZERO);
    netfpga.receive(Frame::new(data(100, 100).build()), Instant::ZERO);
    netfpga.drain();
    let aggregate = netfpga.poll().unwrap();
    netfpga.receive(Frame::new(data(200, 100).build()), Instant::ZERO);
    assert!(matches!(netfpga.poll(), Some(Output::ToHost(Packet::Frame(_)))));
    assert_eq!(netfpga.statistics().passes.get(PassReason::PoolEmpty), 1);
    drop(aggregate);
    netfpga.receive(Frame::new(data(300, 100).build()), Instant::ZERO);
    assert!(netfpga.poll().is_none());
}
