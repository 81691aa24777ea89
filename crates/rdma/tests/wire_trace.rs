//! The packets of seeded programs are what they were when the digests below were taken: order, headers and payload, apart
//! from memory keys and queue pair numbers, which are random, and the checks that cover them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod common;
#[path = "common/program.rs"]
mod program;

use common::{Faults, Link, Pair};
use nichrome_rdma::*;
use program::{Posted, runs, step};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// Programs of each scenario.
const PROGRAMS: u64 = 12;

const LOSSY: Faults = Faults { loss: 0.02, duplicate: 0.02, reorder: 0.05, corrupt: 0.01, mark: 0.05 };

/// FNV-1a over the packets of all programs of a scenario.
fn digest(faults: Faults, change: impl Fn(&mut Config)) -> u64 {
    let mut runner = TestRunner::deterministic();
    let steps = proptest::collection::vec((0..2usize, step(), any::<bool>(), 0..3u8), 1..60);
    let mut digest = 0xCBF2_9CE4_8422_2325u64;
    for seed in 0..PROGRAMS {
        let posted: Vec<Posted> = steps.new_tree(&mut runner).unwrap().current();
        let mut pair = Pair::with(&change).seeded(seed, faults);
        pair.record = true;
        let qps = pair.connect(QpType::Rc, &link());
        runs(&mut pair, qps, posted.iter(), 1, seed).unwrap();
        for (end, bytes) in &pair.sent {
            let text = format!("{end} {}", without_keys(bytes));
            for byte in text.bytes() {
                digest = (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
            }
        }
    }
    digest
}

/// A packet in words, with keys and queue pair numbers left out.
fn without_keys(bytes: &[u8]) -> String {
    let (repr, payload) = nichrome_wire::rdma::Repr::parse(bytes).unwrap();
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
    let digests = [
        digest(Faults::default(), |_| {}),
        digest(LOSSY, |_| {}),
        digest(LOSSY, |config| config.roce.selective_repeat = SelectiveRepeat::Never),
        digest(LOSSY, |config| config.roce.congestion = Congestion::Dcqcn(Dcqcn::default())),
        digest(LOSSY, |config| config.roce.acknowledgement_delay = 60_000),
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
