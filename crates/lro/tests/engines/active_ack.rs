//! Active ACK: the ACKs that the card generates, and when it must not. A test for each rule of the design.

use crate::common::{Ack, Card, Change, Sent, data, ms, tcp, us};
use nichrome_lro::{ActiveAck, Config, DropReason, NpuConfig, PassReason, ProfileConfig, Rules};
use nichrome_wire::{EtherType, IpProtocol, Network, SeqNumber, TcpFlags, TcpFrame, TrafficClass, VlanTag};

/// Upper bound of the time until every held segment is delivered to the host.
pub(crate) const SETTLE: std::time::Duration = ms(3);

/// The window scale option of the SYNs.
pub(crate) const SCALE: u8 = 7;

pub(crate) fn card(active_ack: ActiveAck) -> Card {
    let npu = NpuConfig { active_ack, ..NpuConfig::default() };
    Card::new(&Config::default(), &ProfileConfig::Npu(npu))
}

/// The frame with addresses and ports exchanged.
fn reversed(frame: &TcpFrame) -> TcpFrame {
    let network = match frame.network {
        Network::Ipv4 { src, dst, .. } => Network::ipv4(dst, src),
        Network::Ipv6 { src, dst, .. } => Network::ipv6(dst, src),
    };
    let (src_mac, dst_mac, src_port, dst_port) =
        (frame.dst_mac, frame.src_mac, frame.dst_port, frame.src_port);
    let tags = frame.tags.clone();
    TcpFrame { network, src_mac, dst_mac, src_port, dst_port, tags, ..TcpFrame::default() }
}

/// A segment of the host that acknowledges `at` bytes.
pub(crate) fn host(at: u32, window: u16) -> TcpFrame {
    reversed(&data(0, 0)).with(|frame| (frame.ack.0, frame.window, frame.seq.0) = (1 + at, window, 5000))
}

/// A SYN with these options.
pub(crate) fn syn(frame: TcpFrame, flags: TcpFlags, options: &[u8]) -> TcpFrame {
    TcpFrame { flags: flags | TcpFlags::SYN, options: options.to_vec(), ..frame }
}

/// The peer's SYN; its data begins where `data(0, …)` does.
pub(crate) fn peer_syn(frame: TcpFrame) -> TcpFrame {
    syn(frame, TcpFlags::NONE, &[2, 4, 5, 180, 1, 3, 3, 9]).with(|frame| frame.seq.0 = 0)
}

pub(crate) fn host_syn(frame: TcpFrame) -> TcpFrame {
    syn(frame, TcpFlags::ACK, &[2, 4, 5, 180, 1, 3, 3, SCALE])
}

/// A connection whose SYNs were seen; 100 bytes were received, delivered, and acknowledged by the host, with
/// a window of 1,000 × 128 bytes.
pub(crate) fn connected() -> Card {
    let mut card = card(ActiveAck::Safe);
    open(&mut card, &data(0, 100));
    card
}

fn open(card: &mut Card, first: &TcpFrame) {
    card.receive(&peer_syn(TcpFrame { payload: Vec::new(), ..first.clone() }));
    card.host_sends(&host_syn(reversed(first)));
    card.receive(first).wait(SETTLE);
    let TcpFrame { seq, ack, window, .. } = host(100, 1000);
    card.host_sends(&TcpFrame { seq, ack, window, ..reversed(first) });
    assert_eq!(card.take_acks(), [], "the host speaks for itself");
}

/// Receives `frames`, waits until they are delivered, and returns the ACKs that the card sent.
pub(crate) fn acks_for(card: &mut Card, frames: &[TcpFrame]) -> Vec<Ack> {
    frames.iter().for_each(|frame| _ = card.receive(frame));
    card.wait(SETTLE).take_acks()
}

pub(crate) fn acked(acks: &[Ack]) -> Vec<u32> {
    acks.iter().map(|ack| ack.ack - 1).collect()
}

#[test]
fn off_sends_nothing() {
    let mut card = card(ActiveAck::Off);
    open(&mut card, &data(0, 100));
    assert_eq!(acks_for(&mut card, &[data(100, 100), data(100, 100), data(300, 100)]), []);
}

