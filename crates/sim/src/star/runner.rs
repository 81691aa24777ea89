//! The model's interface to experiments.

use std::time::Duration;

use nichrome_wire::Instant;

use super::card::CardCounters;
use super::engines::Engines;
use super::network::{Network, NetworkCounters};
use super::nodes::Node;
use super::parameters::{PARAMETERS, Plan};
use crate::experiment::{Measurement, MetricSpec, Outcome, ParameterSpec, Parameters, RunError, Runner};
use crate::observe::{Observer, Probes};
use crate::{Parts, Simulation, Stop};

/// The cards of the StaR paper around a switch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Star;

static METRICS: [MetricSpec; 14] = [
    MetricSpec { name: "operations", unit: "Mop/s", about: "operations completed" },
    MetricSpec { name: "goodput", unit: "Gb/s", about: "data of completed operations" },
    MetricSpec { name: "latency-p50", unit: "us", about: "time of an operation, median" },
    MetricSpec { name: "latency-p99", unit: "us", about: "time of an operation, 99 % are below" },
    MetricSpec { name: "latency-p999", unit: "us", about: "time of an operation, 99.9 % are below" },
    MetricSpec {
        name: "misses",
        unit: "misses",
        about: "contexts missed by the cards of all servers for an operation",
    },
    MetricSpec {
        name: "pcie-reads",
        unit: "M reads/s",
        about: "contexts that a server's card reads over PCIe",
    },
    MetricSpec { name: "pcie-traffic", unit: "GB/s", about: "contexts over PCIe, both ways" },
    MetricSpec { name: "wire-load", unit: "%", about: "load of a server's incoming link" },
    MetricSpec { name: "queueing", unit: "us", about: "mean wait of a packet to a server in the switch" },
    MetricSpec { name: "refused", unit: "refusals", about: "refused contexts for an operation" },
    MetricSpec { name: "lost", unit: "%", about: "packets lost" },
    MetricSpec { name: "marked", unit: "%", about: "packets marked" },
    MetricSpec { name: "repeated", unit: "%", about: "packets sent again, of all" },
];

impl Runner for Star {
    fn name(&self) -> &'static str {
        "star"
    }

    fn parameters(&self) -> &'static [ParameterSpec] {
        &PARAMETERS
    }

    fn metrics(&self) -> &'static [MetricSpec] {
        &METRICS
    }

    fn has_packets(&self) -> bool {
        false
    }

    fn run(&self, parameters: &Parameters, seed: u64, observer: &mut Observer) -> Result<Outcome, RunError> {
        let plan = Plan::read(parameters, seed)?;
        let nanos = plan.warm_up.saturating_add(plan.duration);
        let network = Network::build(plan.network, nanos)?;
        let parts = network.split().into_iter().map(|part| {
            let mut part = Simulation::new(part);
            part.world.start(&mut part.queue);
            part
        });
        let mut simulation = Parts::new(parts.collect(), plan.network.uplink.delay, observer.threads().get());
        let mut probes = probes();
        let warm = Instant::from_nanos(plan.warm_up);
        let mut snapshots = [Snapshot::default(); 2];
        for (snapshot, until) in snapshots.iter_mut().zip([warm, warm.plus_nanos(plan.duration)]) {
            simulation.worlds_mut().for_each(|part| part.latencies.clear());
            if observer.run(&mut simulation, until, &mut probes) == Stop::Interrupted {
                return Err(RunError::Interrupted);
            }
            if let Some(error) = simulation.worlds_mut().find_map(|part| part.failed.take()) {
                return Err(error);
            }
            *snapshot = Snapshot::of(&simulation);
        }
        observer.keep(probes);
        let [before, after] = snapshots;
        after.show(observer);
        let mut measurements = after.since(&before, &plan);
        measurements.extend(simulation.worlds().flat_map(latencies));
        Ok(Outcome { measurements, events: simulation.events(), trace_hash: simulation.trace_hash() })
    }
}

/// Returns the sampled values.
fn probes() -> Probes<Parts<Network>> {
    let mut probes = Probes::new();
    probes
        .register_rate("operations", "Mop/s", 1000.0, |network, _| Snapshot::of(network).network.operations);
    probes.register_rate("pcie-reads", "M reads/s", 1000.0, |network, _| Snapshot::of(network).card.reads);
    probes.register("card-queue", "tasks", |network, _| {
        first_server(network).map_or(0, |server| server.card.waiting()) as f64
    });
    probes.register("switch-queue", "KB", |network, now| {
        first_server(network).map_or(0, |server| server.downlink.waiting(now).1) as f64 / 1000.0
    });
    probes
}

