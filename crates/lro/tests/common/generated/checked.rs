//! An engine whose outputs are checked against every guarantee while it runs.

use std::collections::VecDeque;

use nichrome_lro::verify::{Verified, Verifier};
use nichrome_lro::{
    ChecksumStatus, Coalescer, Config, DropReason, Frame, Hold, Medium, NetfpgaConfig, Output, Packet,
    ProfileConfig, Statistics,
};
use nichrome_wire::engine::{advance, deliver, deliver_batch_into, end_batch};
use nichrome_wire::{
    AddressPair, Engine, EtherType, Instant, IpProtocol, Ipv4Header, Ipv6Header, LinkHeader, PppoeHeader,
    instant,
};

use super::acks::Acks;
use super::ledger::{Buffer, Ledger};
use super::traffic::Step;

/// Two ticks of the timing wheel of `npu`, in nanoseconds.
const TICKS: u64 = 2 * 1024;

/// An engine and its checks.
pub struct Checked {
    engine: Coalescer<Buffer>,
    now: Instant,
    checks: OutputChecks,
    outputs: Vec<Output<Buffer>>,
    /// Maximum number of frames that may be held.
    most_held: u64,
    holds_a_batch_only: bool,
}

/// Checks every output.
struct OutputChecks {
    verifier: Verifier,
    medium: Medium,
    /// Maximum bytes of an aggregate's IP packet, tunnel headers included; of PPPoE, the bytes that its
    /// length field covers.
    max_bytes: usize,
    max_segments: usize,
    /// True if a card verifies the TCP checksums before the engine gets the frames.
    is_verified: bool,
    acks: Acks,
    ledger: Ledger,
    /// Maximum time that a frame may be held, in nanoseconds.
    max_hold: Option<u64>,
    /// Outputs that the driver max_kept, and their maximum number.
    kept: VecDeque<Output<Buffer>>,
    max_kept: usize,
    scratch: Vec<u8>,
    frames: u64,
    broken: Result<(), String>,
}

impl Checked {
    /// Creates the engine. If `is_verified`, frames with right checksums have the status `Verified`.
    pub fn new(config: &Config, profile: &ProfileConfig, is_verified: bool) -> Self {
        let max_hold = match profile {
            ProfileConfig::Gro(Hold::Batch) => None,
            ProfileConfig::Gro(Hold::For(hold))
            | ProfileConfig::Netfpga(NetfpgaConfig { timer: hold, .. }) => Some(instant::nanos(*hold)),
            // A segment that waited behind a gap joins a run with that wait counted.
            ProfileConfig::Npu(npu) => Some(instant::nanos(npu.reorder_hold.max(npu.ceiling)) + TICKS),
        };
        let [aggregates, segments, connections] =
            [config.max_aggregates, config.max_segments, config.max_connections].map(|limit| limit as u64);
        let most_held = match profile {
            // Up to `max_connections` flows each of TCP and UDP, and up to 64 segments that are alone in
            // their flow in a burst, which take no aggregate.
            ProfileConfig::Gro(_) => aggregates.min(2 * connections) * segments + 64,
            ProfileConfig::Netfpga(netfpga) => segments * netfpga.flows as u64,
            ProfileConfig::Npu(npu) => {
                (aggregates * segments) + connections.min(aggregates) * npu.reorder_segments as u64
            }
        };
        let checks = OutputChecks {
            verifier: Verifier::of(profile, config.medium),
            medium: config.medium,
            max_bytes: config.max_bytes as usize,
            max_segments: config.max_segments,
            is_verified,
            acks: Acks::new(config.medium),
            ledger: Ledger::default(),
            max_hold,
            kept: VecDeque::new(),
            max_kept: 0,
            scratch: Vec::new(),
            frames: 0,
            broken: Ok(()),
        };
        Self {
            engine: Coalescer::new(config, profile).unwrap(),
            now: Instant::from_nanos(1 << 40),
            checks,
            outputs: Vec::new(),
            most_held,
            holds_a_batch_only: max_hold.is_none(),
        }
    }

