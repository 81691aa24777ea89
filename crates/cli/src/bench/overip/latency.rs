//! Latency: half the round-trip time of messages, by message size and by the path's delay (figures 3a, 3b and
//! 8).

use std::time::{Duration, Instant};

use super::end::{Pair, run_both};
use super::hosts::Hosts;
use super::kind::Kind;
use super::plan::Plan;
use super::processors::Processors;
use super::series::{Axis, Grid, median_us};
use super::testbed::{Testbed, millis};
use crate::side::Side;

/// Message size in bytes, unless the figure varies it.
pub(super) const SIZE: usize = 1024;

/// Expected round trip on a path without delay.
pub(super) const BARE_ROUND_TRIP: Duration = Duration::from_micros(150);

/// Expected increase of a round trip per byte.
const TIME_OF_A_BYTE: Duration = Duration::from_nanos(40);

/// Warm-up messages, not counted: the first ones find cold caches and sleeping threads.
const WARM_UP: u32 = 2;

const LATENCY: Axis = Axis { quantity: "latency_us", label: "one-way latency (µs)" };
const SIZES: Axis = Axis { quantity: "bytes", label: "message size (bytes)" };
/// The axis of path delays.
pub(super) const DELAYS: Axis = Axis { quantity: "delay_ms", label: "delay of the path (ms)" };

/// Measures `iterations` round trips of `len` bytes. The right end starts each, and works between sending and
/// receiving.
pub(super) fn round_trips(
    processors: &Processors,
    [left, right]: &mut Pair,
    len: usize,
    iterations: u32,
    meanwhile: impl Fn() + Sync,
) -> anyhow::Result<Vec<Duration>> {
    let answer = || {
        for _ in 0..WARM_UP + iterations {
            left.receive(len)?;
            left.send(len)?;
        }
        Ok(())
    };
    let ask = || {
        let mut times = Vec::new();
        for nth in 0..WARM_UP + iterations {
            let start = Instant::now();
            right.send(len)?;
            if nth >= WARM_UP {
                meanwhile();
            }
            right.receive(len)?;
            times.push(start.elapsed());
        }
        times.drain(..WARM_UP as usize);
        Ok(times)
    };
    let ((), times) = run_both(processors, Side::Right, answer, ask)?;
    Ok(times)
}

/// Returns half the time of each of `iterations` round trips of `len` bytes.
pub(super) fn ping_pong(
    processors: &Processors,
    pair: &mut Pair,
    len: usize,
    iterations: u32,
) -> anyhow::Result<Vec<Duration>> {
    let times = round_trips(processors, pair, len, iterations, || {})?;
    Ok(times.into_iter().map(|time| time / 2).collect())
}

/// The figure by message size, on a path without delay.
pub(super) const BY_SIZE: Kind = Kind {
    name: "iwarp-latency",
    paper: "3a",
    title: "Latency by message size, path without delay",
    x: SIZES,
    y: LATENCY,
    rounds: |plan| plan.rounds,
    places: sizes_of,
    measure: |testbed, _, grid| {
        let hosts = testbed.wan()?;
        sizes(testbed, &hosts, grid)?;
        hosts.close()
    },
    notes: |_| Vec::new(),
};

/// The figure by message size, on one wire.
pub(super) const ON_LAN: Kind = Kind {
    name: "iwarp-lan",
    paper: "8",
    title: "Latency by message size, one wire",
    x: SIZES,
    y: LATENCY,
    rounds: |plan| plan.rounds,
    places: sizes_of,
    measure: |testbed, _, grid| sizes(testbed, &Hosts::lan()?, grid),
    notes: |_| {
        vec![
            "The wire is the kernel's veth pair. RDMA here is a program above the kernel's sockets: it saves no system call, and \
             copies once more."
                .into(),
        ]
    },
};

/// The figure by the path's delay.
pub(super) const BY_DELAY: Kind = Kind {
    name: "iwarp-latency-delay",
    paper: "3b",
    title: "Latency of 1 KB by the path's delay",
    x: DELAYS,
    y: LATENCY,
    rounds: |plan| plan.rounds,
    places: delays_of,
    measure: delays,
    notes: |_| Vec::new(),
};

fn sizes_of(plan: &Plan) -> Vec<f64> {
    plan.sizes.iter().map(|size| *size as f64).collect()
}

/// The path's delays.
pub(super) fn delays_of(plan: &Plan) -> Vec<f64> {
    plan.delays.iter().map(|delay| millis(*delay)).collect()
}

fn sizes(testbed: &Testbed, hosts: &Hosts, grid: &mut Grid) -> anyhow::Result<()> {
    let plan = &testbed.plan;
    let mut everything = testbed.connect_all(hosts, Side::Right)?;
    testbed.at_each(plan.sizes, |place, size| {
        let iterations = plan.iterations(BARE_ROUND_TRIP + TIME_OF_A_BYTE * size as u32);
        for (bearer, connections) in &mut everything {
            let times = ping_pong(&testbed.processors, &mut connections.pairs[0], size, iterations)?;
            grid.add((*bearer, LATENCY.quantity, ""), place, median_us(&times));
        }
        Ok(())
    })
}

fn delays(testbed: &Testbed, _: usize, grid: &mut Grid) -> anyhow::Result<()> {
    let plan = &testbed.plan;
    let hosts = testbed.wan()?;
    let mut everything = testbed.connect_all(&hosts, Side::Right)?;
    testbed.at_each(&plan.delays, |place, delay| {
        hosts.set_delay(delay)?;
        let iterations = plan.iterations(BARE_ROUND_TRIP + delay * 2);
        for (bearer, connections) in &mut everything {
            let times = ping_pong(&testbed.processors, &mut connections.pairs[0], SIZE, iterations)?;
            grid.add((*bearer, LATENCY.quantity, ""), place, median_us(&times));
        }
        Ok(())
    })?;
    hosts.set_delay(Duration::ZERO)?;
    drop(everything);
    hosts.close()
}
