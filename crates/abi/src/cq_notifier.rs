//! Delivers a completion queue's events to its channel.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nichrome_hca::PollTime;

use crate::async_source::AsyncSource;
use crate::event_queue::{EventQueue, Unacknowledged};
use crate::header::ibv_cq;

/// The events of a completion channel.
pub(crate) struct CompletionEvents {
    pub(crate) queue: EventQueue<Arc<CqNotifier>>,
    /// How long `ibv_get_cq_event` drives the device before it sleeps.
    pub(crate) poll_time: PollTime,
}

impl CompletionEvents {
    /// Returns true if `ibv_get_cq_event` drives the device before it sleeps: the last events followed each
    /// other closely.
    fn polls_before_sleep(&self) -> bool {
        self.poll_time.nanos() > 0
    }
}

/// The event state of a completion queue. Queued events keep it alive after the device has removed the queue.
pub(crate) struct CqNotifier {
    channel: Option<Arc<CompletionEvents>>,
    /// Whether the program waits for the next event.
    program_waits: AtomicBool,
    pub(crate) unacknowledged: Unacknowledged,
    pub(crate) asynchronous: Arc<AsyncSource>,
    /// Address of the queue's C structure.
    cq: usize,
}

impl CqNotifier {
    /// Creates the event state of the queue `cq`, which sends its events to `channel` if it has one.
    pub(crate) fn new(
        channel: Option<Arc<CompletionEvents>>,
        asynchronous: Arc<AsyncSource>,
        cq: *mut ibv_cq,
    ) -> Arc<Self> {
        let (program_waits, unacknowledged) = (AtomicBool::new(false), Unacknowledged::default());
        Arc::new(Self { channel, program_waits, unacknowledged, asynchronous, cq: cq as usize })
    }

    /// Queues a completion event on the channel, if there is one.
    pub(crate) fn notify(this: &Arc<Self>) {
        if let Some(channel) = &this.channel {
            channel.queue.push(Arc::clone(this));
        }
    }

    /// Returns the queue's C structure.
    pub(crate) fn cq(&self) -> *mut ibv_cq {
        self.cq as *mut ibv_cq
    }

    /// Records that the program will wait for an event. Returns true if the driver's thread must now drive
    /// the device: the program did not wait before, and `ibv_get_cq_event` will not drive it.
    pub(crate) fn begin_wait(&self) -> bool {
        self.channel.as_ref().is_some_and(|channel| !channel.polls_before_sleep())
            && !self.program_waits.swap(true, Ordering::SeqCst)
    }

    /// Records that the program no longer waits for an event. Returns true if it waited before.
    pub(crate) fn end_wait(&self) -> bool {
        self.program_waits.swap(false, Ordering::SeqCst)
    }

    /// Prepares for the queue's destruction: discards its queued events and blocks until the program has
    /// acknowledged the ones it has taken.
    pub(crate) fn retire(this: &Arc<Self>) {
        if let Some(channel) = &this.channel {
            channel.queue.remove(|events| Arc::ptr_eq(events, this));
        }
        this.unacknowledged.wait();
        this.asynchronous.retire();
    }
}
