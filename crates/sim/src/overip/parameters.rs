//! The parameters of the model, and the configuration made of them.

use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};

use nichrome_rdma::{Congestion, Dcqcn};
use nichrome_wan::QueueLimit;

use super::config::{
    CardConfig, HostCosts, Moderation, Packets, RouterConfig, TestbedConfig, Topology, Transport,
};
use super::processors::Balancing;
use super::programs::{Pattern, Rendezvous, Sizes};
use crate::experiment::{ParameterSpec, Parameters, RunError};
use crate::host::{CongestionControl, HostConfig, Nagle, Segmentation};
use crate::{ETHERNET_OVERHEAD, LinkConfig, PcieConfig};

const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;
const FASTEST: u64 = 1_000_000_000_000;
/// Bytes of the longest message.
const LONGEST: u64 = 1 << 22;

pub(super) static PARAMETERS: [ParameterSpec; 45] = [
    ParameterSpec::choice(
        "pattern",
        &["ping-pong", "overlap", "fetch", "senders", "rendezvous", "transfer"],
        "what programs do",
    ),
    ParameterSpec::choice(
        "transport",
        &["sockets", "rdma", "roce-go-back-n", "roce-selective", "star"],
        "what carries the messages",
    ),
    ParameterSpec::choice("path", &["lan", "wan"], "whether the router is between the nodes"),
    ParameterSpec::time("delay", 0..=SECOND, "delay of degen, in each direction"),
    ParameterSpec::fraction("loss", "share of packets that degen loses"),
    ParameterSpec::size("message", 1..=LONGEST, "length of a message"),
    ParameterSpec::size("control", 1..=LONGEST, "length of a control message or a request"),
    ParameterSpec::count("reads", "READs", 1..=64, "READs that follow from each other before data is found"),
    ParameterSpec::time("computation", 0..=SECOND, "time for which the client computes before it receives"),
    ParameterSpec::time("load", 0..=SECOND, "time for which the server computes before each answer"),
    ParameterSpec::choice(
        "rendezvous",
        &["eager", "write", "read"],
        "how the buffer of a message is agreed on",
    ),
    ParameterSpec::count("application", "processes", 1..=2, "processes that compute beside senders"),
    ParameterSpec::count("senders", "clients", 1..=1000, "clients that send without end"),
    ParameterSpec::count("iterations", "exchanges", 1..=1_000_000, "exchanges that are measured"),
    ParameterSpec::count("skipped", "exchanges", 0..=1_000_000, "exchanges before them"),
    ParameterSpec::time("warm-up", 0..=60 * SECOND, "time before senders are measured"),
    ParameterSpec::time("duration", 1..=60 * SECOND, "time for which they are measured"),
    ParameterSpec::choice(
        "interrupts",
        &["other", "same"],
        "whose processor takes interrupts: another than the program's, or its",
    ),
    ParameterSpec::choice(
        "balancing",
        &["off", "on"],
        "whether the scheduler moves the application from the processor that takes interrupts to a free one",
    ),
    ParameterSpec::time("call", 0..=MILLISECOND, "processor time of a system call"),
    ParameterSpec::time("segment-out", 0..=MILLISECOND, "processor time of a segment that TCP sends"),
    ParameterSpec::time("interrupt", 0..=MILLISECOND, "processor time of an interrupt"),
    ParameterSpec::time("packet-in", 0..=MILLISECOND, "processor time of a received packet"),
    ParameterSpec::time_per_byte("copy", 0..=1_000_000, "processor time to copy a byte"),
    ParameterSpec::time("verb", 0..=MILLISECOND, "processor time of a verb"),
    ParameterSpec::size("window", 1500..=1 << 30, "buffers of TCP: what may be under way"),
    ParameterSpec::time("ack-delay", 0..=SECOND, "for which an acknowledgement may wait"),
    ParameterSpec::choice(
        "congestion-control",
        &["none", "reno", "cubic"],
        "what limits TCP beside the window",
    ),
    ParameterSpec::choice(
        "datagram-congestion-control",
        &["none", "window", "dctcp", "dcqcn"],
        "what limits RoCE and StaR beside the window: nothing, one that halves on loss, or marks",
    ),
    ParameterSpec::time("card-message", 0..=MILLISECOND, "time of the card for a message, at each end"),
    ParameterSpec::time("card-segment", 0..=MILLISECOND, "time of the card for a frame"),
    ParameterSpec::size("descriptor", 0..=4096, "what the card reads of a work request"),
    ParameterSpec::rate("pci-rate", 1000..=FASTEST, "rate of the bus"),
    ParameterSpec::time("pci-latency", 0..=MILLISECOND, "from the card to memory, or back"),
    ParameterSpec::rate("rate", 1000..=FASTEST, "rate of every link"),
    ParameterSpec::size("mtu", 576..=9000, "the longest IP packet"),
    ParameterSpec::time("cable", 0..=SECOND, "delay of every link"),
    ParameterSpec::time("switch", 0..=MILLISECOND, "time of a switch for a frame"),
    ParameterSpec::size("queue", 1500..=1 << 40, "what may wait before a link"),
    ParameterSpec::time("forward", 0..=MILLISECOND, "processor time of the router for a frame"),
    ParameterSpec::time("router-interrupt", 0..=MILLISECOND, "processor time of the router for an interrupt"),
    ParameterSpec::time(
        "a-delay",
        0..=SECOND,
        "for which the router's card to network A delays its interrupt",
    ),
    ParameterSpec::count("a-frames", "frames", 1..=4096, "frames with which it does not"),
    ParameterSpec::time("b-delay", 0..=SECOND, "the same of the card to network B"),
    ParameterSpec::count("b-frames", "frames", 1..=4096, "frames with which it does not"),
];

