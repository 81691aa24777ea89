//! Extended polling: `ibv_start_poll`, `ibv_next_poll`, `ibv_end_poll` and the `ibv_wc_read_*` functions.

use std::ffi::{c_int, c_uint};
use std::sync::OnceLock;

use nichrome_port::clock;
use nichrome_rdma::Completion;

use crate::completion::{flags, notice, opcode, status_code};
use crate::completion_queue::CompletionQueue;
use crate::errno::Errno;
use crate::header::{ibv_cq_ex, ibv_poll_cq_attr, ibv_wc_tm_info};
use crate::object::object;

/// Supported fields of a completion (`enum ibv_create_cq_wc_flags`): all but VLAN, flow tag and tag matching.
pub(crate) const SUPPORTED_FIELDS: u64 = 0xFF | 1 << 11;

/// Fills in the function pointers that the header's inline functions call.
pub(crate) fn fill(cq: &mut ibv_cq_ex) {
    cq.start_poll = Some(start_poll);
    cq.next_poll = Some(next_poll);
    cq.end_poll = Some(end_poll);
    cq.read_opcode = Some(read_opcode);
    cq.read_vendor_err = Some(read_zero);
    cq.read_byte_len = Some(read_byte_len);
    cq.read_imm_data = Some(read_imm_data);
    cq.read_qp_num = Some(read_qp_num);
    cq.read_src_qp = Some(read_src_qp);
    cq.read_wc_flags = Some(read_wc_flags);
    cq.read_slid = Some(read_zero);
    cq.read_sl = Some(read_sl);
    cq.read_dlid_path_bits = Some(read_zero_byte);
    cq.read_completion_ts = Some(read_completion_ts);
    cq.read_cvlan = Some(read_cvlan);
    cq.read_flow_tag = Some(read_zero);
    cq.read_tm_info = Some(read_tm_info);
    cq.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
}

/// Polls the next completion. Returns 0, or `ENOENT` if the queue is empty.
unsafe fn advance(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the program passes a queue that it created.
    let this = unsafe { object::<CompletionQueue>(cq) };
    let mut next = None;
    this.poll(1, |completion| next = Some(*completion));
    let Some(completion) = next else { return libc::ENOENT };
    // SAFETY: the caller holds the queue's lock.
    unsafe {
        (*cq).wr_id = completion.wr_id;
        (*cq).status = status_code(completion.status);
        *this.polled.get() = Some(completion);
    }
    0
}

/// Locks the queue for the calling thread until `end_poll`, unless the queue is empty.
unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attributes: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: the program passes attributes, a queue that it created, and calls `end_poll` if this returns 0.
    unsafe {
        if (*attributes).comp_mask != 0 {
            return Errno::INVALID.0;
        }
        libc::pthread_mutex_lock(&raw mut (*cq).mutex);
        let advanced = advance(cq);
        if advanced != 0 {
            libc::pthread_mutex_unlock(&raw mut (*cq).mutex);
        }
        advanced
    }
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: called between `start_poll` and `end_poll`.
    unsafe { advance(cq) }
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: called after a `start_poll` that returned 0.
    unsafe { libc::pthread_mutex_unlock(&raw mut (*cq).mutex) };
}

/// Returns a field of the current completion, or 0 before the first.
unsafe fn read<T: Default>(cq: *mut ibv_cq_ex, what: impl Fn(&Completion) -> T) -> T {
    // SAFETY: called between `start_poll` and `end_poll`: only this thread accesses the field.
    let polled = unsafe { &*object::<CompletionQueue>(cq).polled.get() };
    polled.as_ref().map(what).unwrap_or_default()
}

/// Defines functions that return a field of the current completion.
macro_rules! readers {
    ($($name:ident -> $type:ty: $what:expr;)*) => {$(
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $type {
            // SAFETY: called between `start_poll` and `end_poll`.
            unsafe { read(cq, $what) }
        }
    )*};
}

readers! {
    read_opcode -> c_int: |completion| opcode(completion.operation);
    read_byte_len -> u32: |completion| completion.len;
    read_imm_data -> u32: notice;
    read_qp_num -> u32: |completion| completion.qp.value();
    read_src_qp -> u32: |completion| completion.source.map_or(0, nichrome_rdma::QpNumber::value);
    read_wc_flags -> c_uint: flags;
    read_completion_ts -> u64: |completion| completion.at.as_nanos();
    read_completion_wallclock_ns -> u64: |completion| completion.at.as_nanos() + wall_clock_offset();
    read_zero -> u32: |_| 0;
    read_zero_byte -> u8: |_| 0;
    read_cvlan -> u16: |_| 0;
}

unsafe extern "C" fn read_sl(cq: *mut ibv_cq_ex) -> u8 {
    // SAFETY: called between `start_poll` and `end_poll`.
    let this = unsafe { object::<CompletionQueue>(cq) };
    // SAFETY: as above.
    unsafe { read(cq, |completion| this.service_level.of(completion)) }
}

/// Nanoseconds from 1970 to the zero of the monotonic clock. Read once: the difference of two clocks varies
/// by some nanoseconds from one reading to the next, so that timestamps could go back.
fn wall_clock_offset() -> u64 {
    static OFFSET: OnceLock<u64> = OnceLock::new();
    *OFFSET.get_or_init(|| clock::wall_clock().nanos_since(clock::now()))
}

unsafe extern "C" fn read_tm_info(_cq: *mut ibv_cq_ex, info: *mut ibv_wc_tm_info) {
    // SAFETY: the program passes memory for the structure.
    unsafe { *info = ibv_wc_tm_info { tag: 0, priv_: 0 } };
}
