//! Queue pairs as objects; `create_qp.rs`, `modify_qp.rs`, `post.rs` and `extended_post.rs` have the verbs.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use nichrome_rdma::{QpCapacity, QpHandle, QpType, XrcHandle};

use crate::adapter::Adapter;
use crate::async_source::{AsyncSource, AsyncSources};
use crate::errno::Errno;
use crate::header::{ibv_context, ibv_qp, ibv_qp_cap, ibv_qp_ex};
use crate::object::{Object, object, reclaim_where};
use crate::request_builder::Builder;
use crate::retired;
use crate::shared_qp::SharedQp;

/// `ibv_wr_flush`: key, address, length, placement types, selectivity.
pub(crate) type Flush = unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, usize, u8, u8);

/// A queue pair.
#[repr(C)]
pub(crate) struct QueuePair {
    pub(crate) abi: UnsafeCell<ibv_qp_ex>,
    /// The last field of `ibv_qp_ex` since rdma-core 45; older headers end before it.
    pub(crate) wr_flush: Option<Flush>,
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) handle: QpHandle,
    pub(crate) events: Arc<AsyncSource>,
    /// The events of all structures of the queue pair.
    pub(crate) sources: Arc<AsyncSources>,
    pub(crate) shared: Arc<SharedQp>,
    /// The XRC domain of a target.
    pub(crate) xrc: Option<XrcHandle>,
    /// The requests under construction, if the queue pair was created for extended posting.
    pub(crate) builder: Option<UnsafeCell<Builder>>,
}

// SAFETY: `repr(C)`, and the structure is the first field; a pointer to its beginning serves as `ibv_qp` too.
unsafe impl Object for QueuePair {
    type Abi = ibv_qp_ex;

    fn handle_in(abi: &ibv_qp_ex) -> u32 {
        abi.qp_base.handle
    }
}

impl QueuePair {
    /// Makes posts to a destroyed queue pair fail: removes its builder, and sets a context whose operations
    /// fail.
    ///
    /// # Safety
    /// The memory is of a queue pair that was dropped.
    pub(crate) unsafe fn install_failing_operations(dropped: *mut Self) {
        // SAFETY: guaranteed by the caller; the C structure is the first field.
        unsafe {
            (*dropped.cast::<ibv_qp>()).context = retired::failing_context();
            (&raw mut (*dropped).builder).write(None);
        }
    }

    /// Returns the requests under construction; `None` after the queue pair was destroyed.
    ///
    /// # Safety
    /// The pointer is to a queue pair that exists, or to one that [`Self::install_failing_operations`]
    /// changed. The caller has locked it.
    pub(crate) unsafe fn builder<'a>(qp: *mut ibv_qp_ex) -> Option<&'a mut Builder> {
        // SAFETY: guaranteed by the caller; only this field is accessed.
        unsafe {
            let builder = &(*qp.cast::<Self>()).builder;
            builder.as_ref().map(|builder| &mut *builder.get())
        }
    }

    /// Stops events to this structure. If it `was_last`, removes the queue pair from the dispatcher.
    pub(crate) fn end_events(&self, was_last: bool) {
        self.adapter.with_dispatcher(|dispatcher| {
            self.sources.remove(&self.events);
            if was_last {
                dispatcher.qps.remove(&self.handle);
            }
        });
    }
}

/// Destroys the queue pairs that the program has left in a context that it closes. Their events end with the
/// context.
pub(crate) fn destroy_qps_of(context: *const ibv_context) {
    // SAFETY: the program uses no object of a context that it closes, except through functions that only
    // return errors.
    let left = unsafe { reclaim_where::<QueuePair>(|qp| ptr::eq((*qp).qp_base.context, context)) };
    for qp in left {
        let was_last = qp.shared.remove_structure();
        if was_last {
            // Fails only if the device has no such queue pair.
            let _ = qp.adapter.driver().destroy_qp(qp.handle);
        }
        qp.end_events(was_last);
        // SAFETY: if the program still uses the queue pair, it calls functions that
        // `install_failing_operations` has installed, which only return errors.
        unsafe { retired::drop_queue_and_keep_memory(qp, |qp| QueuePair::install_failing_operations(qp)) };
    }
}

/// Returns the queue pair that a request is posted to. Checks only that its handle equals its number.
///
/// # Safety
/// The pointer is to a queue pair that the program created.
#[inline]
pub(crate) unsafe fn addressed<'a>(qp: *mut ibv_qp) -> Result<&'a QueuePair, Errno> {
    // SAFETY: guaranteed by the caller.
    let (this, handle, number) = unsafe { (object::<QueuePair>(qp.cast()), (*qp).handle, (*qp).qp_num) };
    if handle == number { Ok(this) } else { Err(Errno::NO_ENTRY) }
}

/// Converts a type to `enum ibv_qp_type`.
pub(crate) fn type_code(kind: QpType) -> c_int {
    match kind {
        QpType::Rc => 2,
        QpType::Uc => 3,
        QpType::Ud => 4,
        QpType::XrcSend => 9,
        QpType::XrcReceive => 10,
    }
}

/// Converts `enum ibv_qp_type` to a type.
pub(crate) fn kind(code: c_int) -> Result<QpType, Errno> {
    let all = [QpType::Rc, QpType::Uc, QpType::Ud, QpType::XrcSend, QpType::XrcReceive];
    let found = all.into_iter().find(|kind| type_code(*kind) == code);
    found.ok_or(Errno::UNSUPPORTED)
}

pub(crate) fn capacity(cap: &ibv_qp_cap) -> QpCapacity {
    QpCapacity {
        send_wrs: cap.max_send_wr as usize,
        receive_wrs: cap.max_recv_wr as usize,
        send_sges: cap.max_send_sge as usize,
        receive_sges: cap.max_recv_sge as usize,
        inline: cap.max_inline_data as usize,
    }
}

pub(crate) fn capacities(capacity: &QpCapacity) -> ibv_qp_cap {
    ibv_qp_cap {
        max_send_wr: capacity.send_wrs as u32,
        max_recv_wr: capacity.receive_wrs as u32,
        max_send_sge: capacity.send_sges as u32,
        max_recv_sge: capacity.receive_sges as u32,
        max_inline_data: capacity.inline as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `offsetof(struct ibv_qp_ex, wr_flush)` with the headers of rdma-core 65 on x86-64. The structure has a
    /// mutex of the C library, whose size differs between processors.
    #[test]
    fn flush_has_the_position_of_newer_headers() {
        let other_fields = 352 - 40;
        assert_eq!(
            std::mem::offset_of!(QueuePair, wr_flush),
            other_fields + size_of::<libc::pthread_mutex_t>()
        );
    }
}