/// A run: the test bed, the steps of its programs, and the measurement.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) testbed: TestbedConfig,
    pub(super) pattern: Pattern,
    pub(super) sizes: Sizes,
    /// Exchanges that are skipped first, and those that are then measured.
    pub(super) skipped: u64,
    pub(super) iterations: u64,
    /// Nanoseconds before senders are measured, and nanoseconds of the measurement.
    pub(super) warm_up: u64,
    pub(super) duration: u64,
}

impl Plan {
    pub(super) fn read(parameters: &Parameters, seed: u64) -> Result<Self, RunError> {
        let pattern = pattern(parameters)?;
        let senders = parameters.count("senders")? as usize;
        let application = parameters.count("application")? as usize;
        let is_senders = pattern == Pattern::Senders;
        let (message, control) =
            (parameters.bytes("message")? as usize, parameters.bytes("control")? as usize);
        let testbed = TestbedConfig {
            transport: transport(parameters)?,
            topology: parameters.choice("path", [("lan", Topology::Lan), ("wan", Topology::Wan)])?,
            clients: if is_senders { senders } else { 1 },
            costs: costs(parameters)?,
            interrupts: parameters.choice("interrupts", [("other", 0), ("same", 1)])?,
            balancing: parameters.choice("balancing", [("off", Balancing::Off), ("on", Balancing::On)])?,
            application: if is_senders { application } else { 0 },
            card: card(parameters)?,
            longest: message.max(control),
            tcp: tcp(parameters)?,
            datagram_congestion: datagram_congestion(parameters)?,
            link: link(parameters)?,
            switch: parameters.nanos("switch")?,
            router: router(parameters)?,
            seed,
        };
        if is_senders && matches!(testbed.transport, Transport::Packets(_)) {
            return Err(RunError::Impossible("senders need sockets or rdma".into()));
        }
        Ok(Self {
            testbed,
            pattern,
            sizes: Sizes {
                message,
                control,
                reads: parameters.count("reads")? as usize,
                computation: parameters.nanos("computation")?,
                load: parameters.nanos("load")?,
            },
            skipped: parameters.count("skipped")?,
            iterations: parameters.count("iterations")?,
            warm_up: parameters.nanos("warm-up")?,
            duration: parameters.nanos("duration")?,
        })
    }
}

fn transport(parameters: &Parameters) -> Result<Transport, RunError> {
    parameters.choice(
        "transport",
        [
            ("sockets", Transport::Sockets),
            ("rdma", Transport::Rdma),
            ("roce-go-back-n", Transport::Packets(Packets::RoceGoBackN)),
            ("roce-selective", Transport::Packets(Packets::RoceSelective)),
            ("star", Transport::Packets(Packets::Star)),
        ],
    )
}

