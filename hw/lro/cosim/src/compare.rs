//! Runs the same frames through the engine and the module, and compares bytes, order, metadata and counters.

use nichrome_lro::{
    Config, DropReason, FlushReason, Frame, Netfpga, NetfpgaConfig, Output, PassReason, Reason, Statistics,
};
use nichrome_wire::engine::advance;
use nichrome_wire::{Engine, Instant};
use thiserror::Error;

use crate::package::{COUNTER_DROP, COUNTER_FLUSH, COUNTER_PASS};
use crate::rtl::{Kind, Packet, Rtl, RtlConfig, Totals};

/// The first difference between engine and module.
#[derive(Debug, Error)]
pub enum Difference {
    /// The module delivered fewer or more packets.
    #[error("the engine delivers {engine} packets, the module {rtl}")]
    Count {
        /// The engine's.
        engine: usize,
        /// The module's.
        rtl: usize,
    },
    /// A packet differs.
    #[error("packet {index} differs:\nengine {engine}\nmodule {rtl}")]
    Packet {
        /// Its number, from 0.
        index: usize,
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

/// A frame, or time that passes.
#[derive(Clone, Debug)]
pub enum Input {
    /// A frame that arrives at this time.
    Frame(Instant, Vec<u8>),
    /// No frame arrives until this time.
    Idle(Instant),
}

/// A packet of the engine, with its metadata.
struct Expected {
    bytes: Vec<u8>,
    arrival: Instant,
    kind: Kind,
    /// The index of the pass reason or the flush reason.
    reason: usize,
    segments: usize,
    /// MSS and offsets of an aggregate; the engine has none for a frame.
    layout: Option<(u16, [u8; 3])>,
}

/// A frame with the time at which it arrived.
struct Arrived {
    bytes: Vec<u8>,
    arrival: Instant,
}

impl AsRef<[u8]> for Arrived {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The result of a comparison without difference.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// Frames in.
    pub frames: u64,
    /// Cycles from the first frame on.
    pub cycles: u64,
    /// Cycles in which an offered word was not taken.
    pub refused: u64,
    /// The engine's statistics.
    pub statistics: Statistics,
}

/// Gives these inputs to both; the module gets the frames as fast as it takes them.
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
    let Ok(mut engine) = Netfpga::<Arrived>::new(&config, netfpga) else { return Default::default() };
    let mut expected = Vec::new();
    for input in inputs {
        let (Input::Frame(now, _) | Input::Idle(now)) = input;
        fire_timer(&mut engine, *now, &mut expected);
        if let Input::Frame(now, bytes) = input {
            receive(&mut engine, Arrived { bytes: bytes.clone(), arrival: *now }, &mut expected);
        }
    }
    // The module closes aggregates that are due at the time of the last input without waiting for another
    // input.
    let last = inputs.iter().map(|input| match input {
        Input::Frame(now, _) | Input::Idle(now) => *now,
    });
    fire_timer(&mut engine, last.max().unwrap_or(Instant::ZERO), &mut expected);
    engine.drain();
    while let Some(output) = engine.poll() {
        expected.extend(held(output, FlushReason::Drain));
    }
    (expected, *engine.statistics())
}

fn fire_timer(engine: &mut Netfpga<Arrived>, now: Instant, expected: &mut Vec<Expected>) {
    advance(engine, now, &mut |_, output| expected.extend(held(output, FlushReason::Timeout)));
}

/// Gives a frame to the engine. The engine flushes aggregates for at most one reason, then passes, drops or
/// holds the frame.
fn receive(engine: &mut Netfpga<Arrived>, frame: Arrived, expected: &mut Vec<Expected>) {
    let (arrival, before) = (frame.arrival, *engine.statistics());
    engine.receive(Frame::new(frame), arrival);
    let after = *engine.statistics();
    let flushed = FlushReason::ALL
        .iter()
        .find(|reason| after.flushes.get(**reason) > before.flushes.get(**reason))
        .unwrap_or(&FlushReason::Barrier);
    let passed =
        PassReason::ALL.iter().find(|reason| after.passes.get(**reason) > before.passes.get(**reason));
    let outputs = std::iter::from_fn(|| engine.poll());
    expected.extend(outputs.filter_map(|output| held(output, *flushed)));
    if let (Some(reason), Some(last)) = (passed, expected.last_mut()) {
        (last.kind, last.reason) = (Kind::Passed, reason.position());
    }
}

/// A packet that the engine held; `None` for a frame that it dropped.
fn held(output: Output<Arrived>, reason: FlushReason) -> Option<Expected> {
    let reason = reason.position();
    match output {
        Output::ToHost(nichrome_lro::Packet::Frame(frame)) => {
            let Arrived { bytes, arrival } = frame.buffer;
            Some(Expected { bytes, arrival, kind: Kind::Single, reason, segments: 1, layout: None })
        }
        Output::ToHost(nichrome_lro::Packet::Aggregate(aggregate)) => {
            let mut bytes = Vec::new();
            aggregate.copy_to(&mut bytes);
            let virtio = aggregate.virtio_net_header();
            let network = if virtio.gso_type == nichrome_wire::VirtioNetHeader::GSO_TCPV4 { 20 } else { 40 };
            let offsets = [virtio.csum_start - network, virtio.csum_start, virtio.hdr_len].map(|at| at as u8);
            Some(Expected {
                bytes,
                arrival: aggregate.buffers().next().map_or(Instant::ZERO, |first| first.arrival),
                kind: Kind::Aggregate,
                reason: aggregate.flush_reason().position(),
                segments: aggregate.segments(),
                layout: Some((aggregate.mss(), offsets)),
            })
        }
        Output::ToWire(_) | Output::Dropped(..) => None,
    }
}

fn packets_are_equal(expected: &[Expected], packets: &[Packet]) -> Result<(), Difference> {
    for (index, (expected, packet)) in expected.iter().zip(packets).enumerate() {
        let is_equal = packet.bytes == expected.bytes
            && (packet.arrival, packet.kind, packet.reason, packet.segments)
                == (expected.arrival, expected.kind, expected.reason, expected.segments)
            && expected.layout.is_none_or(|layout| layout == (packet.mss, packet.offsets));
        if !is_equal {
            return Err(difference(index, expected, packet));
        }
    }
    match (expected.len(), packets.len()) {
        (engine, rtl) if engine != rtl => Err(Difference::Count { engine, rtl }),
        _ => Ok(()),
    }
}

fn difference(index: usize, expected: &Expected, packet: &Packet) -> Difference {
    let at = expected.bytes.iter().zip(&packet.bytes).position(|(engine, rtl)| engine != rtl);
    let around = |bytes: &[u8]| {
        let at = at.unwrap_or(bytes.len().min(expected.bytes.len()));
        format!("{:02x?}", &bytes[at.saturating_sub(4).min(bytes.len())..bytes.len().min(at + 12)])
    };
    let metadata = |arrival: Instant, kind: Kind, reason: usize, segments: usize| {
        format!("{kind:?} reason {reason} segments {segments} arrived at {} ns", arrival.as_nanos())
    };
    let engine = format!(
        "{} bytes, {} mss and offsets {:?}, from byte {at:?}: {}",
        expected.bytes.len(),
        metadata(expected.arrival, expected.kind, expected.reason, expected.segments),
        expected.layout,
        around(&expected.bytes)
    );
    let rtl = format!(
        "{} bytes, {} mss and offsets {:?}: {}",
        packet.bytes.len(),
        metadata(packet.arrival, packet.kind, packet.reason, packet.segments),
        (packet.mss, packet.offsets),
        around(&packet.bytes)
    );
    Difference::Packet { index, engine, rtl }
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
    for (index, (engine, rtl)) in expected.into_iter().zip(*totals).enumerate() {
        if engine != rtl {
            return Err(Difference::Counter { name: crate::package::TOTALS[index].into(), engine, rtl });
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
