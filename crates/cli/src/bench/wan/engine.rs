//! The path engine in virtual time, with 100,000 packets in flight.

use std::fmt;
use std::thread;
use std::time::Instant;

use anyhow::anyhow;
use nichrome_wan::{Dummy, Impairments, Output, Path};
use nichrome_wire::Ecn;
use nichrome_wire::engine::deliver;
use serde::Serialize;

use super::super::figures::{median, median_of, rounded};
use super::super::pin::pin;
use super::plan::Plan;
use crate::number::Grouped;

const IN_FLIGHT: u64 = 100_000;

const PACKET: Dummy = Dummy { len: 1500, ecn: Ecn::NotEct, corrupt: false, id: 0 };

/// Nanoseconds between packets: 4 million per second.
const GAP: u64 = 250;

#[derive(Serialize)]
pub(super) struct Engines {
    in_flight: u64,
    runs: usize,
    paths: Vec<Speed>,
}

#[derive(Serialize)]
struct Speed {
    path: &'static str,
    packets_per_second: f64,
}

/// Measures several kinds of paths one after another on one CPU.
pub(super) fn measure(plan: &'static Plan) -> anyhow::Result<Engines> {
    thread::spawn(|| {
        pin();
        let paths = paths()?
            .into_iter()
            .map(|(path, impairments)| {
                run(&impairments, plan.packets)?;
                let rates = (0..plan.engine_runs)
                    .map(|_| run(&impairments, plan.packets))
                    .collect::<anyhow::Result<Vec<_>>>()?;
                Ok(Speed { path, packets_per_second: rounded(median(rates)) })
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Engines { in_flight: IN_FLIGHT, runs: plan.engine_runs, paths })
    })
    .join()
    .map_err(|_| anyhow!("the engine has panicked"))?
}

fn paths() -> anyhow::Result<[(&'static str, Impairments); 4]> {
    let delay =
        Impairments { delay: format!("{}us", IN_FLIGHT * GAP / 1000).parse()?, ..Impairments::default() };
    let lossy = Impairments { loss: Some("1%".parse()?), duplicate: "1%".parse()?, ..delay.clone() };
    let jittery = Impairments {
        jitter: Some("normal:2ms".parse()?),
        jitter_order: "reorder".parse()?,
        ..lossy.clone()
    };
    // 1,500 bytes every 250 ns are 48 Gbit/s.
    let limited = Impairments {
        rate: Some("50gbit".parse()?),
        aqm: "codel".parse()?,
        queue: "10000p".parse()?,
        ..lossy.clone()
    };
    Ok([
        ("delay", delay),
        ("delay, loss, duplication", lossy),
        ("delay, loss, duplication, jitter with reordering", jittery),
        ("delay, loss, duplication, rate with CoDel", limited),
    ])
}

/// Returns packets per second once the path is full.
fn run(impairments: &Impairments, packets: u64) -> anyhow::Result<f64> {
    let mut path = Path::new(impairments, 1)?;
    let mut released = 0u64;
    let mut sink = |_, output| released += u64::from(matches!(output, Output::Released(_)));
    let at = |nth: u64| nichrome_wire::Instant::from_nanos(nth * GAP);
    for nth in 0..IN_FLIGHT {
        deliver(&mut path, PACKET, at(nth), &mut sink);
    }
    let start = Instant::now();
    for nth in IN_FLIGHT..IN_FLIGHT + packets {
        deliver(&mut path, PACKET, at(nth), &mut sink);
    }
    let seconds = start.elapsed().as_secs_f64();
    anyhow::ensure!(released > packets / 2, "the path has released {released} packets only");
    Ok(packets as f64 / seconds)
}

impl fmt::Display for Engines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (in_flight, runs) = (Grouped(self.in_flight), median_of(self.runs, "run", "runs"));
        write!(f, "the engine in virtual time, {in_flight} packets in flight, {runs}")?;
        for Speed { path, packets_per_second } in &self.paths {
            write!(f, "\n{:>8.2} million packets/s  {path}", packets_per_second / 1e6)?;
        }
        Ok(())
    }
}