#[test]
fn paper_acknowledges_every_data_packet_with_nextseq_and_the_largest_window() {
    let mut card = card(ActiveAck::Paper);
    let acks = acks_for(&mut card, &[0, 100, 200, 400, 300].map(|at| data(at, 100)));
    assert_eq!(acked(&acks), [100, 200, 300, 300, 500], "a gap repeats, what fills it skips");
    for ack in &acks {
        assert_eq!((ack.window, ack.flags, ack.seq), (0xFFFF, TcpFlags::ACK, 1));
        assert!(ack.checksums_are_right && ack.payload.is_empty());
    }
    let mut card = self::card(ActiveAck::Paper);
    card.receive(&peer_syn(data(0, 0))).host_sends(&host_syn(reversed(&data(0, 0))));
    let acks = acks_for(&mut card, &[data(0, 100)]);
    card.host_sends(&host(100, 1000));
    let more = acks_for(&mut card, &[100, 200].map(|at| data(at, 100)));
    assert_eq!((acked(&acks), acked(&more)), (vec![100], vec![200, 300]), "whatever the host says");
}

#[test]
fn paper_acknowledges_duplicates_that_it_drops() {
    let npu = NpuConfig { active_ack: ActiveAck::Paper, rules: Rules::Paper, ..NpuConfig::default() };
    let mut card = Card::npu_with(npu).unverified();
    let acks = acks_for(&mut card, &[0, 200, 200, 0].map(|at| data(at, 100)));
    assert_eq!(acked(&acks), [100, 100, 100, 100]);
    assert_eq!(card.drops(DropReason::Duplicate), 2);
}

/// The ACK number does not go back to an old segment, and does not follow a segment that may be forged.
#[test]
fn paper_acknowledges_what_it_passes_with_nextseq() {
    let acks_for = |places: &[u32]| {
        let mut card = card(ActiveAck::Paper);
        let acks = acks_for(&mut card, &places.iter().map(|at| data(*at, 100)).collect::<Vec<_>>());
        acked(&acks)
    };
    assert_eq!(acks_for(&[0, 100, 0, 200]), [100, 200, 200, 300], "an old one");
    assert_eq!(acks_for(&[0, 2_000_000, 100]), [100, 100, 200], "one far ahead");
    assert_eq!(acks_for(&[0, 200, 250, 100]), [100, 100, 350, 350], "one that overlaps what waits");
    let first = data(0, 100).over_ipv6();
    let mut card = card(ActiveAck::Paper);
    card.receive(&first).receive(&behind(IpProtocol::ROUTING, first.clone().at(100, 100)));
    let acks = self::acks_for(&mut card, &[first.at(200, 100)]);
    assert_eq!(acked(&acks), [100, 300], "one behind a packet that is not parsed");
}

#[test]
fn paper_exchanges_the_timestamps() {
    let mut card = card(ActiveAck::Paper);
    let acks = acks_for(&mut card, &[data(0, 100).timestamps(7, 9)]);
    assert_eq!(acks[0].options, [1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 7]);
}

