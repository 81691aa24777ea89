//! `gro` delivers batches of many flows, and trains of one flow, as it delivers the same frames one by one.

use crate::common::{Card, Change, assert_consistent, data, ms, packet_like_an_ethernet_frame, tcp};
use crate::gro::{gro, with_ident};
use nichrome_lro::{Config, FlushReason, Frame, Gro, Hold, Medium, Output, PassReason, ProfileConfig};
use nichrome_wire::{Engine, Instant, Network, SeqNumber, TcpFrame};

/// Segments of `flows` flows that take turns, three of each, at sequence numbers that the flows do not share.
fn in_turns(flows: u16, len: usize) -> impl Iterator<Item = TcpFrame> {
    (0..3).flat_map(move |nth| {
        (0..flows).map(move |flow| {
            let at = u32::from(flow) * 100_000 + nth * len as u32;
            data(at, len).with(|frame| frame.src_port = flow)
        })
    })
}

#[test]
fn flows_that_take_turns_are_merged_however_many_they_are() {
    for (flows, len) in [(2, 100), (63, 100), (64, 10), (65, 100), (300, 100)] {
        for (hold, v6) in
            [Hold::Batch, Hold::For(ms(1000))].into_iter().flat_map(|hold| [(hold, false), (hold, true)])
        {
            let mut card = Card::new(&Config::default(), &ProfileConfig::Gro(hold));
            for frame in in_turns(flows, len) {
                card.receive(&if v6 { frame.over_ipv6() } else { frame });
            }
            let sent = card.drain().take();
            let ports: Vec<u16> = sent.iter().map(|sent| tcp(sent.bytes()).src.1).collect();
            assert_eq!(ports, (0..flows).collect::<Vec<_>>(), "the oldest goes first");
            assert!(sent.iter().all(|sent| sent.merged().recreated.len() == 3), "{flows} flows");
        }
    }
}

/// A batch of one segment at `at` of each of these flows.
fn of_flows(flows: impl IntoIterator<Item = u16>, at: u32) -> Vec<Vec<u8>> {
    flows.into_iter().map(|flow| data(at, 100).with(|frame| frame.src_port = flow).build()).collect()
}

/// A `gro` that holds segments until the batch ends, after a batch of many flows: it searches for segments
/// that are alone.
fn after_many_flows() -> Card {
    let mut card = Card::new(&Config::default(), &ProfileConfig::Gro(Hold::Batch));
    assert_eq!(card.receive_batch(&of_flows(1..=20, 0)).take_lens(), [100; 20]);
    card
}

#[test]
fn segments_that_are_alone_in_a_batch_leave_as_they_came_and_others_are_merged() {
    let mut card = after_many_flows();
    let mut batch = of_flows(1..=20, 100);
    batch.extend(of_flows([7], 200));
    let mut lens = card.receive_batch(&batch).take_lens();
    lens.sort_unstable();
    assert_eq!((&lens[..19], &lens[19..]), (&[100; 19][..], &[200][..]));
    assert_eq!(card.flushes(FlushReason::EndOfBatch), 40);
    let statistics = card.statistics();
    assert_eq!((statistics.tcp_payload_bytes_in, statistics.tcp_payload_bytes_out), (4100, 4100));
    assert_consistent(&statistics);
}

#[test]
fn a_batch_that_comes_in_parts_is_merged_across_them() {
    let mut engine = Gro::new(&Config::default(), Hold::Batch).unwrap();
    let mut lens = Vec::new();
    for parts in [&[0][..], &[100, 200], &[300]] {
        for at in parts {
            let mut frames = of_flows(1..=20, *at).into_iter().map(Frame::new).collect();
            engine.receive_batch(&mut frames, Instant::ZERO);
        }
        engine.end_of_batch(Instant::ZERO);
        assert_eq!(engine.connections(), 20);
        while let Some(Output::ToHost(packet)) = engine.poll() {
            lens.push(packet.len() - 54);
        }
    }
    assert_eq!(lens, [[100; 20], [200; 20], [100; 20]].concat());
    assert_eq!(engine.statistics().tcp_payload_bytes_in, 8000);
    assert_consistent(engine.statistics());
}

#[test]
fn segments_that_are_alone_in_a_batch_are_drained_with_the_oldest() {
    let mut engine = Gro::new(&Config::default(), Hold::Batch).unwrap();
    for at in [0, 100] {
        let mut frames = of_flows(1..=20, at).into_iter().map(Frame::new).collect();
        engine.receive_batch(&mut frames, Instant::ZERO);
        engine.drain_oldest(3);
        assert!(std::iter::from_fn(|| engine.poll()).count() >= 3, "at {at}");
        engine.end_of_batch(Instant::ZERO);
        engine.drain();
        while engine.poll().is_some() {}
    }
    assert_consistent(engine.statistics());
}

