//! Extended posting: `ibv_wr_start`, the `ibv_wr_*` builders, and `ibv_wr_complete` or `ibv_wr_abort`.

use std::ffi::{c_int, c_void};
use std::slice;

use nichrome_hca::Transport;
use nichrome_rdma::{Feth, Operation, Placement, QpType, RKey, Remote, Selectivity, Sge, SrqNumber};

use crate::errno::{Errno, status};
use crate::header::{ibv_ah, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp_ex, ibv_sge};
use crate::memory_window::MemoryWindow;
use crate::object::{known, object};
use crate::queue_pair::QueuePair;
use crate::request_builder::{Builder, Content, Request};
use crate::work_request::{bind, buffer, flags, immediate, recipient, set_key};

/// Returns the operations that a queue pair type supports on a transport
/// (`enum ibv_qp_create_send_ops_flags`).
pub(crate) fn supported_operations(transport: Transport, kind: QpType) -> u64 {
    const WRITES: u64 = 0b11;
    const SEND: u64 = 1 << 2;
    const SENDS: u64 = SEND | 1 << 3;
    const READS_AND_ATOMICS: u64 = 0b111 << 4;
    const LOCAL: u64 = 0b11 << 7;
    const SEND_WITH_INVALIDATE: u64 = 1 << 9;
    const FLUSH_AND_ATOMIC_WRITE: u64 = 0b11 << 11;
    match (transport, kind) {
        (Transport::Iwarp, QpType::Rc) => WRITES | SEND | READS_AND_ATOMICS | LOCAL | SEND_WITH_INVALIDATE,
        (Transport::Iwarp, _) | (_, QpType::XrcReceive) => 0,
        // The ends of a StaR connection may agree on RoCE.
        (Transport::Roce | Transport::Star, QpType::Rc) => {
            WRITES | SENDS | READS_AND_ATOMICS | LOCAL | SEND_WITH_INVALIDATE | FLUSH_AND_ATOMIC_WRITE
        }
        (_, QpType::XrcSend) => {
            WRITES | SENDS | READS_AND_ATOMICS | SEND_WITH_INVALIDATE | FLUSH_AND_ATOMIC_WRITE
        }
        (_, QpType::Uc) => WRITES | SENDS | LOCAL,
        (_, QpType::Ud) => SENDS,
    }
}

/// Fills in the function pointers that the header's inline functions call.
pub(crate) fn fill(qp: &mut ibv_qp_ex) {
    qp.wr_atomic_cmp_swp = Some(compare_swap);
    qp.wr_atomic_fetch_add = Some(fetch_add);
    qp.wr_bind_mw = Some(bind_window);
    qp.wr_local_inv = Some(local_invalidate);
    qp.wr_rdma_read = Some(read);
    qp.wr_rdma_write = Some(write);
    qp.wr_rdma_write_imm = Some(write_with_immediate);
    qp.wr_send = Some(send);
    qp.wr_send_imm = Some(send_with_immediate);
    qp.wr_send_inv = Some(send_with_invalidate);
    qp.wr_send_tso = Some(send_segmented);
    qp.wr_set_ud_addr = Some(set_recipient);
    qp.wr_set_xrc_srqn = Some(set_shared_queue);
    qp.wr_set_inline_data = Some(set_bytes);
    qp.wr_set_inline_data_list = Some(set_byte_list);
    qp.wr_set_sge = Some(set_buffer);
    qp.wr_set_sge_list = Some(set_buffer_list);
    qp.wr_start = Some(start);
    qp.wr_complete = Some(complete);
    qp.wr_abort = Some(abort);
    qp.wr_atomic_write = Some(write_atomically);
}

/// Returns the queue pair's request builder; valid between `wr_start` and `wr_complete` or `wr_abort`.
unsafe fn builder<'a>(qp: *mut ibv_qp_ex) -> Option<&'a mut Builder> {
    // SAFETY: the program passes a queue pair that it created. `wr_start` locked it for this thread, and no
    // function of this file keeps the reference after it returns, so there is only one.
    unsafe { QueuePair::builder(qp) }
}

/// Locks the queue pair for the calling thread until `wr_complete` or `wr_abort`.
unsafe extern "C" fn start(qp: *mut ibv_qp_ex) {
    // SAFETY: the program passes a queue pair that it created, and calls `wr_complete` or `wr_abort`
    // afterwards.
    unsafe { libc::pthread_mutex_lock(&raw mut (*qp).qp_base.mutex) };
    // SAFETY: the queue pair is locked.
    if let Some(builder) = unsafe { builder(qp) } {
        builder.clear();
    }
}

/// Discards the requests, restores the keys of their windows, and unlocks the queue pair.
unsafe extern "C" fn abort(qp: *mut ibv_qp_ex) {
    // SAFETY: called after `wr_start`.
    unsafe {
        if let Some(builder) = builder(qp) {
            restore_keys(builder);
        }
        unlock(qp);
    }
}

