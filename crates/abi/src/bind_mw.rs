//! `ibv_bind_mw`, which binds memory windows of type 1.

use std::ffi::c_int;

use nichrome_rdma::{Payload, SendRequest};

use crate::errno::status;
use crate::header::{ibv_mw, ibv_mw_bind, ibv_qp};
use crate::memory_window::MemoryWindow;
use crate::object::known;
use crate::queue_pair::addressed;
use crate::work_request::{bind, flags, set_key};

/// Returns a window's key after the next bind (`ibv_inc_rkey`).
fn next_key(key: u32) -> u32 {
    key & !0xFF | u32::from((key as u8).wrapping_add(1))
}

/// Binds a window of type 1, whose key the library chooses.
pub(crate) unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, wanted: *mut ibv_mw_bind) -> c_int {
    // SAFETY: the program passes a queue pair that it created.
    let this = match unsafe { addressed(qp) } {
        Ok(this) => this,
        Err(errno) => return status(Err(errno)),
    };
    // SAFETY: the program passes a window that it created, and the parameters of the bind.
    let (wanted, key) = match unsafe { known::<MemoryWindow>(mw) } {
        // SAFETY: the window exists.
        Ok(_) => unsafe { (&*wanted, next_key((*mw).rkey)) },
        Err(errno) => return status(Err(errno)),
    };
    let flags = flags(wanted.send_flags);
    // SAFETY: the bind names a region that the program created, or none.
    let posted = unsafe { bind(mw, key, &wanted.bind_info) }.and_then(|operation| {
        let payload = Payload::Buffers(&[]);
        let request =
            SendRequest { wr_id: wanted.wr_id, operation, payload, flags, recipient: None, srq: None };
        Ok(this.adapter.driver().call(|device| device.post_send(this.handle, &request))?)
    });
    if posted.is_ok() {
        // SAFETY: as above.
        unsafe { set_key(mw, key) };
    }
    status(posted)
}
