//! The `npu` profile with bursts of many connections, for which it has fast paths. These do not change the
//! outputs, except that consecutive segments of a sparse connection merge.

use crate::common::{Card, Change, data, packet_like_an_ethernet_frame, us};
use nichrome_lro::{Config, FlushReason, Frame, Medium, NpuConfig, ProfileConfig};
use nichrome_wire::{TcpFlags, TcpFrame};

/// Number of connections: above the thresholds from which the engine prefetches.
const CONNECTIONS: u32 = 9000;

/// The segments of a connection in a round: mostly next in sequence, with a peculiarity of each connection,
/// and sometimes late ones.
fn segments(connection: u32, round: u32) -> Vec<Vec<u8>> {
    let port = |frame: &mut TcpFrame| (frame.src_port, frame.dst_port) = (connection as u16, 80);
    let at = |nth: u32| data(nth * 100, 100).with(port);
    let (next, is_late) = (at(round), round % 5 == 4);
    let stamped = |value| next.clone().timestamps(value, 1).build();
    match (connection % 16, is_late) {
        (1, _) => vec![next.flags(TcpFlags::PSH).build()],
        (2, _) => vec![at(2 * round).build(), at(2 * round + 1).build()],
        (3, false) => vec![stamped(round)],
        (3, true) => vec![stamped(round - 2)],
        (4, true) => vec![next.flags(TcpFlags::FIN).build()],
        (5, true) => vec![at(round + 1).build()],
        (6, true) => vec![at(round - 1).build(), next.build()],
        (7, _) => vec![next.build(), next.at(100, 0).build()],
        (8, true) => vec![{
            let mut corrupt = next.build();
            *corrupt.last_mut().unwrap() ^= 1;
            corrupt
        }],
        (9, _) => vec![next.over_ipv6().build()],
        (10, true) => vec![next.flags(TcpFlags::SYN).build()],
        (11, true) => {
            vec![next.with(|frame| frame.options = vec![5, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1]).build()]
        }
        (12, true) => vec![next.flags(TcpFlags::URG).build()],
        (13, true) => vec![],
        _ => vec![next.build()],
    }
}

/// Cards that have received the first `most` segments of all connections in each of 12 rounds, in bursts and
/// one by one. Compares them after each burst and after each round.
fn many_connections(most: usize, compare: [fn(&mut Card, &mut Card); 2]) -> [Card; 2] {
    let config = Config { max_connections: 2 * CONNECTIONS as usize, ..Config::default() };
    let card = || Card::new(&config, &ProfileConfig::Npu(NpuConfig::default()));
    let (mut bursts, mut single) = (card(), card());
    for round in 0..12 {
        let segments = |nth| segments(nth, round).into_iter().take(most);
        let frames: Vec<Vec<u8>> = (0..CONNECTIONS).flat_map(segments).collect();
        for burst in frames.chunks(45) {
            bursts.receive_batch(burst).wait(us(50));
            burst.iter().for_each(|frame| _ = single.receive_bytes(frame.clone()));
            single.end_batch().wait(us(50));
            compare[0](&mut bursts, &mut single);
        }
        compare[1](&mut bursts, &mut single);
    }
    [bursts, single]
}

#[test]
fn bursts_of_many_connections_bring_about_what_single_frames_do() {
    let [bursts, _] = many_connections(
        1,
        [
            |bursts, single| assert_eq!(bursts.take(), single.take()),
            |bursts, single| assert_eq!(bursts.statistics(), single.statistics()),
        ],
    );
    assert!(bursts.flushes(FlushReason::Sparse) > 8 * u64::from(CONNECTIONS) / 2, "they were to be sparse");
}

/// The first segment of a sparse connection leaves at once if it comes alone, and together with the next one
/// if both come in one burst. The cards' verifiers check the outputs.
#[test]
fn segments_in_a_row_of_sparse_connections_merge_in_bursts() {
    let [bursts, single] = many_connections(2, [|_, _| {}; 2]);
    assert!(bursts.flushes(FlushReason::Sparse) > 8 * u64::from(CONNECTIONS) / 2, "they were to be sparse");
    let [together, apart] = [bursts, single].map(|card| card.statistics().packets_out);
    assert!(together < apart, "{together}, {apart}");
}

/// Checks that the engine delivers the same if it receives the frames of these bursts together or one by one,
/// in three rounds, with few and with many connections.
fn assert_bursts_change_nothing(bursts: &[&[Vec<u8>]], what: &str) {
    assert_bursts_of_medium_change_nothing(Medium::Ethernet, bursts, what);
}

fn assert_bursts_of_medium_change_nothing(medium: Medium, bursts: &[&[Vec<u8>]], what: &str) {
    for others in [0, 200] {
        let config = Config { medium, max_connections: 512, max_aggregates: 512, ..Config::default() };
        let other = |nth: u16, at| {
            let frame = data(at, 10).with(|frame| frame.src_port = 40_000 + nth).build();
            if medium == Medium::Ip { frame[14..].to_vec() } else { frame }
        };
        let card = || {
            let mut card = Card::new(&config, &ProfileConfig::Npu(NpuConfig::default())).unverified();
            (0..others).for_each(|nth| _ = card.receive_frame(Frame::verified(other(nth, 0))));
            card.drain();
            card
        };
        let (mut burst, mut single) = (card(), card());
        let crowd = |round| (0..others.min(8)).map(|nth| other(nth, 10 + 10 * round)).collect();
        let crowds: Vec<Vec<Vec<u8>>> = (0..3 * bursts.len() as u32).map(crowd).collect();
        // A burst of many connections comes before each.
        let bursts = crowds.iter().zip(bursts.iter().cycle()).flat_map(|(crowd, burst)| [&crowd[..], burst]);
        for frames in bursts {
            burst.receive_frames(frames.iter().cloned().map(Frame::verified).collect()).wait(us(30));
            frames.iter().cloned().for_each(|frame| _ = single.receive_frame(Frame::verified(frame)));
            single.end_batch().wait(us(30));
        }
        // Segments that are due at the same time may leave in any order of connections.
        let by_port = |card: &mut Card| {
            let mut sent = card.drain().take();
            let ports = if medium == Medium::Ip { 20..22 } else { 34..36 };
            sent.sort_by_key(|sent| sent.bytes().get(ports.clone()).map(<[u8]>::to_vec));
            sent
        };
        assert!(by_port(&mut burst) == by_port(&mut single), "{what}, beside {others} connections");
        assert_eq!(burst.statistics(), single.statistics(), "{what}, beside {others} connections");
    }
}

