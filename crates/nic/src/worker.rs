//! A worker of the card: one thread with a queue of the wire, a queue of the host, and an engine.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use nichrome_lro::{AckFrame, ChecksumStatus, Coalescer, Frame, Output, Packet};
use nichrome_port::{
    Buffer, BufferPool, Device, MAX_RECEIVE, TransmitError, Waker, WireFrame, WireQueue, clock,
};
use nichrome_wire::engine::{Engine, advance, deliver_batch_into};
use nichrome_wire::{Instant, VirtioNetHeader};
use rtrb::{Consumer, Producer};
use rustix::io::Errno;

use crate::card::{CardError, Observer};
use crate::cut::cut;
use crate::delivery::Deliverer;
use crate::distribution::Distribution;
use crate::host::{HostError, parts, send_or_take_apart};
use crate::stats::QueueStats;

/// Frames of a receive batch.
const BATCH: usize = 256;

/// Packets from the host that are sent before the wire has its turn again: as many as [`Worker::receive`] takes of the wire,
/// because a host may acknowledge each, and loses what is not read in time.
const HOST_PACKETS: usize = 2 * BATCH;

/// After how many rounds without sleep a worker looks for orders.
const LOOK_UP: u64 = 64;

/// How soon what the wire had no room for is tried again, in nanoseconds.
const RETRY: u64 = 50_000;

/// The same where the wire is down.
const RETRY_DOWN: u64 = 10_000_000;

/// A received frame in whatever memory it lies.
pub(crate) enum Received<B> {
    /// As the wire had it.
    Wire(B),
    /// Cut from a frame that a sender on this machine had left to be cut.
    Cut(Buffer),
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Received<B> {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Wire(buffer) => buffer.as_ref(),
            Self::Cut(buffer) => buffer,
        }
    }
}

/// What a worker is told while it runs.
pub(crate) enum Order {
    Report(Sender<QueueStats>),
    Stop,
}

/// Where packets for the host go.
pub(crate) enum Delivery<B> {
    /// To a queue of its own.
    Own(Arc<dyn Device + Send + Sync>),
    /// To a delivery queue, and the thread that empties it is woken.
    Queue(Deliverer<Packet<Received<B>>>, Arc<Waker>),
}

/// A worker's connections to the others.
pub(crate) struct Mesh<B> {
    /// To each worker; nothing to itself.
    pub(crate) to: Vec<Option<Neighbour<B>>>,
    /// From each other worker.
    pub(crate) from: Vec<Consumer<WireFrame<B>>>,
}

/// The way to another worker.
pub(crate) struct Neighbour<B> {
    pub(crate) ring: Producer<WireFrame<B>>,
    pub(crate) waker: Arc<Waker>,
}

/// Everything that a worker is made of.
pub(crate) struct Parts<W: WireQueue> {
    pub(crate) number: usize,
    pub(crate) wire: W,
    /// Where what the host sends comes from; `None`: another worker sends it.
    pub(crate) host: Option<Arc<dyn Device + Send + Sync>>,
    pub(crate) delivery: Delivery<W::Buffer>,
    /// `None`: nothing is coalesced.
    pub(crate) engine: Option<Coalescer<Received<W::Buffer>>>,
    /// Whether the engine is shown what the host sends.
    pub(crate) observes: bool,
    pub(crate) distribution: Distribution,
    pub(crate) mesh: Mesh<W::Buffer>,
    pub(crate) orders: Receiver<Order>,
    pub(crate) waker: Arc<Waker>,
    pub(crate) busy_poll: bool,
    pub(crate) frame_len: usize,
    pub(crate) observer: Option<Box<dyn Observer>>,
}

/// A worker.
pub(crate) struct Worker<W: WireQueue> {
    parts: Parts<W>,
    batch: Vec<WireFrame<W::Buffer>>,
    frames: Vec<Frame<Received<W::Buffer>>>,
    /// What the engine has made of them.
    outputs: Vec<Output<Received<W::Buffer>>>,
    pool: BufferPool,
    /// Packets from the host that the wire had no room for; the host's next frame waits until they are gone.
    unsent: VecDeque<Vec<u8>>,
    /// Whether the wire was down when it was last used.
    wire_is_down: bool,
    scratch: Vec<u8>,
    stats: QueueStats,
}

