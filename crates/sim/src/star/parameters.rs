//! The model's parameters, and the configuration that they result in.

use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};

use nichrome_wan::QueueLimit;
use nichrome_wire::rdma::PathMtu;

use super::baselines::Baseline;
use super::card::{CardConfig, Engines};
use super::config::{Congestion, Grouping, NetworkConfig, Pattern, Recovery, Transport};
use super::context_cache::Replacement;
use super::operation::{Message, Operation};
use crate::experiment::{ParameterSpec, Parameters, RunError};
use crate::{LinkConfig, PcieConfig};

const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;
const FASTEST: u64 = 1_000_000_000_000;

pub(super) static PARAMETERS: [ParameterSpec; 45] = [
    ParameterSpec::time("warm-up", 0..=60 * SECOND, "time before anything is measured"),
    ParameterSpec::time("duration", 1..=60 * SECOND, "time for which it is measured"),
    ParameterSpec::choice("pattern", &["fan-in", "all-to-all"], "which machines communicate"),
    ParameterSpec::count("connections", "connections", 1..=200_000, "connections to the server, of a fan-in"),
    ParameterSpec::count(
        "client-machines",
        "machines",
        0..=200_000,
        "machines that have these connections; 0: one machine for each",
    ),
    ParameterSpec::count("nodes", "nodes", 2..=1000, "nodes, of all to all"),
    ParameterSpec::choice(
        "transport",
        &["rdma", "star", "auto", "datagram", "dct", "uet", "1rma"],
        "what carries the operations",
    ),
    ParameterSpec::count(
        "budget",
        "connections",
        0..=1_000_000,
        "contexts of a card from which on auto is stateless",
    ),
    ParameterSpec::choice("operation", &["write", "rpc"], "what clients do"),
    ParameterSpec::size("request", 1..=1 << 24, "bytes of a WRITE or a request"),
    ParameterSpec::size("response", 1..=1 << 24, "bytes of a response"),
    ParameterSpec::choice(
        "path-mtu",
        &["256", "512", "1024", "2048", "4096"],
        "most bytes of data in a packet",
    ),
    ParameterSpec::flag("reposts", "whether the server posts a RECV again for each request"),
    ParameterSpec::frequency(
        "offered",
        0..=SECOND,
        "operations that arrive, of all connections; 0: each begins one when the last is complete",
    ),
    ParameterSpec::time("start", 0..=SECOND, "interval in which the connections begin, at random times"),
    ParameterSpec::count("group", "connections", 0..=200_000, "connections that take turns; 0: none do"),
    ParameterSpec::time("slice", 1..=SECOND, "length of a turn"),
    ParameterSpec::rate("rate", 1000..=FASTEST, "rate of every link"),
    ParameterSpec::time("base-rtt", 0..=SECOND, "round-trip time between two cards, without load"),
    ParameterSpec::size("framing", 0..=64, "bytes that a packet takes on a link beside its own"),
    ParameterSpec::time("post", 0..=MILLISECOND, "time until posted work reaches the card"),
    ParameterSpec::count("contexts", "contexts", 1..=1_000_000, "contexts that fit on chip"),
    ParameterSpec::size("context", 1..=65_536, "length of a context"),
    ParameterSpec::factor(
        "star-context",
        100,
        "length of a client's StaR context, relative to a RoCEv2 context",
    ),
    ParameterSpec::count(
        "sharing",
        "connections",
        1..=65_536,
        "connections to a server that share a context there",
    ),
    ParameterSpec::time("retry", 0..=SECOND, "time from a refused context to the next request for one"),
    ParameterSpec::choice("replacement", &["lru", "random"], "which context leaves the chip"),
    ParameterSpec::count(
        "overlap",
        "misses",
        1..=1024,
        "misses that are outstanding before everything stalls",
    ),
    ParameterSpec::choice("engines", &["shared", "separate"], "whether one engine receives and sends"),
    ParameterSpec::time("pcie-read", 0..=MILLISECOND, "time from a read of host memory to its first byte"),
    ParameterSpec::rate("pcie-rate", 1000..=FASTEST, "rate of PCIe"),
    ParameterSpec::size("pcie-payload", 64..=4096, "payload of a PCIe packet"),
    ParameterSpec::size("pcie-overhead", 0..=64, "bytes of a PCIe packet beside its payload"),
    ParameterSpec::time("card-time", 0..=MILLISECOND, "time of a packet in a card, in each direction"),
    ParameterSpec::flag("tags", "whether StaR's packets are authenticated"),
    ParameterSpec::time("element-time", 0..=MILLISECOND, "time that a core takes for an element of StaR"),
    ParameterSpec::count("cores", "cores", 1..=1024, "cores of a server: for datagrams, and StaR's driver"),
    ParameterSpec::time("request-time", 0..=MILLISECOND, "time that a core takes for a datagram"),
    ParameterSpec::size("switch-queue", 0..=1 << 40, "limit of the queue at a port of the switch; 0: none"),
    ParameterSpec::size(
        "ecn-threshold",
        0..=1 << 40,
        "queue length from which packets are marked; 0: none are",
    ),
    ParameterSpec::choice("congestion-control", &["none", "dctcp"], "what limits senders beside the window"),
    ParameterSpec::count("window", "packets", 1..=65_536, "packets that a sender may have in flight"),
    ParameterSpec::fraction("loss", "share of packets that the switch loses"),
    ParameterSpec::flag("recovery", "whether lost packets are sent again"),
    ParameterSpec::time("timeout", 1000..=SECOND, "time after which an unanswered packet is sent again"),
];

