//! Completion queues as objects; `create_cq.rs`, `poll_cq.rs` and `extended_poll.rs` have the verbs.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::Arc;

use nichrome_rdma::{Completion, CqHandle};

use crate::adapter::Adapter;
use crate::completion::ServiceLevel;
use crate::cq_notifier::CqNotifier;
use crate::errno::Errno;
use crate::header::{ibv_cq_ex, ibv_poll_cq_attr};
use crate::object::Object;
use crate::retired;
use crate::users::Users;

/// A completion queue.
#[repr(C)]
pub(crate) struct CompletionQueue {
    pub(crate) abi: UnsafeCell<ibv_cq_ex>,
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) handle: CqHandle,
    pub(crate) events: Arc<CqNotifier>,
    /// Keeps the channel in use, also if the program overwrites the pointer in the C structure.
    pub(crate) _channel: Option<Users>,
    /// The service level of its completions.
    pub(crate) service_level: ServiceLevel,
    /// The current completion of an extended poll.
    pub(crate) polled: UnsafeCell<Option<Completion>>,
}

impl CompletionQueue {
    /// Makes polls of a destroyed queue fail.
    ///
    /// # Safety
    /// The memory is of a queue that was dropped.
    pub(crate) unsafe fn install_failing_operations(dropped: *mut Self) {
        // SAFETY: guaranteed by the caller; the C structure is the first field.
        unsafe {
            let abi = dropped.cast::<ibv_cq_ex>();
            (*abi).context = retired::failing_context();
            (*abi).start_poll = Some(fail_start_poll);
            (*abi).next_poll = Some(fail_next_poll);
        }
    }

    /// Drives the device and passes up to `count` completions to `take`. Returns their number.
    pub(crate) fn poll(&self, count: c_int, mut take: impl FnMut(&Completion)) -> c_int {
        let polled = self.adapter.driver().poll(|device| {
            let mut polled = 0;
            while polled < count
                && let Some(completion) = device.poll_cq(self.handle)
            {
                take(&completion);
                polled += 1;
            }
            (polled > 0).then_some(polled)
        });
        polled.unwrap_or(0)
    }

    /// Records that the program will wait for an event. From then on the driver's thread waits at the ports,
    /// unless `ibv_get_cq_event` drives the device.
    pub(crate) fn begin_wait(&self) {
        if self.events.begin_wait() {
            self.adapter.driver().begin_descriptor_wait();
        }
    }

    /// Records that the program no longer waits: it took the event, or destroys the queue.
    pub(crate) fn end_wait(&self) {
        if self.events.end_wait() {
            self.adapter.driver().end_descriptor_wait();
        }
    }
}

// SAFETY: `repr(C)`, and the structure is the first field; a pointer to its beginning serves as `ibv_cq` too.
unsafe impl Object for CompletionQueue {
    type Abi = ibv_cq_ex;

    fn handle_in(abi: &ibv_cq_ex) -> u32 {
        abi.handle
    }
}

/// `start_poll` of a destroyed queue. It fails, so the program calls no other function of the poll.
unsafe extern "C" fn fail_start_poll(_: *mut ibv_cq_ex, _: *mut ibv_poll_cq_attr) -> c_int {
    Errno::INVALID.0
}

/// `next_poll` of a queue that was destroyed during the poll.
unsafe extern "C" fn fail_next_poll(_: *mut ibv_cq_ex) -> c_int {
    Errno::INVALID.0
}