impl<W: WireQueue> Worker<W> {
    pub(crate) fn new(parts: Parts<W>) -> Self {
        Self {
            pool: BufferPool::growing(usize::MAX, parts.frame_len),
            parts,
            batch: Vec::with_capacity(BATCH),
            frames: Vec::with_capacity(BATCH),
            outputs: Vec::new(),
            unsent: VecDeque::new(),
            wire_is_down: false,
            scratch: Vec::with_capacity(MAX_RECEIVE),
            stats: QueueStats::default(),
        }
    }

    /// Works until it is told to stop.
    pub(crate) fn run(mut self) -> Result<QueueStats, CardError> {
        let mut buffer = vec![0; MAX_RECEIVE];
        // Where that is not possible, timers are up to 50 µs late.
        let _ = clock::sleep_precisely();
        for round in 0u64.. {
            let received = self.receive()?;
            let transmitted = self.transmit(&mut buffer)?;
            let is_busy = received || transmitted || self.parts.busy_poll;
            let woken = if is_busy { round.is_multiple_of(LOOK_UP) } else { self.sleep()? };
            if woken && self.obey() {
                break;
            }
        }
        Ok(self.report())
    }

    /// Takes a receive batch through the engine; says whether there was one.
    fn receive(&mut self) -> Result<bool, CardError> {
        is_up(self.parts.wire.receive(&mut self.batch, BATCH))?;
        self.stats.received += self.batch.len() as u64;
        self.stats.received_bytes +=
            self.batch.iter().map(|frame| frame.buffer.as_ref().len() as u64).sum::<u64>();
        self.distribute();
        for from in &mut self.parts.mesh.from {
            while self.batch.len() < 2 * BATCH
                && let Ok(frame) = from.pop()
            {
                self.batch.push(frame);
            }
        }
        let now = clock::now();
        let busy = !self.batch.is_empty();
        self.prepare();
        self.coalesce(now)?;
        Ok(busy)
    }

    /// Hands frames to the workers that they belong to.
    fn distribute(&mut self) {
        let Parts { number, distribution, mesh, .. } = &mut self.parts;
        if mesh.from.is_empty() {
            return;
        }
        let mut woken = vec![false; mesh.to.len()];
        let own = *number;
        let mut mine = Vec::with_capacity(self.batch.capacity());
        for frame in self.batch.drain(..) {
            let worker = distribution.worker(frame.buffer.as_ref());
            match mesh.to.get_mut(worker) {
                Some(Some(neighbour)) if worker != own => match neighbour.ring.push(frame) {
                    Ok(()) => {
                        self.stats.distributed += 1;
                        woken[worker] = true;
                    }
                    Err(_) => self.stats.distribution_dropped += 1,
                },
                _ => mine.push(frame),
            }
        }
        self.batch = mine;
        for neighbour in mesh.to.iter().zip(woken).filter_map(|(to, woken)| to.as_ref().filter(|_| woken)) {
            neighbour.waker.wake();
        }
    }

    /// Makes frames for the engine of those from the wire.
    fn prepare(&mut self) {
        for WireFrame { buffer, virtio } in self.batch.drain(..) {
            if let Some(observer) = &mut self.parts.observer {
                observer.received(buffer.as_ref());
            }
            if virtio.gso_type == VirtioNetHeader::GSO_NONE && virtio.flags & VirtioNetHeader::NEEDS_CSUM == 0
            {
                let is_valid = virtio.flags & VirtioNetHeader::DATA_VALID != 0;
                let checksum = if is_valid { ChecksumStatus::Verified } else { ChecksumStatus::Unknown };
                self.frames.push(Frame { buffer: Received::Wire(buffer), checksum });
                continue;
            }
            // A sender on this machine has left it to be cut, or its checksum to be completed.
            let Ok((mut segments, checksum)) = cut(buffer.as_ref(), &virtio) else {
                self.stats.receive_malformed += 1;
                continue;
            };
            self.stats.receive_unfinished += 1;
            while segments.remaining() > 0 {
                let Some(mut own) = self.pool.take() else { break };
                own.fill(|bytes| segments.append_next(bytes));
                self.stats.receive_finished += 1;
                self.frames.push(Frame { buffer: Received::Cut(own), checksum });
            }
        }
    }

