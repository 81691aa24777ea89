//! The model's parameters, and the configuration that they result in.

use std::num::NonZeroU32;
use std::time::Duration;

use nichrome_lro::{ActiveAck, Config, Hold, NpuConfig, ProfileConfig};
use nichrome_wan::{Delay, Impairments, Probability, QueueLimit, Reorder};
use nichrome_wire::Instant;

use super::config::{AckOrder, CardConfig, DmaOrder, ReceiveConfig, Rings};
use super::cores::BESIDE_RECEIVERS;
use super::dma::DmaConfig;
use super::driver::DriverConfig;
use super::testbed::{Programs, TestbedConfig};
use crate::experiment::{ParameterSpec, Parameters, RunError};
use crate::host::{CongestionControl, Exchange, HostConfig, Role};
use crate::{CpuCosts, ETHERNET_OVERHEAD, LinkConfig, PcieConfig, engine_memory};

const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;
const FASTEST: u64 = 1_000_000_000_000;
/// Maximum of `repetitions`.
pub(super) const MAX_REPETITIONS: u64 = 100;

pub(super) static PARAMETERS: [ParameterSpec; 59] = [
    ParameterSpec::count("connections", "connections", 1..=20_000, "connections that the client opens"),
    ParameterSpec::time("warm-up", 0..=60 * SECOND, "time before anything is measured"),
    ParameterSpec::time("duration", 1..=60 * SECOND, "time for which it is measured"),
    ParameterSpec::count(
        "repetitions",
        "runs",
        1..=MAX_REPETITIONS,
        "runs with other ports, of which the mean is taken",
    ),
    ParameterSpec::choice(
        "program",
        &["sends", "asks"],
        "whether the client sends for ever, or requests and pauses",
    ),
    ParameterSpec::size("request", 1..=1 << 30, "length of a request"),
    ParameterSpec::size("response", 1..=1000, "length of a response"),
    ParameterSpec::time("pause", 0..=60 * SECOND, "time from a response to the next request"),
    ParameterSpec::choice("reader", &["reads", "stops"], "whether the server's programs read to the end"),
    ParameterSpec::time("stops-after", 0..=60 * SECOND, "time at which they stop reading"),
    ParameterSpec::count("cores", "cores", 1..=1024, "cores of the card"),
    ParameterSpec::count("threads-per-core", "threads", 1..=64, "hardware threads of a core"),
    ParameterSpec::count("receive-threads", "threads", 1..=1024, "threads that receive packets"),
    ParameterSpec::time("packet-time", 0..=MILLISECOND, "core time of a received packet, with LRO"),
    ParameterSpec::time(
        "plain-packet-time",
        0..=MILLISECOND,
        "core time of a received packet, as a normal card",
    ),
    ParameterSpec::time(
        "memory-wait",
        0..=MILLISECOND,
        "time that a thread waits for memory with each packet",
    ),
    ParameterSpec::time("ack-time", 0..=MILLISECOND, "core time of an acknowledgement that the card makes"),
    ParameterSpec::time(
        "descriptor-time",
        0..=MILLISECOND,
        "core time of a packet descriptor, there and back",
    ),
    ParameterSpec::time("timeout-time", 0..=MILLISECOND, "core time of a connection that has timed out"),
    ParameterSpec::time("dma-piece", 0..=MILLISECOND, "time of each segment but the first of a DMA request"),
    ParameterSpec::time("send-time", 0..=MILLISECOND, "core time of a packet that the host sends"),
    ParameterSpec::time("message-time", 0..=MILLISECOND, "time of a message between threads and engines"),
    ParameterSpec::time("queue-time", 0..=MILLISECOND, "time to put a message into a queue or out of it"),
    ParameterSpec::time("check-time", 0..=MILLISECOND, "time to look at a connection's timeout"),
    ParameterSpec::count("packet-ring", "packets", 1..=100_000_000, "packets that may wait for a thread"),
    ParameterSpec::choice(
        "rx-rings",
        &["one", "each"],
        "whether all receiving threads share a ring of packet descriptors and its lock",
    ),
    ParameterSpec::count(
        "rx-descriptors",
        "descriptors",
        1..=65_536,
        "packet descriptors of a receiving thread",
    ),
    ParameterSpec::count(
        "tx-descriptors",
        "descriptors",
        1..=65_536,
        "packet descriptors of the sending thread",
    ),
    ParameterSpec::count("requests", "requests", 1..=65_536, "DMA requests of a receiving thread at once"),
    ParameterSpec::choice("dma-order", &["stack", "round-robin"], "which request the DMA engine gets next"),
    ParameterSpec::time("dma-start", 0..=MILLISECOND, "time to start with a DMA request"),
    ParameterSpec::rate("pcie-rate", 1000..=FASTEST, "rate at which PCIe carries a transfer"),
    ParameterSpec::choice("engine", &["none", "npu", "gro"], "what coalesces in the receiving threads"),
    ParameterSpec::size("threshold", 576..=65_535, "most bytes of an aggregate as an IP packet"),
    ParameterSpec::choice(
        "rules",
        &["paper", "safe"],
        "whether lro-npu's rules apply where they can break a connection",
    ),
    ParameterSpec::choice("active-ack", &["off", "paper", "safe"], "when the card acknowledges by itself"),
    ParameterSpec::time("timeout-floor", 0..=60 * SECOND, "shortest timeout of a connection"),
    ParameterSpec::time("timeout-ceiling", 0..=60 * SECOND, "longest timeout of a connection"),
    ParameterSpec::time("gap-hold", 0..=60 * SECOND, "how long npu holds segments behind a gap"),
    ParameterSpec::time("gro-hold", 0..=60 * SECOND, "how long gro holds segments"),
    ParameterSpec::count(
        "connection-descriptors",
        "connections",
        1..=65_536,
        "connections that a thread knows",
    ),
    ParameterSpec::rate("wire-rate", 1000..=FASTEST, "rate of the wire"),
    ParameterSpec::time("wire-delay", 0..=SECOND, "delay of the wire"),
    ParameterSpec::size("wire-queue", 1..=1 << 40, "bytes that may wait for the wire"),
    ParameterSpec::fraction("reordered", "packets that are held back on their way to the card"),
    ParameterSpec::time("held-back", 1..=SECOND, "how long these are held back"),
    ParameterSpec::size("mtu", 576..=9000, "longest IP packet of the hosts"),
    ParameterSpec::size("send-buffer", 1..=1 << 30, "bytes that a sender may have under way"),
    ParameterSpec::size("receive-buffer", 1..=1 << 30, "bytes that a receiver takes unread"),
    ParameterSpec::choice(
        "congestion-control",
        &["none", "reno", "cubic"],
        "what limits senders beside windows",
    ),
    ParameterSpec::flag("delayed-acks", "whether the server acknowledges every second segment only"),
    ParameterSpec::time("ack-delay", 0..=SECOND, "how long it waits for the second"),
    ParameterSpec::time("cpu-interrupt", 0..=MILLISECOND, "CPU time of an interrupt"),
    ParameterSpec::time("cpu-packet", 0..=MILLISECOND, "CPU time of a packet"),
    ParameterSpec::time_per_byte("cpu-byte", 0..=1_000_000, "CPU time of a byte"),
    ParameterSpec::flag("host-lro", "whether the server's driver coalesces in software"),
    ParameterSpec::time("host-lro-time", 0..=MILLISECOND, "CPU time of a packet in such a driver"),
    ParameterSpec::time(
        "interrupt-distance",
        0..=SECOND,
        "least time between two interrupts of such a driver",
    ),
    ParameterSpec::time("start-interval", 0..=SECOND, "time from a connection's SYN to the next's"),
];

