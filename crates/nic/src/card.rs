//! The live card: workers between the queues of a wire and those of a host.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use nichrome_lro::{Coalescer, ConfigError};
use nichrome_port::{CallOnDrop, WireQueue};

use crate::config::CardConfig;
use crate::control::{Control, ControlMessage, Remote, control};
use crate::delivery_thread::{Deliveries, Delivery, DeliveryThread};
use crate::error::CardError;
use crate::host::Host;
use crate::mesh::Mesh;
use crate::queue::Queue;
use crate::stats::QueueStats;
use crate::worker::{HostSide, Offload, Parts, Turn, Worker};

/// A running card; stopped when dropped.
pub struct Card {
    workers: Vec<Running>,
    /// The thread that empties the delivery queues, if workers share a host queue.
    delivery: Option<DeliveryThread>,
}

impl fmt::Debug for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Card").finish_non_exhaustive()
    }
}

struct Running {
    control: Control,
    thread: JoinHandle<Result<QueueStats, CardError>>,
}

impl Card {
    /// Starts a worker for each queue of the wire. `hosts` are the queues of the host: one per worker, or one
    /// for all. Calls `ended` on a worker's thread when the worker ends, for whatever reason. Workers that
    /// sleep have real-time priority in turns, if permitted: see [`RealTime`](nichrome_port::RealTime).
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
        if hosts.len() < count && config.observes_host() {
            return Err(CardError::ActiveAck);
        }
        let (controls, inboxes): (Vec<_>, Vec<_>) =
            (0..count).map(|_| control()).collect::<io::Result<Vec<_>>>()?.into_iter().unzip();
        let wakers: Vec<_> = controls.iter().map(|control| Arc::clone(control.waker())).collect();
        let (delivery, deliveries) = deliveries::<W>(hosts, count, &ended)?;
        let each = queues.into_iter().zip(deliveries).zip(Mesh::between(&wakers)).zip(inboxes).zip(controls);
        // Dropped by an early return, which stops the threads that have started.
        let mut card = Self { workers: Vec::with_capacity(count), delivery };
        for (number, ((((queue, delivery), mesh), inbox), control)) in each.enumerate() {
            // Worker 0 alone reads a shared host queue: two readers could reorder a connection's frames.
            let host =
                HostSide { source: hosts.get(number).map(Arc::clone), turn: Turn::SAME_HOST, delivery };
            let parts = Parts { queue, host, offload: offload(config)?, mesh, inbox };
            card.workers.push(spawn(number, parts, control, config, ended.clone())?);
        }
        Ok(card)
    }

    /// Starts a worker that carries the packets of one host to the other, in one direction: it segments them,
    /// sends them through the wire, receives them from it, and coalesces them, so that their bytes stay in
    /// one core's cache. Calls `ended` as [`Card::start`] does.
    pub fn between<W: WireQueue + 'static>(
        [from, to]: [Host; 2],
        queue: Queue<W>,
        config: &CardConfig,
        ended: impl Fn() + Send + 'static,
    ) -> Result<Self, CardError> {
        if config.observes_host() {
            return Err(CardError::OtherHost);
        }
        let (control, inbox) = control()?;
        let host = HostSide { source: Some(from), turn: Turn::OTHER_HOST, delivery: Delivery::Own(to) };
        let parts = Parts { queue, host, offload: offload(config)?, mesh: Mesh::alone(), inbox };
        let worker = spawn(0, parts, control, config, ended)?;
        Ok(Self { workers: vec![worker], delivery: None })
    }

    /// Returns a handle to this card.
    pub fn remote(&self) -> Remote {
        Remote::new(self.workers.iter().map(|worker| worker.control.clone()).collect())
    }

    /// Stops all workers and returns their counters. The workers first deliver the packets that their engines
    /// hold and the frames in the rings between them. Packets in a wire within the process, and packets that
    /// wait for room on a wire, are lost.
    pub fn stop(mut self) -> Result<Vec<QueueStats>, CardError> {
        self.end()
    }

    /// Ends all threads, also after the error of one.
    fn end(&mut self) -> Result<Vec<QueueStats>, CardError> {
        for worker in &self.workers {
            // Fails only if the worker has ended already.
            let _ = worker.control.send(ControlMessage::Stop);
        }
        let results: Vec<_> = self
            .workers
            .drain(..)
            .map(|worker| worker.thread.join().unwrap_or(Err(CardError::Panicked)))
            .collect();
        let delivered = self.delivery.take().map(DeliveryThread::stop).transpose();
        let mut stats = results.into_iter().collect::<Result<Vec<_>, _>>()?;
        // The workers ended before their last packets were delivered.
        for (worker, delivered) in stats.iter_mut().zip(delivered?.into_iter().flatten()) {
            delivered.copy_to(worker);
        }
        Ok(stats)
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        // Errors are for the callers of `stop`.
        let _ = self.end();
    }
}

/// Returns each worker's delivery, and the delivery thread if the workers share one host queue.
fn deliveries<W: WireQueue + 'static>(
    hosts: &[Host],
    workers: usize,
    ended: &(impl Fn() + Clone + Send + 'static),
) -> Result<(Option<DeliveryThread>, Deliveries<W::Buffer>), CardError> {
    if hosts.len() < workers {
        let (thread, deliveries) = DeliveryThread::start::<W>(Arc::clone(&hosts[0]), workers, ended.clone())?;
        return Ok((Some(thread), deliveries));
    }
    Ok((None, hosts.iter().map(|host| Delivery::Own(Arc::clone(host))).collect()))
}

/// Creates a worker's engine, if the card coalesces.
fn offload<B: AsRef<[u8]>>(config: &CardConfig) -> Result<Option<Offload<B>>, ConfigError> {
    let Some(profile) = &config.profile else { return Ok(None) };
    let engine = Coalescer::new(&config.engine, profile)?;
    Ok(Some(Offload { engine, observes_host: config.observes_host() }))
}

/// Starts the thread of the worker with this number.
fn spawn<W: WireQueue + 'static>(
    number: usize,
    parts: Parts<W>,
    control: Control,
    config: &CardConfig,
    ended: impl Fn() + Send + 'static,
) -> io::Result<Running> {
    let worker = Worker::new(parts, config);
    let thread = thread::Builder::new().name(format!("{}-{number}", config.name)).spawn(move || {
        let _call_on_drop = CallOnDrop(ended);
        worker.run()
    })?;
    Ok(Running { control, thread })
}
