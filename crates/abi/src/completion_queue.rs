//! Completion queues as objects; `create_cq.rs`, `poll_cq.rs` and `extended_poll.rs` have the verbs.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::Arc;

use nichrome_rdma::{Completion, CqHandle};

use crate::adapter::Adapter;
use crate::completion::ServiceLevel;
use crate::cq_notifier::CqNotifier;
use crate::header::ibv_cq_ex;
use crate::object::Object;

/// A completion queue.
#[repr(C)]
pub(crate) struct CompletionQueue {
    pub(crate) abi: UnsafeCell<ibv_cq_ex>,
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) handle: CqHandle,
    pub(crate) events: Arc<CqNotifier>,
    /// The service level of its completions.
    pub(crate) service_level: ServiceLevel,
    /// The current completion of an extended poll.
    pub(crate) polled: UnsafeCell<Option<Completion>>,
}

impl CompletionQueue {
    /// Drives the device and passes up to `count` completions to `take`. Returns their number.
    pub(crate) fn poll(&self, count: c_int, mut take: impl FnMut(&Completion)) -> c_int {
        let polled = self.adapter.driver.poll(|device| {
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

    /// Records that the program will wait for an event: the driver's thread takes over.
    pub(crate) fn begin_wait(&self) {
        if self.events.begin_wait() {
            self.adapter.driver.attend();
        }
    }

    /// Records that the program no longer waits: it took the event, or destroys the queue.
    pub(crate) fn end_wait(&self) {
        if self.events.end_wait() {
            self.adapter.driver.leave();
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
