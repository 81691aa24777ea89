//! Random programs of verbs over a network with faults: effects once and in order, and never a queue pair that is stuck.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod common;
#[path = "common/program.rs"]
mod program;

use common::{Link, Pair, pattern};
use nichrome_rdma::*;
use program::{IMMEDIATE, LANDING, MESSAGES, Model, ROOM, SOURCE, Seen, TARGET, ZONE, faults, post, step};
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
        paced in any::<bool>(),
        delay in prop_oneof![Just(0u64), Just(60_000)],
    ) {
        let mut pair = Pair::with(|config| {
            config.window = SendWindow { initial: window, max: 4 * window, read: window.min(4) };
            // Both, either one, or none takes part in selective repeat.
            if selective >> config.seed & 1 == 0 {
                config.selective_repeat = SelectiveRepeat::Never;
            }
            if paced {
                config.congestion = Congestion::Dcqcn(Dcqcn::default());
            }
            config.held_packets = held;
            config.acknowledgement_delay = delay;
        }).seeded(seed, faults);
        let link = Link { mtu: PathMtu::ALL[mtu], rd_atomic, psn: seed as u32, ..Link::default() };
        let qps = pair.connect(QpType::Rc, &link);
        for end in 0..2 {
            for zone in [SOURCE, TARGET, LANDING] {
                pair.ends[end].fill(zone, &pattern(ZONE, seed ^ (zone + end) as u64));
            }
        }
        let mut model = Model::new(&pair);
        let mut posted = [0usize; 2];
        let mut seen = [Seen::default(), Seen::default()];
        for (nth, (end, step, signaled, pause)) in steps.iter().enumerate() {
            post(&mut pair, qps[*end], *end, nth as u64, step, *signaled, &mut model);
            for at in 0..2 {
                // Receives come early or late: then the sender is asked to wait.
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
            prop_assert!(faults.loss + faults.corrupt > 0.0);
            let gave_up = seen.iter().flat_map(|seen| seen.failed.first());
            prop_assert!(gave_up.clone().any(|wc| wc.status == Status::RetryExceeded), "{:?}", gave_up.collect::<Vec<_>>());
            return Ok(());
        }
        for (at, (seen, end)) in seen.iter().zip(&pair.ends).enumerate() {
            prop_assert_eq!(&seen.sends, &model.sends[at]);
            prop_assert_eq!(&seen.receives, &model.receives[at]);
            prop_assert!(end.device.memory().bytes() == model.memory[at], "memory of {}", at);
            prop_assert_eq!(end.device.poll_timeout(), None);
        }
    }

    /// Whatever is asked, also what may not be, and whenever the peer goes away: each request completes once, in order,
    /// and the objects can be destroyed.
    #[test]
    fn every_request_completes_whatever_goes_wrong(
        steps in proptest::collection::vec((0..2usize, 0..9u8, 0..5000usize, 0..4u8), 1..50),
        faults in faults(),
        seed in any::<u64>(),
        dies in prop_oneof![Just(None), (0..200usize).prop_map(Some)],
    ) {
        let mut pair = Pair::with(|config| config.acknowledgement_delay = seed % 2 * 60_000).seeded(seed, faults);
        let qps = pair.connect(QpType::Rc, &Link { rnr_retry: 2, retry_count: 3, psn: seed as u32, ..Link::default() });
        let mut posted = [Vec::new(), Vec::new()];
        let mut completed = [Vec::new(), Vec::new()];
        let mut turns = 0;
        for (nth, (end, what, len, pause)) in steps.into_iter().enumerate() {
            let there = pair.ends[1 - end].remote(0);
            let wrong = Remote { rkey: RKey(there.rkey.0 ^ 0x55), ..there };
            let operation = match what {
                0 => Operation::Write(there),
                1 => Operation::Read(there),
                2 => Operation::Send,
                3 => Operation::Write(wrong),
                4 => Operation::Read(Remote { address: 3, ..there }),
                5 => Operation::WriteWithImmediate(there, IMMEDIATE),
                6 => Operation::SendWithInvalidate(RKey(5)),
                7 => Operation::LocalInvalidate(RKey(5)),
                _ => {
                    pair.ends[end].receive(qps[end], nth as u64, 0, 2500);
                    continue;
                }
            };
            let buffers = [pair.ends[end].sge(0, if what == 7 { 0 } else { len })];
            pair.ends[end].device.post_send(qps[end], &SendRequest::new(nth as u64, operation, &buffers)).unwrap();
            posted[end].push(nth as u64);
            for _ in 0..pause {
                turns += 1;
                if dies == Some(turns) {
                    pair.faults.loss = 1.0;
                }
                pair.step();
            }
        }
        if dies.is_some() {
            pair.faults.loss = 1.0;
        }
        pair.run();
        for (end, completed) in pair.ends.iter_mut().zip(&mut completed) {
            let sent = |wc: &Completion| {
                !matches!(wc.operation, CompletedOperation::Receive | CompletedOperation::ReceiveWithWrite)
            };
            completed.extend(end.completions().iter().filter(|wc| sent(wc)).map(|wc| wc.wr_id));
        }
        prop_assert_eq!(&completed, &posted);
        for (end, qp) in pair.ends.iter_mut().zip(qps) {
            let device = &mut end.device;
            prop_assert_eq!(device.poll_timeout(), None);
            device.destroy_qp(qp).unwrap();
            device.destroy_cq(end.cq).unwrap();
            device.deregister(end.region).unwrap();
            device.destroy_domain(end.domain).unwrap();
        }
    }
}
