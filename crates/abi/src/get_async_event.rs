//! `ibv_get_async_event` and `ibv_ack_async_event`: asynchronous events of a context.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::async_source::{AsyncEvent, EventType};
use crate::blocking::{PriorRead, Step, map_result, until_done};
use crate::completion_queue::CompletionQueue;
use crate::context::Context;
use crate::errno::{Errno, minus_one};
use crate::header::{ibv_async_event, ibv_context, ibv_cq, ibv_srq};
use crate::object::known;
use crate::queue_pair::QueuePair;
use crate::shared_receive_queue::SharedReceiveQueue;

/// Takes the next event, or returns the descriptor that must be read first.
unsafe fn step(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
    prior: PriorRead,
) -> Result<Step<()>, Errno> {
    // SAFETY: the program passes an open context.
    let events = unsafe { Context::known(context) }?.async_events();
    let taken = events.take(prior, |AsyncEvent { source, event_type }| {
        source.unacknowledged.add();
        let element = source.element().cast();
        ibv_async_event { element, event_type: event_type as c_int }
    })?;
    let Some(taken) = taken else { return Ok(Step::Read(events.fd())) };
    // SAFETY: the program passes memory for an event.
    unsafe { *event = taken };
    Ok(Step::Done(()))
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    // SAFETY: guaranteed by the program; the context has the descriptor.
    unsafe { until_done(|prior| map_result(step(context, event, prior), minus_one)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: the program passes an event from `ibv_get_async_event`.
    let ibv_async_event { element, event_type } = unsafe { *event };
    let Some(event_type) = EventType::ALL.into_iter().find(|known| *known as c_int == event_type) else {
        return;
    };
    // SAFETY: the verb that destroys the object waits for this acknowledgement. `known` does not find a queue
    // pair that `ibv_close_device` has destroyed. The counter is in the structure of the object that it
    // finds.
    let found = unsafe {
        match event_type {
            EventType::CqError => known::<CompletionQueue>(element.cast()).map(|cq| {
                (&cq.events.asynchronous, &raw mut (*element.cast::<ibv_cq>()).async_events_completed)
            }),
            EventType::SrqLimitReached => known::<SharedReceiveQueue>(element.cast())
                .map(|srq| (&srq.events, &raw mut (*element.cast::<ibv_srq>()).events_completed)),
            _ => known::<QueuePair>(element.cast())
                .map(|qp| (&qp.events, &raw mut (*element).events_completed)),
        }
    };
    if let Ok((source, completed)) = found {
        // SAFETY: the object exists, as above; only this function writes its counter.
        unsafe { AtomicU32::from_ptr(completed) }.fetch_add(1, Ordering::Relaxed);
        source.unacknowledged.acknowledge(1);
    }
}