/// The configuration and timing of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) network: NetworkConfig,
    pub(super) warm_up: u64,
    pub(super) duration: u64,
}

impl Plan {
    pub(super) fn read(parameters: &Parameters, seed: u64) -> Result<Self, RunError> {
        Ok(Self {
            network: network(parameters, seed)?,
            warm_up: parameters.nanos("warm-up")?,
            duration: parameters.nanos("duration")?,
        })
    }
}

fn network(parameters: &Parameters, seed: u64) -> Result<NetworkConfig, RunError> {
    let path_mtu = path_mtu(parameters)?;
    let (request, operation) = operation(parameters, path_mtu)?;
    let link = link(parameters)?;
    let config = NetworkConfig {
        pattern: pattern(parameters)?,
        transport: transport(parameters)?,
        request,
        path_mtu,
        operation,
        offered: Some(parameters.hertz("offered")? as f64).filter(|offered| *offered > 0.0),
        grouping: grouping(parameters)?,
        uplink: LinkConfig { queue: UNLIMITED, ecn_threshold: None, ..link },
        downlink: link,
        base_rtt: parameters.nanos("base-rtt")?,
        post: parameters.nanos("post")?,
        card: card(parameters)?,
        star_context: parameters.fraction("star-context")?.max(f64::MIN_POSITIVE),
        sharing: small(parameters.count("sharing")?),
        packet_time: parameters.nanos("card-time")?,
        element_time: parameters.nanos("element-time")?,
        tags: parameters.flag("tags")?,
        retry: parameters.nanos("retry")?,
        window: small(parameters.count("window")?),
        congestion: parameters
            .choice("congestion-control", [("none", Congestion::None), ("dctcp", Congestion::Dctcp)])?,
        recovery: recovery(parameters)?,
        cores: parameters.count("cores")? as usize,
        request_time: parameters.nanos("request-time")?,
        start: parameters.nanos("start")?,
        seed,
    };
    if config.recovery.is_none() && (parameters.fraction("loss")? > 0.0 || link.queue != UNLIMITED) {
        return Err(RunError::Impossible("loss and a switch-queue other than 0 need recovery = true".into()));
    }
    if config.recovery.is_some() && matches!(config.transport, Transport::Outline(_)) {
        return Err(RunError::Impossible(
            "a transport without an engine has no recovery: set it to false".into(),
        ));
    }
    Ok(config)
}

const UNLIMITED: QueueLimit = QueueLimit::Bytes(NonZeroU64::MAX);