/// The configuration and timing of a run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) testbed: TestbedConfig,
    pub(super) connections: u64,
    pub(super) start_interval: u64,
    pub(super) warm_up: u64,
    pub(super) duration: u64,
    pub(super) repetitions: u64,
    /// When the server's programs stop reading, in nanoseconds since the start.
    pub(super) stops_reading: Option<u64>,
}

impl Plan {
    pub(super) fn read(parameters: &Parameters) -> Result<Self, RunError> {
        let stops = parameters.choice("reader", [("reads", false), ("stops", true)])?;
        Ok(Self {
            testbed: testbed(parameters)?,
            connections: parameters.count("connections")?,
            start_interval: parameters.nanos("start-interval")?,
            warm_up: parameters.nanos("warm-up")?,
            duration: parameters.nanos("duration")?,
            repetitions: parameters.count("repetitions")?,
            stops_reading: if stops { Some(parameters.nanos("stops-after")?) } else { None },
        })
    }
}

impl Plan {
    /// Returns when the client opens its `nth` connection.
    pub(super) fn connects(&self, nth: u64) -> Instant {
        Instant::from_nanos(self.start_interval.saturating_mul(nth))
    }
}

fn testbed(parameters: &Parameters) -> Result<TestbedConfig, RunError> {
    Ok(TestbedConfig {
        card: card(parameters)?,
        wire: LinkConfig {
            rate: parameters.rate("wire-rate")?,
            delay: parameters.nanos("wire-delay")?,
            queue: queue(parameters.bytes("wire-queue")?)?,
            ecn_threshold: None,
            overhead: ETHERNET_OVERHEAD,
        },
        path: path(parameters)?,
        tcp: tcp(parameters)?,
        cpu: CpuCosts {
            per_interrupt: parameters.nanos("cpu-interrupt")?,
            per_packet: parameters.nanos("cpu-packet")?,
            picos_per_byte: parameters.picos_per_byte("cpu-byte")?,
        },
        driver: driver(parameters)?,
        programs: programs(parameters)?,
        seed: 0,
    })
}

