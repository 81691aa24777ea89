//! Verifies an engine: compares its output with its input.
//!
//! For `gro`, every TCP or UDP frame must come out bit for bit, in order within its flow. For `netfpga` and
//! `npu`, each direction of each connection must carry the byte stream of a receiver that accepts every
//! segment, in any order, and keeps the first copy of each byte. In addition:
//!
//! - no segment overtakes one that was received before it and precedes it in the stream;
//! - control segments (SYN, FIN, RST, URG, CWR, no payload, unknown options) come out unchanged, once, and
//!   in order with the data of their flow;
//! - an aggregate is well formed, its checksum can be completed, and its ECN mark, flags and ACK number are
//!   those of its segments;
//! - a frame is dropped only if its checksum is wrong, if all its bytes were received before (also in
//!   segments that are not parsed, such as fragments, which a receiver may accept), or if its receiver had
//!   acknowledged all its bytes ([`Verifier::observe_transmit`]).
//!
//! Memory grows with the frames that the engine holds, and by 8 to 20 bytes for each flow, to count flows. It
//! does not grow with the length of flows. For an `npu` that drops duplicates
//! ([`NpuConfig::drops_duplicates`](crate::NpuConfig::drops_duplicates)) it grows by up to 1.5 KB for each
//! flow: the bytes of a duplicate may have come out long before, so the verifier keeps the received ranges of
//! each stream until the end.

mod frames;
mod mismatch;
mod pending;
mod ranges;
mod read;
mod streams;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::BuildHasher;

use self::frames::{Frames, fingerprint};
pub use self::mismatch::{Difference, Mismatch};
use self::read::{Content, Read, read};
use self::streams::Streams;
use crate::{Aggregate, DropReason, FlowKey, Medium, Output, Packet, Profile, ProfileConfig};

/// Compares the output of an engine with its input: see the [module](self).
///
/// Stops at the first difference. Frames must have an unknown checksum status, or right checksums.
pub struct Verifier {
    profile: Profile,
    medium: Medium,
    /// True if the verifier keeps flows that have nothing outstanding, because the engine drops duplicates.
    remembers: bool,
    /// State by flow: of all flows if `remembers`, else of those that have something outstanding. `None` is
    /// the key of all frames without a flow.
    flows: HashMap<Option<FlowKey>, Flow>,
    /// The hashes of all flows.
    counted: HashSet<u64>,
    verified: Verified,
    frames_out: u64,
    mismatch: Option<Mismatch>,
    scratch: Vec<u8>,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("profile", &self.profile)
            .field("verified", &self.verified)
            .field("mismatch", &self.mismatch)
            .finish_non_exhaustive()
    }
}

/// State of one flow.
enum Flow {
    Frames(Frames),
    Streams(Streams),
}

impl Flow {
    /// Checks that nothing is outstanding; returns the number of compared bytes.
    fn finish(&self) -> Result<u64, Difference> {
        match self {
            Self::Frames(frames) => frames.finish(),
            Self::Streams(streams) => streams.finish(),
        }
    }
}

/// What was compared and found equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Frames received.
    pub frames: u64,
    /// Flows of those frames; each direction of a connection is one.
    pub flows: u64,
    /// Bytes compared: of whole frames for `gro`, of the streams for the others. Retransmitted bytes count
    /// again if their flow had nothing outstanding, unless the engine drops duplicates.
    pub bytes: u64,
}

impl fmt::Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { frames, flows, bytes } = self;
        write!(f, "verified: {frames} frames of {flows} flows were delivered, {bytes} bytes compared")
    }
}

impl Verifier {
    /// Creates a verifier for any engine of this profile whose frames begin with `medium`.
    pub fn new(profile: Profile, medium: Medium) -> Self {
        Self {
            profile,
            medium,
            remembers: profile == Profile::Npu,
            flows: HashMap::new(),
            counted: HashSet::new(),
            verified: Verified::default(),
            frames_out: 0,
            mismatch: None,
            scratch: Vec::new(),
        }
    }

    /// Creates a verifier for engines with this configuration whose frames begin with `medium`: an `npu` that
    /// drops no duplicates needs less memory.
    pub fn of(profile: &ProfileConfig, medium: Medium) -> Self {
        let remembers = matches!(profile, ProfileConfig::Npu(npu) if npu.drops_duplicates());
        Self { remembers, ..Self::new(profile.profile(), medium) }
    }

