//! Events that are no completions, and the descriptor of a context for them.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::completion_queue::CompletionQueue;
use crate::context::Context;
use crate::errno::minus_one;
use crate::event_queue::{EventQueue, Unacknowledged};
use crate::header::{ibv_async_event, ibv_context, ibv_cq, ibv_qp, ibv_srq};
use crate::object::object;
use crate::queue_pair::QueuePair;
use crate::shared_receive_queue::SharedReceiveQueue;

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
    const ALL: [Self; 8] = [
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
    target: Arc<AsyncTarget>,
    event_type: EventType,
}

/// The events of a context.
pub(crate) type AsyncEvents = EventQueue<AsyncEvent>;

/// An object that has such events.
pub(crate) struct AsyncTarget {
    events: Arc<AsyncEvents>,
    /// The address of the object's structure.
    element: usize,
    unacknowledged: Unacknowledged,
    this: std::sync::Weak<Self>,
}

impl AsyncTarget {
    pub(crate) fn new<T>(events: &Arc<AsyncEvents>, element: *mut T) -> Arc<Self> {
        let (events, element) = (Arc::clone(events), element as usize);
        let unacknowledged = Unacknowledged::default();
        Arc::new_cyclic(|this| Self { events, element, unacknowledged, this: this.clone() })
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

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int {
    // SAFETY: the program passes an open context.
    let events = unsafe { Context::of(context) }.async_events();
    let taken = events.take(|AsyncEvent { target, event_type }| {
        target.unacknowledged.add();
        let element = (target.element as *mut c_void).cast();
        ibv_async_event { element, event_type: event_type as c_int }
    });
    // SAFETY: the program passes room for an event.
    minus_one(taken.map(|taken| unsafe { *event = taken }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: the program passes an event that it was given.
    let ibv_async_event { element, event_type } = unsafe { *event };
    let Some(event_type) = EventType::ALL.into_iter().find(|known| *known as c_int == event_type) else {
        return;
    };
    let target = match event_type {
        EventType::CqError => {
            // SAFETY: the object waits for this acknowledgement before it goes; the type says what it is.
            &unsafe { object::<CompletionQueue>(element.cast::<ibv_cq>().cast()) }.events.asynchronous
        }
        EventType::SrqLimitReached => {
            // SAFETY: as above.
            &unsafe { object::<SharedReceiveQueue>(element.cast::<ibv_srq>()) }.events
        }
        _ => {
            // SAFETY: as above.
            &unsafe { object::<QueuePair>(element.cast::<ibv_qp>().cast()) }.events
        }
    };
    target.unacknowledged.acknowledge(1);
}
