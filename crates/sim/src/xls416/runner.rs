//! The model's interface to experiments.

use nichrome_wan::DelayHistogram;
use nichrome_wire::Instant;

use super::card::CardCounters;
use super::parameters::{MAX_REPETITIONS, PARAMETERS, Plan};
use super::probes::probes;
use super::repetitions::Repetitions;
use super::testbed::{Event, Testbed, TestbedConfig};
use crate::experiment::{Measurement, MetricSpec, Outcome, ParameterSpec, Parameters, RunError, Runner};
use crate::host::Connection;
use crate::observe::{Capture, Observer, Probes};
use crate::{Simulation, Stop, TraceHash};

/// The card of lro-npu in its test bed.
#[derive(Debug)]
pub struct Xls416;

static METRICS: [MetricSpec; 20] = [
    MetricSpec { name: "throughput", unit: "Gb/s", about: "TCP payload that the server's programs read" },
    MetricSpec { name: "established", unit: "connections", about: "connections established" },
    MetricSpec {
        name: "established-p10",
        unit: "connections",
        about: "connections established in a repetition, 10th percentile",
    },
    MetricSpec {
        name: "established-p90",
        unit: "connections",
        about: "connections established in a repetition, 90th percentile",
    },
    MetricSpec {
        name: "carrying-p10",
        unit: "connections",
        about: "connections that carried data in a repetition, 10th percentile",
    },
    MetricSpec {
        name: "carrying-p90",
        unit: "connections",
        about: "connections that carried data in a repetition, 90th percentile",
    },
    MetricSpec { name: "establishment", unit: "ms", about: "mean time to establish a connection" },
    MetricSpec {
        name: "segments-per-packet",
        unit: "segments",
        about: "received segments in a packet for the host",
    },
    MetricSpec { name: "packets", unit: "packets/ms", about: "packets handed to the host" },
    MetricSpec { name: "dma-load", unit: "%", about: "time that the DMA engine works" },
    MetricSpec { name: "core-load", unit: "%", about: "time that the card's cores work" },
    MetricSpec { name: "cpu-load", unit: "%", about: "time that the server's CPU works" },
    MetricSpec {
        name: "cpu-demand",
        unit: "us/MB",
        about: "CPU time of the server for what its programs read",
    },
    MetricSpec {
        name: "latency-p50",
        unit: "us",
        about: "from a request to its response, median over the first run",
    },
    MetricSpec {
        name: "latency-p99",
        unit: "us",
        about: "from a request to its response, 99th percentile over the first run",
    },
    MetricSpec {
        name: "latency-p999",
        unit: "us",
        about: "from a request to its response, 99.9th percentile over the first run",
    },
    MetricSpec { name: "retransmitted", unit: "segments/s", about: "segments that the client sends again" },
    MetricSpec {
        name: "stalled",
        unit: "connections",
        about: "connections that carried nothing while measured",
    },
    MetricSpec {
        name: "owed",
        unit: "KB",
        about: "bytes acknowledged to the client that the server's TCP has not",
    },
    MetricSpec { name: "dropped", unit: "segments", about: "segments that the card dropped" },
];

impl Runner for Xls416 {
    fn name(&self) -> &'static str {
        "xls416"
    }

    fn parameters(&self) -> &'static [ParameterSpec] {
        &PARAMETERS
    }

    fn metrics(&self) -> &'static [MetricSpec] {
        &METRICS
    }

    fn run(&self, parameters: &Parameters, seed: u64, observer: &mut Observer) -> Result<Outcome, RunError> {
        let plan = Plan::read(parameters)?;
        let (mut sums, mut repetitions) = (Measured::default(), Repetitions::default());
        let mut latencies = Vec::new();
        let mut trace = TraceHash::default();
        let mut events = 0;
        for repetition in 0..plan.repetitions {
            // Only the first repetition is observed.
            let (probes, capture) = match repetition {
                0 => (probes(), std::mem::take(&mut observer.capture)),
                _ => (Probes::new(), Capture::default()),
            };
            let mut run = Run::new(&plan, seed_of(seed, repetition), probes, capture)?;
            let measured = run.measure(&plan, observer)?;
            repetitions.add(measured.established, plan.connections - measured.stalled);
            sums.add(&measured);
            if repetition == 0 {
                latencies = percentiles(run.simulation.world.client().latencies());
            }
            events += run.simulation.events();
            trace.add(run.simulation.trace_hash());
            observer.keep(run.probes);
        }
        let mut measurements = sums.measurements(&plan);
        measurements.extend(repetitions.measurements());
        measurements.extend(latencies);
        Ok(Outcome { measurements, events, trace_hash: trace.value() })
    }
}