    /// Records a frame. Call it for every frame, before the engine receives it.
    pub fn received(&mut self, frame: &[u8]) {
        self.verified.frames += 1;
        if self.mismatch.is_some() {
            return;
        }
        let number = self.verified.frames;
        let read = self.read(frame);
        match self.flow(read.flow) {
            Flow::Frames(frames) => frames.received(number, fingerprint(frame)),
            Flow::Streams(streams) => streams.received(number, frame, &read),
        }
    }

    /// Records a frame that the host transmits, as the engine sees it: the bytes that it acknowledges may be
    /// dropped.
    pub fn observe_transmit(&mut self, frame: &[u8]) {
        let read = self.read(frame);
        if let (Some(flow), Content::Tcp(tcp)) = (read.flow, &read.content)
            && let Some(Flow::Streams(streams)) = self.flows.get_mut(&Some(flow.reversed()))
        {
            streams.acknowledged(tcp.ack, tcp.flags);
        }
    }

    /// Checks an output. Call it for every output, in order.
    pub fn delivered<B: AsRef<[u8]>>(&mut self, output: &Output<B>) {
        if self.mismatch.is_some() {
            return;
        }
        let checked = match output {
            Output::ToHost(Packet::Frame(frame)) => self.frame(frame.bytes()),
            Output::ToHost(Packet::Aggregate(aggregate)) => self.aggregate(aggregate),
            Output::Dropped(frame, reason) => self.dropped(frame.bytes(), *reason),
            Output::ToWire(_) => return,
        };
        match checked {
            Ok(flow) => self.settle(flow),
            Err(mismatch) => self.mismatch = Some(mismatch),
        }
    }

    /// Returns the first difference found so far.
    pub fn mismatch(&self) -> Option<&Mismatch> {
        self.mismatch.as_ref()
    }

    /// Returns the number of received frames that have not come out.
    pub fn outstanding(&self) -> u64 {
        self.verified.frames.saturating_sub(self.frames_out)
    }

    /// Checks that nothing is outstanding.
    ///
    /// # Errors
    /// The first difference that was found.
    pub fn finish(self) -> Result<Verified, Mismatch> {
        let Self { mut verified, flows, counted, mismatch, .. } = self;
        if let Some(mismatch) = mismatch {
            return Err(mismatch);
        }
        for (flow, state) in flows {
            verified.bytes += state.finish().map_err(|difference| Mismatch { flow, difference })?;
        }
        verified.flows = counted.len() as u64;
        Ok(verified)
    }

