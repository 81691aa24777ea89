//! The packets of seeded programs are what they were when the digests below were taken: order, headers and payload, apart
//! from memory keys and queue pair numbers, which are random, and the checks that cover them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod common;
#[path = "common/program.rs"]
mod program;

use common::{Faults, Link, Pair};
use nichrome_rdma::*;
use nichrome_wire::star;
use program::{Posted, Step, runs, step};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// Programs of each scenario.
const PROGRAMS: u64 = 12;

const LOSSY: Faults = Faults { loss: 0.02, duplicate: 0.02, reorder: 0.05, corrupt: 0.01, mark: 0.05 };

/// FNV-1a over the packets of all programs of a scenario.
fn digest(faults: Faults, connect: impl Fn(&mut Pair) -> [QpHandle; 2], change: impl Fn(&mut Config)) -> u64 {
    let mut runner = TestRunner::deterministic();
    let steps = proptest::collection::vec((0..2usize, step(), any::<bool>(), 0..3u8), 1..60);
    let mut digest = 0xCBF2_9CE4_8422_2325u64;
    for seed in 0..PROGRAMS {
        let posted: Vec<Posted> = steps.new_tree(&mut runner).unwrap().current();
        let mut pair = Pair::with(&change).seeded(seed, faults);
        pair.record = true;
        let qps = connect(&mut pair);
        let is_atomic = |step: &Step| matches!(step, Step::FetchAdd { .. } | Step::CompareSwap { .. });
        let stateless = pair.ends.each_ref().map(|end| end.device.stateless_connections() > 0);
        // A stateful side of StaR posts no atomics.
        let takes = |(end, step, ..): &&Posted| !stateless[1 - *end] || !is_atomic(step);
        runs(&mut pair, qps, posted.iter().filter(takes), 1, seed).unwrap();
        for (end, bytes) in &pair.sent {
            let text = format!("{end} {}", without_keys(bytes, stateless.contains(&true)));
            for byte in text.bytes() {
                digest = (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
            }
        }
    }
    digest
}

/// A packet in words, with keys and queue pair numbers left out.
fn without_keys(bytes: &[u8], is_star: bool) -> String {
    const SEGMENT: usize = star::Segment::LEN;
    if !is_star {
        let (repr, payload) = nichrome_wire::rdma::Repr::parse(bytes).unwrap();
        return format!("{} {payload:?}", blank(&format!("{repr:?}")));
    }
    let (repr, payload, _) = star::Repr::parse(bytes).unwrap();
    let mut payload = payload.to_vec();
    if let star::Message::Wqep(star::Element::Work(star::Wqe { data: star::Data::Segments(_), .. })) =
        repr.message
    {
        payload.chunks_exact_mut(SEGMENT).for_each(|segment| segment[SEGMENT - 4..].fill(0));
    }
    format!("{} {payload:?}", blank(&format!("{repr:?}")))
}

/// Leaves out the numbers of keys and queue pairs.
fn blank(text: &str) -> String {
    let mut blanked = String::new();
    let mut rest = text;
    for marker in std::iter::repeat(["RKey(", "QpNumber(", "key: "]) {
        let found = marker.iter().filter_map(|marker| Some(rest.find(marker)? + marker.len())).min();
        let Some(at) = found else { break };
        blanked.push_str(&rest[..at]);
        rest = rest[at..].trim_start_matches(|digit: char| digit.is_ascii_digit());
    }
    blanked + rest
}

fn link() -> Link {
    Link { psn: 0xFF_FFF0, ..Link::default() }
}

#[test]
fn reliable_connections_send_what_they_sent() {
    let connect = |pair: &mut Pair| pair.connect(QpType::Rc, &link());
    let digests = [
        digest(Faults::default(), connect, |_| {}),
        digest(LOSSY, connect, |_| {}),
        digest(LOSSY, connect, |config| config.roce.selective_repeat = SelectiveRepeat::Never),
        digest(LOSSY, connect, |config| config.roce.congestion = Congestion::Dcqcn(Dcqcn::default())),
        digest(LOSSY, connect, |config| config.roce.acknowledgement_delay = 60_000),
    ];
    assert_eq!(
        digests,
        [
            16238377152199226150,
            4216458871237489049,
            4523502802057414204,
            10475063729295964339,
            5983792981807056946
        ]
    );
}

#[test]
fn star_sends_what_it_sent() {
    let connect = |server| move |pair: &mut Pair| pair.connect_star(server, &link());
    let digests = [
        digest(Faults::default(), connect(0), |_| {}),
        digest(Faults::default(), connect(1), |_| {}),
        digest(LOSSY, connect(0), |_| {}),
        digest(LOSSY, connect(1), |_| {}),
    ];
    assert_eq!(
        digests,
        [1489364564247122740, 2867037516105095138, 14194285446099366116, 5785770387151941853]
    );
}
