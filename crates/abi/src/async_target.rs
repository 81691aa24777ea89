//! Objects that have events which are no completions, and those events.

use std::ffi::c_void;
use std::sync::Arc;

use crate::event_queue::{EventQueue, Unacknowledged};

/// The events that the device has (`enum ibv_event_type`).
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

/// An event that waits for the program.
pub(crate) struct AsyncEvent {
    pub(crate) target: Arc<AsyncTarget>,
    pub(crate) event_type: EventType,
}

/// The events of a context.
pub(crate) type AsyncEvents = EventQueue<AsyncEvent>;

/// An object that has such events.
pub(crate) struct AsyncTarget {
    events: Arc<AsyncEvents>,
    /// The address of the object's structure.
    element: usize,
    pub(crate) unacknowledged: Unacknowledged,
    this: std::sync::Weak<Self>,
}

impl AsyncTarget {
    pub(crate) fn new<T>(events: &Arc<AsyncEvents>, element: *mut T) -> Arc<Self> {
        let (events, element) = (Arc::clone(events), element as usize);
        let unacknowledged = Unacknowledged::default();
        Arc::new_cyclic(|this| Self { events, element, unacknowledged, this: this.clone() })
    }

    /// The object's structure.
    pub(crate) fn element(&self) -> *mut c_void {
        self.element as *mut c_void
    }

    pub(crate) fn tell(&self, event_type: EventType) {
        if let Some(target) = self.this.upgrade() {
            self.events.push(AsyncEvent { target, event_type });
        }
    }

    /// The object goes: its events are forgotten, those that the program has are waited for.
    pub(crate) fn retire(&self) {
        self.events.remove(|event| std::ptr::eq(Arc::as_ptr(&event.target), self));
        self.unacknowledged.wait();
    }
}