/// Returns the seed of a repetition: each seed has a block of [`MAX_REPETITIONS`] seeds, and the block of
/// seed 1 begins at 1.
fn seed_of(seed: u64, repetition: u64) -> u64 {
    seed.wrapping_sub(1).wrapping_mul(MAX_REPETITIONS).wrapping_add(1 + repetition)
}

/// Returns percentiles of the client programs' response times; none if they sent no requests.
fn percentiles(latencies: &DelayHistogram) -> Vec<Measurement> {
    if latencies.count() == 0 {
        return Vec::new();
    }
    let micros = |quantile| latencies.quantile(quantile).as_nanos() as f64 / 1000.0;
    let of = |(metric, quantile)| Measurement::new(metric, micros(quantile));
    [("latency-p50", 0.5), ("latency-p99", 0.99), ("latency-p999", 0.999)].map(of).into()
}

/// A running repetition.
struct Run {
    simulation: Simulation<Testbed>,
    probes: Probes<Testbed>,
}

/// Counters at a point in time.
#[derive(Clone, Debug, Default)]
struct Snapshot {
    read: Vec<u64>,
    card: CardCounters,
    dma_busy: u64,
    core_busy: u64,
    cpu_busy: u64,
    retransmitted: u64,
}

/// The summed results of repetitions.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    runs: u64,
    bytes: u64,
    established: u64,
    establishment_nanos: u64,
    card: CardCounters,
    dma_busy: u64,
    core_busy: u64,
    cpu_busy: u64,
    retransmitted: u64,
    stalled: u64,
    owed: u64,
}

impl Run {
    fn new(plan: &Plan, seed: u64, probes: Probes<Testbed>, capture: Capture) -> Result<Self, RunError> {
        let config = TestbedConfig { seed, ..plan.testbed.clone() };
        let testbed =
            Testbed::new(&config, capture).map_err(|error| RunError::Impossible(error.to_string()))?;
        let mut simulation = Simulation::new(testbed);
        for nth in 0..plan.connections {
            simulation.queue.schedule(plan.connects(nth), Event::Connect);
        }
        if let Some(at) = plan.stops_reading {
            simulation.queue.schedule(Instant::from_nanos(at), Event::StopReading);
        }
        Ok(Self { simulation, probes })
    }

    fn measure(&mut self, plan: &Plan, observer: &mut Observer) -> Result<Measured, RunError> {
        let warm = Instant::from_nanos(plan.warm_up);
        self.run_until(warm, observer)?;
        let before = self.snapshot();
        self.run_until(warm.plus_nanos(plan.duration), observer)?;
        observer.counters.add_part("card", self.simulation.world.card().counters().named());
        if let Some(error) = self.simulation.world.refused() {
            return Err(RunError::Impossible(error.to_string()));
        }
        Ok(self.difference(&before, &self.snapshot(), plan))
    }

    fn run_until(&mut self, limit: Instant, observer: &mut Observer) -> Result<(), RunError> {
        match observer.run(&mut self.simulation, limit, &mut self.probes) {
            Stop::Interrupted => Err(RunError::Interrupted),
            Stop::Limit | Stop::Idle => Ok(()),
        }
    }

    fn snapshot(&self) -> Snapshot {
        let (world, now) = (&self.simulation.world, self.simulation.now());
        Snapshot {
            read: world
                .server()
                .connections()
                .iter()
                .map(|connection| connection.program_counters().received)
                .collect(),
            card: world.card().counters(),
            dma_busy: world.card().dma_busy_nanos(now),
            core_busy: world.card().busy_nanos(now),
            cpu_busy: world.cpu().busy_nanos(now),
            retransmitted: world.client().connections().iter().map(Connection::retransmitted).sum(),
        }
    }

