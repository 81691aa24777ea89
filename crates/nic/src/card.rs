//! A card: workers between the queues of a wire and those of a host.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use nichrome_lro::{ActiveAck, Coalescer, Config, ConfigError, Packet, ProfileConfig};
use nichrome_port::{Device, Waker, WireFrame, WireQueue, clock};
use rtrb::{Consumer, Producer, RingBuffer};
use rustix::io::Errno;
use thiserror::Error;

use crate::delivery::{self, RoundRobin};
use crate::distribution::Distribution;
use crate::host::{HostError, send_or_take_apart};
use crate::stats::QueueStats;
use crate::worker::{Delivery, Mesh, Neighbour, Order, Parts, Received, Worker};

/// Frames on their way from one worker to another.
const MESH_ROOM: usize = 2048;

/// Packets in a delivery queue.
const DELIVERY_ROOM: usize = 512;

/// Why a card does not work, or no longer.
#[derive(Debug, Error)]
pub enum CardError {
    /// The engine's configuration is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There are no queues, or fewer of the wire than of the host.
    #[error("a card needs a queue of the wire for each worker, and one of the host, or as many")]
    Queues,
    /// Each worker's engine must see what the host sends on its connections.
    #[error("active ACK needs as many queues of the host as there are workers")]
    ActiveAck,
    /// A thread or a descriptor cannot be had.
    #[error("cannot start a worker: {0}")]
    Start(#[from] io::Error),
    /// The wire does not work.
    #[error("the wire fails: {0}")]
    Wire(Errno),
    /// The host's interface does not work.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A worker has panicked, which is a fault in this program.
    #[error("a worker has panicked")]
    Panicked,
}

/// What a card does.
#[derive(Clone, Copy, Debug)]
pub struct CardConfig {
    /// What its threads are called, with the worker's number behind it: at most 10 bytes are seen.
    pub name: &'static str,
    /// What every engine is configured with.
    pub engine: Config,
    /// Which engine; `None`: a card without receive offload.
    pub profile: Option<ProfileConfig>,
    /// Whether workers never sleep.
    pub busy_poll: bool,
    /// The longest frame on the wire, in bytes; longer ones cost an allocation.
    pub frame_len: usize,
}

/// Sees every frame before the engine and every packet after it: a capture, say.
pub trait Observer: Send {
    /// A frame from the wire, before the engine.
    fn received(&mut self, frame: &[u8]);
    /// A packet for the host in pieces, after the engine.
    fn delivered(&mut self, parts: &mut dyn Iterator<Item = &[u8]>);
    /// A packet for the wire, segmented.
    fn transmitted(&mut self, packet: &[u8]);
}

/// What one worker works with.
pub struct Queue<W> {
    /// Its queue of the wire.
    pub wire: W,
    /// Who sees what goes through it.
    pub observer: Option<Box<dyn Observer>>,
}

/// A card at work.
pub struct Card {
    workers: Vec<Running>,
    /// The thread that empties delivery queues, where there is one.
    delivery: Option<DeliveryThread>,
}

struct DeliveryThread {
    waker: Arc<Waker>,
    /// It ends when this is dropped and it is woken.
    stop: Sender<()>,
    thread: JoinHandle<Result<DeliveryStats, CardError>>,
}

struct Running {
    control: Control,
    thread: JoinHandle<Result<QueueStats, CardError>>,
}

#[derive(Clone)]
struct Control {
    orders: Sender<Order>,
    waker: Arc<Waker>,
}

/// A handle with which any thread can ask a card.
#[derive(Clone)]
pub struct Remote(Vec<Control>);

type Host = Arc<dyn Device + Send + Sync>;
type Waiting<W> = Packet<Received<<W as WireQueue>::Buffer>>;

impl Card {
    /// Starts a worker for each queue of the wire. The host has as many queues, or one. `ended` is called on the thread
    /// of a worker that ends, be it by itself.
    pub fn start<W: WireQueue + 'static>(
        queues: Vec<Queue<W>>,
        hosts: &[Host],
        config: &CardConfig,
        ended: impl Fn() + Clone + Send + 'static,
    ) -> Result<Self, CardError> {
        let count = queues.len();
        if count == 0 || (hosts.len() != 1 && hosts.len() != count) {
            return Err(CardError::Queues);
        }
        let wakers = (0..count).map(|_| Waker::new().map(Arc::new)).collect::<Result<Vec<_>, _>>();
        let wakers = wakers.map_err(io::Error::from)?;
        let shares_host = hosts.len() < count;
        let observes = observes(config.profile.as_ref());
        if shares_host && observes {
            return Err(CardError::ActiveAck);
        }
        let (deliveries, delivery) = if shares_host {
            let shared = share::<W>(Arc::clone(&hosts[0]), count, ended.clone())?;
            (shared.deliveries, Some(shared.thread))
        } else {
            (hosts.iter().map(|host| Delivery::Own(Arc::clone(host))).collect(), None)
        };
        let meshes = mesh(&wakers);
        let mut workers = Vec::with_capacity(count);
        for (number, ((queue, delivery), mesh)) in queues.into_iter().zip(deliveries).zip(meshes).enumerate()
        {
            let (orders, inbox) = mpsc::channel();
            let waker = Arc::clone(&wakers[number]);
            let engine =
                config.profile.as_ref().map(|profile| Coalescer::new(&config.engine, profile)).transpose()?;
            let worker = Worker::new(Parts {
                number,
                wire: queue.wire,
                // Frames of a connection stay in order only if one worker reads them.
                host: hosts.get(number).map(Arc::clone),
                delivery,
                engine,
                observes,
                distribution: Distribution::new(count),
                mesh,
                orders: inbox,
                waker: Arc::clone(&waker),
                busy_poll: config.busy_poll,
                frame_len: config.frame_len,
                observer: queue.observer,
            });
            let ended = ended.clone();
            let thread =
                thread::Builder::new().name(format!("{}-{number}", config.name)).spawn(move || {
                    let result = worker.run();
                    ended();
                    result
                })?;
            workers.push(Running { control: Control { orders, waker }, thread });
        }
        Ok(Self { workers, delivery })
    }

