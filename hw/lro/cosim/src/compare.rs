//! The same frames through the engine and the module: bytes, order, metadata and counters must be equal.

use nichrome_lro::{
    Config, DropReason, FlushReason, Frame, Netfpga, NetfpgaConfig, Output, PassReason, Reason, Statistics,
};
use nichrome_wire::engine::{advance, deliver};
use nichrome_wire::{Engine, Instant};
use thiserror::Error;

use crate::package::{COUNTER_DROP, COUNTER_FLUSH, COUNTER_PASS};
use crate::rtl::{Kind, Packet, Rtl, RtlConfig, Totals};

/// What differs.
#[derive(Debug, Error)]
pub enum Difference {
    /// The module handed on fewer packets or more.
    #[error("the engine hands on {engine} packets, the module {rtl}")]
    Count {
        /// The engine's.
        engine: usize,
        /// The module's.
        rtl: usize,
    },
    /// A packet differs.
    #[error("packet {place} differs:\nengine {engine}\nmodule {rtl}")]
    Packet {
        /// From 0.
        place: usize,
        /// The engine's.
        engine: String,
        /// The module's.
        rtl: String,
    },
    /// A counter differs.
    #[error("{name} is {engine} in the engine, {rtl} in the module")]
    Counter {
        /// The counter.
        name: String,
        /// The engine's.
        engine: u64,
        /// The module's.
        rtl: u64,
    },
}

/// A frame or a time that passes.
#[derive(Clone, Debug)]
pub enum Input {
    /// A frame that arrives now.
    Frame(Instant, Vec<u8>),
    /// Nothing arrives until then.
    Idle(Instant),
}

/// What the engine says of a packet: `None` where it does not say.
struct Expected {
    bytes: Vec<u8>,
    aggregate: Option<(FlushReason, usize, u16, [u8; 3])>,
}

/// How the module did.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// Frames in.
    pub frames: u64,
    /// Cycles from the first frame on.
    pub cycles: u64,
    /// Cycles in which a word waited.
    pub refused: u64,
    /// The engine's statistics.
    pub statistics: Statistics,
}

/// Gives these inputs to both, the frames to the module one behind the other as fast as it takes them.
///
/// # Errors
/// The first difference.
pub fn compare(config: &Config, rtl: RtlConfig, inputs: &[Input]) -> Result<Report, Difference> {
    let netfpga = NetfpgaConfig { timer: rtl.timer, flows: rtl.model.flows };
    let (expected, statistics) = run_engine(config, &netfpga, inputs);
    let mut module = Rtl::new(rtl);
    let started = (module.cycles(), module.refused());
    for input in inputs {
        match input {
            Input::Frame(now, frame) => module.send(frame, *now, false),
            Input::Idle(now) => module.advance(*now),
        }
    }
    module.settle();
    let (cycles, refused) = (module.cycles() - started.0, module.refused() - started.1);
    module.drain();
    let packets: Vec<Packet> = std::iter::from_fn(|| module.packet()).collect();
    packets_are_equal(&expected, &packets)?;
    totals_are_equal(&statistics, &module.totals())?;
    reasons_are_equal::<FlushReason>("flushes", &mut module, COUNTER_FLUSH, |reason| {
        statistics.flushes.get(reason)
    })?;
    reasons_are_equal::<PassReason>("passes", &mut module, COUNTER_PASS, |reason| {
        statistics.passes.get(reason)
    })?;
    reasons_are_equal::<DropReason>("drops", &mut module, COUNTER_DROP, |reason| {
        statistics.drops.get(reason)
    })?;
    Ok(Report { frames: statistics.packets_in, cycles, refused, statistics })
}

fn run_engine(config: &Config, netfpga: &NetfpgaConfig, inputs: &[Input]) -> (Vec<Expected>, Statistics) {
    // The module's pages do not run out; neither may the engine's aggregates.
    let config = Config { max_aggregates: 64, ..*config };
    let Ok(mut engine) = Netfpga::<Vec<u8>>::new(&config, netfpga) else { return Default::default() };
    let mut expected = Vec::new();
    let mut keep = |_: Instant, output: Output<Vec<u8>>| expected.extend(expect(&output));
    for input in inputs {
        match input {
            Input::Frame(now, frame) => deliver(&mut engine, Frame::new(frame.clone()), *now, &mut keep),
            Input::Idle(now) => advance(&mut engine, *now, &mut keep),
        }
    }
    // The module fires what is due at the time of the last input without waiting for another one.
    let last = inputs.iter().map(|input| match input {
        Input::Frame(now, _) | Input::Idle(now) => *now,
    });
    advance(&mut engine, last.max().unwrap_or(Instant::ZERO), &mut keep);
    engine.drain();
    while let Some(output) = engine.poll() {
        keep(Instant::ZERO, output);
    }
    (expected, *engine.statistics())
}