fn pattern(parameters: &Parameters) -> Result<Pattern, RunError> {
    let rendezvous = parameters.choice(
        "rendezvous",
        [("eager", Rendezvous::Eager), ("write", Rendezvous::Write), ("read", Rendezvous::Read)],
    )?;
    parameters.choice(
        "pattern",
        [
            ("ping-pong", Pattern::PingPong),
            ("overlap", Pattern::Overlap),
            ("fetch", Pattern::Fetch),
            ("senders", Pattern::Senders),
            ("transfer", Pattern::Transfer),
            ("rendezvous", Pattern::Rendezvous(rendezvous)),
        ],
    )
}

fn costs(parameters: &Parameters) -> Result<HostCosts, RunError> {
    Ok(HostCosts {
        call: parameters.nanos("call")?,
        segment_out: parameters.nanos("segment-out")?,
        interrupt: parameters.nanos("interrupt")?,
        packet_in: parameters.nanos("packet-in")?,
        copy: parameters.picos_per_byte("copy")?,
        verb: parameters.nanos("verb")?,
    })
}

fn card(parameters: &Parameters) -> Result<CardConfig, RunError> {
    let bus = PcieConfig {
        rate: parameters.rate("pci-rate")?,
        latency: parameters.nanos("pci-latency")?,
        // A burst of PCI-X is as long as a frame, and its address takes no time worth counting.
        max_payload: NonZeroU32::MAX,
        overhead: 0,
        max_read: NonZeroU32::MAX,
        outstanding_reads: NonZeroUsize::MIN.saturating_add(63),
    };
    Ok(CardConfig {
        message: parameters.nanos("card-message")?,
        segment: parameters.nanos("card-segment")?,
        descriptor: parameters.bytes("descriptor")?,
        bus,
    })
}

fn tcp(parameters: &Parameters) -> Result<HostConfig, RunError> {
    let window = parameters.bytes("window")? as usize;
    Ok(HostConfig {
        mtu: parameters.bytes("mtu")? as usize,
        receive_buffer: window,
        send_buffer: window,
        congestion_control: parameters.choice(
            "congestion-control",
            [
                ("none", CongestionControl::None),
                ("reno", CongestionControl::Reno),
                ("cubic", CongestionControl::Cubic),
            ],
        )?,
        nagle: Nagle::Off,
        ack_delay: Some(parameters.nanos("ack-delay")?).filter(|delay| *delay > 0),
        segmentation: Segmentation::Host,
        max_connections: 1000,
        seed: 0,
    })
}

fn datagram_congestion(parameters: &Parameters) -> Result<Congestion, RunError> {
    let dcqcn = Dcqcn { line_rate: parameters.rate("rate")?.bits_per_second(), ..Dcqcn::default() };
    parameters.choice(
        "datagram-congestion-control",
        [
            ("none", Congestion::None),
            ("window", Congestion::Window),
            ("dctcp", Congestion::Dctcp),
            ("dcqcn", Congestion::Dcqcn(dcqcn)),
        ],
    )
}

fn link(parameters: &Parameters) -> Result<LinkConfig, RunError> {
    let queue = NonZeroU64::new(parameters.bytes("queue")?).unwrap_or(NonZeroU64::MIN);
    Ok(LinkConfig {
        rate: parameters.rate("rate")?,
        delay: parameters.nanos("cable")?,
        queue: QueueLimit::Bytes(queue),
        ecn_threshold: None,
        overhead: ETHERNET_OVERHEAD,
    })
}

fn router(parameters: &Parameters) -> Result<RouterConfig, RunError> {
    let moderation = |delay, frames| -> Result<Moderation, RunError> {
        Ok(Moderation { delay: parameters.nanos(delay)?, frames: parameters.count(frames)? as usize })
    };
    Ok(RouterConfig {
        interrupt: parameters.nanos("router-interrupt")?,
        forward: parameters.nanos("forward")?,
        moderation: [moderation("a-delay", "a-frames")?, moderation("b-delay", "b-frames")?],
        delay: parameters.nanos("delay")?,
        loss: parameters.fraction("loss")?,
    })
}
