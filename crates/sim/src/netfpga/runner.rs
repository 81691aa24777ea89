//! The model's interface to experiments.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use nichrome_lro::{Config, ConfigError, NetfpgaConfig};
use nichrome_wire::{EthernetHeader, Instant, Ipv4Header, TcpHeader};

use super::bus::Bus;
use super::card::{Card, CardConfig};
use super::clock::Clock;
use super::host::{Costs, Host, HostConfig};
use super::world::{Machine, Snapshot};
use crate::experiment::{Measurement, MetricSpec, Outcome, ParameterSpec, Parameters, RunError, Runner};
use crate::generator::{Content, FlowConfig, FlowProtocol, Generator, GeneratorConfig};
use crate::observe::{Capture, Observer};
use crate::{ETHERNET_OVERHEAD, HostId, Simulation, Stop, engine_memory};

/// The card of lro-netfpga under the load of its generator. Deterministic: the seed has no effect.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetfpgaRunner;

const GIGA: u64 = 1_000_000_000;

static PARAMETERS: [ParameterSpec; 37] = [
    ParameterSpec::flag(
        "lro",
        "whether the card has the LRO module; without, the host coalesces in software",
    ),
    ParameterSpec::size("frame", 60..=1514, "length of the frames, without their check sequence"),
    ParameterSpec::count("flows", "flows", 1..=64, "flows of one rate that the generator sends in turn"),
    ParameterSpec::fraction("second-flow", "frames of one more flow for one of each of them"),
    ParameterSpec::fraction("not-tcp", "frames of a UDP flow for one of each of them"),
    ParameterSpec::fraction("wrong-checksum", "frames of UDP whose checksum is wrong"),
    ParameterSpec::fraction("other-ttl", "share of TCP frames whose time to live is one lower"),
    ParameterSpec::choice(
        "other-checksums",
        &["card", "host"],
        "who verifies checksums of what is not TCP, with LRO",
    ),
    ParameterSpec::time("warm-up", 0..=GIGA, "time before anything is measured"),
    ParameterSpec::time("duration", 1_000_000..=10 * GIGA, "time for which it is measured"),
    ParameterSpec::rate("line", 1_000_000..=100 * GIGA, "rate of the generator"),
    ParameterSpec::frequency("path-clock", 1_000_000..=10 * GIGA, "clock of the data path"),
    ParameterSpec::size("path-width", 1..=256, "bytes that the data path moves in a cycle"),
    ParameterSpec::count("path-overhead", "cycles", 0..=1000, "cycles of a frame beside its words"),
    ParameterSpec::count("path-least", "cycles", 0..=1000, "minimum cycles of a frame"),
    ParameterSpec::size("queue", 2048..=1 << 30, "length of each queue of the card"),
    ParameterSpec::time("store-timer", 1000..=GIGA, "time after which the store block sends what it has"),
    ParameterSpec::count("store-flows", "flows", 1..=16, "flows in the store block"),
    ParameterSpec::size("store-length", 1518..=65_535, "longest aggregate of the store block"),
    ParameterSpec::count("store-segments", "segments", 2..=1023, "most segments of an aggregate"),
    ParameterSpec::frequency("pci-clock", 1_000_000..=10 * GIGA, "clock of the bus"),
    ParameterSpec::size("pci-width", 1..=256, "bytes that the bus moves in a cycle"),
    ParameterSpec::size("pci-burst", 1..=65_536, "maximum bytes of a burst"),
    ParameterSpec::count("pci-burst-overhead", "cycles", 0..=1000, "cycles of a burst beside its words"),
    ParameterSpec::count(
        "pci-packet-overhead",
        "cycles",
        0..=100_000,
        "cycles of a packet beside its bursts",
    ),
    ParameterSpec::count("ring", "packets", 1..=65_536, "length of the ring of received packets"),
    ParameterSpec::count(
        "poll-budget",
        "packets",
        1..=65_536,
        "packets that the core takes from the ring at once",
    ),
    ParameterSpec::time("interrupt-distance", 0..=GIGA, "least time between two interrupts"),
    ParameterSpec::time("interrupt-cost", 0..=1_000_000, "processor time of an interrupt"),
    ParameterSpec::time("driver-cost", 0..=1_000_000, "processor time of a received packet in the driver"),
    ParameterSpec::time(
        "software-lro-cost",
        0..=1_000_000,
        "processor time of a received packet that software coalesces",
    ),
    ParameterSpec::time("stack-cost", 0..=1_000_000, "processor time of a packet in the stack"),
    ParameterSpec::time_per_byte(
        "checksum-cost",
        0..=1_000_000,
        "processor time of a byte whose checksum is computed in software",
    ),
    ParameterSpec::time_per_byte(
        "copy-cost",
        0..=1_000_000,
        "processor time of a byte that is copied to the application",
    ),
    ParameterSpec::size("software-lro-length", 1518..=65_535, "longest aggregate of the software"),
    ParameterSpec::count("software-lro-segments", "segments", 2..=1023, "most segments of an aggregate"),
    ParameterSpec::count(
        "software-lro-flows",
        "flows",
        1..=65_536,
        "flows that the software coalesces at once",
    ),
];

