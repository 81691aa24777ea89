//! Random programs of verbs on StaR over a network with faults, both roles: effects once and in order, and never a queue
//! pair that is stuck.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod common;

use common::program::{LANDING, MESSAGES, Model, ROOM, SOURCE, Seen, Step, TARGET, ZONE, faults, post, step};
use common::{Link, Pair, pattern};
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
        mtu in 0..5usize,
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
        for end in 0..2 {
            for zone in [SOURCE, TARGET, LANDING] {
                pair.ends[end].fill(zone, &pattern(ZONE, seed ^ (zone + end) as u64));
            }
        }
        let mut model = Model::new(&pair);
        let mut posted = [0usize; 2];
        let mut seen = [Seen::default(), Seen::default()];
        for (nth, (end, step, signaled, pause)) in steps.iter().enumerate() {
            let is_atomic = matches!(step, Step::FetchAdd { .. } | Step::CompareSwap { .. });
            if is_atomic && *end != server {
                continue;
            }
            post(&mut pair, qps[*end], *end, nth as u64, step, *signaled, &mut model);
            for at in 0..2 {
                // Receives come early or late: then the sender waits.
                while posted[at] < model.used[at].saturating_sub(2) + early {
                    pair.ends[at].receive(qps[at], posted[at] as u64, MESSAGES + posted[at] % 64 * ROOM, ROOM);
                    posted[at] += 1;
                }
            }
            (0..*pause * 3).for_each(|_| { pair.step(); });
            (0..2).for_each(|at| seen[at].gather(&mut pair.ends[at]));
        }
        for at in 0..2 {
            while posted[at] < model.used[at] {
                pair.ends[at].receive(qps[at], posted[at] as u64, MESSAGES + posted[at] % 64 * ROOM, ROOM);
                posted[at] += 1;
            }
        }
        pair.run();
        (0..2).for_each(|at| seen[at].gather(&mut pair.ends[at]));
        if seen.iter().any(|seen| !seen.failed.is_empty()) {
            // Bad luck that a program must live with: then an end says so, and nothing waits there.
            prop_assert!(faults.loss + faults.corrupt > 0.0, "{:?}", seen[0].failed.iter().chain(&seen[1].failed).collect::<Vec<_>>());
            let gave_up = seen.iter().flat_map(|seen| seen.failed.first());
            prop_assert!(gave_up.clone().any(|wc| wc.status == Status::RetryExceeded), "{:?}", gave_up.collect::<Vec<_>>());
            return Ok(());
        }
        for (at, (seen, end)) in seen.iter().zip(&pair.ends).enumerate() {
            prop_assert_eq!(&seen.sends, &model.sends[at]);
            prop_assert_eq!(&seen.receives, &model.receives[at]);
            let differs = end.device.memory().bytes().iter().zip(&model.memory[at]).position(|(is, should)| is != should);
            prop_assert_eq!(differs, None, "memory of {}", at);
            prop_assert_eq!(end.device.poll_timeout(), None);
        }
    }
}
