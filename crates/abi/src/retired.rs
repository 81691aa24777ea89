//! The memory of destroyed queues and closed contexts.
//!
//! `ibv_post_send`, `ibv_poll_cq` and the other inline functions of `infiniband/verbs.h` follow pointers in the structure before
//! they call the library, so a check there would come too late. The memory of a destroyed queue is kept instead, and its
//! structure names a context whose operations fail with `EINVAL`. The operations of existing queues do not change. They follow the
//! pointer to a context that the program has closed, too.

use std::alloc::{self, Layout};
use std::collections::VecDeque;
use std::ffi::c_int;
use std::mem;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::errno::{Errno, status};
use crate::header::{ibv_context, ibv_cq, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_wc};

/// Number of objects whose memory is kept. One more frees the oldest: about half a megabyte of queue pairs.
const KEPT: usize = 1024;

/// The memory of a destroyed object.
struct Kept {
    place: *mut u8,
    layout: Layout,
}

// SAFETY: only the list refers to the memory; a program that uses the destroyed object calls functions that access no field.
unsafe impl Send for Kept {}

static ALL: Mutex<VecDeque<Kept>> = Mutex::new(VecDeque::new());

fn all() -> MutexGuard<'static, VecDeque<Kept>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The locked list.
pub(crate) struct Held {
    _list: MutexGuard<'static, VecDeque<Kept>>,
}

/// Locks the list until the result is dropped: for a process that is about to fork.
pub(crate) fn hold() -> Held {
    Held { _list: all() }
}

/// Drops an object and keeps its memory. `refuse` then changes the C structure, and may write fields of the object.
///
/// # Safety
/// `refuse` reads no field of the object but its C structure.
pub(crate) unsafe fn keep<T>(object: Box<T>, refuse: impl FnOnce(*mut T)) {
    let place = Box::into_raw(object);
    // SAFETY: the box held the object, which nothing accesses as such any more.
    unsafe { place.drop_in_place() };
    refuse(place);
    let mut all = all();
    all.push_back(Kept { place: place.cast(), layout: Layout::new::<T>() });
    if all.len() > KEPT
        && let Some(Kept { place, layout }) = all.pop_front()
    {
        // SAFETY: a box of this layout allocated the memory, and the object in it was dropped.
        unsafe { alloc::dealloc(place, layout) };
    }
}

/// A context that programs only read.
struct Refusing(ibv_context);

// SAFETY: the context is not written.
unsafe impl Sync for Refusing {}

static REFUSING: Refusing = Refusing({
    // SAFETY: the fields of a context are integers, pointers and `Option`s of functions.
    let mut context: ibv_context = unsafe { mem::zeroed() };
    context.ops.poll_cq = Some(poll_cq);
    context.ops.req_notify_cq = Some(req_notify_cq);
    context.ops.post_srq_recv = Some(post_srq_recv);
    context.ops.post_send = Some(post_send);
    context.ops.post_recv = Some(post_recv);
    context
});

/// Returns the context of destroyed queues.
pub(crate) fn context() -> *mut ibv_context {
    (&raw const REFUSING.0).cast_mut()
}

/// Sets `bad`, which some programs pass as null, to the first request.
unsafe fn refuse<T>(first: *mut T, bad: *mut *mut T) -> c_int {
    if !bad.is_null() {
        // SAFETY: the program passes memory for a pointer.
        unsafe { ptr::write(bad, first) };
    }
    status(Err(Errno::INVALID))
}

unsafe extern "C" fn post_send(_: *mut ibv_qp, first: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: the program passes memory for a pointer.
    unsafe { refuse(first, bad) }
}

unsafe extern "C" fn post_recv(_: *mut ibv_qp, first: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: the program passes memory for a pointer.
    unsafe { refuse(first, bad) }
}

unsafe extern "C" fn post_srq_recv(
    _: *mut ibv_srq,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the program passes memory for a pointer.
    unsafe { refuse(first, bad) }
}

unsafe extern "C" fn req_notify_cq(_: *mut ibv_cq, _: c_int) -> c_int {
    status(Err(Errno::INVALID))
}

unsafe extern "C" fn poll_cq(_: *mut ibv_cq, _: c_int, _: *mut ibv_wc) -> c_int {
    -status(Err(Errno::INVALID))
}