    fn difference(&self, before: &Snapshot, after: &Snapshot, plan: &Plan) -> Measured {
        let read = |nth: usize| after.read[nth] - before.read.get(nth).copied().unwrap_or(0);
        let client = self.simulation.world.client().connections().iter().enumerate();
        let established: Vec<_> = client
            .filter_map(|(nth, connection)| {
                Some(connection.times().established?.nanos_since(plan.connects(nth as u64)))
            })
            .collect();
        let moving = (0..after.read.len()).filter(|nth| read(*nth) > 0).count() as u64;
        Measured {
            runs: 1,
            bytes: (0..after.read.len()).map(read).sum(),
            established: established.len() as u64,
            establishment_nanos: established.iter().sum(),
            card: after.card.since(&before.card),
            dma_busy: after.dma_busy - before.dma_busy,
            core_busy: after.core_busy - before.core_busy,
            cpu_busy: after.cpu_busy - before.cpu_busy,
            retransmitted: after.retransmitted - before.retransmitted,
            stalled: plan.connections - moving,
            owed: self.owed(),
        }
    }

    /// Returns the bytes acknowledged to the client that have not reached the server's TCP.
    fn owed(&self) -> u64 {
        let world = &self.simulation.world;
        let sent =
            |connection: &Connection| connection.program_counters().sent - connection.unacknowledged() as u64;
        let had =
            |connection: &Connection| connection.program_counters().received + connection.unread() as u64;
        let acknowledged: u64 = world.client().connections().iter().map(sent).sum();
        let there: u64 = world.server().connections().iter().map(had).sum();
        acknowledged.saturating_sub(there)
    }
}

impl Measured {
    fn add(&mut self, run: &Self) {
        self.runs += run.runs;
        self.bytes += run.bytes;
        self.established += run.established;
        self.establishment_nanos += run.establishment_nanos;
        self.card.add(&run.card);
        self.dma_busy += run.dma_busy;
        self.core_busy += run.core_busy;
        self.cpu_busy += run.cpu_busy;
        self.retransmitted += run.retransmitted;
        self.stalled += run.stalled;
        self.owed += run.owed;
    }

    fn measurements(&self, plan: &Plan) -> Vec<Measurement> {
        let (runs, nanos) = (self.runs as f64, plan.duration as f64 * self.runs as f64);
        let load = |busy: u64, of: usize| busy as f64 / (nanos * of as f64) * 100.0;
        let mut measurements = vec![
            Measurement::new("throughput", self.bytes as f64 * 8.0 / nanos),
            Measurement::new("established", self.established as f64 / runs),
            Measurement::new("packets", self.card.packets as f64 / nanos * 1e6),
            Measurement::new("dma-load", load(self.dma_busy, 1)),
            Measurement::new("core-load", load(self.core_busy, plan.testbed.card.cores)),
            Measurement::new("cpu-load", load(self.cpu_busy, 1)),
            Measurement::new("retransmitted", self.retransmitted as f64 / nanos * 1e9),
            Measurement::new("stalled", self.stalled as f64 / runs),
            Measurement::new("owed", self.owed as f64 / runs / 1000.0),
            Measurement::new("dropped", (self.card.no_room + self.card.dropped) as f64 / runs),
        ];
        if self.established > 0 {
            let mean = self.establishment_nanos as f64 / self.established as f64 / 1e6;
            measurements.push(Measurement::new("establishment", mean));
        }
        if self.bytes > 0 {
            measurements.push(Measurement::new("cpu-demand", self.cpu_busy as f64 * 1e3 / self.bytes as f64));
        }
        if self.card.packets > 0 {
            let segments = self.card.segments as f64 / self.card.packets as f64;
            measurements.push(Measurement::new("segments-per-packet", segments));
        }
        measurements
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_seeds_share_a_repetition() {
        let seeds = (0..100).chain([u64::MAX]);
        let all: Vec<u64> = seeds
            .flat_map(|seed| (0..MAX_REPETITIONS).map(move |repetition| seed_of(seed, repetition)))
            .collect();
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    }

    #[test]
    fn the_first_seed_has_the_first_repetitions() {
        assert_eq!([0, 1, 99].map(|repetition| seed_of(1, repetition)), [1, 2, 100]);
    }
}
