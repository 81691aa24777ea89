//! One direction of a live path: frames from one device are segmented to packets, pass the path, and go to
//! the other device; packets that leave together are coalesced again.
//!
//! Each packet is stamped when it is read. The path computes with these stamps, so that a late thread does
//! not delay later packets.

use std::collections::VecDeque;
use std::hint;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use anyhow::Context;
use nichrome_lro::{Config, Frame, Gro, Hold, Output as Coalesced, Packet};
use nichrome_nic::{HostError, PathFrame, segment, send};
use nichrome_port::{
    Arena, Device, MAX_RECEIVE, Onset, RealTime, Received, Waker, clock, waited_for_processor,
};
use nichrome_wan::{Departure, DropReason, Impairments, Output, Path, TooBig};
use nichrome_wire::Engine;
use nichrome_wire::{Instant, VirtioNetHeader};
use rustix::io::Errno;

use super::recorder::Recorder;
use super::report::{Measured, Report};
use crate::shared_device::SharedDevice;
use crate::side::Side;

/// Maximum frames read before due packets are sent.
const FRAMES: usize = 16;

/// Time that the kernel may take to wake an ordinary thread after its timer, in nanoseconds: the thread does
/// not sleep for this time before a packet is due.
const WAKE_UP: u64 = 60_000;

/// Rounds without sleep after which control messages are read.
const CONTROL_ROUNDS: u64 = 64;

/// Maximum packets that are coalesced together.
const BURST: usize = 256;

/// Length of a block of memory for packets, in bytes.
const BLOCK: usize = 1 << 18;

/// Maximum payload slices of an aggregate: enough for 64 KB of usual segments.
const MAX_SEGMENTS: usize = 64;

/// A control message for a running direction.
pub(super) enum ControlMessage {
    /// Change the impairments; reports the result.
    Impair(Box<Impairments>, Sender<anyhow::Result<()>>),
    /// Report the results so far.
    Report(Sender<Report>),
    /// End.
    Stop,
}

/// A direction of a live path.
pub(super) struct Direction {
    to: Side,
    from_device: SharedDevice,
    to_device: SharedDevice,
    impairments: Impairments,
    path: Path<PathFrame>,
    link: Link,
    messages: Receiver<ControlMessage>,
    waker: Arc<Waker>,
}

impl Direction {
    /// Creates a direction towards `to` between two devices. Wake the waker after sending a control message.
    pub(super) fn new(
        to: Side,
        [from_device, to_device]: [SharedDevice; 2],
        impairments: &Impairments,
        seed: u64,
        recorder: Option<Recorder>,
        (messages, waker): (Receiver<ControlMessage>, Arc<Waker>),
    ) -> anyhow::Result<Self> {
        // Gives the two directions different random choices.
        let path = Path::new(impairments, seed.wrapping_mul(2).wrapping_add(u64::from(to.number())))?;
        let link = Link::new(recorder, TooBig::new(impairments.mtu))?;
        let impairments = impairments.clone();
        Ok(Self { to, from_device, to_device, impairments, path, link, messages, waker })
    }

    /// Carries packets until [`ControlMessage::Stop`].
    pub(super) fn run(mut self) -> anyhow::Result<Report> {
        clock::sleep_precisely().context("cannot set the timer slack")?;
        // Most users may not use SCHED_FIFO. With it, the thread is woken in time, and staying awake would
        // block other threads.
        let mut real_time = RealTime::if_permitted(Onset::Waking);
        let stay_awake = if real_time.is_permitted() { 0 } else { WAKE_UP };
        let mut buffer = vec![0; MAX_RECEIVE];
        for round in 0u64.. {
            let more = self.receive(&mut buffer)?;
            self.send()?;
            let may_have_message = if more {
                round.is_multiple_of(CONTROL_ROUNDS)
            } else if self.is_due_within(stay_awake) {
                hint::spin_loop();
                round.is_multiple_of(CONTROL_ROUNDS)
            } else {
                let sources = [self.from_device.as_fd(), self.waker.as_fd()];
                let woken = real_time.sleep(|| clock::wait(sources, self.path.poll_timeout()));
                woken.context("cannot wait for packets")?[1]
            };
            real_time.worked();
            if may_have_message && self.execute_messages() {
                break;
            }
        }
        Ok(self.report())
    }

