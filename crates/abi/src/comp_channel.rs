//! Completion channels: file descriptors that become readable when a completion queue has an event.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::Arc;

use nichrome_hca::PollTime;
use nichrome_port::clock;

use crate::blocking::PriorRead;
use crate::cancellation::Uncancelled;
use crate::context::Context;
use crate::cq_notifier::{CompletionEvents, CqNotifier};
use crate::errno::{Errno, pointer, status};
use crate::event_queue::EventQueue;
use crate::header::{ibv_comp_channel, ibv_context};
use crate::object::{Object, cell, known, reclaim};
use crate::users::Users;
use crate::waiting;

/// A completion channel.
#[repr(C)]
pub(crate) struct CompChannel {
    abi: UnsafeCell<ibv_comp_channel>,
    pub(crate) events: Arc<CompletionEvents>,
    /// The completion queues that use this channel.
    pub(crate) users: Users,
}

// SAFETY: `repr(C)`, and the structure is the first field.
unsafe impl Object for CompChannel {
    type Abi = ibv_comp_channel;

    fn handle_in(_: &ibv_comp_channel) -> u32 {
        0
    }
}

impl CompChannel {
    /// Removes the next event and counts it as unacknowledged. Returns `None` if the caller must read the
    /// descriptor first. Before a read that may block, drives the device for the time that `poll_time` gives,
    /// then announces the wait to the driver.
    pub(crate) fn take(&self, prior: PriorRead) -> Result<Option<Arc<CqNotifier>>, Errno> {
        let CompletionEvents { queue, poll_time } = &*self.events;
        if prior == PriorRead::None {
            self.begin_wait()?;
        } else if let Some(since) = waiting::end() {
            poll_time.waited(clock::now().nanos_since(since));
        }
        let taken = queue.take(prior, |events| {
            events.unacknowledged.add();
            events
        })?;
        if taken.is_none() && prior == PriorRead::Done {
            self.begin_wait()?;
        }
        Ok(taken)
    }

    fn begin_wait(&self) -> Result<(), Errno> {
        let CompletionEvents { queue, poll_time } = &*self.events;
        if !queue.is_empty() || !queue.is_blocking() {
            return Ok(());
        }
        // SAFETY: a context stays open while its channels are used; only the channel's creation writes the
        // pointer.
        let context = unsafe { Context::known((*self.abi.get()).context) }?;
        let adapter = context.adapter();
        if let Some(since) = adapter.driver().poll_before_wait(poll_time, || !queue.is_empty()) {
            waiting::begin(adapter, since);
        }
        Ok(())
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    // SAFETY: the program passes an open context.
    let opened = unsafe { Context::known(context) };
    pointer(opened.and_then(|_| EventQueue::new()).map(|queue| {
        let abi = ibv_comp_channel { context, fd: queue.fd(), refcnt: 0 };
        let events = Arc::new(CompletionEvents { queue, poll_time: PollTime::default() });
        Box::new(CompChannel { abi: cell(abi), events, users: Users::default() }).into_abi()
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the program passes a channel that it created.
    let is_free = unsafe { known::<CompChannel>(channel) }.map(|channel| channel.users.are_none());
    if let Err(errno) = is_free.and_then(|is_free| if is_free { Ok(()) } else { Err(Errno::BUSY) }) {
        return status(Err(errno));
    }
    let _uncancelled = Uncancelled::begin();
    // SAFETY: the program does not use it after this call.
    drop(unsafe { reclaim::<CompChannel>(channel) });
    0
}
