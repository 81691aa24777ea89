//! Segments of a flow whose ACK numbers differ: `gro` merges none of them, and continues to hold the flow.

use crate::common::{Card, Change, data, us};
use crate::gro::with_ident;
use nichrome_lro::{FlushReason, PassReason};
use nichrome_wire::{SeqNumber, TcpFlags, TcpFrame};
/// Second segments with another ACK number, each with the name of the other difference from the first.
fn with_another_ack() -> Vec<(&'static str, TcpFrame)> {
    let second = || data(100, 100).with(|frame| frame.ack += 1);
    let with_ident = with_ident(100, 77).with(|frame| frame.ack += 1);
    vec![
        ("nothing", second()),
        ("identification", with_ident),
        ("window", second().with(|frame| frame.window += 1)),
        ("PSH", second().flags(TcpFlags::PSH)),
        ("FIN", second().flags(TcpFlags::FIN)),
        ("CWR", second().flags(TcpFlags::CWR)),
        ("ECN echo", second().flags(TcpFlags::ECE)),
        ("a longer payload", second().at(0, 101)),
        ("a shorter payload", second().at(0, 99)),
        ("a gap", second().at(100, 100)),
        ("options", second().timestamps(1, 2)),
        ("another flow", second().with(|frame| frame.src_port += 1)),
    ]
}

/// The engine restarts a run in its place only at the time at which it began: compares that with a run that
/// is flushed and begun.
#[test]
fn a_run_started_again_is_as_one_flushed_and_begun() {
    for (case, second) in with_another_ack() {
        for first in [vec![data(0, 100)], vec![data(0, 50), data(50, 50)]] {
            let third = second.clone().at(second.payload.len() as u32, 100);
            let segments: Vec<_> = first.into_iter().chain([second.clone(), third]).collect();
            let outputs = |pause| {
                let mut card = Card::gro();
                for segment in &segments {
                    card.receive(segment).wait(pause);
                }
                (card.drain().take(), card.statistics())
            };
            assert_eq!(outputs(us(0)), outputs(us(1)), "{case}");
        }
    }
}

/// All in one batch, in which the engine restarts a run with several segments in one call.
#[test]
fn segments_with_an_equal_ack_number_are_merged_behind_one_with_another() {
    for (acks, expected) in [
        ([1, 2, 2, 2], vec![100, 300]),
        ([1, 1, 2, 2], vec![200, 200]),
        ([1, 2, 3, 3], vec![100, 100, 200]),
        ([1, 2, 3, 4], vec![100; 4]),
    ] {
        let segments = (0..).zip(acks).map(|(nth, ack)| data(nth * 100, 100).with(|frame| frame.ack.0 = ack));
        let mut card = Card::gro();
        card.receive_batch(&segments.map(|segment| segment.build()).collect::<Vec<_>>());
        assert_eq!(card.drain().take_lens(), expected, "{acks:?}");
    }
}

#[test]
fn a_flow_held_for_some_time_is_held_anew_behind_the_others() {
    let flow =
        |port: u16, at| data(at, 100).with(|frame| (frame.src_port, frame.ack) = (port, SeqNumber(at)));
    let ports = |card: &mut Card| -> Vec<u8> { card.take().iter().map(|sent| sent.bytes()[35]).collect() };
    let mut card = Card::gro();
    card.receive(&flow(1, 0)).receive(&flow(2, 0)).wait(us(1)).receive(&flow(1, 100));
    assert_eq!(ports(&mut card), [1]);
    assert_eq!(ports(card.drain()), [2, 1]);
}

#[test]
fn a_wrong_checksum_with_another_ack_number_is_not_held() {
    let mut card = Card::gro();
    let mut corrupt = data(100, 100).with(|frame| frame.ack = SeqNumber(2)).build();
    *corrupt.last_mut().unwrap() ^= 1;
    card.receive(&data(0, 100)).receive_bytes(corrupt);
    assert_eq!(card.take_lens(), [100, 100]);
    assert_eq!((card.flushes(FlushReason::Barrier), card.passes(PassReason::BadChecksum)), (1, 1));
}