    /// Frames received.
    pub fn frames(&self) -> u64 {
        self.checks.frames
    }

    /// Takes a step; an error names the guarantee that was broken.
    pub fn take(&mut self, step: Step) -> Result<(), String> {
        let Self { engine, now, checks, outputs, .. } = self;
        let batch_ended = matches!(step, Step::EndBatch | Step::Batch(_));
        match step {
            Step::Receive(bytes) => {
                let frame = checks.received(bytes, *now);
                deliver(engine, frame, *now, &mut |at, output| checks.output(at, output));
            }
            Step::Batch(frames) => {
                advance(engine, *now, &mut |at, output| checks.output(at, output));
                let mut frames = frames.into_iter().map(|bytes| checks.received(bytes, *now)).collect();
                deliver_batch_into(engine, &mut frames, *now, outputs);
                outputs.drain(..).for_each(|output| checks.output(*now, output));
            }
            Step::Part(frames) => {
                advance(engine, *now, &mut |at, output| checks.output(at, output));
                let mut frames = frames.into_iter().map(|bytes| checks.received(bytes, *now)).collect();
                engine.receive_batch(&mut frames, *now);
                engine.poll_all(outputs);
                outputs.drain(..).for_each(|output| checks.output(*now, output));
            }
            Step::DrainOldest(frames) => {
                engine.drain_oldest(frames);
                engine.poll_all(outputs);
                outputs.drain(..).for_each(|output| checks.output(*now, output));
            }
            Step::HostSends { segment, start, share } => {
                engine.observe_transmit(&checks.acks.host_sends(segment, start, share));
            }
            Step::Wait(nanos) => {
                *now = now.plus_nanos(nanos);
                advance(engine, *now, &mut |at, output| checks.output(at, output));
            }
            Step::EndBatch => end_batch(engine, *now, &mut |at, output| checks.output(at, output)),
            Step::Keep(count) => checks.keep_outputs(count),
        }
        self.check()?;
        if batch_ended && self.holds_a_batch_only && self.checks.verifier.outstanding() > 0 {
            return Err("frames are held after the end of the batch".into());
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), String> {
        if let Some(mismatch) = self.checks.verifier.mismatch() {
            return Err(mismatch.to_string());
        }
        let held = self.checks.verifier.outstanding();
        if held > self.most_held {
            return Err(format!("{held} frames are held, {} at most were to be", self.most_held));
        }
        std::mem::replace(&mut self.checks.broken, Ok(()))
    }

    /// Drains the engine and makes the checks that are possible only at the end.
    pub fn finish(mut self) -> Result<(Verified, Statistics), String> {
        self.engine.drain();
        while let Some(output) = self.engine.poll() {
            self.checks.output(self.now, output);
        }
        self.check()?;
        self.checks.keep_outputs(0);
        let Self { engine, checks, .. } = self;
        if checks.ledger.len() > 0 {
            return Err(format!("{} buffers were not given back", checks.ledger.len()));
        }
        let statistics = engine.statistics();
        let segments = statistics.segments_aggregated + statistics.flushes.total() - statistics.aggregates;
        let counted = statistics.passes.total() + statistics.drops.total() + segments;
        if statistics.packets_in != counted || statistics.packets_in != checks.frames {
            return Err(format!("{} frames came in, {counted} were counted: {statistics:?}", checks.frames));
        }
        let (payload_in, payload_out) = (statistics.tcp_payload_bytes_in, statistics.tcp_payload_bytes_out);
        if payload_out > payload_in || statistics.drops.total() == 0 && payload_in != payload_out {
            return Err(format!("{payload_in} bytes of payload came in, {payload_out} were delivered"));
        }
        let verified = checks.verifier.finish().map_err(|mismatch| mismatch.to_string())?;
        Ok((verified, *statistics))
    }
}

impl OutputChecks {
    /// Records a frame before the engine receives it.
    fn received(&mut self, bytes: Vec<u8>, now: Instant) -> Frame<Buffer> {
        self.frames += 1;
        self.verifier.received(&bytes);
        let is_verified = self.is_verified && has_right_checksum(&bytes, self.medium) == Some(true);
        let checksum = if is_verified { ChecksumStatus::Verified } else { ChecksumStatus::Unknown };
        Frame { buffer: self.ledger.buffer(bytes, now), checksum }
    }