#[test]
fn a_train_with_any_bit_of_a_header_changed_brings_about_what_single_frames_do() {
    const TRAIN: u32 = 7;
    for stamped in [false, true] {
        let segment = |nth| {
            let next = data(nth * 100, 100).with(|frame| frame.src_port = 1024);
            if stamped { next.timestamps(9, 1) } else { next }.build()
        };
        let train: Vec<Vec<u8>> = (0..TRAIN).map(segment).collect();
        let headers = train[0].len() - 100;
        for (nth, bit) in [1, 3].into_iter().flat_map(|nth| (0..8 * headers).map(move |bit| (nth, bit))) {
            let mut changed = train.clone();
            changed[nth][bit / 8] ^= 1 << (bit % 8);
            assert_bursts_change_nothing(&[&changed], &format!("stamped {stamped}, frame {nth}, bit {bit}"));
        }
    }
}

#[test]
fn a_train_with_bytes_behind_a_packet_or_cut_brings_about_what_single_frames_do() {
    for (acks, by) in [(0u32, 1), (1, 1), (0, -1), (1, -1)] {
        let segment = |nth: u32| {
            let next = data(nth * 100, 100).with(|frame| frame.src_port = 1024);
            next.with(|frame| frame.ack += nth * acks).build()
        };
        for nth in 0..4usize {
            let mut train: Vec<Vec<u8>> = (0..4u32).map(segment).collect();
            let len = train[nth].len().saturating_add_signed(by);
            train[nth].resize(len, 7);
            assert_bursts_change_nothing(
                &[&train],
                &format!("ACK numbers {acks} apart, frame {nth} by {by}"),
            );
        }
    }
}

#[test]
fn bursts_in_turn_give_the_outputs_of_single_frames() {
    for (connections, in_a_row) in [(1, 1), (2, 1), (3, 2), (5, 3), (70, 1)] {
        // Connections in turn, except for one that misses its turn and one that comes too early.
        let turns = (0..4u32).flat_map(|round| (0..connections).map(move |connection| (round, connection)));
        let turns = turns.filter(|turn| *turn != (1, 1)).chain([(7, 2), (4, 0)]);
        let frames: Vec<Vec<u8>> = turns
            .flat_map(|(round, connection)| {
                (0..in_a_row).map(move |nth| (connection, round * in_a_row + nth))
            })
            .map(|(connection, nth)| {
                data(nth * 100, 100).with(|frame| frame.src_port = 1024 + connection).build()
            })
            .collect();
        assert_bursts_change_nothing(&[&frames], &format!("{connections} connections, {in_a_row} in a row"));
    }
}

#[test]
fn connections_that_take_turns_in_another_order_bring_about_what_single_frames_do() {
    let segment = |connection: u32, at: u32| {
        data(at, 100).with(|frame| frame.src_port = 1024 + connection as u16).build()
    };
    for connections in [2, 5, 40, 70] {
        // The order of the round before, the reverse order, an order without one connection, and a rotated
        // order.
        let orders: [fn(u32, u32) -> u32; 4] =
            [|nth, _| nth, |nth, of| of - 1 - nth, |nth, of| nth.max(1) % of, |nth, of| (nth + of / 2) % of];
        let mut sent = vec![0; connections as usize];
        let bursts: Vec<Vec<Vec<u8>>> = [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 3, 3, 3, 3, 3, 3]
            .into_iter()
            .map(|order: usize| {
                let mut next = |nth| {
                    let connection = orders[order](nth, connections);
                    let at = &mut sent[connection as usize];
                    *at += 100;
                    segment(connection, *at - 100)
                };
                (0..connections).map(&mut next).collect()
            })
            .collect();
        let bursts: Vec<&[Vec<u8>]> = bursts.iter().map(Vec::as_slice).collect();
        assert_bursts_change_nothing(&bursts, &format!("{connections} connections"));
    }
}

#[test]
fn a_segment_behind_a_frame_with_its_addresses_and_ports_in_place_is_of_its_connection() {
    const PROTOCOL: usize = 23;
    let segment = |nth: u32| data(nth * 100, 100).with(|frame| frame.src_port = 1024).build();
    let mut datagram = segment(0);
    datagram[PROTOCOL] = 17;
    assert_bursts_change_nothing(&[&[datagram, segment(0)], &[segment(1)]], "a datagram");
    // Packets of two connections, with equal bytes at the positions where an Ethernet frame has addresses and
    // ports.
    let packet = |flow, at| packet_like_an_ethernet_frame(flow, at, 100);
    let bursts = [&[packet(1, 0), packet(2, 0)][..], &[packet(2, 100)], &[packet(2, 200), packet(2, 300)]];
    assert_bursts_of_medium_change_nothing(Medium::Ip, &bursts, "packets");
}
