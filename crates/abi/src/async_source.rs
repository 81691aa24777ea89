//! Asynchronous events, and the objects that raise them.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::event_queue::{EventQueue, Unacknowledged};

/// The asynchronous events that the device raises (`enum ibv_event_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum EventType {
    CqError = 0,
    QpFatal = 1,
    QpRequestError = 2,
    QpAccessError = 3,
    Established = 4,
    SendQueueDrained = 5,
    SrqLimitReached = 15,
    LastReceiveReached = 16,
}

impl EventType {
    pub(crate) const ALL: [Self; 8] = [
        Self::CqError,
        Self::QpFatal,
        Self::QpRequestError,
        Self::QpAccessError,
        Self::Established,
        Self::SendQueueDrained,
        Self::SrqLimitReached,
        Self::LastReceiveReached,
    ];
}

/// A queued asynchronous event.
pub(crate) struct AsyncEvent {
    pub(crate) source: Arc<AsyncSource>,
    pub(crate) event_type: EventType,
}

/// A context's queue of asynchronous events.
pub(crate) type AsyncEvents = EventQueue<AsyncEvent>;

/// An object that raises asynchronous events: a queue pair, a completion queue or a shared receive queue.
pub(crate) struct AsyncSource {
    /// The queue of its context, which ends with the context.
    events: Weak<AsyncEvents>,
    /// Address of the object's C structure.
    element: usize,
    pub(crate) unacknowledged: Unacknowledged,
    this: Weak<Self>,
}

impl AsyncSource {
    pub(crate) fn new<T>(events: &Arc<AsyncEvents>, element: *mut T) -> Arc<Self> {
        let (events, element) = (Arc::downgrade(events), element as usize);
        let unacknowledged = Unacknowledged::default();
        Arc::new_cyclic(|this| Self { events, element, unacknowledged, this: this.clone() })
    }

    /// Returns the object's C structure.
    pub(crate) fn element(&self) -> *mut c_void {
        self.element as *mut c_void
    }

    /// Queues an event on the object's context.
    pub(crate) fn raise(&self, event_type: EventType) {
        if let Some((events, source)) = self.events.upgrade().zip(self.this.upgrade()) {
            events.push(AsyncEvent { source, event_type });
        }
    }

    /// Prepares for the object's destruction: discards its queued events and blocks until the program has
    /// acknowledged the ones it has taken.
    pub(crate) fn retire(&self) {
        if let Some(events) = self.events.upgrade() {
            events.remove(|event| std::ptr::eq(Arc::as_ptr(&event.source), self));
        }
        self.unacknowledged.wait();
    }
}

/// The `ibv_qp` structures of one queue pair, including those that `ibv_open_qp` returned. Each receives the
/// queue pair's asynchronous events. Used under the device's lock only, as the
/// [dispatcher](crate::event_dispatcher) is.
#[derive(Default)]
pub(crate) struct AsyncSources(Mutex<Vec<Arc<AsyncSource>>>);

impl AsyncSources {
    fn sources(&self) -> MutexGuard<'_, Vec<Arc<AsyncSource>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, source: &Arc<AsyncSource>) {
        self.sources().push(Arc::clone(source));
    }

    /// Removes a structure: later events are not queued for it.
    pub(crate) fn remove(&self, source: &Arc<AsyncSource>) {
        self.sources().retain(|other| !Arc::ptr_eq(other, source));
    }

    /// Queues an event for each structure, on the structure's context.
    pub(crate) fn raise(&self, event_type: EventType) {
        self.sources().iter().for_each(|source| source.raise(event_type));
    }
}