    /// Reads a frame. The profiles that keep streams pass UDP and tunnels in order, like all frames that are
    /// not TCP.
    fn read<'a>(&self, frame: &'a [u8]) -> Read<'a> {
        let read = read(frame, self.medium);
        if self.profile != Profile::Gro && read.flow.is_some_and(|flow| flow.is_udp() || flow.is_tunneled()) {
            return Read { flow: None, content: Content::Other };
        }
        read
    }

    fn flow(&mut self, flow: Option<FlowKey>) -> &mut Flow {
        let Self { profile, flows, counted, .. } = self;
        let hash = flow.map(|flow| flows.hasher().hash_one(flow));
        flows.entry(flow).or_insert_with(|| {
            counted.extend(hash);
            match profile {
                Profile::Gro => Flow::Frames(Frames::default()),
                Profile::Netfpga | Profile::Npu => Flow::Streams(Streams::default()),
            }
        })
    }

    /// Forgets a flow that has nothing outstanding.
    fn settle(&mut self, flow: Option<FlowKey>) {
        if !self.remembers
            && let Entry::Occupied(state) = self.flows.entry(flow)
            && let Ok(bytes) = state.get().finish()
        {
            self.verified.bytes += bytes;
            state.remove();
        }
    }

    /// Checks a frame that passed unchanged. Returns its flow.
    fn frame(&mut self, frame: &[u8]) -> Result<Option<FlowKey>, Mismatch> {
        self.frames_out += 1;
        let read = self.read(frame);
        let checked = match self.flow(read.flow) {
            Flow::Frames(frames) => frames.delivered(frame),
            Flow::Streams(streams) => streams.frame(frame, &read),
        };
        checked.map(|()| read.flow).map_err(|difference| Mismatch { flow: read.flow, difference })
    }

    /// Checks an aggregate. Returns its flow.
    fn aggregate<B: AsRef<[u8]>>(&mut self, aggregate: &Aggregate<B>) -> Result<Option<FlowKey>, Mismatch> {
        let mut packet = std::mem::take(&mut self.scratch);
        aggregate.copy_to(&mut packet);
        let read = self.read(&packet);
        let mut checked = well_formed(aggregate, &packet, &read);
        if checked.is_ok() {
            self.frames_out += aggregate.segments() as u64;
            checked = match (self.flow(read.flow), &read.content) {
                (Flow::Streams(streams), Content::Tcp(tcp)) => {
                    let frames = aggregate.buffers().map(AsRef::as_ref);
                    let segments: Vec<_> = frames.zip(aggregate.payloads().map(<[u8]>::len)).collect();
                    streams.aggregate(tcp, segments.into_iter())
                }
                _ => Ok(()),
            };
        }
        let flow = read.flow;
        if checked.is_ok() && self.profile == Profile::Gro {
            checked = (0..aggregate.segments()).try_for_each(|nth| {
                aggregate.recreate(nth, &mut packet);
                self.recreated(flow, &packet)
            });
        }
        self.scratch = packet;
        checked.map(|()| flow).map_err(|difference| Mismatch { flow, difference })
    }

    /// Checks a frame that was re-created from an aggregate of this flow.
    fn recreated(&mut self, flow: Option<FlowKey>, frame: &[u8]) -> Result<(), Difference> {
        match self.flow(flow) {
            Flow::Frames(frames) => frames.delivered(frame),
            Flow::Streams(_) => Ok(()),
        }
    }

    /// Checks that a drop was justified. Returns the frame's flow.
    fn dropped(&mut self, frame: &[u8], reason: DropReason) -> Result<Option<FlowKey>, Mismatch> {
        self.frames_out += 1;
        let read = self.read(frame);
        let corrupt = matches!(read.content, Content::Corrupt);
        let checked = match (self.flow(read.flow), reason) {
            (
                Flow::Frames(frames),
                DropReason::IpChecksum | DropReason::TcpChecksum | DropReason::UdpChecksum,
            ) if corrupt => frames.dropped(frame),
            (Flow::Streams(streams), DropReason::IpChecksum | DropReason::TcpChecksum) if corrupt => {
                streams.dropped_corrupt(frame)
            }
            (Flow::Streams(streams), DropReason::Duplicate) => streams.dropped_duplicate(frame),
            _ => Err(Difference::Dropped { len: frame.len(), reason }),
        };
        checked.map(|()| read.flow).map_err(|difference| Mismatch { flow: read.flow, difference })
    }
}

