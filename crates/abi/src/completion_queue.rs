//! Completion queues.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::Arc;

use nichrome_rdma::{Completion, CqHandle};

use crate::adapter::Adapter;
use crate::completion::ServiceLevel;
use crate::cq_events::CqEvents;
use crate::header::ibv_cq_ex;
use crate::object::Object;

/// A completion queue.
#[repr(C)]
pub(crate) struct CompletionQueue {
    pub(crate) abi: UnsafeCell<ibv_cq_ex>,
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) handle: CqHandle,
    pub(crate) events: Arc<CqEvents>,
    /// The service level of its completions.
    pub(crate) service_level: ServiceLevel,
    /// The completion that a piecewise poll is at.
    pub(crate) polled: UnsafeCell<Option<Completion>>,
}

impl CompletionQueue {
    /// Takes completions, driving the device.
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

    /// The program is going to wait for an event.
    pub(crate) fn attend(&self) {
        if self.events.attend() {
            self.adapter.driver.attend();
        }
    }

    /// The event came, or will not.
    pub(crate) fn leave(&self) {
        if self.events.leave() {
            self.adapter.driver.leave();
        }
    }
}

// SAFETY: `repr(C)`, and the structure is the first field; a pointer to its beginning serves as `ibv_cq` too.
unsafe impl Object for CompletionQueue {
    type Abi = ibv_cq_ex;
}
