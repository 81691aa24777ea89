//! The `npu` profile with sparse connections: inter-arrival times above the hold limit.

use crate::common::{Card, Change, data, packet_like_an_ethernet_frame, us};
use nichrome_lro::{
    ActiveAck, Config, DropReason, FlushReason, Frame, Medium, Npu, NpuConfig, PassReason, ProfileConfig,
    Rules,
};
use nichrome_wire::engine::deliver;
use nichrome_wire::{Instant, TcpFlags};

/// A connection that has sent 5 segments of 100 bytes, each 1.1 ms after the last: the next segment finds it
/// sparse.
fn sparse_card(mut card: Card) -> Card {
    for nth in 0..5 {
        card.receive(&data(nth * 100, 100)).wait(us(1100));
    }
    card.take();
    card
}

#[test]
fn a_sparse_connection_takes_no_descriptor_until_two_segments_come_near() {
    let mut npu = Npu::new(&Config::default(), &NpuConfig::default()).unwrap();
    let mut now = Instant::ZERO;
    let mut connections = Vec::new();
    for (nth, pause) in [0, 1100, 1100, 1100, 1100, 100, 1100].into_iter().enumerate() {
        now = now + us(pause);
        let frame = Frame::new(data(nth as u32 * 100, 100).build());
        deliver(&mut npu, frame, now, &mut |_, _| {});
        connections.push(npu.connections());
    }
    assert_eq!(connections, [1, 1, 0, 0, 0, 1, 1]);
}

#[test]
fn a_connection_that_was_evicted_after_one_segment_is_sparse() {
    let config = Config { max_connections: 1, ..Config::default() };
    for (npu, held) in [
        (NpuConfig::default(), false),
        (NpuConfig { rules: Rules::Paper, ..NpuConfig::default() }, true),
        (NpuConfig { active_ack: ActiveAck::Safe, ..NpuConfig::default() }, true),
    ] {
        let mut card = Card::new(&config, &ProfileConfig::Npu(npu));
        card.receive(&data(0, 100)).wait(us(1500));
        card.receive(&data(0, 100).with(|frame| frame.src_port += 1)).wait(us(1500));
        card.take();
        card.receive(&data(100, 100));
        assert_eq!(card.take_lens().is_empty(), held, "{npu:?}");
    }
}

#[test]
fn a_connection_that_was_evicted_after_segments_near_each_other_is_not_sparse() {
    for is_batch in [false, true] {
        let mut card = Card::new(
            &Config { max_connections: 1, ..Config::default() },
            &ProfileConfig::Npu(NpuConfig::default()),
        );
        if is_batch {
            card.receive_batch(&[data(0, 100).build(), data(100, 100).build()]);
        } else {
            card.receive(&data(0, 100)).receive(&data(100, 100));
        }
        card.wait(us(1500)).receive(&data(0, 100).with(|frame| frame.src_port += 1)).wait(us(1500)).take();
        card.receive(&data(200, 100));
        assert_eq!(card.take_lens(), [], "together {is_batch}");
    }
}

#[test]
fn segments_of_a_sparse_connection_are_delivered_at_once_whatever_its_sequence_number() {
    let mut card = sparse_card(Card::npu());
    for at in [700, 500, 600] {
        card.receive(&data(at, 100));
        assert_eq!(card.take_lens(), [100], "the segment at {at}");
        card.wait(us(1100));
    }
    assert_eq!(card.flushes(FlushReason::Sparse), 3 + 3);
}

#[test]
fn payload_of_sparse_connections_is_counted_however_it_is_read() {
    type Segment = fn(u32) -> Vec<u8>;
    let padded_behind: Segment =
        |at| data(at, 60).with(|frame| frame.options = vec![8, 10, 0, 0, 0, 7, 0, 0, 0, 5, 1, 1]).build();
    let cases: [(Medium, Segment); 4] = [
        (Medium::Ethernet, |at| data(at, 60).build()),
        (Medium::Ethernet, padded_behind),
        (Medium::Ethernet, |at| data(at, 60).over_ipv6().build()),
        (Medium::Ip, |at| packet_like_an_ethernet_frame(1, at, 60)),
    ];
    for (nth, (medium, segment)) in cases.into_iter().enumerate() {
        let config = Config { medium, ..Config::default() };
        let mut card = Card::new(&config, &ProfileConfig::Npu(NpuConfig::default()));
        for nth in 0..8 {
            card.receive_frame(Frame::verified(segment(nth * 60))).wait(us(1100));
        }
        assert_eq!(card.flushes(FlushReason::Sparse), 6, "case {nth}");
        assert_eq!(card.statistics().tcp_payload_bytes_in, 8 * 60, "case {nth}");
    }
}

#[test]
fn control_segments_of_a_sparse_connection_pass_in_order() {
    let mut card = sparse_card(Card::npu());
    let fin = data(600, 0).flags(TcpFlags::FIN);
    card.receive(&data(500, 100)).receive(&data(600, 0)).receive(&fin);
    assert_eq!(card.take_lens(), [100, 0, 0]);
    assert_eq!((card.passes(PassReason::PureAck), card.passes(PassReason::Fin)), (1, 1));
}

#[test]
fn a_wrong_checksum_on_a_sparse_connection_is_dropped() {
    let mut card = sparse_card(Card::npu());
    let before = card.flushes(FlushReason::Sparse);
    let mut corrupt = data(500, 100).build();
    *corrupt.last_mut().unwrap() ^= 1;
    card.receive_batch(&[corrupt]);
    assert_eq!((card.flushes(FlushReason::Sparse), card.drops(DropReason::TcpChecksum)), (before, 1));
}

#[test]
fn active_ack_keeps_the_descriptor_of_a_sparse_connection() {
    let config = NpuConfig { active_ack: ActiveAck::Safe, ..NpuConfig::default() };
    let mut card = sparse_card(Card::npu_with(config));
    card.receive(&data(500, 100));
    assert_eq!(card.take_lens(), [100]);
    card.wait(us(1100)).receive(&data(400, 100));
    assert_eq!((card.take_lens(), card.passes(PassReason::Old)), (vec![100], 1));
}

#[test]
fn segments_do_not_overtake_those_held_since_the_connection_was_sparse() {
    let other = |at| data(at, 100).with(|frame| frame.src_port += 1).build();
    let mut card = Card::npu();
    for nth in 0..6 {
        card.receive(&data(nth * 100, 100)).receive_bytes(other(nth * 100)).wait(us(1100));
    }
    card.take();
    card.receive(&data(600, 100)).wait(us(100));
    for nth in 7..9 {
        card.receive(&data(nth * 100, 100)).wait(us(550));
    }
    card.take();
    card.receive(&data(900, 100)).wait(us(50)).take();
    card.receive_batch(&[other(600), data(1000, 100).build()]);
    assert_eq!(
        card.take_lens(),
        [100],
        "the other, since this one had an arrival 1.2 ms ago but holds a segment"
    );
    card.wait(us(1100));
    assert_eq!(card.take_lens(), [200]);
}