/// Checks what every aggregate must be: a valid packet, with right `gso_size` and `gso_segs`.
fn well_formed<B: AsRef<[u8]>>(
    aggregate: &Aggregate<B>,
    packet: &[u8],
    read: &Read<'_>,
) -> Result<(), Difference> {
    let longest = aggregate.payloads().map(<[u8]>::len).max().unwrap_or(0);
    let payload_len = match &read.content {
        Content::Tcp(tcp) => Ok(tcp.payload.len()),
        Content::Udp { payload_len } => Ok(*payload_len),
        Content::Corrupt => Err("its checksum is wrong"),
        Content::Opaque { .. } | Content::Other => Err("it is neither a TCP segment nor a UDP datagram"),
    };
    let what = match payload_len {
        Ok(len) if len != aggregate.payload_len() => "its IP length is wrong",
        Ok(_) if packet.len() != aggregate.len() => "its length is wrong",
        Ok(_) if aggregate.payloads().count() != aggregate.segments() => "its count is wrong",
        Ok(_) if aggregate.segments() < 2 => "it has one segment only",
        Ok(_) if usize::from(aggregate.mss()) != longest => "its segment size is wrong",
        Ok(_) => return Ok(()),
        Err(what) => what,
    };
    Err(Difference::Malformed { len: packet.len(), what })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nichrome_wire::{Instant, Network, SeqNumber, TcpFlags, TcpFrame};

    use super::*;
    use crate::mask::Rule;
    use crate::parse::{self, Parsed};
    use crate::recycle::Recycled;
    use crate::run::{Limits, PooledRun, Run};
    use crate::run_pool::RunPool;
    use crate::{ActiveAck, FlushReason, Frame, Hold, NetfpgaConfig, NpuConfig, Rules};

    type Change = fn(&mut Run<Vec<u8>>);

    /// Returns a run of these frames.
    fn run_of(frames: &[Vec<u8>]) -> PooledRun<Vec<u8>> {
        let (limits, now) = (Limits { bytes: 65_535, segments: 4 }, Instant::ZERO);
        let mut frames = frames.iter().cloned().map(Frame::new).collect::<Vec<_>>().into_iter();
        let first = frames.next().unwrap();
        let mut plain = first.bytes().to_vec();
        plain[23] = 6;
        let Parsed::Tcp(segment) = parse::parse_any(&plain, Medium::Ethernet) else { panic!("not TCP") };
        let mut run = RunPool::new(1, 4).start(first, &segment, Rule::Lossless, limits, now).ok().unwrap();
        while !frames.as_slice().is_empty() {
            run.add_expected(&mut frames, TcpFlags::NONE);
        }
        run
    }

    /// Returns an aggregate of these frames.
    fn aggregate_of(frames: &[Vec<u8>]) -> Output<Vec<u8>> {
        let mut run = run_of(frames);
        run.seal(FlushReason::Drain);
        Output::ToHost(Packet::Aggregate(Aggregate::new(Recycled::lend(run))))
    }

    /// Returns three segments of a flow, in order.
    fn three_segments() -> [Vec<u8>; 3] {
        [0, 1, 2].map(|nth: u16| {
            let seq = SeqNumber(1 + 100 * u32::from(nth));
            let mut frame = TcpFrame { seq, payload: vec![0; 100], ..TcpFrame::default() };
            if let Network::Ipv4 { ident, .. } = &mut frame.network {
                *ident = nth;
            }
            frame.build()
        })
    }

    /// Returns the fault that the verifier finds in an aggregate of these frames. The two functions change
    /// its run, one before and one after the header is written.
    fn fault(profile: Profile, frames: &[Vec<u8>], [before, after]: [Change; 2]) -> Option<&'static str> {
        let mut verifier = Verifier::new(profile, Medium::Ethernet);
        frames.iter().for_each(|frame| verifier.received(frame));
        let mut run = run_of(frames);
        before(&mut run);
        run.seal(FlushReason::Drain);
        after(&mut run);
        verifier.delivered(&Output::ToHost(Packet::Aggregate(Aggregate::new(Recycled::lend(run)))));
        match verifier.finish().map_err(|Mismatch { difference, .. }| difference) {
            Ok(_) => None,
            Err(Difference::Malformed { what, .. }) => Some(what),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn a_flow_of_which_nothing_is_outstanding_is_forgotten() {
        for config in [
            ProfileConfig::Gro(Hold::Batch),
            ProfileConfig::Netfpga(NetfpgaConfig::with_timer(Duration::ZERO)),
            ProfileConfig::Npu(NpuConfig::default()),
        ] {
            let profile = config.profile();
            let mut verifier = Verifier::of(&config, Medium::Ethernet);
            let three = three_segments();
            let pass = |verifier: &mut Verifier, frame: &Vec<u8>| {
                verifier.delivered(&Output::ToHost(Packet::Frame(Frame::new(frame.clone()))));
            };
            let single =
                |src_port: u16| TcpFrame { src_port, payload: vec![0; 10], ..TcpFrame::default() }.build();
            for _ in 0..2 {
                three.iter().for_each(|frame| verifier.received(frame));
                for src_port in 1..=100 {
                    let frame = single(src_port);
                    verifier.received(&frame);
                    pass(&mut verifier, &frame);
                    assert_eq!(verifier.flows.len(), 1, "{profile}");
                }
                verifier.delivered(&aggregate_of(&three));
                assert!(verifier.flows.is_empty(), "{profile}");
            }
            let bytes = if profile == Profile::Gro { 2 * (100 * 64 + 3 * 154) } else { 2 * (100 * 10 + 300) };
            assert_eq!(verifier.finish(), Ok(Verified { frames: 206, flows: 101, bytes }), "{profile}");

            // Nothing comes out twice, and nothing is lost.
            for (received, delivered) in [(1, 2), (2, 1)] {
                let mut verifier = Verifier::of(&config, Medium::Ethernet);
                (0..received).for_each(|_| verifier.received(&single(1)));
                (0..delivered).for_each(|_| pass(&mut verifier, &single(1)));
                assert!(verifier.finish().is_err(), "{profile}");
            }
        }
    }

    #[test]
    fn a_flow_of_an_engine_that_drops_duplicates_is_remembered() {
        let segment = TcpFrame { payload: vec![0; 10], ..TcpFrame::default() }.build();
        let dropped = || Output::Dropped(Frame::new(segment.clone()), DropReason::Duplicate);
        for (npu, is_right) in [
            (NpuConfig::default(), false),
            (NpuConfig { rules: Rules::Paper, ..NpuConfig::default() }, true),
            (NpuConfig { active_ack: ActiveAck::Safe, ..NpuConfig::default() }, true),
        ] {
            let mut verifier = Verifier::of(&ProfileConfig::Npu(npu), Medium::Ethernet);
            verifier.received(&segment);
            verifier.delivered(&Output::ToHost(Packet::Frame(Frame::new(segment.clone()))));
            verifier.received(&segment);
            verifier.delivered(&dropped());
            assert_eq!(verifier.finish().is_ok(), is_right, "{npu:?}");
        }
    }

    #[test]
    fn acknowledged_segments_are_forgotten_with_their_aggregate() {
        let mut verifier = Verifier::new(Profile::Npu, Medium::Ethernet);
        let three = three_segments();
        let sent = TcpFrame::default();
        let Network::Ipv4 { src, dst, .. } = sent.network else { panic!("not IPv4") };
        let acknowledgement = TcpFrame {
            network: Network::ipv4(dst, src),
            src_port: sent.dst_port,
            dst_port: sent.src_port,
            ack: SeqNumber(301),
            ..TcpFrame::default()
        };
        verifier.received(&three[0]);
        verifier.observe_transmit(&acknowledgement.build());
        three[1..].iter().for_each(|frame| verifier.received(frame));
        let remembered = |verifier: &Verifier| match verifier.flows.values().next() {
            Some(Flow::Streams(streams)) => streams.already_received.len(),
            _ => 0,
        };
        assert_eq!(remembered(&verifier), 2);
        verifier.delivered(&aggregate_of(&three));
        assert_eq!(remembered(&verifier), 0);
        assert_eq!(verifier.finish(), Ok(Verified { frames: 3, flows: 1, bytes: 300 }));
    }

    #[test]
    fn an_aggregate_that_is_not_well_formed_is_found() {
        let frames = three_segments();
        let with = |at: usize, value: u8| {
            let mut frames = frames.clone();
            frames[0][at] = value;
            frames
        };
        let nothing: Change = |_| {};
        for profile in Profile::ALL {
            let fault = |frames: &[Vec<u8>], before, after| fault(profile, frames, [before, after]);
            assert_eq!(fault(&frames, nothing, nothing), None, "{profile}");
            assert_eq!(fault(&frames[..1], nothing, nothing), Some("it has one segment only"));
            let longer: Change = |run| run.bytes += 1;
            assert_eq!(fault(&frames, nothing, longer), Some("its IP length is wrong"));
            let shorter: Change = |run| run.bytes -= 1;
            assert_eq!(fault(&frames, shorter, nothing), Some("its length is wrong"));
            let one_more: Change = |run| {
                run.add_expected(&mut Vec::new().into_iter(), TcpFlags::NONE);
                run.bytes -= run.first_len;
            };
            assert_eq!(fault(&frames, one_more, nothing), Some("its count is wrong"));
            let larger: Change = |run| run.mss += 1;
            assert_eq!(fault(&frames, nothing, larger), Some("its segment size is wrong"));
            let (wrong_checksum, icmp) = (with(24, !frames[0][24]), with(23, 1));
            assert_eq!(fault(&wrong_checksum, nothing, nothing), Some("its checksum is wrong"));
            let neither = Some("it is neither a TCP segment nor a UDP datagram");
            assert_eq!(fault(&icmp, nothing, nothing), neither);
        }
    }
}
