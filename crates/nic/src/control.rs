//! Orders to the workers of a card, from any thread.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use nichrome_port::Waker;

use crate::stats::QueueStats;

/// Orders that a card sends to a running worker.
pub(crate) enum Order {
    Report(Sender<QueueStats>),
    Stop,
}

/// A worker's end: its orders, and what wakes it for them and for frames from other workers.
pub(crate) struct Inbox {
    orders: Receiver<Order>,
    waker: Arc<Waker>,
}

/// The end of whoever gives a worker orders.
#[derive(Clone)]
pub(crate) struct Control {
    orders: Sender<Order>,
    waker: Arc<Waker>,
}

/// A handle with which any thread can ask a card.
#[derive(Clone)]
pub struct Remote(Vec<Control>);

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").finish_non_exhaustive()
    }
}

/// Both ends of a worker's orders.
pub(crate) fn control() -> io::Result<(Control, Inbox)> {
    let waker = Arc::new(Waker::new()?);
    let (sender, orders) = mpsc::channel();
    Ok((Control { orders: sender, waker: Arc::clone(&waker) }, Inbox { orders, waker }))
}

impl Inbox {
    /// The next order; `None` where none is left, for now or for ever.
    pub(crate) fn next(&self) -> Option<Order> {
        self.orders.try_recv().ok()
    }

    /// Resets the waker, before the orders are looked at.
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
    /// What wakes the worker.
    pub(crate) fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }

    /// Gives an order; `None` where the worker has ended.
    pub(crate) fn give(&self, order: Order) -> Option<()> {
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

impl Remote {
    /// A handle to these workers.
    pub(crate) fn new(workers: Vec<Control>) -> Self {
        Self(workers)
    }

    /// What each worker has done so far; `None` once one has ended.
    pub fn stats(&self) -> Option<Vec<QueueStats>> {
        self.0.iter().map(Control::report).collect()
    }
}
