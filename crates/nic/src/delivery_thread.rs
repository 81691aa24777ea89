//! Where a worker's packets for the host go: to a host queue of its own, or to the thread that several workers share.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use nichrome_lro::Packet;
use nichrome_port::{Device, Waker, WireQueue, clock};

use crate::delivery::{self, Deliverer, RoundRobin};
use crate::error::CardError;
use crate::host::{Host, HostError, send_or_take_apart};
use crate::received::Received;

/// Packets in a delivery queue.
const DELIVERY_ROOM: usize = 512;

type Waiting<W> = Packet<Received<<W as WireQueue>::Buffer>>;

/// Where packets for the host go.
pub(crate) enum Delivery<B> {
    /// To a queue of its own.
    Own(Host),
    /// To a delivery queue, and the thread that empties it is woken.
    Queue(Deliverer<Packet<Received<B>>>, Arc<Waker>),
}

/// What each worker delivers with.
pub(crate) type Deliveries<B> = Vec<Delivery<B>>;

/// What the delivery thread has seen.
#[derive(Default)]
pub(crate) struct DeliveryStats {
    pub(crate) taken_apart: u64,
    pub(crate) refused: u64,
}

/// The thread that hands the packets of several workers to one host queue.
pub(crate) struct DeliveryThread {
    waker: Arc<Waker>,
    /// It ends when this is dropped and it is woken.
    stop: Sender<()>,
    thread: JoinHandle<Result<DeliveryStats, CardError>>,
}

impl DeliveryThread {
    /// Starts it; what each of so many workers delivers with. `ended` is called on the thread when it ends.
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

    /// Ends it, once all workers have ended.
    pub(crate) fn stop(self) -> Result<DeliveryStats, CardError> {
        drop(self.stop);
        self.waker.wake();
        self.thread.join().unwrap_or(Err(CardError::Panicked))
    }
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