/// Returns the server's LRO in software. It merges as inet_lro does: in order, up to 64 KB, until the end of
/// a poll.
fn driver(parameters: &Parameters) -> Result<Option<(DriverConfig, Config)>, RunError> {
    let config = DriverConfig {
        per_packet: parameters.nanos("host-lro-time")?,
        distance: parameters.nanos("interrupt-distance")?,
    };
    let lro = Config { max_connections: small(parameters, "connections")?, ..Config::default() };
    Ok(parameters.flag("host-lro")?.then_some((config, lro)))
}

fn programs(parameters: &Parameters) -> Result<Programs, RunError> {
    let asks = parameters.choice("program", [("sends", false), ("asks", true)])?;
    let exchange =
        Exchange { request: bytes(parameters, "request")?, response: bytes(parameters, "response")? };
    let pause = parameters.nanos("pause")?;
    Ok(if asks {
        let client = Role::Request { exchange, count: None, pause };
        Programs { client, server: Role::Respond { exchange } }
    } else {
        Programs { client: Role::Send { bytes: None }, server: Role::Receive }
    })
}

fn card(parameters: &Parameters) -> Result<CardConfig, RunError> {
    let receive = receive(parameters)?;
    let [cores, threads_per_core, receivers] = [
        small(parameters, "cores")?,
        small(parameters, "threads-per-core")?,
        small(parameters, "receive-threads")?,
    ];
    let (all, needed) = (cores * threads_per_core, receivers + BESIDE_RECEIVERS);
    if needed > all {
        return Err(RunError::Impossible(format!(
            "receive-threads = {receivers}, a sending and a timeout checking thread and a shell are {needed} threads: \
             {cores} cores of {threads_per_core} have {all}"
        )));
    }
    if let Some((config, profile)) = &receive.engine {
        let npu = match profile {
            ProfileConfig::Npu(npu) => Some(npu),
            _ => None,
        };
        let holders = format!(
            "receive-threads = {receivers} with connection-descriptors = {} and rx-descriptors = {}",
            config.max_connections, receive.descriptors
        );
        let segments = format!("{} segments", config.max_segments);
        engine_memory::check(receivers, config, npu, &holders, &segments)?;
    }
    let packet_time = if receive.engine.is_some() { "packet-time" } else { "plain-packet-time" };
    Ok(CardConfig {
        cores,
        threads_per_core,
        receivers,
        receive,
        packet_time: parameters.nanos(packet_time)?,
        memory_wait: parameters.nanos("memory-wait")?,
        ack_time: parameters.nanos("ack-time")?,
        rings: parameters.choice("rx-rings", [("one", Rings::One), ("each", Rings::Each)])?,
        descriptor_time: parameters.nanos("descriptor-time")?,
        timeout_time: parameters.nanos("timeout-time")?,
        send_time: parameters.nanos("send-time")?,
        message: parameters.nanos("message-time")?,
        queue_operation: parameters.nanos("queue-time")?,
        check: parameters.nanos("check-time")?,
        connections: parameters.count("connections")?,
        send_descriptors: parameters.count("tx-descriptors")?,
        order: parameters
            .choice("dma-order", [("stack", DmaOrder::Stack), ("round-robin", DmaOrder::RoundRobin)])?,
        dma: dma(parameters)?,
    })
}

fn receive(parameters: &Parameters) -> Result<ReceiveConfig, RunError> {
    let active_acks = [("off", ActiveAck::Off), ("paper", ActiveAck::Paper), ("safe", ActiveAck::Safe)];
    let active_ack = parameters.choice("active-ack", active_acks)?;
    let descriptors = parameters.count("rx-descriptors")?;
    let known = small(parameters, "connection-descriptors")?;
    let config = Config {
        max_bytes: small(parameters, "threshold")?,
        max_connections: known,
        // One for each connection, plus those being transferred to the host.
        max_aggregates: known + descriptors as usize,
        ..Config::default()
    };
    let npu = ProfileConfig::Npu(npu(parameters, active_ack)?);
    let gro = ProfileConfig::Gro(Hold::For(duration(parameters, "gro-hold")?));
    let profile = parameters.choice("engine", [("none", None), ("npu", Some(npu)), ("gro", Some(gro))])?;
    Ok(ReceiveConfig {
        engine: profile.map(|profile| (config, profile)),
        acks: if active_ack == ActiveAck::Paper { AckOrder::AtOnce } else { AckOrder::AfterTransfer },
        packet_ring: small(parameters, "packet-ring")?,
        descriptors,
        requests: parameters.count("requests")?,
    })
}

