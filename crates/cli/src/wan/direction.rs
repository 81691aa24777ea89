//! One direction of a live path: frames from a device are cut to packets, travel along the path, and are handed to the
//! other device, those that leave together coalesced again.
//!
//! Each packet is stamped when it is read. What is asked of the path is reckoned from the stamps, so that this thread's
//! being late once makes no later packet later.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use anyhow::Context;
use nichrome_lro::{ChecksumStatus, Config, Frame, Gro, Hold, Output as Coalesced, Packet};
use nichrome_port::{BufferPool, Device, MAX_RECEIVE, Received, Waker, clock};
use nichrome_tso::Segments;
use nichrome_wan::{Departure, Impairments, Output, Path};
use nichrome_wire::Engine;
use nichrome_wire::{ChecksumState, Instant, VirtioNetHeader, VirtioNetRepr};
use rustix::io::Errno;

use super::carried::Carried;
use super::recorder::Recorder;
use super::report::{Given, Report};
use super::side::Side;

/// Frames read before packets that are due are sent.
const FRAMES: usize = 16;

/// Packets that may leave together.
const BURST: usize = 256;

/// The most payloads of an aggregate: what makes 64 KB of the usual segments, and a slice more for each header.
const MAX_SEGMENTS: usize = 64;

/// Slices of a write: the virtio_net_hdr, the header, the payloads.
const SLICES: usize = MAX_SEGMENTS + 2;

/// What a direction is told while it runs.
pub(super) enum Order {
    /// Impair from now on like this; says whether that is possible.
    Impair(Box<Impairments>, Sender<anyhow::Result<()>>),
    /// Say what was done so far.
    Report(Sender<Report>),
    /// End.
    Stop,
}

/// Any device, used from any thread.
pub(crate) type SharedDevice = Arc<dyn Device + Send + Sync>;

/// One direction.
pub(super) struct Direction {
    to: Side,
    from_device: SharedDevice,
    to_device: SharedDevice,
    path: Path<Carried>,
    link: Link,
    orders: Receiver<Order>,
    waker: Arc<Waker>,
}

impl Direction {
    /// A direction towards `to`, between two devices, as `impairments` say. Packets have up to `buffer_len` bytes;
    /// longer ones cost an allocation. Orders are looked for when the waker is woken.
    pub(super) fn new(
        to: Side,
        [from_device, to_device]: [SharedDevice; 2],
        impairments: &Impairments,
        seed: u64,
        buffer_len: usize,
        recorder: Option<Recorder>,
        (orders, waker): (Receiver<Order>, Arc<Waker>),
    ) -> anyhow::Result<Self> {
        // The two directions make different choices.
        let path = Path::new(impairments, seed.wrapping_mul(2).wrapping_add(u64::from(to.number())))?;
        let link = Link::new(buffer_len, recorder)?;
        Ok(Self { to, from_device, to_device, path, link, orders, waker })
    }

    /// Carries packets until it is told to stop.
    pub(super) fn run(mut self) -> anyhow::Result<Report> {
        clock::sleep_precisely().context("cannot set the timer slack")?;
        let mut buffer = vec![0; MAX_RECEIVE];
        loop {
            let more = self.receive(&mut buffer)?;
            self.send()?;
            if more {
                continue;
            }
            let until = self.path.poll_timeout();
            let sources = [self.from_device.as_fd(), self.waker.as_fd()];
            let [_, ordered] = clock::wait(sources, until).context("cannot wait for packets")?;
            if ordered && self.obey() {
                return Ok(self.link.report(&self.path));
            }
        }
    }

    /// Reads some frames; says whether there may be more.
    fn receive(&mut self, buffer: &mut [u8]) -> anyhow::Result<bool> {
        for _ in 0..FRAMES {
            match self.from_device.receive(buffer) {
                Ok(Some(received)) => self.link.accept(received, &mut self.path),
                Ok(None) => return Ok(false),
                // The interface is down, and may come up again.
                Err(Errno::NETDOWN | Errno::IO) => return Ok(false),
                Err(error) => {
                    let from = self.to.other().name();
                    return Err(error).with_context(|| format!("cannot read frames from the {from}"));
                }
            }
        }
        Ok(true)
    }

    /// Sends what is due.
    fn send(&mut self) -> anyhow::Result<()> {
        let due = |due: Option<Instant>| due.is_some_and(|due| due <= clock::now());
        loop {
            if due(self.path.poll_timeout()) {
                self.path.handle_timeout(clock::now());
            }
            let is_last = self.link.collect(&mut self.path);
            self.link.transmit(&*self.to_device, self.to)?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Does as it is told; says whether it is told to stop.
    fn obey(&mut self) -> bool {
        self.waker.clear();
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::Impair(impairments, done) => {
                    let result = self.path.reconfigure(&impairments, clock::now());
                    // Whoever asked may have gone.
                    let _ = done.send(result.map_err(Into::into));
                }
                Order::Report(to) => {
                    let _ = to.send(self.link.report(&self.path));
                }
                Order::Stop => return true,
            }
        }
        false
    }
}

