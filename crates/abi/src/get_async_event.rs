//! `ibv_get_async_event` and `ibv_ack_async_event`: asynchronous events of a context.

use std::ffi::c_int;

use crate::async_source::{AsyncEvent, EventType};
use crate::completion_queue::CompletionQueue;
use crate::context::Context;
use crate::errno::minus_one;
use crate::header::{ibv_async_event, ibv_context, ibv_cq, ibv_qp, ibv_srq};
use crate::object::object;
use crate::queue_pair::QueuePair;
use crate::shared_receive_queue::SharedReceiveQueue;

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int {
    // SAFETY: the program passes an open context.
    let events = match unsafe { Context::known(context) } {
        Ok(context) => context.async_events(),
        Err(errno) => return minus_one(Err(errno)),
    };
    let taken = events.take(|AsyncEvent { source, event_type }| {
        source.unacknowledged.add();
        let element = source.element().cast();
        ibv_async_event { element, event_type: event_type as c_int }
    });
    // SAFETY: the program passes memory for an event.
    minus_one(taken.map(|taken| unsafe { *event = taken }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: the program passes an event from `ibv_get_async_event`.
    let ibv_async_event { element, event_type } = unsafe { *event };
    let Some(event_type) = EventType::ALL.into_iter().find(|known| *known as c_int == event_type) else {
        return;
    };
    let source = match event_type {
        EventType::CqError => {
            // SAFETY: the object is not freed before this acknowledgement; the event type determines its type.
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
    source.unacknowledged.acknowledge(1);
}
