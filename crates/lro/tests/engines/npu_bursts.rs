//! The `npu` profile with bursts of many connections, for which it has paths of their own: they change nothing.

use crate::common::{Card, Change, data, us};
use nichrome_lro::FlushReason;
use nichrome_wire::{TcpFlags, TcpFrame};

/// Connections: more than the nearest caches are taken for.
const CONNECTIONS: u32 = 1500;

/// What a connection receives in a round: next in sequence but for what is particular to it, and for one in a while.
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

#[test]
fn bursts_of_many_connections_bring_about_what_single_frames_do() {
    let (mut bursts, mut single) = (Card::npu(), Card::npu());
    for round in 0..12 {
        let frames: Vec<Vec<u8>> = (0..CONNECTIONS).flat_map(|nth| segments(nth, round)).collect();
        for burst in frames.chunks(45) {
            bursts.receive_batch(burst).wait(us(50));
            burst.iter().for_each(|frame| _ = single.receive_bytes(frame.clone()));
            single.wait(us(50));
            assert_eq!(bursts.take(), single.take(), "round {round}");
        }
        assert_eq!(bursts.statistics(), single.statistics(), "round {round}");
    }
    assert!(bursts.flushes(FlushReason::Sparse) > 8 * u64::from(CONNECTIONS) / 2, "they were to be sparse");
}
