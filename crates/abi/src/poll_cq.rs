//! `ibv_poll_cq` and `ibv_req_notify_cq`.

use std::ffi::c_int;
use std::ptr;

use nichrome_rdma::Notify;

use crate::completion::as_structure;
use crate::completion_queue::CompletionQueue;
use crate::errno::status;
use crate::header::{ibv_cq, ibv_wc};
use crate::object::{known, object};

pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the program passes a queue that it created.
    let this = match unsafe { known::<CompletionQueue>(cq.cast()) } {
        Ok(this) => this,
        Err(errno) => return status(Err(errno)),
    };
    // Succeeds without arming the queue, as in the kernel: no event of a queue without a channel can reach
    // the program. SAFETY: `known` found the queue, so the structure exists.
    if unsafe { (*cq).channel }.is_null() {
        return 0;
    }
    let notify = if solicited_only == 0 { Notify::Any } else { Notify::Solicited };
    let armed = this.adapter.driver().call(|device| device.req_notify_cq(this.handle, notify));
    this.begin_wait();
    status(armed)
}

pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, count: c_int, out: *mut ibv_wc) -> c_int {
    // SAFETY: the program passes a queue that it created.
    let this = unsafe { object::<CompletionQueue>(cq.cast()) };
    let mut next = out;
    this.poll(count, |completion| {
        // SAFETY: the program passes memory for `count` completions.
        unsafe {
            ptr::write(next, as_structure(completion, this.service_level));
            next = next.add(1);
        }
    })
}