unsafe fn unlock(qp: *mut ibv_qp_ex) {
    // SAFETY: called after `wr_start`.
    unsafe { libc::pthread_mutex_unlock(&raw mut (*qp).qp_base.mutex) };
}

/// Restores the keys of windows whose binds were not posted, the last bind first.
unsafe fn restore_keys(builder: &mut Builder) {
    for (mw, key) in builder.bound.drain(..).rev() {
        // SAFETY: `known` finds windows that exist.
        unsafe {
            if known::<MemoryWindow>(mw).is_ok() {
                set_key(mw, key);
            }
        }
    }
}

/// Posts the requests and unlocks the queue pair. Posts none and returns the first error if a builder call
/// failed.
unsafe extern "C" fn complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: called after `wr_start`.
    let posted = unsafe { builder(qp) }.ok_or(Errno::INVALID).and_then(|builder| {
        if let Some(errno) = builder.error {
            return Err(errno);
        }
        // SAFETY: the program passes a queue pair that it created.
        let this = unsafe { object::<QueuePair>(qp) };
        this.adapter.driver().call(|device| {
            let requests = builder.requests.iter().map(|request| builder.as_request(request));
            Ok(device.post_sends(this.handle, requests)?)
        })
    });
    // SAFETY: called after `wr_start`.
    unsafe { if posted.is_ok() { unlock(qp) } else { abort(qp) } };
    status(posted)
}

/// Appends a request for `operation`.
unsafe fn begin(qp: *mut ibv_qp_ex, operation: Operation) {
    // SAFETY: called between `wr_start` and `wr_complete`; the program has set these fields.
    let (builder, wr_id, bits) = unsafe { (builder(qp), (*qp).wr_id, (*qp).wr_flags) };
    if let Some(builder) = builder {
        let content = Content::Buffers(0..0);
        builder.requests.push(Request {
            wr_id,
            operation,
            flags: flags(bits),
            recipient: None,
            srq: None,
            content,
        });
    }
}

/// Makes `wr_complete` fail with `errno`.
unsafe fn fail(qp: *mut ibv_qp_ex, errno: Errno) {
    // SAFETY: called between `wr_start` and `wr_complete`.
    if let Some(builder) = unsafe { builder(qp) } {
        builder.fail(errno);
    }
}

/// Defines builder functions that append a request.
macro_rules! operations {
    ($($name:ident($($argument:ident: $type:ty),*) = $operation:expr;)*) => {$(
        unsafe extern "C" fn $name(qp: *mut ibv_qp_ex, $($argument: $type),*) {
            // SAFETY: called between `wr_start` and `wr_complete`.
            unsafe { begin(qp, $operation) };
        }
    )*};
}

fn remote(rkey: u32, address: u64) -> Remote {
    Remote { address, rkey: RKey(rkey) }
}

operations! {
    compare_swap(rkey: u32, address: u64, compare: u64, swap: u64) =
        Operation::CompareSwap { remote: remote(rkey, address), compare, swap };
    fetch_add(rkey: u32, address: u64, add: u64) = Operation::FetchAdd { remote: remote(rkey, address), add };
    local_invalidate(rkey: u32) = Operation::LocalInvalidate(RKey(rkey));
    read(rkey: u32, address: u64) = Operation::Read(remote(rkey, address));
    write(rkey: u32, address: u64) = Operation::Write(remote(rkey, address));
    write_with_immediate(rkey: u32, address: u64, data: u32) =
        Operation::WriteWithImmediate(remote(rkey, address), immediate(data));
    send() = Operation::Send;
    send_with_immediate(data: u32) = Operation::SendWithImmediate(immediate(data));
    send_with_invalidate(rkey: u32) = Operation::SendWithInvalidate(RKey(rkey));
}

unsafe extern "C" fn bind_window(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: the program passes a window that it created, and the parameters of the bind; called between
    // `wr_start` and `wr_complete`.
    unsafe {
        match bind(mw, rkey, &*info) {
            Ok(operation) => {
                begin(qp, operation);
                if let Some(builder) = builder(qp) {
                    builder.bound.push((mw, (*mw).rkey));
                    set_key(mw, rkey);
                }
            }
            Err(errno) => fail(qp, errno),
        }
    }
}

unsafe extern "C" fn send_segmented(qp: *mut ibv_qp_ex, _: *mut c_void, _: u16, _: u16) {
    // SAFETY: called between `wr_start` and `wr_complete`.
    unsafe { fail(qp, Errno::UNSUPPORTED) };
}

