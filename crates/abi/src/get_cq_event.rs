//! `ibv_get_cq_event` and `ibv_ack_cq_events`: completion events of a channel.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::blocking::{PriorRead, Step, map_result, until_done};
use crate::comp_channel::CompChannel;
use crate::completion_queue::CompletionQueue;
use crate::errno::{Errno, minus_one};
use crate::header::{ibv_comp_channel, ibv_cq};
use crate::object::{known, object};

/// Takes the next event, or returns the descriptor that must be read first.
unsafe fn step(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
    prior: PriorRead,
) -> Result<Step<()>, Errno> {
    // SAFETY: the program passes a channel that it created.
    let channel = unsafe { known::<CompChannel>(channel) }?;
    let Some(events) = channel.take(prior)? else { return Ok(Step::Read(channel.events.queue.fd())) };
    let found = events.cq();
    // SAFETY: the queue is not freed before the program acknowledges the event.
    unsafe { object::<CompletionQueue>(found.cast()) }.end_wait();
    // SAFETY: the program passes memory for two pointers; the queue is valid, as above.
    unsafe {
        *cq = found;
        *cq_context = (*found).cq_context;
    }
    Ok(Step::Done(()))
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: guaranteed by the program; the channel has the descriptor.
    unsafe { until_done(|prior| map_result(step(channel, cq, cq_context, prior), minus_one)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, events: u32) {
    // SAFETY: the program passes a queue that it created.
    let Ok(this) = (unsafe { known::<CompletionQueue>(cq.cast()) }) else { return };
    // SAFETY: the queue exists; only this function writes its counter.
    let completed = unsafe { AtomicU32::from_ptr(&raw mut (*cq).comp_events_completed) };
    completed.fetch_add(events, Ordering::Relaxed);
    this.events.unacknowledged.acknowledge(events);
}
