//! Latency: half a round trip of messages, by their size and by the path's delay (figures 3a, 3b and 8).

use std::time::{Duration, Instant};

use super::end::{Pair, run_both};
use super::hosts::Hosts;
use super::processors::Processors;
use super::series::{Axis, Figure, Grid, median_us};
use super::testbed::{Step, Testbed, millis};
use crate::side::Side;

/// Message size where it does not vary, in bytes.
pub(super) const SIZE: usize = 1024;

/// Expected round trip on a path without delay.
pub(super) const BARE_ROUND_TRIP: Duration = Duration::from_micros(150);

/// Expected time that a byte adds to a round trip.
const TIME_OF_A_BYTE: Duration = Duration::from_nanos(40);

/// Messages that are not counted: the first after another measurement finds cold caches and sleeping threads.
const WARM_UP: u32 = 2;

const LATENCY: Axis = Axis { quantity: "latency_us", label: "one-way latency (µs)" };
const BY_SIZE: Axis = Axis { quantity: "bytes", label: "message size (bytes)" };
const BY_DELAY: Axis = Axis { quantity: "delay_ms", label: "delay of the path (ms)" };

/// The times of `iterations` round trips of `len` bytes. The right end begins, and does something else between sending and
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

/// Half the time of each of `iterations` round trips of `len` bytes.
pub(super) fn ping_pong(
    processors: &Processors,
    pair: &mut Pair,
    len: usize,
    iterations: u32,
) -> anyhow::Result<Vec<Duration>> {
    let times = round_trips(processors, pair, len, iterations, || {})?;
    Ok(times.into_iter().map(|time| time / 2).collect())
}

/// By message size, on a path without delay.
pub(super) fn by_size(testbed: &Testbed) -> anyhow::Result<Figure> {
    let hosts = testbed.wan()?;
    let mut figure = sizes(testbed, &hosts, "iwarp-latency")?;
    hosts.close()?;
    figure.paper = "3a";
    figure.title = "Latency by message size, path without delay";
    Ok(figure)
}

/// By message size, on one wire.
pub(super) fn on_lan(testbed: &Testbed) -> anyhow::Result<Figure> {
    let hosts = Hosts::lan()?;
    let mut figure = sizes(testbed, &hosts, "iwarp-lan")?;
    figure.paper = "8";
    figure.title = "Latency by message size, one wire";
    figure.notes.push(
        "The wire is the kernel's veth pair. RDMA here is a program above the kernel's sockets: it saves no system call, and \
         copies once more."
            .into(),
    );
    Ok(figure)
}

fn sizes(testbed: &Testbed, hosts: &Hosts, name: &'static str) -> anyhow::Result<Figure> {
    let plan = &testbed.plan;
    let mut everything = testbed.connect_all(hosts, Side::Right)?;
    let mut grid = Grid::new(plan.sizes.iter().map(|size| *size as f64));
    testbed.measure(name, plan.rounds, plan.sizes, |Step { place, x: size, .. }| {
        let iterations = plan.iterations(BARE_ROUND_TRIP + TIME_OF_A_BYTE * size as u32);
        for (bearer, connections) in &mut everything {
            let times = ping_pong(&testbed.processors, &mut connections.pairs[0], size, iterations)?;
            grid.add((*bearer, LATENCY.quantity, ""), place, median_us(&times));
        }
        Ok(())
    })?;
    Ok(Figure {
        name,
        paper: "",
        title: "",
        x: BY_SIZE,
        y: LATENCY,
        rounds: plan.rounds,
        series: grid.finish(),
        notes: Vec::new(),
    })
}

/// By the path's delay.
pub(super) fn by_delay(testbed: &Testbed) -> anyhow::Result<Figure> {
    const NAME: &str = "iwarp-latency-delay";
    let plan = &testbed.plan;
    let hosts = testbed.wan()?;
    let mut everything = testbed.connect_all(&hosts, Side::Right)?;
    let mut grid = Grid::new(plan.delays.iter().map(|delay| millis(*delay)));
    testbed.measure(NAME, plan.rounds, &plan.delays, |Step { place, x: delay, .. }| {
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
    hosts.close()?;
    Ok(Figure {
        name: NAME,
        paper: "3b",
        title: "Latency of 1 KB by the path's delay",
        x: BY_DELAY,
        y: LATENCY,
        rounds: plan.rounds,
        series: grid.finish(),
        notes: Vec::new(),
    })
}
