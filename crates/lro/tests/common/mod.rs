//! An engine of any profile in virtual time, driven by the loop that every driver uses; the verifier checks
//! every output.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::expect_used)]

pub mod segments;

use std::time::Duration;

use nichrome_lro::verify::{Verified, Verifier};
use nichrome_lro::{
    Aggregate, Coalescer, Config, DropReason, FlushReason, Frame, Hold, Identification, NetfpgaConfig,
    NpuConfig, Output, Packet, PassReason, Profile, ProfileConfig, Statistics,
};
use nichrome_wire::engine::{advance, deliver, deliver_batch, end_batch};
use nichrome_wire::{Engine, Instant, TcpFrame, VirtioNetHeader};

pub use self::segments::*;

/// A duration in microseconds.
pub const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// A duration in milliseconds.
pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// An output of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// A frame as received.
    Frame(Vec<u8>),
    /// Merged segments.
    Merged(Merged),
    /// An ACK frame for the wire.
    Ack(Vec<u8>),
    /// A dropped frame.
    Dropped(Vec<u8>, DropReason),
}

/// An aggregate, with the metadata for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The packet, its checksum completed.
    pub packet: Vec<u8>,
    /// The payload of each segment.
    pub payloads: Vec<Vec<u8>>,
    pub mss: u16,
    pub reason: FlushReason,
    pub identification: Identification,
    pub virtio: VirtioNetHeader,
    /// The segments re-created.
    pub recreated: Vec<Vec<u8>>,
}

impl Merged {
    fn new<B: AsRef<[u8]>>(aggregate: &Aggregate<B>) -> Self {
        let mut packet = Vec::new();
        aggregate.copy_to(&mut packet);
        let places = aggregate.buffers().map(|buffer| buffer.as_ref().as_ptr_range());
        let starts = aggregate.payloads().map(<[u8]>::as_ptr);
        let in_place = places.zip(starts).filter(|(place, start)| place.contains(start)).count();
        assert_eq!(in_place, aggregate.segments(), "the payloads are in the buffers");
        let recreated = (0..aggregate.segments()).map(|nth| {
            let mut frame = Vec::new();
            aggregate.recreate(nth, &mut frame);
            frame
        });
        Self {
            packet,
            payloads: aggregate.payloads().map(<[u8]>::to_vec).collect(),
            mss: aggregate.mss(),
            reason: aggregate.flush_reason(),
            identification: aggregate.identification(),
            virtio: aggregate.virtio_net_header(),
            recreated: recreated.collect(),
        }
    }
}

impl Sent {
    /// The bytes of the packet or frame.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Frame(bytes) | Self::Ack(bytes) | Self::Dropped(bytes, _) => bytes,
            Self::Merged(merged) => &merged.packet,
        }
    }

    /// Returns the aggregate; fails for any other output.
    pub fn merged(&self) -> &Merged {
        match self {
            Self::Merged(merged) => merged,
            other => panic!("not an aggregate: {other:?}"),
        }
    }
}

/// An engine in virtual time. Dropping it verifies its outputs.
pub struct Card {
    pub engine: Coalescer<Vec<u8>>,
    now: Instant,
    sent: Vec<Sent>,
    verifier: Option<Verifier>,
}

impl Card {
    /// A card of this profile, at one second.
    pub fn new(config: &Config, profile: &ProfileConfig) -> Self {
        Self {
            engine: Coalescer::new(config, profile).unwrap(),
            now: Instant::from_nanos(1_000_000_000),
            sent: Vec::new(),
            verifier: Some(Verifier::new(profile.profile(), config.medium)),
        }
    }

    /// `gro`, holding for a millisecond.
    pub fn gro() -> Self {
        Self::new(&Config::default(), &ProfileConfig::Gro(Hold::For(ms(1))))
    }

    /// `netfpga`, with a timer of a millisecond.
    pub fn netfpga() -> Self {
        Self::new(&Config::default(), &ProfileConfig::Netfpga(NetfpgaConfig::with_timer(ms(1))))
    }