#[test]
fn a_packet_that_looks_like_an_ethernet_frame_is_read_as_what_it_is() {
    const PAYLOAD: u32 = 60;
    let packet = |flow, at| packet_like_an_ethernet_frame(flow, at, PAYLOAD as usize);
    let config = Config { medium: Medium::Ip, ..Config::default() };
    let mut engine = Gro::new(&config, Hold::Batch).unwrap();
    for at in [0, PAYLOAD] {
        let mut frames = (0..20).map(|flow| Frame::verified(packet(flow, at))).collect();
        engine.receive_batch(&mut frames, Instant::ZERO);
        engine.end_of_batch(Instant::ZERO);
    }
    assert_eq!(engine.statistics().tcp_payload_bytes_in, 2 * 20 * u64::from(PAYLOAD));
    assert_consistent(engine.statistics());
}

#[test]
fn control_does_not_overtake_a_segment_of_a_batch_of_many_flows() {
    let ip_options = |frame: &mut TcpFrame| {
        if let Network::Ipv4 { options, .. } = &mut frame.network {
            *options = vec![1; 4];
        }
    };
    let ack = |frame: &mut TcpFrame| frame.payload.clear();
    for control in [&ip_options as &dyn Fn(&mut TcpFrame), &ack] {
        let mut card = after_many_flows();
        let mut batch = of_flows(1..=20, 100);
        batch.push(data(200, 100).with(|frame| frame.src_port = 3).with(control).build());
        card.receive_batch(&batch);
        card.finish();
    }
}

/// Segments of flows that take turns, `in_a_row` each time, in three rounds. Each round has another ACK
/// number.
fn with_rising_acks(flows: u16, in_a_row: u32) -> Vec<Vec<u8>> {
    let segment = |round: u32, flow: u16, nth: u32| {
        data((round * in_a_row + nth) * 100, 100).with(|frame| {
            frame.src_port = flow;
            frame.ack = SeqNumber(1 + round);
        })
    };
    let turn = |round, flow| (0..in_a_row).map(move |nth| segment(round, flow, nth).build());
    (0..3).flat_map(|round| (0..flows).flat_map(move |flow| turn(round, flow))).collect()
}

#[test]
fn trains_end_where_the_ack_number_rises() {
    for (flows, in_a_row) in [(1, 1), (1, 2), (1, 5), (3, 1), (3, 2), (3, 5), (40, 1), (40, 3)] {
        let mut card = Card::new(&Config::default(), &ProfileConfig::Gro(Hold::Batch));
        card.receive_batch(&with_rising_acks(flows, in_a_row));
        let whole = in_a_row as usize * 100;
        let trains = usize::from(flows) * 3;
        assert_eq!(card.take_lens(), vec![whole; trains], "{flows} flows, {in_a_row} in a row");
        assert_eq!(card.flushes(FlushReason::UnequalField), u64::from(flows) * 2);
        assert_consistent(&card.statistics());
    }
}

/// Returns the payload lengths for frames received one by one, and together as a train: the two must be
/// equal.
fn lens_singly_and_together(frames: &[Vec<u8>], change: impl Fn(&mut Config) + Copy) -> [Vec<usize>; 2] {
    [false, true].map(|together| gro(change).receive_all(frames, together).drain().take_lens())
}

#[test]
fn identifications_are_the_same_or_go_up_by_one() {
    for (idents, expected) in [
        ([8, 9, 10, 11, 12], vec![500]),
        ([8, 8, 8, 8, 8], vec![500]),
        ([8, 9, 9, 9, 9], vec![200, 300]),
        ([8, 9, 10, 10, 10], vec![300, 200]),
        ([8, 8, 9, 10, 11], vec![200, 300]),
    ] {
        let frames: Vec<_> =
            (0..).zip(idents).map(|(nth, ident)| with_ident(nth * 100, ident).build()).collect();
        let lens = lens_singly_and_together(&frames, |_| {});
        assert_eq!(lens, [expected.clone(), expected], "{idents:?}");
    }
}

#[test]
fn a_frame_with_bytes_behind_its_packet_is_not_merged() {
    let mut frames: Vec<_> = (0..4).map(|nth| data(nth * 100, 100).build()).collect();
    frames[2].push(0);
    let mut passed = 0;
    for is_batch in [false, true] {
        let mut card = Card::gro();
        card.receive_all(&frames, is_batch);
        assert_eq!(card.drain().take().len(), 3);
        passed += card.passes(PassReason::Trailer);
    }
    assert_eq!(passed, 2);
}

#[test]
fn an_aggregate_has_no_more_segments_than_the_limit() {
    let frames: Vec<_> = (0..9).map(|nth| with_ident(u32::from(nth) * 100, nth).build()).collect();
    for (max_segments, expected) in [(4, vec![400, 400, 100]), (8, vec![800, 100]), (9, vec![900])] {
        let limit = |config: &mut Config| config.max_segments = max_segments;
        let lens = lens_singly_and_together(&frames, limit);
        assert_eq!(lens, [expected.clone(), expected.clone()], "{max_segments}");
        // The first frame alone, the others as a train that would fill its run.
        let mut card = gro(limit);
        card.receive_bytes(frames[0].clone()).receive_batch(&frames[1..]);
        assert_eq!(card.drain().take_lens(), expected, "{max_segments}, one and a train");
    }
}