fn first_server(network: &Parts<Network>) -> Option<&Node> {
    network.worlds().find_map(|part| part.nodes.of_first(1).next())
}

/// Counters at a point in time; card and wire counters are sums over all servers.
#[derive(Clone, Copy, Debug, Default)]
struct Snapshot {
    network: NetworkCounters,
    card: CardCounters,
    wire_bytes: u64,
    /// Packets retransmitted by the engines.
    repeated: u64,
}

impl Snapshot {
    fn of(network: &Parts<Network>) -> Self {
        let mut snapshot = Self::default();
        network.worlds().for_each(|part| snapshot.add(part));
        snapshot
    }

    fn add(&mut self, part: &Network) {
        self.network.add(&part.counters);
        self.repeated += part.engines.as_ref().map_or(0, Engines::repeated);
        for node in part.nodes.of_first(part.config.pattern.servers()) {
            let (card, link) = (node.card.counters(), node.downlink.counters());
            self.card.needed += card.needed;
            self.card.missed += card.missed;
            self.card.reads += card.reads;
            self.card.bytes += card.bytes;
            self.wire_bytes += link.bytes + link.packets * u64::from(node.downlink.config().overhead);
        }
    }

    fn show(&self, observer: &mut Observer) {
        let Self { network, card, .. } = self;
        observer.counters.add_part(
            "network",
            [
                ("operations", network.operations),
                ("packets", network.packets),
                ("lost", network.lost),
                ("marked", network.marked),
                ("repeated", self.repeated),
            ],
        );
        observer.counters.add_part(
            "card",
            [("needed", card.needed), ("missed", card.missed), ("reads", card.reads), ("bytes", card.bytes)],
        );
    }

    fn since(&self, before: &Self, plan: &Plan) -> Vec<Measurement> {
        let nanos = plan.duration as f64;
        let servers = plan.network.pattern.servers() as f64;
        let number = |of: fn(&Self) -> u64| (of(self) - of(before)) as f64;
        let operations = number(|snapshot| snapshot.network.operations);
        let packets = number(|snapshot| snapshot.network.packets);
        let reads = number(|snapshot| snapshot.card.reads);
        let wire_bits = number(|snapshot| snapshot.wire_bytes) * 8.0;
        let line = plan.network.downlink.rate.bits_per_second() as f64 / 1e9;
        let mut measurements = vec![
            Measurement::new("operations", operations / nanos * 1000.0),
            Measurement::new("goodput", operations * plan.network.payload() as f64 * 8.0 / nanos),
            Measurement::new("pcie-reads", reads / servers / nanos * 1000.0),
            Measurement::new("pcie-traffic", number(|snapshot| snapshot.card.bytes) / servers / nanos),
            Measurement::new("wire-load", wire_bits / servers / nanos / line * 100.0),
        ];
        let parts = [
            ("misses", number(|snapshot| snapshot.card.missed), operations),
            ("refused", number(|snapshot| snapshot.network.refused), operations),
            (
                "queueing",
                number(|snapshot| snapshot.network.queueing) / 1000.0,
                number(|snapshot| snapshot.network.queued),
            ),
            ("lost", number(|snapshot| snapshot.network.lost) * 100.0, packets),
            ("marked", number(|snapshot| snapshot.network.marked) * 100.0, packets),
            ("repeated", number(|snapshot| snapshot.repeated) * 100.0, packets),
        ];
        let measured = parts.into_iter().filter(|(.., of)| *of > 0.0);
        measurements.extend(measured.map(|(metric, part, of)| Measurement::new(metric, part / of)));
        measurements
    }
}

fn latencies(world: &Network) -> Vec<Measurement> {
    if world.latencies.count() == 0 {
        return Vec::new();
    }
    let micros = |delay: Duration| delay.as_nanos() as f64 / 1000.0;
    let of = |(metric, quantile)| Measurement::new(metric, micros(world.latencies.quantile(quantile)));
    [("latency-p50", 0.5), ("latency-p99", 0.99), ("latency-p999", 0.999)].map(of).into()
}
