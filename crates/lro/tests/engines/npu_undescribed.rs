//! The `npu` profile with connections without a descriptor, which are coalesced within a receive batch.

use crate::common::{Card, Change, data, ms, us};
use nichrome_lro::{ActiveAck, Config, FlushReason, NpuConfig, PassReason, ProfileConfig, PshRule, Rules};
use nichrome_wire::{Engine, EtherType, TcpFlags, VlanTag};

/// Segment `nth` of connection `of`.
fn segment(of: u16, nth: u32) -> Vec<u8> {
    data(nth * 100, 100).with(|frame| frame.src_port = of).build()
}

fn connections(card: &Card) -> usize {
    card.engine.connections()
}

#[test]
fn a_connection_takes_a_descriptor_when_it_comes_back_within_the_hold_limit() {
    let mut card = Card::npu();
    for (pause, known) in [(0, 0), (1500, 0), (1500, 0), (500, 1), (500, 1)] {
        card.wait(us(pause)).take();
        let at = card.now().as_nanos() as u32 / 1000;
        card.receive_batch(&[segment(1, at), segment(1, at + 1), segment(1, at + 2)]);
        assert_eq!(connections(&card), known, "at {at} µs");
        if known == 0 {
            assert_eq!(card.take_lens(), [300], "at {at} µs");
        }
    }
}

#[test]
fn whatever_comes_in_the_first_batch_is_treated_as_that_of_a_known_connection() {
    let (reordered, old, forged) = ([0, 2, 1, 3], [3, 4, 2, 5], [0, 1, 20_000, 2]);
    for (numbers, lens) in [(reordered, vec![400]), (old, vec![200, 100, 100]), (forged, vec![200, 100, 100])]
    {
        let frames = numbers.map(|nth| segment(1, nth));
        for together in [false, true] {
            let mut card = Card::npu();
            card.receive_all(&frames, together).end_batch().drain();
            assert_eq!(card.take_lens(), lens, "{numbers:?}, together {together}");
        }
    }
}