    /// `npu` with the default configuration.
    pub fn npu() -> Self {
        Self::npu_with(NpuConfig::default())
    }

    /// `npu` with this configuration.
    pub fn npu_with(npu: NpuConfig) -> Self {
        Self::new(&Config::default(), &ProfileConfig::Npu(npu))
    }

    /// One card of each profile, holding for a millisecond.
    pub fn of_each_profile(config: &Config) -> [(Profile, Self); 3] {
        each_profile(ms(1)).map(|profile| (profile.profile(), Self::new(config, &profile)))
    }

    /// Disables the verifier, for rules that break streams.
    pub fn unverified(mut self) -> Self {
        self.verifier = None;
        self
    }

    pub fn now(&self) -> Instant {
        self.now
    }

    pub fn statistics(&self) -> Statistics {
        *self.engine.statistics()
    }

    /// Receives a segment.
    pub fn receive(&mut self, frame: &TcpFrame) -> &mut Self {
        self.receive_bytes(frame.build())
    }

    /// Receives a frame.
    pub fn receive_bytes(&mut self, frame: Vec<u8>) -> &mut Self {
        self.receive_frame(Frame::new(frame))
    }

    /// Receives a frame with a checksum status.
    pub fn receive_frame(&mut self, frame: Frame<Vec<u8>>) -> &mut Self {
        let Self { engine, now, sent, verifier } = self;
        advance(engine, *now, &mut |_, output| keep(sent, verifier, &output));
        if let Some(verifier) = verifier {
            verifier.received(frame.bytes());
        }
        deliver(engine, frame, *now, &mut |_, output| keep(sent, verifier, &output));
        self
    }

    /// Receives frames together.
    pub fn receive_batch(&mut self, frames: &[Vec<u8>]) -> &mut Self {
        self.receive_frames(frames.iter().cloned().map(Frame::new).collect())
    }

    /// Receives frames, together or one by one.
    pub fn receive_all(&mut self, frames: &[Vec<u8>], together: bool) -> &mut Self {
        if together {
            return self.receive_batch(frames);
        }
        frames.iter().for_each(|frame| _ = self.receive_bytes(frame.clone()));
        self
    }

    /// Receives frames with a checksum status together.
    pub fn receive_frames(&mut self, mut frames: Vec<Frame<Vec<u8>>>) -> &mut Self {
        let Self { engine, now, sent, verifier } = self;
        advance(engine, *now, &mut |_, output| keep(sent, verifier, &output));
        if let Some(verifier) = verifier {
            frames.iter().for_each(|frame| verifier.received(frame.bytes()));
        }
        deliver_batch(engine, &mut frames, *now, &mut |_, output| keep(sent, verifier, &output));
        self
    }

    /// Shows the engine a segment that the host sends.
    pub fn host_sends(&mut self, frame: &TcpFrame) -> &mut Self {
        let frame = frame.build();
        self.engine.observe_transmit(&frame);
        if let Some(verifier) = &mut self.verifier {
            verifier.observe_transmit(&frame);
        }
        self
    }

    /// Reports to the engine that the host refused a packet.
    pub fn host_refuses(&mut self, packet: &[u8]) -> &mut Self {
        self.engine.observe_refusal(packet);
        self
    }

    /// Lets time pass.
    pub fn wait(&mut self, time: Duration) -> &mut Self {
        self.now = self.now + time;
        let Self { engine, now, sent, verifier } = self;
        advance(engine, *now, &mut |_, output| keep(sent, verifier, &output));
        self
    }

    /// Ends the receive batch.
    pub fn end_batch(&mut self) -> &mut Self {
        let Self { engine, now, sent, verifier } = self;
        end_batch(engine, *now, &mut |_, output| keep(sent, verifier, &output));
        self
    }

    /// Flushes the engine.
    pub fn drain(&mut self) -> &mut Self {
        self.engine.drain();
        self.poll()
    }

    /// Flushes the oldest flows until this number of frames has left.
    pub fn drain_oldest(&mut self, frames: usize) -> &mut Self {
        self.engine.drain_oldest(frames);
        self.poll()
    }

