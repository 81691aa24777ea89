//! Control messages from any thread to the workers of a card.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use nichrome_port::Waker;

use crate::stats::QueueStats;

/// A control message for a worker.
pub(crate) enum ControlMessage {
    Report(Sender<QueueStats>),
    Stop,
}

/// The receiving end of a worker's control messages, and its waker, which also signals frames from other
/// workers.
pub(crate) struct Inbox {
    messages: Receiver<ControlMessage>,
    waker: Arc<Waker>,
}

/// The sending end of a worker's control messages.
#[derive(Clone)]
pub(crate) struct Control {
    messages: Sender<ControlMessage>,
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

/// Creates both ends of a worker's control channel.
pub(crate) fn control() -> io::Result<(Control, Inbox)> {
    let waker = Arc::new(Waker::new()?);
    let (sender, messages) = mpsc::channel();
    Ok((Control { messages: sender, waker: Arc::clone(&waker) }, Inbox { messages, waker }))
}

impl Inbox {
    /// Returns the next message, if any.
    pub(crate) fn next(&self) -> Option<ControlMessage> {
        self.messages.try_recv().ok()
    }

    /// Resets the waker; must precede reading messages.
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

    /// Sends a message; `None` if the worker has ended.
    pub(crate) fn send(&self, message: ControlMessage) -> Option<()> {
        self.messages.send(message).ok()?;
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