    /// A handle to this card.
    pub fn remote(&self) -> Remote {
        Remote(self.workers.iter().map(|worker| worker.control.clone()).collect())
    }

    /// Ends all workers and says what each has done.
    pub fn stop(self) -> Result<Vec<QueueStats>, CardError> {
        for worker in &self.workers {
            // One that has ended already needs no order.
            let _ = worker.control.give(Order::Stop);
        }
        let results: Vec<_> = self
            .workers
            .into_iter()
            .map(|worker| worker.thread.join().unwrap_or(Err(CardError::Panicked)))
            .collect();
        let mut stats = results.into_iter().collect::<Result<Vec<_>, _>>()?;
        if let Some(delivery) = self.delivery {
            drop(delivery.stop);
            delivery.waker.wake();
            let delivered = delivery.thread.join().unwrap_or(Err(CardError::Panicked))?;
            if let Some(first) = stats.first_mut() {
                first.taken_apart += delivered.taken_apart;
                first.host_refused += delivered.refused;
            }
        }
        Ok(stats)
    }
}

/// Whether the engine learns from what the host sends.
fn observes(profile: Option<&ProfileConfig>) -> bool {
    matches!(profile, Some(ProfileConfig::Npu(npu)) if npu.active_ack != ActiveAck::Off)
}

impl Remote {
    /// What each worker has done so far; `None` once one has ended.
    pub fn stats(&self) -> Option<Vec<QueueStats>> {
        self.0.iter().map(Control::report).collect()
    }
}

impl Control {
    fn give(&self, order: Order) -> Option<()> {
        self.orders.send(order).ok()?;
        self.waker.wake();
        Some(())
    }

    fn report(&self) -> Option<QueueStats> {
        let (to, answer) = mpsc::channel();
        self.give(Order::Report(to))?;
        answer.recv().ok()
    }
}

/// Every worker's connections to all others.
fn mesh<B>(wakers: &[Arc<Waker>]) -> Vec<Mesh<B>> {
    let count = wakers.len();
    let mut meshes: Vec<Mesh<B>> = (0..count).map(|_| Mesh { to: Vec::new(), from: Vec::new() }).collect();
    for from in 0..count {
        for to in 0..count {
            if from == to {
                meshes[from].to.push(None);
                continue;
            }
            let (producer, consumer): (Producer<WireFrame<B>>, Consumer<_>) = RingBuffer::new(MESH_ROOM);
            meshes[from].to.push(Some(Neighbour { ring: producer, waker: Arc::clone(&wakers[to]) }));
            meshes[to].from.push(consumer);
        }
    }
    meshes
}

/// What the delivery thread has seen.
#[derive(Default)]
struct DeliveryStats {
    taken_apart: u64,
    refused: u64,
}

/// A host queue that several workers share: what each delivers with, and the thread that hands on.
struct Shared<B> {
    deliveries: Vec<Delivery<B>>,
    thread: DeliveryThread,
}

/// Starts the thread that hands the packets of several workers to one host queue.
fn share<W: WireQueue + 'static>(
    host: Host,
    workers: usize,
    ended: impl Fn() + Send + 'static,
) -> Result<Shared<W::Buffer>, CardError> {
    let (deliverers, turn) = delivery::queues::<Waiting<W>>(workers, DELIVERY_ROOM);
    let waker = Arc::new(Waker::new().map_err(io::Error::from)?);
    let (stop, stopped) = mpsc::channel();
    let wakes_us = Arc::clone(&waker);
    let thread = thread::Builder::new().name("delivery".into()).spawn(move || {
        let result = deliver::<W>(&*host, turn, &wakes_us, &stopped);
        ended();
        result
    })?;
    let deliveries = deliverers.into_iter().map(|queue| Delivery::Queue(queue, Arc::clone(&waker))).collect();
    Ok(Shared { deliveries, thread: DeliveryThread { waker, stop, thread } })
}

/// Hands packets to the host in turn until everybody who could stop it is gone.
fn deliver<W: WireQueue>(
    host: &(dyn Device + Send + Sync),
    mut turn: RoundRobin<Waiting<W>>,
    waker: &Waker,
    stopped: &Receiver<()>,
) -> Result<DeliveryStats, CardError> {
    let mut scratch = Vec::new();
    let mut stats = DeliveryStats::default();
    loop {
        while let Some(packet) = turn.take() {
            match send_or_take_apart(host, &packet, &mut scratch) {
                Ok(taken_apart) => stats.taken_apart += u64::from(taken_apart),
                Err(HostError::Refused(_) | HostError::Down) => stats.refused += 1,
                Err(error @ HostError::Gone(_)) => return Err(error.into()),
            }
        }
        if matches!(stopped.try_recv(), Err(mpsc::TryRecvError::Disconnected)) {
            return Ok(stats);
        }
        clock::wait([waker.as_fd()], None).map_err(CardError::Wire)?;
        waker.clear();
    }
}