    fn poll(&mut self) -> &mut Self {
        while let Some(output) = self.engine.poll() {
            keep(&mut self.sent, &mut self.verifier, &output);
        }
        self
    }

    /// Takes the outputs since the last call.
    pub fn take(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.sent)
    }

    /// Takes the only output since the last call.
    pub fn take_one(&mut self) -> Sent {
        let mut sent = self.take();
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent.remove(0)
    }

    /// Takes the outputs, and returns the payload lengths of the packets for the host.
    pub fn take_lens(&mut self) -> Vec<usize> {
        let to_host = |sent: &Sent| matches!(sent, Sent::Frame(_) | Sent::Merged(_));
        self.take().iter().filter(|sent| to_host(sent)).map(|sent| tcp(sent.bytes()).payload.len()).collect()
    }

    /// Takes the outputs, and returns the ACK frames among them.
    pub fn take_acks(&mut self) -> Vec<Ack> {
        let acks = |sent: Sent| if let Sent::Ack(bytes) = sent { Some(tcp(&bytes)) } else { None };
        self.take().into_iter().filter_map(acks).collect()
    }

    /// Returns how many frames passed for this reason.
    pub fn passes(&self, reason: PassReason) -> u64 {
        self.engine.statistics().passes.get(reason)
    }

    /// Returns how many flushes had this reason.
    pub fn flushes(&self, reason: FlushReason) -> u64 {
        self.engine.statistics().flushes.get(reason)
    }

    /// Returns how many frames were dropped for this reason.
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.engine.statistics().drops.get(reason)
    }

    /// Flushes the engine, verifies all outputs, and checks that the counters add up.
    pub fn finish(&mut self) -> Verified {
        self.drain();
        assert_consistent(self.engine.statistics());
        match self.verifier.take().map(Verifier::finish) {
            Some(Ok(verified)) => verified,
            Some(Err(mismatch)) => panic!("{mismatch}"),
            None => Verified::default(),
        }
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        if !std::thread::panicking() && self.verifier.is_some() {
            self.finish();
        }
    }
}

fn keep(sent: &mut Vec<Sent>, verifier: &mut Option<Verifier>, output: &Output<Vec<u8>>) {
    if let Some(verifier) = verifier {
        verifier.delivered(output);
    }
    sent.push(match output {
        Output::ToHost(Packet::Frame(frame)) => Sent::Frame(frame.bytes().to_vec()),
        Output::ToHost(Packet::Aggregate(aggregate)) => Sent::Merged(Merged::new(aggregate)),
        Output::ToWire(ack) => Sent::Ack(ack.bytes().to_vec()),
        Output::Dropped(frame, reason) => Sent::Dropped(frame.bytes().to_vec(), *reason),
    });
}

/// The three profiles, each holding for `hold`.
pub fn each_profile(hold: Duration) -> [ProfileConfig; 3] {
    [
        ProfileConfig::Gro(Hold::For(hold)),
        ProfileConfig::Netfpga(NetfpgaConfig::with_timer(hold)),
        ProfileConfig::Npu(NpuConfig::with_hold(hold)),
    ]
}

/// Checks that every received frame was also counted once as passed, dropped or flushed, and its payload once
/// in and once out. Nothing may be held.
pub fn assert_consistent(statistics: &Statistics) {
    let Statistics { packets_in, packets_out, aggregates, segments_aggregated, .. } = *statistics;
    let (passes, flushes, drops) =
        (statistics.passes.total(), statistics.flushes.total(), statistics.drops.total());
    let in_flushes = segments_aggregated + (flushes - aggregates);
    assert_eq!(packets_in, passes + drops + in_flushes, "{statistics:?}");
    assert_eq!(packets_out, passes + flushes, "{statistics:?}");
    let (bytes_in, bytes_out) = (statistics.tcp_payload_bytes_in, statistics.tcp_payload_bytes_out);
    assert!(bytes_in == bytes_out || bytes_in > bytes_out && drops > 0, "{statistics:?}");
}
