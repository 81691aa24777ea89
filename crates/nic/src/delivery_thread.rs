//! The destination of a worker's packets: its own host queue, or the delivery thread that several workers share.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use nichrome_lro::Packet;
use nichrome_port::{Device, Onset, RealTime, Waker, WireQueue, clock};

use crate::delivery::{self, Deliverer, RoundRobin};
use crate::error::CardError;
use crate::host::{Host, HostError, send_or_segment};
use crate::received::Received;

/// Capacity of a delivery queue, in packets.
const DELIVERY_ROOM: usize = 512;

type Waiting<W> = Packet<Received<<W as WireQueue>::Buffer>>;

/// The destination of a worker's packets.
pub(crate) enum Delivery<B> {
    /// The worker's own host queue.
    Own(Host),
    /// A delivery queue, and the waker of the thread that empties it.
    Queue(Deliverer<Packet<Received<B>>>, Arc<Waker>),
}

/// Each worker's delivery.
pub(crate) type Deliveries<B> = Vec<Delivery<B>>;

/// Counters of the delivery thread.
#[derive(Default)]
pub(crate) struct DeliveryStats {
    pub(crate) taken_apart: u64,
    pub(crate) refused: u64,
}

/// The thread that passes several workers' packets to one host queue.
pub(crate) struct DeliveryThread {
    waker: Arc<Waker>,
    /// Dropping it ends the thread at its next wake-up.
    stop: Sender<()>,
    thread: JoinHandle<Result<DeliveryStats, CardError>>,
}

impl DeliveryThread {
    /// Starts the thread for this many workers; returns their deliveries too. Calls `ended` on the thread when it
    /// ends.
    pub(crate) fn start<W: WireQueue + 'static>(
        host: Host,
        workers: usize,
        ended: impl Fn() + Send + 'static,
    ) -> Result<(Self, Deliveries<W::Buffer>), CardError> {
        let (deliverers, turn) = delivery::queues::<Waiting<W>>(workers, DELIVERY_ROOM);
        let waker = Arc::new(Waker::new().map_err(io::Error::from)?);
        let (stop, stopped) = mpsc::channel();
        let wakes_us = Arc::clone(&waker);
        let thread = thread::Builder::new().name("delivery".into()).spawn(move || {
            let result = deliver::<W>(&*host, turn, &wakes_us, &stopped);
            ended();
            result
        })?;
        let deliveries =
            deliverers.into_iter().map(|queue| Delivery::Queue(queue, Arc::clone(&waker))).collect();
        Ok((Self { waker, stop, thread }, deliveries))
    }

    /// Stops the thread; all workers must have ended.
    pub(crate) fn stop(self) -> Result<DeliveryStats, CardError> {
        drop(self.stop);
        self.waker.wake();
        self.thread.join().unwrap_or(Err(CardError::Panicked))
    }
}

/// Passes packets to the host in turn until the stop channel is closed.
fn deliver<W: WireQueue>(
    host: &(dyn Device + Send + Sync),
    mut turn: RoundRobin<Waiting<W>>,
    waker: &Waker,
    stopped: &Receiver<()>,
) -> Result<DeliveryStats, CardError> {
    let mut scratch = Vec::new();
    let mut stats = DeliveryStats::default();
    let mut real_time = RealTime::if_permitted(Onset::Working);
    loop {
        while let Some(packet) = turn.take() {
            match send_or_segment(host, &packet, &mut scratch) {
                Ok(taken_apart) => stats.taken_apart += u64::from(taken_apart),
                Err(HostError::Refused(_) | HostError::Down) => stats.refused += 1,
                Err(error @ HostError::Gone(_)) => return Err(error.into()),
            }
            real_time.worked();
        }
        if matches!(stopped.try_recv(), Err(mpsc::TryRecvError::Disconnected)) {
            return Ok(stats);
        }
        real_time
            .sleep(|| clock::wait([waker.as_fd()], None))
            .map_err(|error| CardError::Wire(error.into()))?;
        waker.clear();
    }
}
