//! Events that are no completions, as programs take them from a context.

use std::ffi::c_int;

use crate::async_target::{AsyncEvent, EventType};
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
    let events = unsafe { Context::of(context) }.async_events();
    let taken = events.take(|AsyncEvent { target, event_type }| {
        target.unacknowledged.add();
        let element = target.element().cast();
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
