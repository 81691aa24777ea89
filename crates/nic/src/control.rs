//! Orders from any thread to the workers of a card.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use nichrome_port::Waker;

use crate::stats::QueueStats;

/// An order to a worker.
pub(crate) enum ControlMessage {
    Report(Sender<QueueStats>),
    Stop,
}

/// A worker's receiving end of orders, and its waker, also used for frames from other workers.
pub(crate) struct Inbox {
    orders: Receiver<ControlMessage>,
    waker: Arc<Waker>,
}

/// The sending end of orders to a worker.
#[derive(Clone)]
pub(crate) struct Control {
    orders: Sender<ControlMessage>,
    waker: Arc<Waker>,
}

/// A handle to a card for any thread.
#[derive(Clone)]
pub struct Remote(Vec<Control>);

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").finish_non_exhaustive()
    }
}

/// Creates both ends.
pub(crate) fn control() -> io::Result<(Control, Inbox)> {
    let waker = Arc::new(Waker::new()?);
    let (sender, orders) = mpsc::channel();
    Ok((Control { orders: sender, waker: Arc::clone(&waker) }, Inbox { orders, waker }))
}

impl Inbox {
    /// Returns the next order, if any.
    pub(crate) fn next(&self) -> Option<ControlMessage> {
        self.orders.try_recv().ok()
    }

    /// Resets the waker; must precede reading orders.
    pub(crate) fn clear(&self) {
        self.waker.clear();
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

impl Control {
    /// Returns the worker's waker.
    pub(crate) fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }

    /// Sends an order; `None` if the worker has ended.
    pub(crate) fn send(&self, order: ControlMessage) -> Option<()> {
        self.orders.send(order).ok()?;
        self.waker.wake();
        Some(())
    }

    fn report(&self) -> Option<QueueStats> {
        let (to, answer) = mpsc::channel();
        self.send(ControlMessage::Report(to))?;
        answer.recv().ok()
    }
}

impl Remote {
    /// Creates a handle to these workers.
    pub(crate) fn new(workers: Vec<Control>) -> Self {
        Self(workers)
    }

    /// Returns each worker's counters; `None` if one has ended.
    pub fn stats(&self) -> Option<Vec<QueueStats>> {
        self.0.iter().map(Control::report).collect()
    }
}
