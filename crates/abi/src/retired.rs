//! The memory of destroyed queues and closed contexts.
//!
//! `ibv_post_send`, `ibv_poll_cq` and the other inline functions of `infiniband/verbs.h` follow pointers in
//! the structure before they call the library, so a check there would come too late. The memory of a
//! destroyed queue is kept instead, and its structure names a context whose operations fail with `EINVAL`.
//! The operations of existing queues do not change. The inline functions also follow an object's pointer to a
//! context that the program has closed, so the memory of contexts is kept as well.

use std::alloc::{self, Layout};
use std::collections::VecDeque;
use std::ffi::c_int;
use std::mem;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::errno::{Errno, status};
use crate::header::{ibv_context, ibv_cq, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_wc};

/// Number of queues whose memory is kept, and, separately, of other objects; one more frees the oldest. So
/// many queue pairs occupy about half a megabyte.
const MAX_KEPT: usize = 1024;

/// The memory of a destroyed object.
struct Kept {
    place: *mut u8,
    layout: Layout,
}

// SAFETY: only the list refers to the memory; a program that uses the destroyed object calls functions that
// access no field.
unsafe impl Send for Kept {}

/// Kept memory, the oldest first. Queues have a list of their own: programs destroy far more regions.
struct Lists {
    queues: VecDeque<Kept>,
    others: VecDeque<Kept>,
}

static ALL: Mutex<Lists> = Mutex::new(Lists { queues: VecDeque::new(), others: VecDeque::new() });

fn all() -> MutexGuard<'static, Lists> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The locked lists.
pub(crate) struct Held {
    _lists: MutexGuard<'static, Lists>,
}

/// Locks the lists until the result is dropped: for a process that is about to fork.
pub(crate) fn hold() -> Held {
    Held { _lists: all() }
}

/// Drops a queue and keeps its memory. `install` then changes the C structure, and may write fields of the
/// queue.
///
/// # Safety
/// `install` reads no field of the queue but its C structure.
pub(crate) unsafe fn drop_queue_and_keep_memory<T>(queue: Box<T>, install: impl FnOnce(*mut T)) {
    let place = drop_in_box(queue);
    install(place);
    add(&mut all().queues, place);
}

/// Drops an object that is not a queue, and keeps its memory.
pub(crate) fn drop_and_keep_memory<T>(object: Box<T>) {
    add(&mut all().others, drop_in_box(object));
}

/// Drops an object; returns its memory.
fn drop_in_box<T>(object: Box<T>) -> *mut T {
    let place = Box::into_raw(object);
    // SAFETY: the box held the object, and nothing accesses the memory as this object any more.
    unsafe { place.drop_in_place() };
    place
}

/// Adds the memory of a box whose object was dropped.
fn add<T>(list: &mut VecDeque<Kept>, place: *mut T) {
    list.push_back(Kept { place: place.cast(), layout: Layout::new::<T>() });
    if list.len() > MAX_KEPT
        && let Some(Kept { place, layout }) = list.pop_front()
    {
        // SAFETY: a box of this layout allocated the memory, and the object in it was dropped.
        unsafe { alloc::dealloc(place, layout) };
    }
}

/// A context that programs only read.
struct ReadOnlyContext(ibv_context);

// SAFETY: the context is not written.
unsafe impl Sync for ReadOnlyContext {}

static FAILING_CONTEXT: ReadOnlyContext = ReadOnlyContext({
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
pub(crate) fn failing_context() -> *mut ibv_context {
    (&raw const FAILING_CONTEXT.0).cast_mut()
}

/// Sets `bad`, which some programs pass as null, to the first request.
unsafe fn fail_post<T>(first: *mut T, bad: *mut *mut T) -> c_int {
    if !bad.is_null() {
        // SAFETY: the program passes memory for a pointer.
        unsafe { ptr::write(bad, first) };
    }
    status(Err(Errno::INVALID))
}

unsafe extern "C" fn post_send(_: *mut ibv_qp, first: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: the program passes memory for a pointer.
    unsafe { fail_post(first, bad) }
}

unsafe extern "C" fn post_recv(_: *mut ibv_qp, first: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: the program passes memory for a pointer.
    unsafe { fail_post(first, bad) }
}

unsafe extern "C" fn post_srq_recv(
    _: *mut ibv_srq,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the program passes memory for a pointer.
    unsafe { fail_post(first, bad) }
}

unsafe extern "C" fn req_notify_cq(_: *mut ibv_cq, _: c_int) -> c_int {
    status(Err(Errno::INVALID))
}

unsafe extern "C" fn poll_cq(_: *mut ibv_cq, _: c_int, _: *mut ibv_wc) -> c_int {
    -status(Err(Errno::INVALID))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_do_not_push_out_queues() {
        let queue = Box::new([0u64; 16]);
        let place: *const u8 = (&raw const *queue).cast();
        // SAFETY: nothing is read.
        unsafe { drop_queue_and_keep_memory(queue, drop) };
        (0..=MAX_KEPT).for_each(|_| drop_and_keep_memory(Box::new(0u64)));
        let lists = all();
        assert!(lists.queues.iter().any(|kept| kept.place.cast_const() == place));
        assert_eq!(lists.others.len(), MAX_KEPT);
    }
}
