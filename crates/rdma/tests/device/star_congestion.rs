//! Congestion control of StaR, by the client for both directions: each controller under marks, and the pacing
//! of GDs.

use crate::common::{Faults, Link, Pair, pattern};
use nichrome_rdma::*;
use nichrome_wire::star::{PacketType, Repr};

type Verb = fn(Remote) -> Operation;

const DIRECTIONS: [(PacketType, Verb); 2] =
    [(PacketType::Rdp, Operation::Write), (PacketType::Gd, Operation::Read)];

/// Packets of a type in each round trip of a transfer of 1 MiB by the client. Checks what it transfers.
fn rounds(congestion: Congestion, mark: f64, (kind, operation): (PacketType, Verb)) -> Vec<usize> {
    const LEN: usize = 1 << 20;
    let configure = |config: &mut Config| {
        config.window = SendWindow { initial: 64, max: 64, read: 8 };
        config.star.congestion = congestion;
    };
    let mut pair = Pair::with(configure).seeded(1, Faults { mark, ..Faults::default() });
    pair.record = true;
    let [a, _] = pair.connect_star(1, &Link::default());
    let data = [0, 1].map(|end| pattern(LEN, end));
    for (end, data) in pair.ends.iter_mut().zip(&data) {
        end.fill(0, data);
    }
    let there = pair.ends[1].remote(0);
    pair.ends[0].post(a, 1, operation(there), 0, LEN);
    let mut rounds = Vec::new();
    let mut completions = Vec::new();
    while completions.is_empty() {
        pair.transmit();
        let of_kind =
            |(_, bytes): &(usize, Vec<u8>)| Repr::parse(bytes).unwrap().0.message.packet_type() == kind;
        rounds.push(pair.sent.drain(..).filter(of_kind).count());
        pair.run_for(2 * pair.delay);
        completions = pair.ends[0].completions();
    }
    assert_eq!((completions.len(), completions[0].status), (1, Status::Success));
    let source = &data[usize::from(kind == PacketType::Gd)];
    assert!(pair.ends.iter().all(|end| end.bytes(0, LEN) == source));
    rounds
}

#[test]
fn dctcp_halves_the_window_in_each_round_trip_in_which_all_packets_are_marked() {
    for direction in DIRECTIONS {
        assert_eq!(rounds(Congestion::Dctcp, 1.0, direction)[..7], [64, 32, 16, 8, 4, 2, 2], "{direction:?}");
    }
}

#[test]
fn without_marks_the_window_stays_open_whatever_the_controller() {
    for congestion in [Congestion::Dctcp, Congestion::Dcqcn(Dcqcn::default()), Congestion::None] {
        for direction in DIRECTIONS {
            assert_eq!(rounds(congestion, 0.0, direction)[..16], [64; 16], "{congestion:?} {direction:?}");
        }
    }
}

#[test]
fn without_congestion_control_marks_change_nothing() {
    for direction in DIRECTIONS {
        assert_eq!(rounds(Congestion::None, 1.0, direction)[..16], [64; 16], "{direction:?}");
    }
}

/// At 40 Gbit/s, 20 µs take about 90 packets. A notification in 50 µs halves the rate.
#[test]
fn dcqcn_lowers_the_rate_with_each_notification() {
    for direction in DIRECTIONS {
        let rounds = rounds(Congestion::Dcqcn(Dcqcn::default()), 1.0, direction);
        let sums: Vec<usize> = rounds.chunks(5).take(4).map(|rounds| rounds.iter().sum()).collect();
        assert!(sums.windows(2).all(|pair| pair[1] * 3 < pair[0] * 2), "{direction:?} {sums:?} {rounds:?}");
    }
}

/// With a share F of packets marked, alpha becomes F, and a mark reduces the window by F/2 instead of one
/// half.
#[test]
fn few_marks_take_little_of_the_window() {
    for direction in DIRECTIONS {
        let [free, few, many] = [0.0, 0.01, 0.5].map(|mark| rounds(Congestion::Dctcp, mark, direction).len());
        assert!(free <= few && few * 2 < many, "{direction:?}: {free} {few} {many}");
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
