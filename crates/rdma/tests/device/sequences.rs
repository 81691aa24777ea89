//! Generated sequences of operations; the fuzz target `rdma` has the same from a fuzzer.

use nichrome_rdma::Counters;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

#[test]
fn promises_are_kept() {
    let mut counters = Vec::new();
    for seed in 0..if cfg!(debug_assertions) { 1500 } else { 20_000 } {
        let mut random = Pcg64::seed_from_u64(seed);
        let mut left = random.random_range(0..2000);
        let mut choose = |bound: u32| {
            left = u32::checked_sub(left, 1)?;
            Some(random.random_range(0..bound))
        };
        counters.extend(crate::common::generated::run(&mut choose));
    }
    // What the sequences reach: each of these happens often.
    type Count = fn(&Counters) -> u64;
    let reached: [(&str, Count); 14] = [
        ("received", |counters| counters.received),
        ("retransmitted", |counters| counters.retransmitted),
        ("timeouts", |counters| counters.timeouts),
        ("duplicates", |counters| counters.duplicates),
        ("out_of_sequence", |counters| counters.out_of_sequence),
        ("sequence_naks_received", |counters| counters.sequence_naks_received),
        ("rnr_naks_received", |counters| counters.rnr_naks_received),
        ("refused", |counters| counters.refused),
        ("completions_in_error", |counters| counters.completions_in_error),
        ("congestion_notifications_received", |counters| counters.congestion_notifications_received),
        ("dropped_icrc", |counters| counters.dropped_icrc),
        ("dropped_state", |counters| counters.dropped_state),
        ("dropped_stale", |counters| counters.dropped_stale),
        ("dropped_unreliable", |counters| counters.dropped_unreliable),
    ];
    for (name, count) in reached {
        let times: u64 = counters.iter().map(count).sum();
        assert!(times > 100, "{name}: {times}");
    }
}