/// What lies between the devices and the path.
struct Link {
    pool: BufferPool,
    coalescer: Gro<Carried>,
    /// Packets that leave together.
    burst: Vec<Frame<Carried>>,
    /// When they arrived and were due.
    times: VecDeque<(Instant, Instant)>,
    given: Given,
    recorder: Option<Recorder>,
}

impl Link {
    fn new(buffer_len: usize, recorder: Option<Recorder>) -> anyhow::Result<Self> {
        let config = Config {
            max_segments: MAX_SEGMENTS,
            max_connections: 1024,
            max_aggregates: 1024,
            ..Config::default()
        };
        Ok(Self {
            // The path bounds how many are needed.
            pool: BufferPool::growing(usize::MAX, buffer_len),
            coalescer: Gro::new(&config, Hold::Batch)?,
            burst: Vec::with_capacity(BURST),
            times: VecDeque::with_capacity(BURST),
            given: Given::default(),
            recorder,
        })
    }

    /// Stamps a frame and sends its packets on their way.
    fn accept(&mut self, received: Received<'_>, path: &mut Path<Carried>) {
        let now = clock::now();
        let Received { virtio, frame } = received;
        let Some((mut segments, checksum)) = cut(frame, &virtio) else {
            self.given.malformed += 1;
            return;
        };
        self.given.received(segments.bytes_remaining(), now);
        while segments.remaining() > 0 {
            let Some(mut buffer) = self.pool.take() else { return };
            buffer.fill(|bytes| segments.append_next(bytes));
            if let Some(recorder) = &self.recorder {
                self.given.not_captured += u64::from(!recorder.received(now, &buffer));
            }
            path.receive(Carried::new(buffer, checksum), now);
        }
    }

    /// Takes packets that are to leave now; says whether these are all.
    fn collect(&mut self, path: &mut Path<Carried>) -> bool {
        while self.burst.len() < BURST {
            match path.poll() {
                Some(Output::Released(Departure { packet, arrived, due })) => {
                    self.times.push_back((arrived, due));
                    let checksum = packet.checksum;
                    self.burst.push(Frame { buffer: packet, checksum });
                }
                // It is counted by the path.
                Some(Output::Dropped { .. }) => {}
                None => return true,
            }
        }
        false
    }

    /// Sends the packets that leave together.
    fn transmit(&mut self, device: &dyn Device, to: Side) -> anyhow::Result<()> {
        if self.burst.is_empty() {
            return Ok(());
        }
        let now = clock::now();
        if let Some(recorder) = &self.recorder {
            let missed = self.burst.iter().filter(|frame| !recorder.sent(now, frame.bytes())).count();
            self.given.not_captured += missed as u64;
        }
        self.coalescer.receive_batch(&mut self.burst, now);
        self.coalescer.end_of_batch(now);
        while let Some(output) = self.coalescer.poll() {
            // The `gro` engine neither drops nor acknowledges.
            let Coalesced::ToHost(packet) = output else { continue };
            let sent = send(device, &packet);
            let now = clock::now();
            let packets = packet.segments();
            for (arrived, due) in self.times.drain(..packets.min(self.times.len())) {
                self.given.delayed(arrived, due, now);
            }
            match sent {
                Ok(()) => self.given.sent(packet.len(), now),
                // Its queue is full, it is down, or takes no packets as long as this.
                Err(
                    Errno::NOBUFS | Errno::AGAIN | Errno::NETDOWN | Errno::IO | Errno::MSGSIZE | Errno::INVAL,
                ) => {
                    self.given.refused += packets as u64;
                }
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot send a frame to the {}", to.name()));
                }
            }
        }
        self.times.clear();
        Ok(())
    }

    fn report(&self, path: &Path<Carried>) -> Report {
        Report { stats: path.stats().clone(), given: self.given.clone() }
    }
}

/// The packets of a frame, and what is known of their checksums; `None` where it makes none.
fn cut<'a>(frame: &'a [u8], virtio: &VirtioNetHeader) -> Option<(Segments<'a>, ChecksumStatus)> {
    let virtio = VirtioNetRepr::parse(virtio, frame.len()).ok()?;
    let segments = Segments::new(frame, &virtio).ok()?;
    let checksum = match (virtio.checksum, virtio.gso) {
        (ChecksumState::Unchecked, None) => ChecksumStatus::Unknown,
        _ => ChecksumStatus::Verified,
    };
    Some((segments, checksum))
}

/// Hands a packet to a device, with what the kernel wants to know about it.
fn send(device: &dyn Device, packet: &Packet<Carried>) -> rustix::io::Result<()> {
    match packet {
        Packet::Frame(frame) => {
            let header = frame.buffer.virtio_net_header().to_bytes();
            device.send(&[IoSlice::new(&header), IoSlice::new(frame.bytes())])
        }
        Packet::Aggregate(aggregate) => {
            let header = aggregate.virtio_net_header().to_bytes();
            let mut slices = [IoSlice::new(&[]); SLICES];
            slices[0] = IoSlice::new(&header);
            slices[1] = IoSlice::new(aggregate.header());
            let mut len = 2;
            for (slice, payload) in slices[2..].iter_mut().zip(aggregate.payloads()) {
                *slice = IoSlice::new(payload);
                len += 1;
            }
            device.send(&slices[..len])
        }
    }
}