fn npu(parameters: &Parameters, active_ack: ActiveAck) -> Result<NpuConfig, RunError> {
    let rules = [("paper", NpuConfig::paper()), ("safe", NpuConfig::default())];
    Ok(NpuConfig {
        floor: duration(parameters, "timeout-floor")?,
        ceiling: duration(parameters, "timeout-ceiling")?,
        reorder_hold: duration(parameters, "gap-hold")?,
        active_ack,
        ..parameters.choice("rules", rules)?
    })
}

/// The configured rate is that of whole transfers as measured (lro-npu VII), so the overhead of bus packets
/// is included, and the latency of a read request is part of the start-up time.
fn dma(parameters: &Parameters) -> Result<DmaConfig, RunError> {
    Ok(DmaConfig {
        start: parameters.nanos("dma-start")?,
        piece: parameters.nanos("dma-piece")?,
        pcie: PcieConfig {
            rate: parameters.rate("pcie-rate")?,
            latency: 0,
            max_payload: NonZeroU32::MAX,
            overhead: 0,
            max_read: NonZeroU32::MAX,
            outstanding_reads: std::num::NonZeroUsize::MIN,
        },
    })
}

fn path(parameters: &Parameters) -> Result<Impairments, RunError> {
    let reordered = parameters.fraction("reordered")?;
    let held_back = Delay::new(duration(parameters, "held-back")?);
    let reorder = match (Probability::new(reordered), held_back) {
        (Some(probability), Some(hold)) if reordered > 0.0 => Reorder::new(probability, hold),
        _ => None,
    };
    Ok(Impairments { reorder, ..Impairments::default() })
}

fn tcp(parameters: &Parameters) -> Result<HostConfig, RunError> {
    let ack_delay = parameters.nanos("ack-delay")?;
    Ok(HostConfig {
        segmentation: crate::host::Segmentation::Host,
        nagle: crate::host::Nagle::On,
        mtu: small(parameters, "mtu")?,
        receive_buffer: small(parameters, "receive-buffer")?,
        send_buffer: small(parameters, "send-buffer")?,
        congestion_control: parameters.choice(
            "congestion-control",
            [
                ("none", CongestionControl::None),
                ("reno", CongestionControl::Reno),
                ("cubic", CongestionControl::Cubic),
            ],
        )?,
        ack_delay: if parameters.flag("delayed-acks")? { Some(ack_delay) } else { None },
        max_connections: small(parameters, "connections")?,
        seed: 0,
    })
}

fn bytes(parameters: &Parameters, key: &'static str) -> Result<NonZeroU32, RunError> {
    let bytes = NonZeroU32::new(small(parameters, key)?);
    bytes.ok_or_else(|| RunError::Impossible(format!("{key} is 0")))
}

fn queue(bytes: u64) -> Result<QueueLimit, RunError> {
    let limit = std::num::NonZeroU64::new(bytes).map(QueueLimit::Bytes);
    limit.ok_or_else(|| RunError::Impossible("wire-queue is 0".into()))
}

fn duration(parameters: &Parameters, key: &'static str) -> Result<Duration, RunError> {
    Ok(Duration::from_nanos(parameters.nanos(key)?))
}

/// Converts a number that its parameter's range keeps within the type.
fn small<T: TryFrom<u64>>(parameters: &Parameters, key: &'static str) -> Result<T, RunError> {
    let number = match parameters.count(key) {
        Err(_) => parameters.bytes(key)?,
        Ok(count) => count,
    };
    T::try_from(number).map_err(|_| RunError::Impossible(format!("{key} is too large")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the configuration of npu with these settings.
    fn npu_with(settings: &[(&str, &str)]) -> NpuConfig {
        let mut parameters = Parameters::new();
        for (key, text) in settings {
            let spec = PARAMETERS.iter().find(|spec| spec.key == *key).unwrap();
            parameters.set(spec, spec.parse(text).unwrap());
        }
        npu(&parameters, ActiveAck::Off).unwrap()
    }

    #[test]
    fn rules_have_the_limits_that_match_them() {
        let paper =
            [("timeout-floor", "0s"), ("timeout-ceiling", "60s"), ("gap-hold", "60s"), ("rules", "paper")];
        assert_eq!(npu_with(&paper), NpuConfig::paper());
        let safe =
            [("timeout-floor", "20us"), ("timeout-ceiling", "1ms"), ("gap-hold", "500us"), ("rules", "safe")];
        assert_eq!(npu_with(&safe), NpuConfig::default());
    }
}