    /// Takes the frames through the engine, and what comes out to where it belongs.
    fn coalesce(&mut self, now: Instant) -> Result<(), CardError> {
        let Parts { wire, delivery, engine, observes, observer, .. } = &mut self.parts;
        let mut out = Outputs {
            observes: *observes,
            wire,
            delivery,
            observer,
            stats: &mut self.stats,
            scratch: &mut self.scratch,
            failed: None,
            refused: Vec::new(),
            delivered: false,
        };
        match engine {
            None => {
                for frame in self.frames.drain(..) {
                    out.deliver(Packet::Frame(frame));
                }
            }
            Some(engine) if self.frames.is_empty() => advance(engine, now, &mut |_, output| out.take(output)),
            Some(engine) => {
                deliver_batch_into(engine, &mut self.frames, now, &mut self.outputs);
                self.outputs.drain(..).for_each(|output| out.take(output));
            }
        }
        let (failed, refused) = (out.end(), out.refused);
        if let Some(engine) = engine {
            refused.iter().for_each(|packet| engine.observe_refusal(packet));
        }
        failed.map_or(Ok(()), Err)
    }

    /// Sends what the host sends; says whether there was something.
    fn transmit(&mut self, buffer: &mut [u8]) -> Result<bool, CardError> {
        let Parts { wire, host, engine, observes, observer, .. } = &mut self.parts;
        let mut busy = false;
        while let Some(packet) = self.unsent.front() {
            match wire.transmit(&[IoSlice::new(packet)]) {
                Err(TransmitError::Full) => break,
                sent => count(&mut self.stats, packet.len(), sent),
            }
            self.unsent.pop_front();
            busy = true;
        }
        let mut packets = 0;
        while let Some(host) = host
            && self.unsent.is_empty()
            && packets < HOST_PACKETS
        {
            let received = match host.receive(buffer) {
                Ok(Some(received)) => received,
                Ok(None) => break,
                Err(Errno::IO | Errno::NETDOWN) => break,
                Err(error) => return Err(CardError::Host(HostError::Gone(error))),
            };
            self.stats.from_host += 1;
            self.stats.from_host_bytes += received.frame.len() as u64;
            let Ok((mut segments, _)) = cut(received.frame, &received.virtio) else {
                self.stats.transmit_malformed += 1;
                packets += 1;
                continue;
            };
            packets += segments.remaining();
            loop {
                self.scratch.clear();
                if !segments.append_next(&mut self.scratch) {
                    break;
                }
                let packet = &self.scratch;
                if *observes && let Some(engine) = engine {
                    engine.observe_transmit(packet);
                }
                if let Some(observer) = observer {
                    observer.transmitted(packet);
                }
                let sent = if self.unsent.is_empty() {
                    wire.transmit(&[IoSlice::new(packet)])
                } else {
                    Err(TransmitError::Full)
                };
                match sent {
                    Err(TransmitError::Full) => self.unsent.push_back(packet.clone()),
                    sent => count(&mut self.stats, packet.len(), sent),
                }
            }
        }
        self.wire_is_down = !is_up(wire.flush())?;
        Ok(busy || packets > 0)
    }

    /// Sleeps until there is something to do; says whether an order woke it.
    fn sleep(&mut self) -> Result<bool, CardError> {
        let Parts { wire, host, engine, waker, .. } = &self.parts;
        let is_stuck = !self.unsent.is_empty() || wire.unsent() > 0 || wire.is_starved();
        let pause = if self.wire_is_down { RETRY_DOWN } else { RETRY };
        let retry = is_stuck.then(|| clock::now().plus_nanos(pause));
        let timer = engine.as_ref().and_then(Engine::poll_timeout);
        let until = [retry, timer, wire.poll_timeout()].into_iter().flatten().min();
        // A host with a full wire before it must not wake us.
        let host = match host {
            Some(host) if self.unsent.is_empty() => host.as_fd(),
            _ => waker.as_fd(),
        };
        // Nor must frames for which there is no memory.
        let wire = if wire.is_starved() { waker.as_fd() } else { wire.as_fd() };
        let [_, _, woken] = clock::wait([wire, host, waker.as_fd()], until).map_err(CardError::Wire)?;
        Ok(woken)
    }

