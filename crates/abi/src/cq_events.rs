//! The events of a completion queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::async_target::AsyncTarget;
use crate::event_queue::{EventQueue, Unacknowledged};
use crate::header::ibv_cq;

/// A completion queue as those who tell of its events know it.
pub(crate) struct CqEvents {
    channel: Option<Arc<EventQueue<Arc<Self>>>>,
    /// Whether the program waits for the next event.
    is_attended: AtomicBool,
    pub(crate) unacknowledged: Unacknowledged,
    pub(crate) asynchronous: Arc<AsyncTarget>,
    /// The address of the queue's structure.
    cq: usize,
}

impl CqEvents {
    /// The events of the queue with this structure, told to `channel` where there is one.
    pub(crate) fn new(
        channel: Option<Arc<EventQueue<Arc<Self>>>>,
        asynchronous: Arc<AsyncTarget>,
        cq: *mut ibv_cq,
    ) -> Arc<Self> {
        let (is_attended, unacknowledged) = (AtomicBool::new(false), Unacknowledged::default());
        Arc::new(Self { channel, is_attended, unacknowledged, asynchronous, cq: cq as usize })
    }

    pub(crate) fn tell(this: &Arc<Self>) {
        if let Some(channel) = &this.channel {
            channel.push(Arc::clone(this));
        }
    }

    pub(crate) fn cq(&self) -> *mut ibv_cq {
        self.cq as *mut ibv_cq
    }

    /// Notes that the program is going to wait for an event. Returns true if it did not wait before.
    pub(crate) fn attend(&self) -> bool {
        self.channel.is_some() && !self.is_attended.swap(true, Ordering::SeqCst)
    }

    /// Notes that the event came, or will not. Returns true if the program waited for it.
    pub(crate) fn leave(&self) -> bool {
        self.is_attended.swap(false, Ordering::SeqCst)
    }

    /// The queue goes: its events are forgotten, those that the program has are waited for.
    pub(crate) fn retire(this: &Arc<Self>) {
        if let Some(channel) = &this.channel {
            channel.remove(|events| Arc::ptr_eq(events, this));
        }
        this.unacknowledged.wait();
        this.asynchronous.retire();
    }
}
