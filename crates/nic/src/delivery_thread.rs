//! The destination of a worker's packets: its own host queue, or the delivery thread that several workers
//! share.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use nichrome_lro::Packet;
use nichrome_port::{CallOnDrop, Device, Onset, RealTime, Waker, WireQueue, clock};

use crate::delivery::{self, Deliverer, RoundRobin};
use crate::error::CardError;
use crate::host::{Host, HostError, send_or_segment};
use crate::received::Received;
use crate::stats::QueueStats;

/// Capacity of a delivery queue, in packets.
const DELIVERY_ROOM: usize = 512;

type Waiting<W> = Packet<Received<<W as WireQueue>::Buffer>>;

/// The destination of a worker's packets.
pub(crate) enum Delivery<B> {
    /// The worker's own host queue.
    Own(Host),
    /// A delivery queue, and the waker of the thread that empties it and counts its packets.
    Queue { queue: Deliverer<Packet<Received<B>>>, waker: Arc<Waker>, stats: Arc<DeliveryStats> },
}

/// Each worker's delivery.
pub(crate) type Deliveries<B> = Vec<Delivery<B>>;

/// The delivery thread's counters of one worker's packets. Relaxed ordering suffices: no counter depends on
/// another.
#[derive(Default)]
pub(crate) struct DeliveryStats {
    to_host: AtomicU64,
    to_host_bytes: AtomicU64,
    taken_apart: AtomicU64,
    refused: AtomicU64,
}

impl DeliveryStats {
    /// Counts a packet of `len` bytes by the host's answer.
    fn count(&self, len: usize, sent: Result<bool, HostError>) -> Result<(), HostError> {
        match sent {
            Ok(taken_apart) => {
                self.to_host.fetch_add(1, Ordering::Relaxed);
                self.to_host_bytes.fetch_add(len as u64, Ordering::Relaxed);
                self.taken_apart.fetch_add(u64::from(taken_apart), Ordering::Relaxed);
            }
            Err(HostError::Refused(_) | HostError::Down) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
            Err(error @ HostError::Gone(_)) => return Err(error),
        }
        Ok(())
    }

    /// Copies the counters into `worker`, the worker's own counters.
    pub(crate) fn copy_to(&self, worker: &mut QueueStats) {
        worker.to_host = self.to_host.load(Ordering::Relaxed);
        worker.to_host_bytes = self.to_host_bytes.load(Ordering::Relaxed);
        worker.taken_apart = self.taken_apart.load(Ordering::Relaxed);
        worker.host_refused = self.refused.load(Ordering::Relaxed);
    }
}

/// The thread that passes several workers' packets to one host queue.
pub(crate) struct DeliveryThread {
    waker: Arc<Waker>,
    /// Dropping it ends the thread at its next wake-up.
    stop: Sender<()>,
    thread: JoinHandle<Result<(), CardError>>,
    /// The counters of each worker's packets, by worker.
    stats: Vec<Arc<DeliveryStats>>,
}

impl DeliveryThread {
    /// Starts the thread for this many workers; returns their deliveries too. Calls `ended` on the thread
    /// when it ends.
    pub(crate) fn start<W: WireQueue + 'static>(
        host: Host,
        workers: usize,
        ended: impl Fn() + Send + 'static,
    ) -> Result<(Self, Deliveries<W::Buffer>), CardError> {
        let (deliverers, turn) = delivery::queues::<Waiting<W>>(workers, DELIVERY_ROOM);
        let waker = Arc::new(Waker::new().map_err(io::Error::from)?);
        let (stop, stopped) = mpsc::channel();
        let wakes_us = Arc::clone(&waker);
        let stats: Vec<Arc<DeliveryStats>> = (0..workers).map(|_| Arc::default()).collect();
        let counted = stats.clone();
        let thread = thread::Builder::new().name("delivery".into()).spawn(move || {
            let _call_on_drop = CallOnDrop(ended);
            deliver::<W>(&*host, turn, &counted, &wakes_us, &stopped)
        })?;
        let queue = |(queue, stats)| Delivery::Queue { queue, waker: Arc::clone(&waker), stats };
        let deliveries = deliverers.into_iter().zip(stats.iter().cloned()).map(queue).collect();
        Ok((Self { waker, stop, thread, stats }, deliveries))
    }

    /// Stops the thread and returns its counters by worker; all workers must have ended.
    pub(crate) fn stop(self) -> Result<Vec<Arc<DeliveryStats>>, CardError> {
        drop(self.stop);
        self.waker.wake();
        self.thread.join().unwrap_or(Err(CardError::Panicked))?;
        Ok(self.stats)
    }
}

/// Passes packets to the host in turn until the stop channel is closed and the queues are empty.
fn deliver<W: WireQueue>(
    host: &(dyn Device + Send + Sync),
    mut turn: RoundRobin<Waiting<W>>,
    stats: &[Arc<DeliveryStats>],
    waker: &Waker,
    stopped: &Receiver<()>,
) -> Result<(), CardError> {
    let mut scratch = Vec::new();
    let mut real_time = RealTime::if_permitted(Onset::Working);
    loop {
        // Read before the queues are emptied: workers may queue their last packets until the channel closes.
        let is_last = matches!(stopped.try_recv(), Err(mpsc::TryRecvError::Disconnected));
        while let Some((worker, packet)) = turn.take() {
            stats[worker].count(packet.len(), send_or_segment(host, &packet, &mut scratch))?;
            real_time.worked();
        }
        if is_last {
            return Ok(());
        }
        real_time
            .sleep(|| clock::wait([waker.as_fd()], None))
            .map_err(|error| CardError::Wire(error.into()))?;
        waker.clear();
    }
}