    /// Does as it is told; says whether it is told to stop.
    fn obey(&mut self) -> bool {
        self.parts.waker.clear();
        while let Ok(order) = self.parts.orders.try_recv() {
            match order {
                // Whoever asked may have gone.
                Order::Report(to) => drop(to.send(self.report())),
                Order::Stop => return true,
            }
        }
        false
    }

    fn report(&mut self) -> QueueStats {
        if let Ok(wire) = self.parts.wire.stats() {
            self.stats.wire = wire;
        }
        if let Some(engine) = &self.parts.engine {
            self.stats.engine = *engine.statistics();
            self.stats.connections = engine.connections() as u64;
        }
        self.stats.clone()
    }
}

/// Whether the wire is up, by what it said. One that is down may come up again, and one that is gone is for whoever
/// started the card to notice.
fn is_up(said: Result<(), Errno>) -> Result<bool, CardError> {
    match said {
        Ok(()) => Ok(true),
        Err(Errno::NETDOWN | Errno::NXIO | Errno::NODEV) => Ok(false),
        Err(error) => Err(CardError::Wire(error)),
    }
}

fn count(stats: &mut QueueStats, len: usize, sent: Result<(), TransmitError>) {
    match sent {
        Ok(()) => {
            stats.transmitted += 1;
            stats.transmitted_bytes += len as u64;
        }
        Err(TransmitError::Length { .. } | TransmitError::Full) => stats.transmit_refused += 1,
    }
}

/// Where what comes out of the engine goes.
struct Outputs<'a, W: WireQueue> {
    /// Whether the engine must know what the host has refused.
    observes: bool,
    wire: &'a mut W,
    delivery: &'a mut Delivery<W::Buffer>,
    observer: &'a mut Option<Box<dyn Observer>>,
    stats: &'a mut QueueStats,
    scratch: &'a mut Vec<u8>,
    /// Why the card cannot go on.
    failed: Option<CardError>,
    /// What the host has refused of this batch.
    refused: Vec<Vec<u8>>,
    /// Whether the delivery thread has something new.
    delivered: bool,
}

impl<W: WireQueue> Outputs<'_, W> {
    #[inline]
    fn take(&mut self, output: Output<Received<W::Buffer>>) {
        match output {
            Output::ToHost(packet) => self.deliver(packet),
            Output::ToWire(ack) => self.acknowledge(&ack),
            // The engine counts it.
            Output::Dropped(..) => {}
        }
    }

    #[inline]
    fn deliver(&mut self, packet: Packet<Received<W::Buffer>>) {
        let len = packet.len() as u64;
        if let Some(observer) = self.observer {
            observer.delivered(&mut parts(&packet));
        }
        match self.delivery {
            Delivery::Own(device) => match send_or_take_apart(&**device, &packet, self.scratch) {
                Ok(taken_apart) => {
                    self.stats.to_host += 1;
                    self.stats.to_host_bytes += len;
                    self.stats.taken_apart += u64::from(taken_apart);
                }
                Err(HostError::Refused(_) | HostError::Down) => self.refused(&packet),
                Err(error @ HostError::Gone(_)) => self.failed = Some(CardError::Host(error)),
            },
            Delivery::Queue(queue, _) => match queue.push(packet) {
                Ok(()) => {
                    self.stats.to_host += 1;
                    self.stats.to_host_bytes += len;
                    self.delivered = true;
                }
                Err(_) => {
                    self.stats.delivery_dropped += 1;
                }
            },
        }
    }

    fn refused(&mut self, packet: &Packet<Received<W::Buffer>>) {
        self.stats.host_refused += 1;
        if self.observes {
            self.refused.push(parts(packet).flatten().copied().collect());
        }
    }

    /// Sends an acknowledgement, unless the host has just refused something: it may be what is acknowledged.
    fn acknowledge(&mut self, ack: &AckFrame) {
        if !self.refused.is_empty() || self.failed.is_some() {
            self.stats.acks_dropped += 1;
            return;
        }
        // It goes with what the host itself has to say to what it was just handed.
        if self.wire.transmit(&[IoSlice::new(ack.bytes())]).is_err() {
            self.stats.acks_dropped += 1;
        }
    }

    fn end(&mut self) -> Option<CardError> {
        if self.delivered
            && let Delivery::Queue(_, waker) = self.delivery
        {
            waker.wake();
        }
        self.failed.take()
    }
}