    /// Returns true if a packet is due too soon to sleep.
    fn is_due_within(&self, nanos: u64) -> bool {
        self.path.poll_timeout().is_some_and(|due| due.nanos_since(clock::now()) < nanos)
    }

    /// Reads some frames; returns true if more may be pending.
    fn receive(&mut self, buffer: &mut [u8]) -> anyhow::Result<bool> {
        for _ in 0..FRAMES {
            match self.from_device.receive(buffer) {
                Ok(Some(received)) => self.link.accept(received, &mut self.path),
                Ok(None) => return Ok(false),
                // The interface is down and may come up again.
                Err(Errno::NETDOWN | Errno::IO) => return Ok(false),
                Err(error) => {
                    let from = self.to.other().name();
                    return Err(error).with_context(|| format!("cannot read frames from the {from}"));
                }
            }
        }
        Ok(true)
    }

    /// Sends due packets.
    fn send(&mut self) -> anyhow::Result<()> {
        let due = |due: Option<Instant>| due.is_some_and(|due| due <= clock::now());
        loop {
            if due(self.path.poll_timeout()) {
                self.path.handle_timeout(clock::now());
            }
            let is_last = self.link.collect(&mut self.path, &*self.from_device);
            self.link.transmit(&*self.to_device, self.to)?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Executes pending control messages; returns true on [`ControlMessage::Stop`].
    fn execute_messages(&mut self) -> bool {
        self.waker.clear();
        while let Ok(message) = self.messages.try_recv() {
            match message {
                ControlMessage::Impair(impairments, done) => {
                    let result = self.path.reconfigure(&impairments, clock::now());
                    if result.is_ok() {
                        self.link.too_big.set_mtu(impairments.mtu);
                        self.impairments = *impairments;
                    }
                    // The requesting thread may have gone.
                    let _ = done.send(result.map_err(Into::into));
                }
                ControlMessage::Report(to) => {
                    let _ = to.send(self.report());
                }
                ControlMessage::Stop => return true,
            }
        }
        false
    }

    fn report(&self) -> Report {
        let (stats, in_flight) = (self.path.stats().clone(), self.path.in_flight() as u64);
        Report {
            impairments: self.impairments.clone(),
            stats,
            in_flight,
            measured: self.link.measured.clone(),
            waited: waited_for_processor(),
        }
    }
}

/// The stages between the devices and the path.
struct Link {
    /// Memory for packets that leave at once.
    arena: Arena,
    coalescer: Gro<PathFrame>,
    /// Packets that leave together.
    burst: Vec<Frame<PathFrame>>,
    /// Arrival and due times of these packets.
    times: VecDeque<(Instant, Instant)>,
    measured: Measured,
    recorder: Option<Recorder>,
    too_big: TooBig,
}

impl Link {
    fn new(recorder: Option<Recorder>, too_big: TooBig) -> anyhow::Result<Self> {
        let config = Config {
            max_segments: MAX_SEGMENTS,
            max_connections: 1024,
            max_aggregates: 1024,
            ..Config::default()
        };
        Ok(Self {
            arena: Arena::new(BLOCK),
            coalescer: Gro::new(&config, Hold::Batch)?,
            burst: Vec::with_capacity(BURST),
            times: VecDeque::with_capacity(BURST),
            measured: Measured::default(),
            recorder,
            too_big,
        })
    }

    /// Stamps a frame and passes its packets to the path.
    fn accept(&mut self, received: Received<'_>, path: &mut Path<PathFrame>) {
        let now = clock::now();
        let Received { virtio, frame, .. } = received;
        let Ok((mut segments, checksum)) = segment(frame, &virtio) else {
            self.measured.malformed += 1;
            return;
        };
        self.measured.received(segments.bytes_remaining(), now);
        while segments.remaining() > 0 {
            let packet = if path.holds_packets() {
                // A piece of the arena would keep its whole block. The path bounds the number of packets, not
                // of blocks.
                let mut own = Vec::new();
                segments.append_next(&mut own);
                own.into()
            } else {
                let len = segments.write_next(self.arena.room(segments.packet_len()));
                self.arena.take(len)
            };
            if let Some(recorder) = &self.recorder {
                self.measured.not_captured += u64::from(!recorder.received(now, &packet));
            }
            path.receive(PathFrame::new(packet, checksum), now);
        }
    }

    /// Collects packets that are due; returns false if more may follow. Sends ICMP errors for packets that
    /// exceed the MTU through `from_device`.
    fn collect(&mut self, path: &mut Path<PathFrame>, from_device: &dyn Device) -> bool {
        while self.burst.len() < BURST {
            match path.poll() {
                Some(Output::Released(Departure { packet, arrived, due })) => {
                    self.times.push_back((arrived, due));
                    let checksum = packet.checksum.into();
                    self.burst.push(Frame { buffer: packet, checksum });
                }
                Some(Output::Dropped { packet, reason: DropReason::Mtu }) => {
                    self.send_too_big(packet.as_ref(), from_device);
                }
                // The path counts drops.
                Some(Output::Dropped { .. }) => {}
                None => return true,
            }
        }
        false
    }

    /// Sends the ICMP error for `frame`, which exceeds the MTU, as a router at the start of the path does:
    /// the impairments of the return direction do not apply.
    fn send_too_big(&mut self, frame: &[u8], device: &dyn Device) {
        let now = clock::now();
        let Some(answer) = self.too_big.answer(frame, now) else { return };
        let header = VirtioNetHeader::default().to_bytes();
        // If this fails, the next packet that exceeds the MTU causes another error.
        if device.send(&[IoSlice::new(&header), IoSlice::new(&answer)]).is_ok() {
            self.measured.too_big_sent += 1;
            self.measured.not_captured +=
                u64::from(self.recorder.as_ref().is_some_and(|to| !to.received(now, &answer)));
        }
    }

    /// Sends the packets that leave together.
    fn transmit(&mut self, device: &dyn Device, to: Side) -> anyhow::Result<()> {
        if self.burst.is_empty() {
            return Ok(());
        }
        let now = clock::now();
        if let Some(recorder) = &self.recorder {
            let missed = self.burst.iter().filter(|frame| !recorder.sent(now, frame.bytes())).count();
            self.measured.not_captured += missed as u64;
        }
        self.coalescer.receive_batch(&mut self.burst, now);
        self.coalescer.end_of_batch(now);
        while let Some(output) = self.coalescer.poll() {
            // The `gro` engine neither drops packets nor sends ACKs.
            let Coalesced::ToHost(packet) = output else { continue };
            let sent = send(device, &packet);
            let now = clock::now();
            let packets = packet.segments();
            let times = self.times.drain(..packets.min(self.times.len()));
            match sent {
                Ok(()) => {
                    self.measured.sent(packets, bytes(&packet), now);
                    times.for_each(|(arrived, due)| self.measured.delayed(arrived, due, now));
                }
                Err(HostError::Refused(_) | HostError::Down) => self.measured.refused += packets as u64,
                Err(error @ HostError::Gone(_)) => {
                    return Err(error).with_context(|| format!("cannot send a frame to the {}", to.name()));
                }
            }
        }
        self.times.clear();
        Ok(())
    }
}

/// Returns the bytes of a packet's segments as they came from the path, each with its headers.
fn bytes(packet: &Packet<PathFrame>) -> usize {
    match packet {
        Packet::Frame(frame) => frame.bytes().len(),
        Packet::Aggregate(aggregate) => aggregate.buffers().map(|frame| frame.as_ref().len()).sum(),
    }
}

#[cfg(test)]
mod tests {
    use nichrome_wire::TcpFrame;

    use super::*;

    /// A path uses no more memory than its held packets need, even if it drops most packets.
    #[test]
    fn only_packets_that_leave_at_once_are_pieces_of_a_block() {
        let frame = TcpFrame { payload: vec![7; 1000], ..TcpFrame::default() }.build();
        for (held, impairments) in [
            (false, Impairments::default()),
            (false, Impairments { loss: Some("1%".parse().unwrap()), ..Impairments::default() }),
            (true, Impairments { rate: Some("1mbit".parse().unwrap()), ..Impairments::default() }),
            (true, Impairments { delay: "1s".parse().unwrap(), ..Impairments::default() }),
            (true, Impairments { reorder: Some("1%".parse().unwrap()), ..Impairments::default() }),
        ] {
            let mut path = Path::new(&impairments, 1).unwrap();
            let mut link = Link::new(None, TooBig::new(None)).unwrap();
            let start = link.arena.room(0).as_ptr();
            let received = Received { frame: &frame, virtio: VirtioNetHeader::default(), at: 0 };
            link.accept(received, &mut path);
            assert_eq!(link.arena.room(0).as_ptr() == start, held, "{impairments:?}");
        }
    }
}