#[test]
fn nothing_overtakes_the_run_of_a_connection_without_a_descriptor() {
    let next = data(200, 100).with(|frame| frame.src_port = 1);
    let fragment = {
        let mut frame = next.build();
        frame[20] |= 0x20; // more fragments
        frame[24..26].fill(0);
        let sum = nichrome_wire::checksum::checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    let others = [
        next.clone().flags(TcpFlags::FIN).build(),
        next.clone().flags(TcpFlags::SYN).build(),
        next.clone().flags(TcpFlags::RST).build(),
        next.clone().at(200, 0).build(),
        fragment,
    ];
    for other in others {
        let mut card = Card::npu();
        card.receive_batch(&[segment(1, 0), segment(1, 1), other.clone()]).drain();
        let sent = card.take();
        assert_eq!(sent.len(), 2);
        assert_eq!((sent[0].merged().payloads.len(), sent[1].bytes()), (2, &other[..]));
    }
}

/// After 64 bursts of single segments, connections that share a cell in the last-arrival cache count as
/// sparse.
#[test]
fn no_segment_overtakes_a_run_that_began_before_its_connection_counted_as_sparse() {
    let config = Config { max_connections: 1, ..Config::default() };
    for bursts in 60..64 {
        let mut card = Card::new(&config, &ProfileConfig::Npu(NpuConfig::default()));
        for nth in 0..bursts {
            card.receive_batch(&[segment(1, nth)]).wait(ms(2));
        }
        card.take();
        card.receive_batch(&[segment(2, 0), segment(1, bursts), segment(2, 1)]);
        assert_eq!(card.take_lens(), [100, 200], "after {bursts}");
    }
}

#[test]
fn single_segments_of_many_connections_evict_hardly_anybody() {
    const KNOWN: u16 = 64;
    let config = Config { max_connections: KNOWN.into(), ..Config::default() };
    let mut card = Card::new(&config, &ProfileConfig::Npu(NpuConfig::default()));
    // Connections that share a cell in the last-arrival cache take their descriptors one after the other.
    for nth in 0..60 {
        let known: Vec<Vec<u8>> = (0..KNOWN).map(|of| segment(of, nth)).collect();
        card.receive_batch(&known).wait(us(100));
    }
    assert_eq!(connections(&card), KNOWN.into());
    let flood: Vec<Vec<u8>> = (1000..2000).map(|of| segment(of, 0)).collect();
    for burst in flood.chunks(100) {
        card.receive_batch(burst).wait(us(1));
    }
    card.drain().take();
    let mut is_known = |of: &u16| {
        // A segment behind a gap waits if the connection has a descriptor.
        card.receive_batch(&[segment(*of, 61), segment(*of, 60)]).drain();
        card.take_lens() == [200]
    };
    // The cache mistakes one of 512 unknown connections for another connection, which arrived just before.
    let known = (0..KNOWN).filter(|of| is_known(of)).count();
    assert!(known >= 56, "{known}");
}

#[test]
fn without_the_end_of_a_batch_the_shortest_timeout_delivers() {
    let mut card = Card::npu();
    card.receive_all(&[segment(1, 0), segment(1, 1), segment(2, 0), segment(2, 1)], false);
    card.wait(us(19));
    assert!(card.take().is_empty());
    card.wait(us(3));
    assert_eq!((card.take_lens(), card.flushes(FlushReason::Timeout)), (vec![200; 2], 2));
    assert_eq!(card.engine.poll_timeout(), None);
}

#[test]
fn a_timeout_of_zero_delivers_at_once() {
    let config = Config::default();
    let mut card = Card::new(&config, &ProfileConfig::Npu(NpuConfig::with_hold(us(0))));
    card.receive_all(&[segment(1, 0)], false).wait(us(2));
    assert_eq!(card.take_lens(), [100]);
}

#[test]
fn trains_further_apart_than_the_hold_limit_need_no_descriptor() {
    let train = |nth: u32| [0, 1, 2, 3].map(|at| segment(1, nth * 4 + at));
    for (npu, released) in [
        (NpuConfig::default(), 0),
        (NpuConfig { active_ack: ActiveAck::Safe, ..NpuConfig::default() }, 1),
        (NpuConfig { rules: Rules::Paper, ..NpuConfig::default() }, 1),
    ] {
        let mut card = Card::npu_with(npu);
        (0..4).for_each(|nth| _ = card.receive_batch(&train(nth)).wait(us(300)));
        assert_eq!(connections(&card), 1);
        for nth in 4..12 {
            card.wait(ms(2)).take();
            card.receive_batch(&train(nth));
            if released == 0 {
                assert_eq!(card.take_lens(), [400], "train {nth}");
            }
        }
        assert_eq!(connections(&card), released, "{npu:?}");
        // Trains closer together take a descriptor again.
        card.wait(us(300)).receive_batch(&train(12));
        assert_eq!((connections(&card), card.passes(PassReason::Old)), (1, 0));
    }
}

#[test]
fn a_batch_of_more_connections_than_have_room_without_descriptors_loses_nothing() {
    for (max_connections, max_aggregates) in [(1000, 1000), (10, 1000), (1000, 3), (1, 1)] {
        let config = Config { max_connections, max_aggregates, ..Config::default() };
        let mut card = Card::new(&config, &ProfileConfig::Npu(NpuConfig::default()));
        let frames: Vec<Vec<u8>> = (0..2).flat_map(|nth| (0..300).map(move |of| segment(of, nth))).collect();
        card.receive_batch(&frames).drain();
        assert_eq!(card.take_lens().iter().sum::<usize>(), 600 * 100, "{max_connections}, {max_aggregates}");
    }
}

#[test]
fn trains_after_a_single_segment_are_not_held_in_vain() {
    let mut card = Card::npu();
    let bursts: [(&[u32], &[usize]); 4] =
        [(&[0], &[100]), (&[1, 2, 3, 4], &[400]), (&[5, 6, 7, 8], &[400]), (&[9, 10, 11, 12], &[400])];
    for (numbers, lens) in bursts {
        card.receive_batch(&numbers.iter().map(|nth| segment(1, *nth)).collect::<Vec<_>>());
        assert_eq!(card.take_lens(), lens, "{numbers:?}");
        card.wait(ms(2));
    }
}

#[test]
fn behind_a_retransmission_of_an_unknown_connection_nothing_waits_for_what_came_before() {
    let mut card = Card::npu();
    for train in 0..3 {
        card.receive_batch(&[0, 1, 2, 3].map(|nth| segment(1, 4 * train + nth))).wait(ms(2));
    }
    card.take();
    card.receive_batch(&[segment(1, 2), segment(1, 12), segment(1, 13)]);
    assert_eq!((card.take_lens(), card.flushes(FlushReason::EndOfBatch)), (vec![100, 200], 5));
}

#[test]
fn the_end_of_a_stream_takes_no_descriptor() {
    let tag = VlanTag { tpid: EtherType::VLAN, tci: 6 };
    let tagged = |nth: u32| data(nth * 100, 100).with(|frame| frame.tags = vec![tag]).build();
    let short = data(200, 50).with(|frame| frame.src_port = 1);
    let fin = data(200, 0).with(|frame| frame.src_port = 1).flags(TcpFlags::FIN);
    let older = data(100, 100).with(|frame| frame.src_port = 1).flags(TcpFlags::PSH);
    type Case = (&'static str, Vec<Vec<u8>>, &'static [usize]);
    let cases: [Case; 5] = [
        ("a short segment", vec![segment(1, 0), segment(1, 1), short.build()], &[250]),
        ("a FIN", vec![segment(1, 0), segment(1, 1), fin.build()], &[200, 0]),
        ("PSH", vec![segment(1, 0), older.build()], &[200]),
        ("a VLAN", vec![tagged(0), tagged(1), tagged(2)], &[300]),
        ("IPv6", [0, 100].map(|at| data(at, 100).over_ipv6().build()).to_vec(), &[200]),
    ];
    for (what, frames, lens) in cases {
        for together in [false, true] {
            let mut card = Card::npu();
            card.receive_all(&frames, together).end_batch();
            assert_eq!((card.take_lens(), connections(&card)), (lens.to_vec(), 0), "{what}");
        }
    }
}

#[test]
fn segments_that_end_their_runs_take_no_descriptor() {
    let mut card = Card::npu_with(NpuConfig { psh: PshRule::End, ..NpuConfig::default() });
    for of in 1..10 {
        card.receive_batch(&[data(0, 100).with(|frame| frame.src_port = of).flags(TcpFlags::PSH).build()]);
        assert_eq!((card.take_lens(), card.flushes(FlushReason::Psh)), (vec![100], of.into()));
    }
    assert_eq!(connections(&card), 0);
    // A run of the largest size: the connection comes back at once.
    let config = Config { max_segments: 3, ..Config::default() };
    let mut card = Card::new(&config, &ProfileConfig::Npu(NpuConfig::default()));
    card.receive_batch(&[0, 1, 2, 3, 4].map(|nth| segment(1, nth))).drain();
    assert_eq!((card.take_lens(), connections(&card)), (vec![300, 200], 1));
}

#[test]
fn a_connection_with_long_trains_keeps_its_descriptor_within_them() {
    let mut card = Card::npu();
    for train in 0..8 {
        for burst in 0..10 {
            let segments = [0, 1, 2, 3, 4, 5, 6, 7].map(|nth| segment(1, (train * 10 + burst) * 8 + nth));
            card.receive_batch(&segments).wait(us(50));
            assert!((train, burst) == (0, 0) || connections(&card) == 1, "burst {burst} of train {train}");
        }
        card.wait(ms(20));
    }
}

#[test]
fn a_flood_of_two_segments_each_evicts_hardly_anybody() {
    let config = Config { max_connections: 64, ..Config::default() };
    let mut card = Card::new(&config, &ProfileConfig::Npu(NpuConfig::default()));
    for nth in 0..60 {
        card.receive_batch(&(0..64).map(|of| segment(of, nth)).collect::<Vec<_>>()).wait(us(100));
    }
    card.take();
    let flood: Vec<Vec<u8>> = (0..2).flat_map(|nth| (1000..1100).map(move |of| segment(of, nth))).collect();
    card.receive_batch(&flood).drain();
    let mut known = |of: u16| {
        card.receive_batch(&[segment(of, 61), segment(of, 60)]).drain();
        card.take_lens().contains(&200)
    };
    let known = (0..64).map(&mut known).filter(|known| *known).count();
    assert!(known >= 56, "{known}");
}
