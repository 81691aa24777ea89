//! Random programs of verbs over a network with faults: each operation takes effect once and in order, and no
//! queue pair gets stuck.

use crate::common::{Link, Pair};
use crate::program::{completes, faults, requests, runs, scheduled_faults, step};
use nichrome_rdma::*;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn programs_do_what_they_say_once_and_in_order(
        steps in proptest::collection::vec((0..2usize, step(), any::<bool>(), 0..3u8), 1..60),
        faults in faults(),
        seed in any::<u64>(),
        mtu in 0..5usize,
        rd_atomic in 1..5u8,
        early in 0..4usize,
        window in prop_oneof![Just(1u32), 2..8u32, Just(64)],
        selective in 0..4u8,
        held in prop_oneof![Just(0usize), Just(3), Just(1000)],
        congestion in prop_oneof![
            Just(Congestion::Window),
            Just(Congestion::Dctcp),
            Just(Congestion::Dcqcn(Dcqcn::default())),
            Just(Congestion::None),
        ],
        delay in prop_oneof![Just(0u64), Just(60_000)],
    ) {
        let mut pair = Pair::with(|config| {
            config.window = SendWindow { initial: window, max: 4 * window, read: window.min(4) };
            // Both, either one, or none takes part in selective repeat.
            if selective >> config.seed & 1 == 0 {
                config.roce.selective_repeat = SelectiveRepeat::Never;
            }
            config.roce.congestion = congestion;
            config.roce.held_packets = held;
            config.roce.acknowledgement_delay = delay;
        }).seeded(seed, faults);
        let link = Link { mtu: PathMtu::ALL[mtu], rd_atomic, psn: seed as u32, ..Link::default() };
        let qps = pair.connect(QpType::Rc, &link);
        runs(&mut pair, qps, steps.iter(), early, seed)?;
    }

    /// Valid and invalid requests, with a peer that may disappear: each completes once, in order, and the
    /// objects can be destroyed.
    #[test]
    fn every_request_completes_whatever_goes_wrong(
        requests in requests(9),
        faults in faults(),
        seed in any::<u64>(),
        scheduled_faults in scheduled_faults(),
    ) {
        let mut pair = Pair::with(|config| config.roce.acknowledgement_delay = seed % 2 * 60_000).seeded(seed, faults);
        let qps = pair.connect(QpType::Rc, &Link { rnr_retry: 2, retry_count: 3, psn: seed as u32, ..Link::default() });
        completes(&mut pair, qps, requests, scheduled_faults)?;
    }
}
