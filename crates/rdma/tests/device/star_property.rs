//! Random programs of verbs on StaR over a network with faults, in both roles: each effect once and in order,
//! and no queue pair gets stuck.

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
        server in 0..2usize,
        seed in any::<u64>(),
        mtu in 1..5usize,
        early in 0..4usize,
        window in prop_oneof![Just(1u32), 2..8u32, Just(64)],
        waiting in prop_oneof![Just(1usize), Just(1000)],
    ) {
        let mut pair = Pair::with(|config| {
            config.window = SendWindow { initial: window, max: 4 * window, read: 1 };
            config.star.waiting_packets = waiting;
        }).seeded(seed, faults);
        let link = Link { mtu: PathMtu::ALL[mtu], psn: seed as u32 & 0xFF_FFFF, ..Link::default() };
        let qps = pair.connect_star(server, &link);
        runs(&mut pair, qps, steps.iter(), early, seed)?;
    }

    /// Valid and invalid requests, with a peer that may disappear: each completes once, in order, and the
    /// objects can be destroyed.
    #[test]
    fn every_request_completes_whatever_goes_wrong(
        requests in requests(8),
        faults in faults(),
        server in 0..2usize,
        seed in any::<u64>(),
        scheduled_faults in scheduled_faults(),
    ) {
        let mut pair = Pair::new().seeded(seed, faults);
        let link = Link { rnr_retry: 2, retry_count: 3, psn: seed as u32 & 0xFF_FFFF, ..Link::default() };
        let qps = pair.connect_star(server, &link);
        completes(&mut pair, qps, requests, scheduled_faults)?;
    }
}
