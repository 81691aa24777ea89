//! Congestion control of StaR, which the client does for both directions: DCTCP's window, and the pacing of GDs.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod common;

use common::{Faults, Link, Pair};
use nichrome_rdma::*;
use nichrome_wire::star::{PacketType, Repr};

/// Packets of a type that leave in each round trip of a long transfer by the client.
fn rounds(mark: f64, kind: PacketType, operation: Verb) -> Vec<usize> {
    let window = SendWindow { initial: 64, max: 64, read: 8 };
    let mut pair =
        Pair::with(|config| config.window = window).seeded(1, Faults { mark, ..Faults::default() });
    pair.record = true;
    let [a, _] = pair.connect_star(1, &Link::default());
    let there = pair.ends[1].remote(0);
    pair.ends[0].post(a, 1, operation(there), 0, 1 << 20);
    let mut rounds = Vec::new();
    while pair.ends[0].completions().is_empty() {
        pair.transmit();
        let of_kind =
            |(_, bytes): &(usize, Vec<u8>)| Repr::parse(bytes).unwrap().0.message.packet_type() == kind;
        rounds.push(pair.sent.drain(..).filter(of_kind).count());
        pair.run_for(2 * pair.delay);
    }
    rounds
}

type Verb = fn(Remote) -> Operation;

const DIRECTIONS: [(PacketType, Verb); 2] =
    [(PacketType::Rdp, Operation::Write), (PacketType::Gd, Operation::Read)];

#[test]
fn marks_on_all_packets_halve_the_window_in_each_round_trip() {
    for (kind, operation) in DIRECTIONS {
        let rounds = rounds(1.0, kind, operation);
        assert_eq!(rounds[..7], [64, 32, 16, 8, 4, 2, 2], "{kind:?}");
    }
}

#[test]
fn without_marks_the_window_stays_open() {
    for (kind, operation) in DIRECTIONS {
        let rounds = rounds(0.0, kind, operation);
        assert_eq!(rounds[..16], [64; 16], "{kind:?}");
    }
}

/// With a share F of packets marked, alpha becomes F, and the window is cut by F/2 where one halves it else.
#[test]
fn few_marks_take_little_of_the_window() {
    for (kind, operation) in DIRECTIONS {
        let (few, many) = (rounds(0.01, kind, operation).len(), rounds(0.5, kind, operation).len());
        let free = rounds(0.0, kind, operation).len();
        assert!(free <= few && few * 2 < many, "{kind:?}: {free} {few} {many}");
    }
}

#[test]
fn requests_for_data_are_spread_over_the_round_trip() {
    let mut pair = Pair::with(|config| config.window = SendWindow { initial: 64, max: 64, read: 8 });
    pair.record = true;
    pair.delay = 1_000_000;
    let [a, _] = pair.connect_star(1, &Link { timeout: 16, ..Link::default() });
    let there = pair.ends[1].remote(0);
    for _ in 0..4 {
        pair.ends[0].post(a, 1, Operation::Read(there), 0, 64 << 10);
    }
    // What one step sends, once the round trip is known, is a part of the window.
    pair.run_for(1_900_000);
    pair.sent.clear();
    let (mut largest, mut done) = (0, 0);
    while done < 4 {
        largest = largest.max(pair.sent.drain(..).filter(|(from, _)| *from == 0).count());
        assert!(pair.step());
        done += pair.ends[0].completions().len();
    }
    assert!((1..=20).contains(&largest), "{largest}");
}
