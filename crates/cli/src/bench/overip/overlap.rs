//! Overlap of computation and communication: the client computes between sending and receiving (figures 4a,
//! 5a, 5b).

use std::time::Duration;

use super::bearer::Bearer;
use super::end::Pair;
use super::kind::Kind;
use super::latency::{BARE_ROUND_TRIP, DELAYS, SIZE, delays_of, round_trips};
use super::processors::{Processors, Role};
use super::series::{Axis, Grid, median_us};
use super::testbed::{Testbed, micros};
use super::work::Work;
use crate::side::Side;

const RATIO: Axis = Axis { quantity: "overlap_ratio", label: "computation / total" };
const COMPUTATIONS: Axis = Axis { quantity: "computation_us", label: "computation (µs)" };

/// Time of an exchange minus its computation.
const NOT_HIDDEN: &str = "not_hidden_us";

/// The possible meanings of the paper's "242ms".
pub(super) const READINGS: [(&str, Duration); 3] = [
    ("242us", Duration::from_micros(242)),
    ("2.42ms", Duration::from_micros(2420)),
    ("242ms", Duration::from_millis(242)),
];

/// Measures exchanges at the client, with `computation` between sending and receiving.
fn exchanges(
    processors: &Processors,
    pair: &mut Pair,
    (work, computation): (Work, Duration),
    iterations: u32,
) -> anyhow::Result<Vec<Duration>> {
    round_trips(processors, pair, SIZE, iterations, || work.run(computation))
}

/// Adds the values of measured exchanges.
fn add(
    grid: &mut Grid,
    (bearer, variant): (Bearer, &'static str),
    place: usize,
    computation: Duration,
    times: &[Duration],
) {
    let (total, computation) = (median_us(times), micros(computation));
    // The computation's time varies by less than the clock's resolution.
    grid.add((bearer, RATIO.quantity, variant), place, (computation / total).min(1.0));
    grid.add((bearer, NOT_HIDDEN, variant), place, (total - computation).max(0.0));
}

fn calibrate(testbed: &Testbed) -> Work {
    testbed.processors.on(Role::Application, Work::calibrate)
}

/// The figure by the time of computation, on a path without delay.
pub(super) const BY_COMPUTATION: Kind = Kind {
    name: "iwarp-overlap",
    paper: "5a",
    title: "Overlap by computation, 1 KB, path without delay",
    x: COMPUTATIONS,
    y: RATIO,
    rounds: |plan| plan.rounds,
    places: |plan| plan.computations.iter().map(|time| micros(*time)).collect(),
    measure: computations,
    notes: |_| {
        vec![format!(
            "{NOT_HIDDEN} is the time of an exchange besides its computation. Work between send and receive hides the network and \
             the peer; what remains is what the client's program does itself."
        )]
    },
};

/// The figure by the path's delay, for each possible meaning of the printed computation.
pub(super) const BY_DELAY: Kind = Kind {
    name: "iwarp-overlap-delay",
    paper: "5b",
    title: "Overlap by the path's delay, 1 KB, three computations",
    x: DELAYS,
    y: RATIO,
    // At most 3: the path's delays make rounds long, and the values spread little in comparison.
    rounds: |plan| plan.rounds.min(3),
    places: delays_of,
    measure: delays,
    notes: |_| {
        vec![
            "The paper prints a computation of \"242ms\", which would hide every delay shown; 242 µs and 2.42 ms are the other \
             readings."
                .into(),
        ]
    },
};

fn computations(testbed: &Testbed, _: usize, grid: &mut Grid) -> anyhow::Result<()> {
    let plan = &testbed.plan;
    let hosts = testbed.wan()?;
    let mut everything = testbed.connect_all(&hosts, Side::Right)?;
    let work = calibrate(testbed);
    testbed.at_each(plan.computations, |place, computation| {
        let iterations = plan.iterations(BARE_ROUND_TRIP + computation);
        for (bearer, connections) in &mut everything {
            let pair = &mut connections.pairs[0];
            let times = exchanges(&testbed.processors, pair, (work, computation), iterations)?;
            add(grid, (*bearer, ""), place, computation, &times);
        }
        Ok(())
    })?;
    drop(everything);
    hosts.close()
}

fn delays(testbed: &Testbed, round: usize, grid: &mut Grid) -> anyhow::Result<()> {
    let plan = &testbed.plan;
    let hosts = testbed.wan()?;
    let mut everything = testbed.connect_all(&hosts, Side::Right)?;
    let work = calibrate(testbed);
    testbed.at_each(&plan.delays, |place, delay| {
        hosts.set_delay(delay)?;
        for (variant, computation) in READINGS {
            if computation > LONG && round >= plan.long_rounds {
                continue;
            }
            let round_trip = BARE_ROUND_TRIP + delay * 2;
            let iterations =
                if computation > LONG { 1 } else { plan.iterations(round_trip.max(computation)) };
            for (bearer, connections) in &mut everything {
                let pair = &mut connections.pairs[0];
                let times = exchanges(&testbed.processors, pair, (work, computation), iterations)?;
                add(grid, (*bearer, variant), place, computation, &times);
            }
        }
        Ok(())
    })?;
    drop(everything);
    hosts.close()
}

/// Computations above this length are measured in fewer rounds.
const LONG: Duration = Duration::from_millis(100);
