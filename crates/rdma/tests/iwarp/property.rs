//! Random programs of verbs over streams that split, stall, break and damage.

use nichrome_rdma::iwarp::{RtrMessage, Terms};
use nichrome_wire::iwarp::Crc;
use proptest::prelude::*;

use crate::common::streams::Carriage;
use crate::common::{Link, Pair};
use crate::program::{ScheduledFaults, Step, completes, requests, runs, scheduled_faults, step};
use crate::support::{TERMS, both};

fn terms() -> impl Strategy<Value = Terms> {
    let rtr = prop_oneof![
        Just(Some(RtrMessage::Send)),
        Just(Some(RtrMessage::Write)),
        Just(Some(RtrMessage::Read))
    ];
    let crc = prop_oneof![Just(Crc::Used), Just(Crc::Unused)];
    let max_ulpdu = prop_oneof![40..200u16, Just(1442), Just(Terms::LONGEST_ULPDU)];
    (rtr, crc, any::<(bool, bool)>(), 1..5u16, 1..5u16, max_ulpdu).prop_map(
        |(rtr, crc, (markers_out, markers_in), ird, ord, max_ulpdu)| Terms {
            rtr,
            crc,
            markers_out,
            markers_in,
            ird,
            ord,
            max_ulpdu,
            ..TERMS
        },
    )
}

fn carriage() -> impl Strategy<Value = Carriage> {
    let piece = prop_oneof![1..100usize, 1000..5000usize, Just(1 << 20)];
    let capacity = prop_oneof![70_000..100_000usize, Just(1 << 20)];
    (piece, capacity).prop_map(|(piece, capacity)| Carriage { piece, capacity, damage: 0.0 })
}

/// iWARP has no SEND with immediate data.
fn step_of_iwarp() -> impl Strategy<Value = Step> {
    step().prop_map(|step| match step {
        Step::SendWithImmediate { from, len } => Step::Send { from, len, inline: false },
        step => step,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn programs_do_what_they_say_once_and_in_order(
        steps in proptest::collection::vec((0..2usize, step_of_iwarp(), any::<bool>(), 0..3u8), 1..60),
        terms in terms(),
        carriage in carriage(),
        rd_atomic in 1..5u8,
        early in 0..4usize,
        seed in any::<u64>(),
    ) {
        let mut pair = Pair::new().seeded(seed, Default::default());
        pair.streams.carriage = carriage;
        let qps = pair.connect_iwarp(&Link { rd_atomic, ..Link::default() }, both(terms));
        runs(&mut pair, qps, steps.iter(), early, seed)?;
        prop_assert!(pair.streams.endings.is_empty());
        prop_assert_eq!(pair.streams.waiting(0) + pair.streams.waiting(1), 0);
    }

    /// Valid and invalid requests on a stream that breaks or is damaged: each request completes once, in
    /// order, and the objects can be destroyed.
    #[test]
    fn every_request_completes_whatever_goes_wrong(
        requests in requests(9),
        terms in terms(),
        carriage in carriage(),
        damage in prop_oneof![Just(0.0), 0.0..0.2],
        seed in any::<u64>(),
        scheduled_faults in scheduled_faults(),
        loses_all_after in 0..200usize,
    ) {
        let mut pair = Pair::new().seeded(seed, Default::default());
        pair.streams.carriage = Carriage { damage, ..carriage };
        let qps = pair.connect_iwarp(&Link::default(), both(terms));
        completes(&mut pair, qps, requests, ScheduledFaults { loses_all_after: Some(loses_all_after), ..scheduled_faults })?;
    }
}
