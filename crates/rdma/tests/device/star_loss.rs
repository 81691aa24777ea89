//! StaR compared with RoCE on a path that loses packets, in virtual time.

use crate::common::{Fate, Faults, Link, Pair};
use nichrome_rdma::*;

const SIZE: usize = 65_536;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Roce,
    Star,
}

/// WRITEs of 64 KB on `qps` connections in turn, `depth` outstanding on each.
#[derive(Clone, Copy)]
struct Load {
    qps: usize,
    depth: usize,
    count: u64,
    /// Whether outstanding WRITEs are to different bytes.
    distinct: bool,
}

/// Runs the load with the client at end 0; returns its nanoseconds.
fn run(transport: Transport, load: Load, loss: f64, seed: u64) -> u64 {
    let mut pair = Pair::new().seeded(seed, Faults { loss, ..Faults::default() });
    let link = Link { mtu: PathMtu::B4096, timeout: 14, ..Link::default() };
    let qps: Vec<QpHandle> = (0..load.qps)
        .map(|_| match transport {
            Transport::Roce => pair.connect(QpType::Rc, &link)[0],
            Transport::Star => pair.connect_star(1, &link)[0],
        })
        .collect();
    let (mut posted, mut done) = (0, 0);
    let mut post = |pair: &mut Pair, nth: usize| {
        if posted < load.count {
            let slot = if load.distinct { posted as usize % 64 } else { nth };
            let there = pair.ends[1].remote(slot * SIZE);
            pair.ends[0].post(qps[nth], nth as u64, Operation::Write(there), slot * SIZE, SIZE);
            posted += 1;
        }
    };
    (0..load.depth).for_each(|_| (0..load.qps).for_each(|nth| post(&mut pair, nth)));
    while done < load.count {
        assert!(pair.step(), "stuck after {done} of {}", load.count);
        for completion in pair.ends[0].completions() {
            assert_eq!(completion.status, Status::Success);
            done += 1;
            post(&mut pair, completion.wr_id as usize);
        }
    }
    pair.now.as_nanos()
}

/// RoCE's time divided by StaR's, over several seeds.
fn ratio(load: Load, loss: f64) -> f64 {
    let nanos = |transport| (0..8).map(|seed| run(transport, load, loss, seed)).sum::<u64>() as f64;
    nanos(Transport::Roce) / nanos(Transport::Star)
}

#[test]
fn eight_connections_are_as_fast_as_on_roce() {
    for loss in [0.0, 0.001, 0.01] {
        let ratio = ratio(Load { qps: 8, depth: 8, count: 1000, distinct: true }, loss);
        assert!(ratio >= 0.9, "at a loss of {loss}: {ratio}");
    }
}

/// Without loss, WRITEs to the same bytes wait for each other here, since this network's rate has no limit.
#[test]
fn writes_to_the_same_bytes_are_as_fast_as_on_roce_where_packets_are_lost() {
    for loss in [0.001, 0.01] {
        let ratio = ratio(Load { qps: 8, depth: 8, count: 1000, distinct: false }, loss);
        assert!(ratio >= 0.9, "at a loss of {loss}: {ratio}");
    }
}

#[test]
fn one_request_at_a_time_waits_for_some_round_trips_and_not_for_packets_to_age() {
    for loss in [0.0, 0.001, 0.01] {
        let ratio = ratio(Load { qps: 1, depth: 1, count: 1000, distinct: false }, loss);
        assert!(ratio >= 0.7, "at a loss of {loss}: {ratio}");
    }
}

/// All packets are lost for a while, in both directions, again and again.
#[test]
fn bursts_of_loss_end_in_recovery() {
    for (burst, period) in [(1_000_000, 5_000_000), (20_000_000, 100_000_000), (100_000_000, 400_000_000)] {
        let mut pair = Pair::new();
        let link = Link { mtu: PathMtu::B4096, timeout: 12, ..Link::default() };
        let [client, server] = pair.connect_star(1, &link);
        let started = std::rc::Rc::new(std::cell::Cell::new(0));
        let clock = started.clone();
        pair.fates = Some(Box::new(
            move |_, _| if clock.get() % period < burst { Fate::IsLost } else { Fate::Arrives },
        ));
        for nth in 0..40 {
            let there = pair.ends[1].remote(0);
            pair.ends[0].post(client, nth, Operation::Write(there), 0, SIZE);
            pair.ends[0].receive(client, nth, SIZE, 8);
            pair.ends[1].post(server, nth, Operation::Send, 0, 8);
        }
        let mut done = [0, 0];
        while done != [80, 40] {
            started.set(pair.now.as_nanos());
            assert!(pair.step(), "stuck at {done:?}");
            for (end, done) in pair.ends.iter_mut().zip(&mut done) {
                let completions = end.completions();
                assert!(completions.iter().all(|completion| completion.status == Status::Success));
                *done += completions.len();
            }
        }
    }
}