static METRICS: [MetricSpec; 4] = [
    MetricSpec { name: "cpu", unit: "%", about: "load of the core" },
    MetricSpec { name: "drops", unit: "%", about: "frames dropped" },
    MetricSpec { name: "throughput", unit: "Mb/s", about: "payload that reaches the stack" },
    MetricSpec { name: "segments-per-packet", unit: "", about: "segments in a packet of the stack" },
];

impl Runner for NetfpgaRunner {
    fn name(&self) -> &'static str {
        "netfpga"
    }

    fn parameters(&self) -> &'static [ParameterSpec] {
        &PARAMETERS
    }

    fn metrics(&self) -> &'static [MetricSpec] {
        &METRICS
    }

    fn run(&self, parameters: &Parameters, _: u64, observer: &mut Observer) -> Result<Outcome, RunError> {
        let capture = std::mem::take(&mut observer.capture);
        let mut simulation = Simulation::new(machine(parameters, capture)?);
        let mut probes = Machine::probes();
        simulation.world.generate(&mut simulation.queue);
        let begin = Instant::ZERO.plus_nanos(parameters.nanos("warm-up")?);
        let duration = parameters.nanos("duration")?;
        let mut snapshots = [Snapshot::default(); 2];
        for (snapshot, until) in snapshots.iter_mut().zip([begin, begin.plus_nanos(duration)]) {
            if observer.run(&mut simulation, until, &mut probes) == Stop::Interrupted {
                return Err(RunError::Interrupted);
            }
            *snapshot = simulation.world.snapshot(until);
        }
        observer.keep(probes);
        let [before, after] = snapshots;
        observer.counters.add_part("card", after.card.named());
        observer.counters.add_part("host", after.host.named());
        Ok(Outcome {
            measurements: measure(before, after, duration),
            events: simulation.events(),
            trace_hash: simulation.trace_hash(),
        })
    }
}

/// Builds the idle machine.
fn machine(parameters: &Parameters, capture: Capture) -> Result<Machine, RunError> {
    let lro = parameters.flag("lro")?;
    let card_checks_other = parameters.choice("other-checksums", [("card", true), ("host", false)])?;
    let host = HostConfig {
        checks_other: lro && !card_checks_other,
        ring: parameters.count("ring")? as usize,
        poll_budget: parameters.count("poll-budget")? as usize,
        interrupt_distance: parameters.nanos("interrupt-distance")?,
        costs: costs(parameters)?,
    };
    let software_lro = Config {
        max_bytes: parameters.bytes("software-lro-length")? as u32,
        max_segments: parameters.count("software-lro-segments")? as usize,
        max_connections: parameters.count("software-lro-flows")? as usize,
        ..Config::default()
    };
    let host = Host::new(host, (!lro).then_some(&software_lro)).map_err(|error| impossible(&error))?;
    Ok(Machine::new(generator(parameters)?, card(parameters, lro)?, bus(parameters)?, host, capture))
}

/// Creates a generator that fills the line: `flows` equal TCP flows, and a further TCP flow and a UDP flow
/// whose weights, `second-flow` and `not-tcp`, are relative to one of the equal flows.
fn generator(parameters: &Parameters) -> Result<Generator, RunError> {
    let second = parameters.billionths("second-flow")?;
    let other = (FlowProtocol::Udp, parameters.billionths("not-tcp")?);
    let flows = std::iter::repeat_n(GIGA, parameters.count("flows")? as usize).chain([second]);
    let weights = flows.map(|weight| (FlowProtocol::Tcp, weight)).chain([other]);
    let [ttl, wrong] = [parameters.billionths("other-ttl")?, parameters.billionths("wrong-checksum")?];
    let flow = |(place, (protocol, weight)): (u16, (FlowProtocol, u64))| {
        let (other_ttl, wrong_checksum) = if protocol == FlowProtocol::Tcp { (ttl, 0) } else { (0, wrong) };
        Some(FlowConfig {
            from: HostId(0),
            to: HostId(1),
            src_port: 5001 + place,
            dst_port: 80,
            weight: NonZeroU32::new(u32::try_from(weight).ok()?)?,
            protocol,
            other_ttl: u32::try_from(other_ttl).ok()?,
            wrong_checksum: u32::try_from(wrong_checksum).ok()?,
        })
    };
    let config = GeneratorConfig {
        rate: parameters.rate("line")?,
        overhead: ETHERNET_OVERHEAD,
        frame_len: parameters.bytes("frame")? as usize,
        content: Content::Frames,
        flows: (0..).zip(weights).filter_map(flow).collect(),
    };
    Generator::new(config, Instant::ZERO).map_err(|error| RunError::Impossible(error.to_string()))
}