    /// Checks an output that leaves at `now`.
    fn output(&mut self, now: Instant, output: Output<Buffer>) {
        self.verifier.delivered(&output);
        if self.broken.is_ok() {
            self.broken = self.check_output(now, &output);
        }
        self.kept.push_back(output);
        self.keep_outputs(self.max_kept);
    }

    fn keep_outputs(&mut self, count: usize) {
        self.max_kept = count;
        while self.kept.len() > count {
            self.kept.pop_front();
        }
    }

    fn check_output(&mut self, now: Instant, output: &Output<Buffer>) -> Result<(), String> {
        match output {
            Output::ToHost(Packet::Frame(frame)) => {
                self.acks.note_delivered(frame.bytes());
                self.in_time(now, frame.bytes())
            }
            Output::ToHost(Packet::Aggregate(aggregate)) => {
                aggregate.copy_to(&mut self.scratch);
                self.acks.note_delivered(&self.scratch);
                let link = match self.medium {
                    Medium::Ip => 0,
                    Medium::Ethernet => uncounted(&self.scratch),
                };
                let (bytes, segments) = (self.scratch.len() - link, aggregate.segments());
                if bytes > self.max_bytes || segments > self.max_segments {
                    return Err(format!("an aggregate has {segments} segments and {bytes} bytes"));
                }
                aggregate.payloads().try_for_each(|payload| self.in_time(now, payload))
            }
            Output::ToWire(ack) => self.acks.sent(ack.bytes()),
            Output::Dropped(frame, reason) => {
                if *reason == DropReason::Duplicate {
                    self.acks.dropped(frame.bytes())?;
                }
                self.in_time(now, frame.bytes())
            }
        }
    }

    /// Checks that a part of a received frame leaves in time, and was not copied.
    fn in_time(&self, now: Instant, part: &[u8]) -> Result<(), String> {
        if part.is_empty() {
            return Ok(());
        }
        let arrival = self.ledger.arrival(part).ok_or("bytes leave that are not in a received buffer")?;
        match self.max_hold {
            Some(max_hold) if now.nanos_since(arrival) > max_hold => Err(format!(
                "a frame was held for {} ns, {max_hold} at most were allowed",
                now.nanos_since(arrival)
            )),
            _ => Ok(()),
        }
    }
}

/// Returns the number of leading bytes of a frame that do not count towards the size limit.
fn uncounted(frame: &[u8]) -> usize {
    let link = LinkHeader::new(frame).unwrap();
    let is_pppoe = link.ethertype() == EtherType::PPPOE_SESSION;
    link.header_len() + if is_pppoe { PppoeHeader::UNCOVERED } else { 0 }
}

/// Returns true if a TCP segment's checksum is right; `None` for frames whose checksums cards do not verify.
fn has_right_checksum(frame: &[u8], medium: Medium) -> Option<bool> {
    let packet = match medium {
        Medium::Ip => frame,
        Medium::Ethernet => {
            let link = LinkHeader::new(frame)?;
            [EtherType::IPV4, EtherType::IPV6].contains(&link.ethertype()).then(|| link.payload())?
        }
    };
    let (addresses, protocol, tcp) = if packet.first()? >> 4 == 4 {
        let ip = Ipv4Header::new(packet).filter(|ip| !ip.is_fragment())?;
        let segment = packet.get(ip.header_len()..usize::from(ip.total_len()))?;
        (AddressPair::V4 { src: ip.src(), dst: ip.dst() }, ip.protocol(), segment)
    } else {
        let ip = Ipv6Header::new(packet)?;
        (AddressPair::V6 { src: ip.src(), dst: ip.dst() }, ip.next_header(), ip.payload()?)
    };
    let pseudo = addresses.pseudo_header(protocol, tcp.len() as u32);
    (protocol == IpProtocol::TCP).then(|| pseudo.add_bytes(tcp).finish() == 0)
}
