//! Compares the packets of seeded programs with recorded digests: order, headers and payload, without memory
//! keys and queue pair numbers, which are random, and the checks that cover them.

use crate::common::{Faults, Link, Pair};
use crate::program::{Posted, Step, runs, step};
use nichrome_rdma::iwarp::{Role, RtrMessage, Terms};
use nichrome_rdma::*;
use nichrome_wire::iwarp::{AtomicRequest, Crc, Fpdu, Opcode, ReadRequest, Segment};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// Programs of each scenario.
const PROGRAMS: u64 = 12;

const LOSSY: Faults = Faults { loss: 0.02, duplicate: 0.02, reorder: 0.05, corrupt: 0.01, mark: 0.05 };

/// FNV-1a.
struct Digest(u64);

impl Digest {
    fn add(&mut self, text: &str) {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
        }
    }
}

/// The programs of a scenario with their seeds.
fn programs() -> impl Iterator<Item = (u64, Vec<Posted>)> {
    let mut runner = TestRunner::deterministic();
    let steps = proptest::collection::vec((0..2usize, step(), any::<bool>(), 0..3u8), 1..60);
    (0..PROGRAMS).map(move |seed| (seed, steps.new_tree(&mut runner).unwrap().current()))
}

/// Returns the digest of the packets of all programs of a scenario.
fn digest(faults: Faults, change: impl Fn(&mut Config)) -> u64 {
    let mut digest = Digest(0xCBF2_9CE4_8422_2325);
    for (seed, posted) in programs() {
        let mut pair = Pair::with(&change).seeded(seed, faults);
        pair.record = true;
        let qps = pair.connect(QpType::Rc, &link());
        runs(&mut pair, qps, posted.iter(), 1, seed).unwrap();
        for (end, bytes) in &pair.sent {
            digest.add(&format!("{end} {}", without_keys(bytes)));
        }
    }
    digest.0
}

/// Returns the digest of the segments of all programs on iWARP.
fn digest_of_segments(change: impl Fn(&mut Terms)) -> u64 {
    let mut digest = Digest(0xCBF2_9CE4_8422_2325);
    for (seed, mut posted) in programs() {
        let mut initiator = Terms {
            role: Role::Initiator,
            crc: Crc::Used,
            markers_out: false,
            markers_in: false,
            ird: 4,
            ord: 4,
            rtr: Some(RtrMessage::Write),
            extended: true,
            max_ulpdu: Terms::LONGEST_ULPDU,
        };
        change(&mut initiator);
        let mut pair = Pair::new().seeded(seed, Faults::default());
        pair.streams.record = true;
        let terms = [initiator, Terms { role: Role::Responder, ..initiator }];
        let qps = pair.connect_iwarp(&link(), terms);
        posted.retain(|(_, step, ..)| !matches!(step, Step::SendWithImmediate { .. }));
        runs(&mut pair, qps, posted.iter(), 1, seed).unwrap();
        for (end, bytes) in &pair.streams.sent {
            let mut rest = &bytes[..];
            while let Some(fpdu) = Fpdu::parse(rest, initiator.crc).unwrap() {
                let (segment, payload) = Segment::parse(fpdu.ulpdu).unwrap();
                let payload = match segment.opcode {
                    Opcode::ReadRequest => {
                        format!("{:?}", ReadRequest::from_bytes(payload.try_into().unwrap()))
                    }
                    Opcode::AtomicRequest => {
                        format!("{:?}", AtomicRequest::from_bytes(payload.try_into().unwrap()))
                    }
                    _ => format!("{payload:?}"),
                };
                digest.add(&format!("{end} {}", blank(&format!("{segment:?} {payload}"))));
                rest = &rest[fpdu.len..];
            }
        }
    }
    digest.0
}

/// Returns a packet as text, without keys and queue pair numbers.
fn without_keys(bytes: &[u8]) -> String {
    let (repr, payload) = nichrome_wire::rdma::Repr::parse(bytes).unwrap();
    format!("{} {payload:?}", blank(&format!("{repr:?}")))
}

/// Removes the numbers of keys and queue pairs.
fn blank(text: &str) -> String {
    let mut blanked = String::new();
    let mut rest = text;
    for marker in std::iter::repeat(["RKey(", "QpNumber(", "STag(", "key: "]) {
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
fn reliable_connections_send_the_recorded_packets() {
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
            329527867362528251,
            15523624354365407624,
            4766057055094858902,
            13660304858908969922,
            9562294711209084060
        ]
    );
}

#[test]
fn iwarp_sends_the_recorded_segments() {
    let digests = [
        digest_of_segments(|_| {}),
        digest_of_segments(|terms| (terms.crc, terms.rtr) = (Crc::Unused, Some(RtrMessage::Read))),
        digest_of_segments(|terms| (terms.max_ulpdu, terms.ord) = (1442, 1)),
    ];
    assert_eq!(digests, [17824549153341419433, 2188641296468786433, 17234433482920340573]);
}