fn costs(parameters: &Parameters) -> Result<Costs, RunError> {
    Ok(Costs {
        interrupt: parameters.nanos("interrupt-cost")?,
        driver: parameters.nanos("driver-cost")?,
        software_lro: parameters.nanos("software-lro-cost")?,
        stack: parameters.nanos("stack-cost")?,
        checksum: parameters.picos_per_byte("checksum-cost")?,
        copy: parameters.picos_per_byte("copy-cost")?,
    })
}

fn bus(parameters: &Parameters) -> Result<Bus, RunError> {
    Ok(Bus {
        clock: clock(parameters, "pci-clock")?,
        width: at_least_one(parameters.bytes("pci-width")?),
        burst: at_least_one(parameters.bytes("pci-burst")?),
        burst_overhead: parameters.count("pci-burst-overhead")?,
        packet_overhead: parameters.count("pci-packet-overhead")?,
    })
}

fn card(parameters: &Parameters, lro: bool) -> Result<Card, RunError> {
    let config = CardConfig {
        clock: clock(parameters, "path-clock")?,
        width: parameters.bytes("path-width")? as usize,
        frame_overhead: parameters.count("path-overhead")?,
        min_cycles: parameters.count("path-least")?,
        queue_bytes: parameters.bytes("queue")? as usize,
        checks_other: parameters.choice("other-checksums", [("card", true), ("host", false)])?,
    };
    if !lro {
        return Ok(Card::reference(config));
    }
    let netfpga = NetfpgaConfig {
        timer: Duration::from_nanos(parameters.nanos("store-timer")?),
        flows: parameters.count("store-flows")? as usize,
    };
    let store = Config {
        max_bytes: parameters.bytes("store-length")? as u32,
        max_segments: parameters.count("store-segments")? as usize,
        max_aggregates: aggregates(parameters)?,
        ..Config::default()
    };
    let segments = format!("store-segments = {}", store.max_segments);
    engine_memory::check(1, &store, None, "ring and queue", &segments)?;
    Card::with_lro(config, &store, &netfpga).map_err(|error| impossible(&error))
}

/// Returns the maximum number of aggregates at a time: in the ring, the host queue and the store block, and
/// one that is leaving the store block.
fn aggregates(parameters: &Parameters) -> Result<usize, RunError> {
    /// Headers of the generator's segments, which have no options.
    const HEADERS: u64 = (EthernetHeader::LEN + Ipv4Header::LEN + TcpHeader::LEN) as u64;
    // The smallest aggregate has two segments.
    let smallest = 2 * parameters.bytes("frame")? - HEADERS;
    let in_queue = parameters.bytes("queue")? / smallest;
    Ok((parameters.count("ring")? + in_queue + parameters.count("store-flows")? + 1) as usize)
}

fn clock(parameters: &Parameters, key: &'static str) -> Result<Clock, RunError> {
    Clock::new(parameters.hertz(key)?).ok_or_else(|| RunError::Impossible(format!("{key} is 0")))
}

fn at_least_one(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN)
}

fn impossible(error: &ConfigError) -> RunError {
    RunError::Impossible(error.to_string())
}

/// Computes the metrics from the counters before and after the measured interval.
fn measure(before: Snapshot, after: Snapshot, duration: u64) -> Vec<Measurement> {
    let arrived = after.card.arrived - before.card.arrived;
    let dropped = after.card.dropped() - before.card.dropped();
    let [segments, packets, payload] = [
        after.host.segments - before.host.segments,
        after.host.packets - before.host.packets,
        after.host.payload - before.host.payload,
    ];
    let mut measurements = vec![
        Measurement::new("cpu", percent(after.busy - before.busy, duration)),
        Measurement::new("drops", percent(dropped, arrived)),
        Measurement::new("throughput", payload as f64 * 8000.0 / duration as f64),
    ];
    if packets > 0 {
        measurements.push(Measurement::new("segments-per-packet", segments as f64 / packets as f64));
    }
    measurements
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}