/// Appends an ATOMIC WRITE of the 8 bytes at `value`.
unsafe extern "C" fn write_atomically(qp: *mut ibv_qp_ex, rkey: u32, address: u64, value: *const c_void) {
    // SAFETY: the program passes 8 bytes; called between `wr_start` and `wr_complete`.
    unsafe {
        begin(qp, Operation::AtomicWrite(remote(rkey, address)));
        set_bytes(qp, value.cast_mut(), 8);
    }
}

/// Appends a FLUSH (`enum ibv_placement_type`, `enum ibv_selectivity_level`).
pub(crate) unsafe extern "C" fn flush(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    address: u64,
    len: usize,
    placement: u8,
    level: u8,
) {
    let scope = Placement::from_bits(placement.into()).zip(Selectivity::new(level.into()));
    let request = scope.zip(u32::try_from(len).ok()).map(|((placement, selectivity), len)| {
        let scope = Feth { placement, selectivity };
        Operation::Flush { remote: remote(rkey, address), len, scope }
    });
    // SAFETY: called between `wr_start` and `wr_complete`.
    unsafe {
        match request {
            Some(operation) => begin(qp, operation),
            None => fail(qp, Errno::INVALID),
        }
    }
}

unsafe extern "C" fn set_shared_queue(qp: *mut ibv_qp_ex, number: u32) {
    // SAFETY: called between `wr_start` and `wr_complete`.
    let Some(builder) = (unsafe { builder(qp) }) else { return };
    match SrqNumber::new(number) {
        Some(number) => builder.change(|request| request.srq = Some(number)),
        None => builder.fail(Errno::INVALID),
    }
}

unsafe extern "C" fn set_recipient(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, number: u32, qkey: u32) {
    // SAFETY: the program passes a handle that it created; called between `wr_start` and `wr_complete`.
    let (builder, found) = unsafe { (builder(qp), recipient(ah, number, qkey)) };
    match (builder, found) {
        (Some(builder), Ok(found)) => builder.change(|request| request.recipient = Some(found)),
        (Some(builder), Err(errno)) => builder.fail(errno),
        (None, _) => {}
    }
}

/// Sets the scatter-gather list of the last request.
unsafe fn set_buffers(qp: *mut ibv_qp_ex, buffers: impl Iterator<Item = Sge>) {
    // SAFETY: called between `wr_start` and `wr_complete`.
    let Some(builder) = (unsafe { builder(qp) }) else { return };
    let first = builder.buffers.len();
    builder.buffers.extend(buffers);
    let range = first..builder.buffers.len();
    builder.change(|request| request.content = Content::Buffers(range));
}

unsafe extern "C" fn set_buffer(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: called between `wr_start` and `wr_complete`.
    unsafe { set_buffers(qp, [buffer(ibv_sge { addr, length, lkey })].into_iter()) };
}

/// Converts a C array to a slice; the pointer may be null if `count` is 0.
unsafe fn list<'a, T>(first: *const T, count: usize) -> &'a [T] {
    // SAFETY: the program passes an array of `count` elements.
    if count == 0 { &[] } else { unsafe { slice::from_raw_parts(first, count) } }
}

unsafe extern "C" fn set_buffer_list(qp: *mut ibv_qp_ex, count: usize, first: *const ibv_sge) {
    // SAFETY: the program passes an array of `count` elements, which may be misaligned.
    let buffers = (0..count).map(|nth| buffer(unsafe { first.add(nth).read_unaligned() }));
    // SAFETY: called between `wr_start` and `wr_complete`.
    unsafe { set_buffers(qp, buffers) };
}

/// Sets the inline data of the last request.
unsafe fn set_inline<'a>(qp: *mut ibv_qp_ex, pieces: impl Iterator<Item = &'a [u8]>) {
    // SAFETY: called between `wr_start` and `wr_complete`.
    let Some(builder) = (unsafe { builder(qp) }) else { return };
    let first = builder.bytes.len();
    pieces.for_each(|piece| builder.bytes.extend_from_slice(piece));
    let range = first..builder.bytes.len();
    builder.change(|request| request.content = Content::Bytes(range));
}

unsafe extern "C" fn set_bytes(qp: *mut ibv_qp_ex, bytes: *mut c_void, len: usize) {
    // SAFETY: the program passes `len` bytes; called between `wr_start` and `wr_complete`.
    unsafe { set_inline(qp, [list(bytes.cast::<u8>().cast_const(), len)].into_iter()) };
}

unsafe extern "C" fn set_byte_list(qp: *mut ibv_qp_ex, count: usize, first: *const ibv_data_buf) {
    // SAFETY: the program passes `count` pieces, each a pointer and its length; called between `wr_start` and
    // `wr_complete`.
    unsafe {
        let pieces = list(first, count);
        let bytes = pieces.iter().map(|piece| list(piece.addr.cast::<u8>().cast_const(), piece.length));
        set_inline(qp, bytes);
    }
}