#[test]
fn safe_acknowledges_what_the_host_was_handed_after_it_was_handed() {
    let mut card = connected();
    card.receive(&data(100, 100)).receive(&data(200, 100)).wait(us(5));
    assert!(card.take().is_empty(), "nothing is acknowledged while it is held");
    card.wait(SETTLE);
    let sent = card.take();
    let [Sent::Merged(merged), Sent::Ack(ack)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(tcp(&merged.packet).payload.len(), 200);
    let ack = tcp(ack);
    assert_eq!((ack.ack, ack.seq, ack.flags), (301, 5000, TcpFlags::ACK));
    assert_eq!(card.engine.statistics().acks_sent, 1);
}

#[test]
fn an_acknowledgement_answers_in_the_shape_of_the_data() {
    let tag = |tpid, tci| VlanTag { tpid, tci };
    let tags =
        [vec![], vec![tag(EtherType::VLAN, 5)], vec![tag(EtherType::QINQ, 5), tag(EtherType::VLAN, 6)]];
    for tags in tags {
        for first in [data(0, 100), data(0, 100).over_ipv6()] {
            for active_ack in [ActiveAck::Safe, ActiveAck::Paper] {
                let mut card = card(active_ack);
                let first = TcpFrame { tags: tags.clone(), ..first.clone() };
                if active_ack == ActiveAck::Safe {
                    open(&mut card, &first);
                }
                let ack = acks_for(&mut card, &[first.clone().at(100, 100)]).remove(0);
                let data = tcp(&first.build());
                assert_eq!((ack.src, ack.dst), (data.dst, data.src));
                assert_eq!((ack.macs, &ack.vlans), ((data.macs.1, data.macs.0), &data.vlans));
                assert!(ack.checksums_are_right, "{first:?}");
            }
        }
    }
}

#[test]
fn acknowledgements_never_go_backwards() {
    let mut card = connected();
    assert_eq!(acked(&acks_for(&mut card, &[data(100, 100)])), [200]);
    card.host_sends(&host(50, 1000)).host_sends(&host(150, 1000));
    assert_eq!(acked(&acks_for(&mut card, &[data(0, 100)])), [], "a repetition of 150 would go back");
    assert_eq!(acked(&acks_for(&mut card, &[data(200, 100)])), [300]);
    card.host_sends(&host(300, 1000));
    assert_eq!(acked(&acks_for(&mut card, &[data(250, 50)])), [300], "as the host said");
}

#[test]
fn what_the_host_has_acknowledged_itself_is_not_acknowledged() {
    let mut card = connected();
    card.host_sends(&host(300, 1000));
    assert_eq!(acks_for(&mut card, &[data(100, 200)]), [], "the host was faster");
}

#[test]
fn a_gap_stops_active_ack_until_the_host_has_spoken() {
    let mut card = connected();
    card.receive(&data(100, 100)).receive(&data(300, 100)).wait(SETTLE);
    assert_eq!(card.take_acks(), [], "the host has a gap to complain about");
    assert_eq!(acks_for(&mut card, &[data(400, 100)]), []);
    card.host_sends(&with_sack(host(200, 1000)));
    assert_eq!(acks_for(&mut card, &[data(500, 100)]), []);
    assert_eq!(acks_for(&mut card, &[data(200, 100)]), [], "it filled the gap, but the host must say so");
    card.host_sends(&host(600, 1000));
    assert_eq!(acked(&acks_for(&mut card, &[data(600, 100)])), [700]);
}

#[test]
fn what_fills_one_gap_of_two_is_not_acknowledged() {
    let mut card = connected();
    for at in [100, 300, 500, 200] {
        card.receive(&data(at, 100));
    }
    assert_eq!(acks_for(&mut card, &[]), []);
}

fn with_sack(frame: TcpFrame) -> TcpFrame {
    TcpFrame { options: [&[1, 1, 5, 10][..], &[0; 8]].concat(), ..frame }
}

#[test]
fn a_host_that_says_more_than_an_ack_number_speaks_for_itself() {
    let cases = [
        ("SACK", with_sack(host(100, 1000))),
        ("an unknown option", TcpFrame { options: vec![253, 4, 0, 0], ..host(100, 1000) }),
        ("MD5", TcpFrame { options: [&[1, 1, 19, 18][..], &[0; 16]].concat(), ..host(100, 1000) }),
        ("AO", TcpFrame { options: [&[29, 16][..], &[0; 14]].concat(), ..host(100, 1000) }),
        ("ECN echo", host(100, 1000).flags(TcpFlags::ECE)),
        ("CWR", host(100, 1000).flags(TcpFlags::CWR)),
        ("accurate ECN", host(100, 1000).flags(TcpFlags::AE)),
        ("URG", host(100, 1000).flags(TcpFlags::URG)),
        ("FIN", host(100, 1000).flags(TcpFlags::FIN)),
        ("RST with ACK", host(100, 1000).flags(TcpFlags::RST)),
        ("RST", host(100, 1000).with(|frame| frame.flags = TcpFlags::RST)),
        ("zero window", host(100, 0)),
    ];
    for (case, frame) in cases {
        let mut card = connected();
        card.host_sends(&frame);
        let acks = acks_for(&mut card, &[data(100, 100), data(0, 100)]);
        assert_eq!(acks, [], "{case}");
    }
}

#[test]
fn a_host_that_has_not_acknowledged_anything_is_unknown() {
    let mut card = card(ActiveAck::Safe);
    card.receive(&peer_syn(data(0, 0))).host_sends(&host_syn(host(0, 1000)));
    assert_eq!(acks_for(&mut card, &[data(0, 100), data(100, 100)]), []);
}

/// The frame, marked with CE by a router.
fn ce(frame: TcpFrame) -> TcpFrame {
    frame.with(|frame| match &mut frame.network {
        Network::Ipv4 { tos: class, .. } | Network::Ipv6 { class, .. } => *class = TrafficClass(3),
    })
}

#[test]
fn ce_is_left_to_the_host_until_it_has_echoed_it() {
    let mut card = connected();
    assert_eq!(acks_for(&mut card, &[ce(data(100, 100))]), []);
    assert_eq!(acks_for(&mut card, &[data(200, 100)]), [], "it would cover the mark without an echo");
    card.host_sends(&host(300, 1000));
    assert_eq!(acked(&acks_for(&mut card, &[data(300, 100)])), [400]);
}

/// RFC 3168 section 5: the two low bits of the traffic class. RFC 8200 section 3: the class is in the first
/// two bytes.
#[test]
fn over_ipv6_ce_and_no_other_class_is_left_to_the_host() {
    for class in [0, 1, 2, 3, 0xFC, 0xFD, 0xFE, 0xFF] {
        let mut card = card(ActiveAck::Safe);
        open(&mut card, &data(0, 100).over_ipv6());
        let marked = data(100, 100).over_ipv6().with(|frame| {
            if let Network::Ipv6 { class: field, .. } = &mut frame.network {
                *field = TrafficClass(class);
            }
        });
        let expected = if class & 3 == 3 { vec![] } else { vec![200] };
        assert_eq!(acked(&acks_for(&mut card, &[marked])), expected, "{class:#x}");
    }
}

#[test]
fn ce_is_left_to_the_host_also_where_it_is_not_merged_and_its_echo_is_on_the_way() {
    let tags = vec![VlanTag { tpid: EtherType::VLAN, tci: 5 }];
    let tagged = TcpFrame { tags, ..data(0, 100) };
    for shape in [data(0, 100), tagged, data(0, 100).over_ipv6()] {
        let mut card = card(ActiveAck::Safe);
        open(&mut card, &shape);
        card.receive(&ce(shape.clone().at(100, 100).flags(TcpFlags::CWR)));
        let next = shape.at(200, 100);
        assert_eq!(acks_for(&mut card, &[next]), [], "CWR is passed by itself, and marked");
    }
    let mut card = connected();
    card.receive(&ce(data(100, 100))).wait(SETTLE).host_sends(&host(100, 1000));
    assert_eq!(acks_for(&mut card, &[data(200, 100)]), [], "what the host sent before is no echo");
}

#[test]
fn control_and_unusual_data_are_not_acknowledged() {
    let md5 = TcpFrame { options: [&[1, 1, 19, 18][..], &[0; 16]].concat(), ..data(100, 100) };
    let cases = [
        ("pure ACK", data(100, 0)),
        ("FIN", data(100, 100).flags(TcpFlags::FIN)),
        ("RST", data(100, 0).flags(TcpFlags::RST)),
        ("URG", data(100, 100).flags(TcpFlags::URG)),
        ("MD5", md5),
    ];
    for (case, frame) in cases {
        for active_ack in [ActiveAck::Safe, ActiveAck::Paper] {
            let mut card = if active_ack == ActiveAck::Safe { connected() } else { card(active_ack) };
            assert_eq!(acks_for(&mut card, std::slice::from_ref(&frame)), [], "{case}, {active_ack:?}");
        }
    }
}

/// RFC 9293 section 3.10.7.4: a segment without ACK is dropped, and RFC 2385 section 2.0 one with an
/// unexpected MD5 option.
#[test]
fn data_that_the_host_may_discard_is_not_acknowledged_by_what_follows() {
    let md5 = TcpFrame { options: [&[1, 1, 19, 18][..], &[0; 16]].concat(), ..data(100, 100) };
    let without_ack = data(100, 100).with(|frame| frame.flags = TcpFlags::PSH);
    for (case, frame) in [("no ACK", without_ack), ("MD5", md5)] {
        let mut card = connected();
        assert_eq!(acks_for(&mut card, &[frame, data(200, 100)]), [], "{case}");
        card.host_sends(&host(100, 1000));
        assert_eq!(acks_for(&mut card, &[data(300, 100)]), [], "{case}: the host has a gap");
        card.host_sends(&host(400, 1000));
        assert_eq!(acked(&acks_for(&mut card, &[data(400, 100)])), [500], "{case}");
    }
}

/// RFC 7323 section 5.3: the host drops a segment whose timestamp is older than TS.Recent.
#[test]
fn data_with_an_older_timestamp_is_not_acknowledged_by_the_card() {
    let older = data(200, 100).timestamps(71, 80);
    let newer = data(100, 100).timestamps(75, 80);
    for trains in [vec![vec![newer.clone()], vec![older.clone()]], vec![vec![newer, older]]] {
        let mut card = card(ActiveAck::Safe);
        open(&mut card, &data(0, 100).timestamps(70, 80));
        card.host_sends(&host(100, 1000).timestamps(90, 70));
        let acks: Vec<u32> = trains.iter().flat_map(|train| acked(&acks_for(&mut card, train))).collect();
        assert_eq!(acks, [200], "{} trains", trains.len());
        let next = data(300, 100).timestamps(76, 80);
        assert_eq!(acks_for(&mut card, std::slice::from_ref(&next)), [], "the host may have a gap");
        card.host_sends(&host(400, 1000).timestamps(91, 76));
        assert_eq!(acked(&acks_for(&mut card, &[next.at(100, 100)])), [500]);
    }
}

#[test]
fn a_reset_by_the_peer_ends_active_ack() {
    let mut card = connected();
    card.receive(&data(100, 0).flags(TcpFlags::RST));
    assert_eq!(acks_for(&mut card, &[data(100, 100), data(0, 100)]), []);
}

#[test]
fn nothing_is_taken_back_after_a_reset_that_the_host_ignores() {
    let mut card = connected();
    assert_eq!(acked(&acks_for(&mut card, &[data(100, 100)])), [200]);
    card.receive(&data(150, 0).flags(TcpFlags::RST)).host_sends(&host(150, 1000));
    assert_eq!(acks_for(&mut card, &[data(0, 100)]), [], "a repetition of 150 would go back");
}

#[test]
fn a_mark_is_left_to_the_host_also_after_a_reset_that_it_ignores() {
    let mut card = connected();
    card.receive(&ce(data(300, 100))).wait(SETTLE).receive(&data(100, 0).flags(TcpFlags::RST));
    card.host_sends(&host(100, 1000));
    assert_eq!(acks_for(&mut card, &[data(100, 100), data(200, 50)]), []);
}

#[test]
fn nothing_changes_for_the_host_when_a_syn_ack_comes_again() {
    let again = syn(data(0, 0), TcpFlags::ACK, &[2, 4, 5, 180, 1, 3, 3, 9]).with(|frame| frame.seq.0 = 0);
    let mut card = connected();
    card.receive(&ce(data(300, 100))).wait(SETTLE).receive(&again);
    card.host_sends(&host(100, 1000));
    assert_eq!(acks_for(&mut card, &[data(100, 100), data(200, 50)]), [], "a mark is left to the host");
    let mut card = connected();
    assert_eq!(acked(&acks_for(&mut card, &[data(100, 100)])), [200]);
    card.receive(&again).host_sends(&host(150, 1000));
    assert_eq!(acks_for(&mut card, &[data(0, 100)]), [], "a repetition of 150 would go back");
    card.host_sends(&host(200, 1000));
    assert_eq!(acked(&acks_for(&mut card, &[data(200, 100)])), [300], "the host goes on");
}

#[test]
fn a_mark_that_came_before_the_hosts_syn_is_left_to_the_host() {
    let mut card = card(ActiveAck::Safe);
    card.receive(&peer_syn(data(0, 0))).receive(&ce(data(100, 100))).wait(SETTLE);
    card.host_sends(&host_syn(host(0, 1000))).host_sends(&host(0, 1000));
    assert_eq!(acks_for(&mut card, &[data(0, 50), data(50, 50)]), []);
}

#[test]
fn nothing_is_acknowledged_once_the_descriptor_was_given_back() {
    let other = data(0, 100).with(|frame| frame.src_port = 9);
    for (case, frame) in [("FIN", data(200, 0).flags(TcpFlags::FIN)), ("eviction", other)] {
        let config = Config { max_connections: 1, ..Config::default() };
        let npu = NpuConfig { active_ack: ActiveAck::Safe, ..NpuConfig::default() };
        let mut card = Card::new(&config, &ProfileConfig::Npu(npu));
        open(&mut card, &data(0, 100));
        assert_eq!(acked(&acks_for(&mut card, &[data(100, 100)])), [200]);
        card.receive(&frame).receive(&data(100, 50)).wait(SETTLE).host_sends(&host(150, 1000));
        let acks = acks_for(&mut card, &[data(100, 50), data(150, 10)]);
        assert_eq!(acks, [], "{case}: 150 and 160 would go back");
    }
}

/// The frame with an IPv6 extension header of this kind before TCP.
pub(crate) fn behind(kind: IpProtocol, frame: TcpFrame) -> TcpFrame {
    frame.with(|frame| {
        if let Network::Ipv6 { next_header, extensions, .. } = &mut frame.network {
            (*next_header, *extensions) = (kind, vec![IpProtocol::TCP.0, 0, 0, 0, 0, 0, 0, 0]);
        }
    })
}

#[test]
fn what_is_not_looked_into_is_left_to_the_host() {
    for kind in [IpProtocol::ROUTING, IpProtocol::FRAGMENT] {
        let mut card = card(ActiveAck::Safe);
        let first = data(0, 100).over_ipv6();
        open(&mut card, &first);
        let opaque = behind(kind, first.clone().at(200, 100));
        let acks = acks_for(&mut card, &[opaque, first.clone().at(100, 100)]);
        assert_eq!(acks, [], "{kind}: the host has a gap to complain about, or a mark to echo");
        let mut card = self::card(ActiveAck::Safe);
        open(&mut card, &first);
        card.receive(&behind(kind, first.clone().at(100, 100)));
        let TcpFrame { seq, ack, window, .. } = host(100, 1000);
        card.host_sends(&TcpFrame { seq, ack, window, ..reversed(&first) });
        let acks = acks_for(&mut card, &[first.clone().at(100, 100)]);
        assert_eq!(acks, [], "{kind}: what the host sent before is no answer");
    }
}

#[test]
fn what_the_host_has_acknowledged_is_dropped_however_it_came() {
    let mut card = card(ActiveAck::Safe);
    let first = data(0, 100).over_ipv6();
    open(&mut card, &first);
    let routed = behind(IpProtocol::ROUTING, first.clone().at(100, 100));
    card.receive(&first.clone().at(200, 100)).wait(SETTLE).receive(&routed);
    let TcpFrame { seq, ack, window, .. } = host(300, 1000);
    card.host_sends(&TcpFrame { seq, ack, window, ..reversed(&first) });
    assert_eq!(acked(&acks_for(&mut card, &[first.at(100, 100)])), [300]);
    assert_eq!(card.drops(DropReason::Duplicate), 1);
}

#[test]
fn what_the_host_has_acknowledged_is_dropped_and_acknowledged_again() {
    let mut card = connected();
    card.receive(&data(0, 100)).receive(&data(50, 50));
    assert_eq!(card.drops(DropReason::Duplicate), 2);
    let ack = card.take_acks().remove(0);
    assert_eq!((ack.ack, ack.window, ack.seq), (101, 1000, 5000), "as the host said it");
}

#[test]
fn what_the_host_has_not_acknowledged_reaches_it_again() {
    let mut card = connected();
    card.receive(&data(100, 100)).wait(SETTLE).take();
    card.receive(&data(100, 100));
    assert_eq!(
        (card.take_lens(), card.passes(PassReason::Old)),
        (vec![100], 1),
        "it may have lost the first"
    );
}

#[test]
fn a_keepalive_reaches_the_host() {
    let mut card = connected();
    card.receive(&data(99, 1)).receive(&data(99, 0));
    assert_eq!(card.take_lens(), [1, 0]);
}

#[test]
fn timestamps_are_the_hosts_latest_value_and_the_newest_that_it_was_handed() {
    let mut card = card(ActiveAck::Safe);
    open(&mut card, &data(0, 100).timestamps(70, 80));
    card.host_sends(&host(100, 1000).timestamps(90, 70));
    let acks = acks_for(&mut card, &[data(100, 100).timestamps(71, 80), data(200, 100).timestamps(72, 80)]);
    assert_eq!(acks[0].options, [1, 1, 8, 10, 0, 0, 0, 90, 0, 0, 0, 72]);
}

#[test]
fn a_connection_with_timestamps_gets_no_acknowledgement_without() {
    let mut card = card(ActiveAck::Safe);
    open(&mut card, &data(0, 100).timestamps(70, 80));
    assert_eq!(
        acks_for(&mut card, &[data(100, 100).timestamps(71, 80)]),
        [],
        "the host's value is not known"
    );
}

#[test]
fn the_hosts_own_data_moves_the_sequence_number() {
    let mut card = connected();
    card.host_sends(&host(100, 1000).with(|frame| frame.payload = vec![7; 50]));
    assert_eq!(acks_for(&mut card, &[data(100, 100)])[0].seq, 5050);
}

#[test]
fn a_new_connection_on_the_same_ports_begins_without_knowledge() {
    let mut card = connected();
    card.receive(&peer_syn(data(0, 0))).host_sends(&host_syn(host(0, 1000)));
    assert_eq!(acks_for(&mut card, &[data(0, 100), data(100, 100)]), []);
    card.host_sends(&host(200, 1000).with(|frame| frame.ack = SeqNumber(201)));
    assert_eq!(acked(&acks_for(&mut card, &[data(200, 100)])), [300]);
}

#[test]
fn what_the_host_did_not_take_is_not_acknowledged_by_what_follows() {
    for first in [data(0, 100), data(0, 100).over_ipv6()] {
        let mut card = card(ActiveAck::Safe);
        open(&mut card, &first);
        let next = |at| first.clone().at(at, 100);
        let host_says = |at| {
            let TcpFrame { seq, ack, window, .. } = host(at, 1000);
            TcpFrame { seq, ack, window, ..reversed(&first) }
        };
        let sent = card.receive(&next(100)).receive(&next(200)).wait(SETTLE).take();
        let Some(Sent::Merged(merged)) = sent.first() else { panic!("{sent:?}") };
        card.host_refuses(&merged.packet);
        assert_eq!(acks_for(&mut card, &[next(300)]), [], "the host has a gap");
        card.host_sends(&host_says(100));
        assert_eq!(acks_for(&mut card, &[next(400)]), [], "and says so");
        assert_eq!(acks_for(&mut card, &[next(100), next(200)]), [], "only the host knows that it is filled");
        card.host_sends(&host_says(500));
        assert_eq!(acked(&acks_for(&mut card, &[next(500)])), [600]);
    }
}

/// The card may not have seen all segments that the host received: bytes that the host has acknowledged need
/// not reach it again.
#[test]
fn what_the_host_has_acknowledged_is_dropped_though_the_card_never_saw_it() {
    let mut card = connected();
    card.receive(&data(200, 100)).wait(SETTLE);
    card.host_sends(&host(300, 1000));
    // The verifier agrees, or the card panics when it is dropped.
    assert_eq!(acked(&acks_for(&mut card, &[data(100, 100)])), [300]);
    assert_eq!(card.drops(DropReason::Duplicate), 1);
}

#[test]
fn what_the_host_sent_after_its_fin_leaves_the_sequence_number_where_it_was() {
    let mut card = connected();
    card.host_sends(&host(100, 1000).flags(TcpFlags::FIN));
    // Retransmitted data, with a plain ACK.
    let again = host(100, 1000).with(|frame| (frame.seq.0, frame.payload) = (4900, vec![7; 100]));
    card.host_sends(&again);
    let acks = acks_for(&mut card, &[data(100, 100)]);
    assert_eq!((acked(&acks), acks[0].seq), (vec![200], 5001));
}

#[test]
fn once_the_host_opens_another_connection_nothing_of_the_old_one_is_acknowledged() {
    let mut card = connected();
    card.host_sends(&syn(reversed(&data(0, 0)), TcpFlags::NONE, &[]));
    assert_eq!(acks_for(&mut card, &[data(100, 100)]), []);
}
