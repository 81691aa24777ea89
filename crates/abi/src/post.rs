//! Posts lists of work requests: `ibv_post_send`, `ibv_post_recv`, `ibv_post_srq_recv`.

use std::ffi::c_int;

use nichrome_rdma::{Device, Payload, PostError, QpType, ReceiveRequest, SendRequest, SrqNumber};

use crate::errno::{Errno, status};
use crate::header::{ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_srq};
use crate::process_memory::ProcessMemory;
use crate::queue_pair::{self, QueuePair, type_code};
use crate::shared_receive_queue;
use crate::work_request::{Buffers, INLINE, flags, operation, recipient, sends_bytes, set_key};

/// Posts the requests in order. At the first failure, sets `bad` to that request and returns the error; the
/// requests before it stay posted.
unsafe fn post_all<T>(
    mut next: *mut T,
    bad: *mut *mut T,
    following: impl Fn(&T) -> *mut T,
    mut post: impl FnMut(&T) -> Result<(), Errno>,
) -> Result<(), Errno> {
    // SAFETY: the program passes a null-terminated list of requests and memory for a pointer.
    while let Some(wr) = unsafe { next.as_ref() } {
        if let Err(errno) = post(wr) {
            // SAFETY: as above.
            unsafe { set(bad, next) };
            return Err(errno);
        }
        next = following(wr);
    }
    Ok(())
}

/// Sets `bad`, which some programs pass as null.
unsafe fn set<T>(bad: *mut *mut T, request: *mut T) {
    if !bad.is_null() {
        // SAFETY: the program passes memory for a pointer.
        unsafe { *bad = request };
    }
}

/// Sets `bad` to the first request and returns the error: the queue does not exist.
unsafe fn refuse_all<T>(first: *mut T, bad: *mut *mut T, errno: Errno) -> c_int {
    // SAFETY: the program passes memory for a pointer.
    unsafe { set(bad, first) };
    status(Err(errno))
}

pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the program passes a queue pair that it created.
    let (this, qp_type) = unsafe { (queue_pair::addressed(qp), (*qp).qp_type) };
    let this = match this {
        Ok(this) => this,
        // SAFETY: the program passes memory for a pointer.
        Err(errno) => return unsafe { refuse_all(first, bad, errno) },
    };
    status(this.adapter.driver().call(|device| {
        // SAFETY: the program passes a null-terminated list, whose requests name objects that it created.
        unsafe { post_all(first, bad, |wr| wr.next, |wr| post_one_send(device, this, wr, qp_type)) }
    }))
}

unsafe fn post_one_send(
    device: &mut Device<ProcessMemory>,
    qp: &QueuePair,
    wr: &ibv_send_wr,
    qp_type: c_int,
) -> Result<(), Errno> {
    // SAFETY: guaranteed by the caller.
    let operation = unsafe { operation(wr) }?;
    let recipient = if qp_type == type_code(QpType::Ud) {
        // SAFETY: for UD queue pairs the union holds `ud`.
        Some(unsafe {
            let to = wr.wr.ud;
            recipient(to.ah, to.remote_qpn, to.remote_qkey)
        }?)
    } else {
        None
    };
    let srq = match qp_type == type_code(QpType::XrcSend) {
        true => Some(SrqNumber::new(wr.qp_type).ok_or(Errno::INVALID)?),
        false => None,
    };
    // Local operations have no buffers: their scatter-gather list is ignored.
    let count = if operation_is_local(&operation) { 0 } else { wr.num_sge };
    // SAFETY: guaranteed by the caller.
    let buffers = unsafe { Buffers::read(wr.sg_list, count) }?;
    let is_inline = wr.send_flags & INLINE != 0 && sends_bytes(&operation);
    let payload = if is_inline {
        Payload::InlineFrom(buffers.as_slice())
    } else {
        Payload::Buffers(buffers.as_slice())
    };
    let (wr_id, flags) = (wr.wr_id, flags(wr.send_flags));
    let request = SendRequest { wr_id, operation, payload, flags, recipient, srq };
    device.post_send(qp.handle, &request)?;
    if let nichrome_rdma::Operation::BindWindow(_) = operation {
        // SAFETY: a bind request names a window that the program created.
        unsafe { set_key(wr.bind_mw.mw, wr.bind_mw.rkey) };
    }
    Ok(())
}

fn operation_is_local(operation: &nichrome_rdma::Operation) -> bool {
    use nichrome_rdma::Operation as O;
    matches!(operation, O::LocalInvalidate(_) | O::BindWindow(_))
}

unsafe fn post_receives(
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    mut post: impl FnMut(&ReceiveRequest<'_>) -> Result<(), PostError>,
) -> Result<(), Errno> {
    let post_one = |wr: &ibv_recv_wr| {
        // SAFETY: guaranteed by the caller.
        let buffers = unsafe { Buffers::read(wr.sg_list, wr.num_sge) }?;
        Ok(post(&ReceiveRequest { wr_id: wr.wr_id, buffers: buffers.as_slice() })?)
    };
    // SAFETY: the program passes a null-terminated list.
    unsafe { post_all(first, bad, |wr| wr.next, post_one) }
}

pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the program passes a queue pair that it created.
    let this = match unsafe { queue_pair::addressed(qp) } {
        Ok(this) => this,
        // SAFETY: the program passes memory for a pointer.
        Err(errno) => return unsafe { refuse_all(first, bad, errno) },
    };
    status(this.adapter.driver().call(|device| {
        // SAFETY: the program passes a null-terminated list of requests with their buffers.
        unsafe { post_receives(first, bad, |request| device.post_receive(this.handle, request)) }
    }))
}

pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the program passes a queue that it created.
    let this = match unsafe { shared_receive_queue::addressed(srq) } {
        Ok(this) => this,
        // SAFETY: the program passes memory for a pointer.
        Err(errno) => return unsafe { refuse_all(first, bad, errno) },
    };
    status(this.adapter.driver().call(|device| {
        // SAFETY: the program passes a null-terminated list of requests with their buffers.
        unsafe { post_receives(first, bad, |request| device.post_srq_receive(this.handle, request)) }
    }))
}
