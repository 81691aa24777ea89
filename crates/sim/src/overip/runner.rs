//! The model's interface to experiments.

use nichrome_wire::Instant;

use super::config::{Topology, Transport};
use super::event::Event;
use super::network::Network;
use super::parameters::{PARAMETERS, Plan};
use super::programs::{Pattern, Sizes, Stopwatch, programs};
use super::topology::SERVER;
use crate::experiment::{Measurement, MetricSpec, Outcome, ParameterSpec, Parameters, RunError, Runner};
use crate::observe::{Capture, Observer, Probes};
use crate::{Simulation, Stop, TraceHash};

/// The test bed of papers/rdma-over-ip.
#[derive(Clone, Copy, Debug, Default)]
pub struct OverIp;

static METRICS: [MetricSpec; 10] = [
    MetricSpec { name: "latency", unit: "us", about: "half of an exchange" },
    MetricSpec { name: "beyond-delay", unit: "us", about: "half of an exchange without the delay of degen" },
    MetricSpec { name: "overlap", unit: "", about: "computation of the total time" },
    MetricSpec { name: "fetch", unit: "ms", about: "time to fetch data" },
    MetricSpec { name: "fetch-relative", unit: "times", about: "time to fetch data over that without load" },
    MetricSpec { name: "load-slope", unit: "times", about: "what the load adds to the time, over the load" },
    MetricSpec {
        name: "application-time",
        unit: "times",
        about: "time of the application over that without traffic",
    },
    MetricSpec {
        name: "transfer-rate",
        unit: "Gb/s",
        about: "data of a message over the time until it is confirmed",
    },
    MetricSpec { name: "goodput", unit: "Gb/s", about: "data that the server receives" },
    MetricSpec {
        name: "message-round-trips",
        unit: "round trips",
        about: "time until a message is there, in round trips",
    },
];

/// Virtual time limit of a run in nanoseconds; an exchange takes seconds at most.
const LONGEST: u64 = 100_000_000_000_000;

impl Runner for OverIp {
    fn name(&self) -> &'static str {
        "overip"
    }

    fn parameters(&self) -> &'static [ParameterSpec] {
        &PARAMETERS
    }

    fn metrics(&self) -> &'static [MetricSpec] {
        &METRICS
    }

    fn has_series(&self) -> bool {
        false
    }

    fn run(&self, parameters: &Parameters, seed: u64, observer: &mut Observer) -> Result<Outcome, RunError> {
        let plan = Plan::read(parameters, seed)?;
        let capture = std::mem::take(&mut observer.capture);
        let mut runs = Runs { observer, capture, events: 0, trace: TraceHash::default() };
        let measurements = match plan.pattern {
            Pattern::PingPong => {
                let latency = runs.exchange(&plan)? / 2.0;
                let delay = match plan.testbed.topology {
                    Topology::Lan => 0.0,
                    Topology::Wan => plan.testbed.router.delay as f64,
                };
                vec![micros("latency", latency), micros("beyond-delay", latency - delay)]
            }
            Pattern::Overlap => {
                let computation = plan.sizes.computation as f64;
                vec![Measurement::new("overlap", computation / runs.exchange(&plan)?)]
            }
            Pattern::Fetch => runs.fetch(&plan)?,
            Pattern::Transfer => {
                let bits = plan.sizes.message as f64 * 8.0;
                vec![Measurement::new("transfer-rate", bits / runs.exchange(&plan)?)]
            }
            Pattern::Senders => runs.senders(&plan)?,
            Pattern::Rendezvous(_) => {
                let message = runs.exchange(&plan)?;
                let round_trip = runs.exchange(&Plan { pattern: Pattern::PingPong, ..plan })?;
                vec![Measurement::new("message-round-trips", message / round_trip)]
            }
        };
        Ok(Outcome { measurements, events: runs.events, trace_hash: runs.trace.value() })
    }
}

fn micros(metric: &'static str, nanos: f64) -> Measurement {
    Measurement::new(metric, nanos / 1000.0)
}

/// The successive simulations of one run.
struct Runs<'a> {
    observer: &'a mut Observer,
    /// The capture of the first simulation.
    capture: Capture,
    events: u64,
    trace: TraceHash,
}

impl Runs<'_> {
    fn begin(&mut self, plan: &Plan) -> Result<Simulation<Network>, RunError> {
        let fetches = plan.testbed.transport != Transport::Sockets;
        let stopwatch = match plan.pattern {
            Pattern::Senders => Stopwatch::new(u64::MAX / 2, 0),
            _ => Stopwatch::new(plan.skipped, plan.iterations),
        };
        let steps = programs(plan.pattern, plan.sizes, fetches);
        let capture = std::mem::take(&mut self.capture);
        let mut simulation = Simulation::new(Network::new(&plan.testbed, steps, stopwatch, capture)?);
        simulation.queue.schedule(Instant::ZERO, Event::Start);
        Ok(simulation)
    }

    fn go(&mut self, simulation: &mut Simulation<Network>, until: u64) -> Result<(), RunError> {
        let until = Instant::from_nanos(until);
        if self.observer.run(simulation, until, &mut Probes::new()) == Stop::Interrupted {
            return Err(RunError::Interrupted);
        }
        simulation.world.failed.take().map_or(Ok(()), Err)
    }

    fn end(&mut self, simulation: &Simulation<Network>) {
        self.events += simulation.events();
        self.trace.add(simulation.trace_hash());
        let world = &simulation.world;
        let counts =
            [("dropped", world.dropped), ("lost", world.lost()), ("retransmitted", world.retransmitted())];
        self.observer.counters.add_part("network", counts);
    }

    /// Returns the mean time between start and stop, in nanoseconds.
    fn exchange(&mut self, plan: &Plan) -> Result<f64, RunError> {
        let mut simulation = self.begin(plan)?;
        self.go(&mut simulation, LONGEST)?;
        self.end(&simulation);
        let mean = simulation.world.stopwatch.mean();
        mean.ok_or_else(|| RunError::Impossible("the exchanges do not end".into()))
    }

    fn fetch(&mut self, plan: &Plan) -> Result<Vec<Measurement>, RunError> {
        let load = plan.sizes.load;
        let fetch = self.exchange(plan)?;
        let unloaded = if load == 0 {
            fetch
        } else {
            self.exchange(&Plan { sizes: Sizes { load: 0, ..plan.sizes }, ..plan.clone() })?
        };
        let mut measurements = vec![
            Measurement::new("fetch", fetch / 1e6),
            Measurement::new("fetch-relative", fetch / unloaded),
        ];
        if load > 0 {
            measurements.push(Measurement::new("load-slope", (fetch - unloaded) / load as f64));
        }
        Ok(measurements)
    }

    fn senders(&mut self, plan: &Plan) -> Result<Vec<Measurement>, RunError> {
        let mut simulation = self.begin(plan)?;
        let mut counted = [(0, 0); 2];
        for (counted, until) in counted.iter_mut().zip([plan.warm_up, plan.warm_up + plan.duration]) {
            self.go(&mut simulation, until)?;
            let world = &simulation.world;
            *counted = (world.application_work(simulation.now()), world.nodes[SERVER].received);
        }
        self.end(&simulation);
        let [before, after] = counted;
        let work = (after.0 - before.0) as f64;
        let nanos = plan.duration as f64;
        let mut measurements = vec![Measurement::new("goodput", (after.1 - before.1) as f64 * 8.0 / nanos)];
        if work > 0.0 {
            let without = nanos * plan.testbed.application as f64;
            measurements.insert(0, Measurement::new("application-time", without / work));
        }
        Ok(measurements)
    }
}
