//! Progress of communication: the client fetches from a host whose program computes (figures 4b, 6a, 6b).

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::end::{CONTROL, Pair, run_both};
use super::kind::Kind;
use super::latency::{BARE_ROUND_TRIP, DELAYS, SIZE, delays_of};
use super::processors::Processors;
use super::series::{Axis, Grid, median_us};
use super::testbed::{Testbed, millis};
use super::work::spin;
use crate::side::Side;

const FETCH: Axis = Axis { quantity: "fetch_us", label: "time of a fetch (µs)" };
const LOADS: Axis = Axis { quantity: "load_ms", label: "load before each answer (ms)" };

/// The load, unless the figure varies it.
pub(super) const LOAD: Duration = Duration::from_millis(16);

/// Warm-up fetches, not counted.
const WARM_UP: u32 = 1;

/// Interval at which a program without load tests whether to end.
const IDLE: Duration = Duration::from_millis(1);

/// Measures fetches of 1 KB at the client. The server's program computes for `load` before each answer; if
/// the card answers, it only computes.
fn fetches(
    processors: &Processors,
    [left, right]: &mut Pair,
    load: Duration,
    iterations: u32,
) -> anyhow::Result<Vec<Duration>> {
    let all_fetched = AtomicBool::new(false);
    let serve = || {
        if left.is_one_sided() {
            while !all_fetched.load(Ordering::Relaxed) {
                if load.is_zero() { thread::sleep(IDLE) } else { spin(load) }
            }
            return Ok(());
        }
        for _ in 0..WARM_UP + iterations {
            left.receive(CONTROL)?;
            spin(load);
            left.send(SIZE)?;
        }
        Ok(())
    };
    let fetch = || {
        let mut times = Vec::new();
        let mut fetch_all = || {
            for _ in 0..WARM_UP + iterations {
                let start = Instant::now();
                right.fetch(SIZE)?;
                times.push(start.elapsed());
            }
            anyhow::Ok(())
        };
        let result = fetch_all();
        all_fetched.store(true, Ordering::Relaxed);
        result?;
        times.drain(..WARM_UP as usize);
        Ok(times)
    };
    let ((), times) = run_both(processors, Side::Left, serve, fetch)?;
    Ok(times)
}

/// The figure by the load, on a path without delay.
pub(super) const BY_LOAD: Kind = Kind {
    name: "iwarp-progress",
    paper: "6a",
    title: "Time to fetch 1 KB by the load of the server's program, path without delay",
    x: LOADS,
    y: FETCH,
    rounds: |plan| plan.rounds,
    places: |plan| plan.loads.iter().map(|load| millis(*load)).collect(),
    measure: loads,
    notes: |_| Vec::new(),
};

/// The figure by the path's delay, with a load of 16 ms.
pub(super) const BY_DELAY: Kind = Kind {
    name: "iwarp-progress-delay",
    paper: "6b",
    title: "Time to fetch 1 KB by the path's delay, load 16 ms",
    x: DELAYS,
    y: FETCH,
    rounds: |plan| plan.rounds,
    places: delays_of,
    measure: delays,
    notes: |_| Vec::new(),
};

fn loads(testbed: &Testbed, _: usize, grid: &mut Grid) -> anyhow::Result<()> {
    let plan = &testbed.plan;
    let hosts = testbed.wan()?;
    let mut everything = testbed.connect_all(&hosts, Side::Left)?;
    testbed.at_each(plan.loads, |place, load| {
        let iterations = plan.iterations(BARE_ROUND_TRIP + load);
        for (bearer, connections) in &mut everything {
            let times = fetches(&testbed.processors, &mut connections.pairs[0], load, iterations)?;
            grid.add((*bearer, FETCH.quantity, ""), place, median_us(&times));
        }
        Ok(())
    })?;
    drop(everything);
    hosts.close()
}

fn delays(testbed: &Testbed, _: usize, grid: &mut Grid) -> anyhow::Result<()> {
    let plan = &testbed.plan;
    let hosts = testbed.wan()?;
    let mut everything = testbed.connect_all(&hosts, Side::Left)?;
    testbed.at_each(&plan.delays, |place, delay| {
        hosts.set_delay(delay)?;
        let iterations = plan.iterations(BARE_ROUND_TRIP + delay * 2 + LOAD);
        for (bearer, connections) in &mut everything {
            let times = fetches(&testbed.processors, &mut connections.pairs[0], LOAD, iterations)?;
            grid.add((*bearer, FETCH.quantity, ""), place, median_us(&times));
        }
        Ok(())
    })?;
    drop(everything);
    hosts.close()
}