fn pattern(parameters: &Parameters) -> Result<Pattern, RunError> {
    let connections = parameters.count("connections")? as usize;
    let machines = match parameters.count("client-machines")? as usize {
        0 => connections,
        machines => machines,
    };
    let nodes = parameters.count("nodes")? as usize;
    parameters.choice(
        "pattern",
        [("fan-in", Pattern::FanIn { connections, machines }), ("all-to-all", Pattern::AllToAll { nodes })],
    )
}

fn transport(parameters: &Parameters) -> Result<Transport, RunError> {
    let budget = parameters.count("budget")? as usize;
    parameters.choice(
        "transport",
        [
            ("rdma", Transport::Reliable),
            ("star", Transport::Stateless),
            ("auto", Transport::Auto { budget }),
            ("datagram", Transport::Outline(Baseline::Datagrams)),
            ("dct", Transport::Outline(Baseline::Dynamic)),
            ("uet", Transport::Outline(Baseline::Ephemeral)),
            ("1rma", Transport::Outline(Baseline::Solicited)),
        ],
    )
}

fn path_mtu(parameters: &Parameters) -> Result<PathMtu, RunError> {
    let names = ["256", "512", "1024", "2048", "4096"];
    parameters.choice("path-mtu", std::array::from_fn::<_, 5, _>(|nth| (names[nth], PathMtu::ALL[nth])))
}

fn operation(parameters: &Parameters, path_mtu: PathMtu) -> Result<(Message, Operation), RunError> {
    let most = path_mtu.bytes() as u32;
    let message = |key| Ok::<_, RunError>(Message::new(small(parameters.bytes(key)?), most));
    let rpc = Operation::Rpc { response: message("response")?, reposts: parameters.flag("reposts")? };
    let operation = parameters.choice("operation", [("write", Operation::Write), ("rpc", rpc)])?;
    Ok((message("request")?, operation))
}

fn grouping(parameters: &Parameters) -> Result<Option<Grouping>, RunError> {
    let (size, slice) = (parameters.count("group")? as usize, parameters.nanos("slice")?);
    Ok((size > 0).then_some(Grouping { size, slice }))
}

/// Returns the link between card and switch; its delay is a quarter of the base RTT.
fn link(parameters: &Parameters) -> Result<LinkConfig, RunError> {
    let [queue, threshold] =
        [parameters.bytes("switch-queue")?, parameters.bytes("ecn-threshold")?].map(NonZeroU64::new);
    Ok(LinkConfig {
        rate: parameters.rate("rate")?,
        delay: parameters.nanos("base-rtt")? / 4,
        queue: queue.map_or(UNLIMITED, QueueLimit::Bytes),
        ecn_threshold: threshold.map(QueueLimit::Bytes),
        overhead: small(parameters.bytes("framing")?),
    })
}

fn card(parameters: &Parameters) -> Result<CardConfig, RunError> {
    let overlap = parameters.count("overlap")? as usize;
    Ok(CardConfig {
        contexts: parameters.count("contexts")? as usize,
        replacement: parameters
            .choice("replacement", [("lru", Replacement::Lru), ("random", Replacement::Random)])?,
        context_len: parameters.bytes("context")?,
        engines: parameters
            .choice("engines", [("shared", Engines::Shared), ("separate", Engines::Separate)])?,
        overlap,
        pcie: PcieConfig {
            rate: parameters.rate("pcie-rate")?,
            latency: parameters.nanos("pcie-read")? / 2,
            max_payload: NonZeroU32::new(small(parameters.bytes("pcie-payload")?)).unwrap_or(NonZeroU32::MIN),
            overhead: small(parameters.bytes("pcie-overhead")?),
            max_read: NonZeroU32::MAX,
            outstanding_reads: NonZeroUsize::new(overlap).unwrap_or(NonZeroUsize::MIN),
        },
    })
}

fn recovery(parameters: &Parameters) -> Result<Option<Recovery>, RunError> {
    let loss = (parameters.fraction("loss")? * 2f64.powi(64)) as u64;
    let timeout = parameters.nanos("timeout")?;
    Ok(parameters.flag("recovery")?.then_some(Recovery { loss, timeout }))
}

/// Converts a number that its parameter's range keeps below 2³².
fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