fn expect(output: &Output<Vec<u8>>) -> Option<Expected> {
    match output {
        Output::ToHost(nichrome_lro::Packet::Frame(frame)) => {
            Some(Expected { bytes: frame.bytes().to_vec(), aggregate: None })
        }
        Output::ToHost(nichrome_lro::Packet::Aggregate(aggregate)) => {
            let mut bytes = Vec::new();
            aggregate.copy_to(&mut bytes);
            let virtio = aggregate.virtio_net_header();
            let network = if virtio.gso_type == nichrome_wire::VirtioNetHeader::GSO_TCPV4 { 20 } else { 40 };
            let offsets = [virtio.csum_start - network, virtio.csum_start, virtio.hdr_len].map(|at| at as u8);
            let aggregate = (aggregate.flush_reason(), aggregate.segments(), aggregate.mss(), offsets);
            Some(Expected { bytes, aggregate: Some(aggregate) })
        }
        Output::ToWire(_) | Output::Dropped(..) => None,
    }
}

fn packets_are_equal(expected: &[Expected], packets: &[Packet]) -> Result<(), Difference> {
    for (place, (expected, packet)) in expected.iter().zip(packets).enumerate() {
        let metadata = match expected.aggregate {
            None => packet.kind != Kind::Aggregate,
            Some((reason, segments, mss, offsets)) => {
                packet.kind == Kind::Aggregate
                    && packet.reason == reason.position()
                    && (packet.segments, packet.mss, packet.offsets) == (segments, mss, offsets)
            }
        };
        if !metadata || packet.bytes != expected.bytes {
            return Err(difference(place, expected, packet));
        }
    }
    match (expected.len(), packets.len()) {
        (engine, rtl) if engine != rtl => Err(Difference::Count { engine, rtl }),
        _ => Ok(()),
    }
}

fn difference(place: usize, expected: &Expected, packet: &Packet) -> Difference {
    let at = expected.bytes.iter().zip(&packet.bytes).position(|(engine, rtl)| engine != rtl);
    let around = |bytes: &[u8]| {
        let at = at.unwrap_or(bytes.len().min(expected.bytes.len()));
        format!("{:02x?}", &bytes[at.saturating_sub(4).min(bytes.len())..bytes.len().min(at + 12)])
    };
    let engine = format!(
        "{} bytes, {:?}, from byte {at:?}: {}",
        expected.bytes.len(),
        expected.aggregate,
        around(&expected.bytes)
    );
    let rtl = format!(
        "{} bytes, {:?} reason {} segments {} mss {} {:?}: {}",
        packet.bytes.len(),
        packet.kind,
        packet.reason,
        packet.segments,
        packet.mss,
        packet.offsets,
        around(&packet.bytes)
    );
    Difference::Packet { place, engine, rtl }
}

fn totals_are_equal(statistics: &Statistics, totals: &Totals) -> Result<(), Difference> {
    let expected = [
        statistics.packets_in,
        statistics.bytes_in,
        statistics.tcp_payload_bytes_in,
        statistics.packets_out,
        statistics.bytes_out,
        statistics.tcp_payload_bytes_out,
        statistics.aggregates,
        statistics.segments_aggregated,
    ];
    for (place, (engine, rtl)) in expected.into_iter().zip(*totals).enumerate() {
        if engine != rtl {
            return Err(Difference::Counter { name: crate::package::TOTALS[place].into(), engine, rtl });
        }
    }
    Ok(())
}

fn reasons_are_equal<R: Reason>(
    kind: &str,
    module: &mut Rtl,
    first: usize,
    count: impl Fn(R) -> u64,
) -> Result<(), Difference> {
    for reason in R::ALL {
        let (engine, rtl) = (count(*reason), module.counter(first + reason.position()));
        if engine != rtl {
            return Err(Difference::Counter { name: format!("{kind}.{}", reason.name()), engine, rtl });
        }
    }
    Ok(())
}
