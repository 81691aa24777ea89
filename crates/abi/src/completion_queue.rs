//! Completion queues, and completions as a structure.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_uint, c_void};
use std::net::IpAddr;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nichrome_rdma::{CompletedOperation, Completion, CqHandle, Moderation, Notice, Notify, Status};

use crate::adapter::Adapter;
use crate::async_event::AsyncTarget;
use crate::comp_channel::CompChannel;
use crate::context::Context;
use crate::errno::{Errno, pointer, status};
use crate::event_queue::{EventQueue, Unacknowledged};
use crate::extended_poll::{self, Polled};
use crate::header::{
    ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_modify_cq_attr, ibv_wc,
};
use crate::object::{Object, cell, object, take_back, zeroed};

/// A completion queue.
#[repr(C)]
pub(crate) struct CompletionQueue {
    abi: UnsafeCell<ibv_cq_ex>,
    pub(crate) adapter: Arc<Adapter>,
    pub(crate) handle: CqHandle,
    pub(crate) events: Arc<CqEvents>,
    /// The service level of datagrams; see [`service_level`].
    datagram_sl: u8,
    /// The completion that a piecewise poll is at.
    pub(crate) polled: UnsafeCell<Polled>,
}

impl CompletionQueue {
    /// The service level of a completion.
    pub(crate) fn sl(&self, completion: &Completion) -> u8 {
        if completion.source.is_some() { self.datagram_sl } else { 0 }
    }

    fn as_structure(&self, completion: &Completion) -> ibv_wc {
        ibv_wc {
            wr_id: completion.wr_id,
            status: status_code(completion.status),
            opcode: opcode(completion.operation),
            vendor_err: 0,
            byte_len: completion.len,
            imm_data: notice(completion),
            qp_num: completion.qp.value(),
            src_qp: completion.source.map_or(0, nichrome_rdma::QpNumber::value),
            wc_flags: flags(completion),
            pkey_index: 0,
            slid: 0,
            sl: self.sl(completion),
            dlid_path_bits: 0,
        }
    }

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
}

// SAFETY: `repr(C)`, and the structure is the first field; a pointer to its beginning serves as `ibv_cq` too.
unsafe impl Object for CompletionQueue {
    type Abi = ibv_cq_ex;
}

/// A completion queue as those who tell of its events know it.
pub(crate) struct CqEvents {
    adapter: std::sync::Weak<Adapter>,
    channel: Option<Arc<EventQueue<Arc<Self>>>>,
    /// Whether the program waits for the next event.
    is_attended: AtomicBool,
    pub(crate) unacknowledged: Unacknowledged,
    pub(crate) asynchronous: Arc<AsyncTarget>,
    /// The address of the queue's structure.
    cq: usize,
}

impl CqEvents {
    pub(crate) fn tell(this: &Arc<Self>) {
        if let Some(channel) = &this.channel {
            channel.push(Arc::clone(this));
        }
    }

    pub(crate) fn cq(&self) -> *mut ibv_cq {
        self.cq as *mut ibv_cq
    }

    /// The program is going to wait for an event.
    fn attend(&self) {
        if self.channel.is_some()
            && !self.is_attended.swap(true, Ordering::SeqCst)
            && let Some(adapter) = self.adapter.upgrade()
        {
            adapter.driver.attend();
        }
    }

    /// The event came, or will not.
    pub(crate) fn leave(&self) {
        if self.is_attended.swap(false, Ordering::SeqCst)
            && let Some(adapter) = self.adapter.upgrade()
        {
            adapter.driver.leave();
        }
    }

    /// The queue goes: its events are forgotten, those that the program has are waited for.
    fn retire(this: &Arc<Self>) {
        this.leave();
        if let Some(channel) = &this.channel {
            channel.remove(|events| Arc::ptr_eq(events, this));
        }
        this.unacknowledged.wait();
        this.asynchronous.retire();
    }
}

/// What a completion queue is to be.
struct Wanted {
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
}

unsafe fn create(wanted: &Wanted) -> Result<*mut ibv_cq_ex, Errno> {
    let Wanted { context, cqe, cq_context, channel, comp_vector } = *wanted;
    // SAFETY: the program passes an open context.
    let opened = unsafe { Context::of(context) };
    let capacity = usize::try_from(cqe).map_err(|_| Errno::INVALID)?;
    if comp_vector != 0 {
        return Err(Errno::INVALID);
    }
    let adapter = Arc::clone(opened.adapter());
    let handle = adapter.driver.call(|device| device.create_cq(capacity))?;
    // SAFETY: the program passes a channel that it has made, or none.
    let told = (!channel.is_null()).then(|| unsafe { object::<CompChannel>(channel) });
    if let Some(channel) = told {
        channel.join();
    }
    let mut abi: ibv_cq_ex = zeroed();
    (abi.context, abi.channel, abi.cq_context, abi.cqe) = (context, channel, cq_context, cqe);
    extended_poll::fill(&mut abi);
    let mut place = Box::<CompletionQueue>::new_uninit();
    let cq = place.as_mut_ptr().cast::<ibv_cq_ex>();
    let events = Arc::new(CqEvents {
        adapter: Arc::downgrade(&adapter),
        channel: told.map(|channel| Arc::clone(&channel.events)),
        is_attended: AtomicBool::new(false),
        unacknowledged: Unacknowledged::default(),
        asynchronous: AsyncTarget::new(opened.async_events(), cq),
        cq: cq as usize,
    });
    adapter.listeners.cqs.insert(handle, Arc::clone(&events));
    let polled = UnsafeCell::new(Polled::default());
    let datagram_sl = service_level(adapter.address());
    let abi = cell(abi);
    Ok(Box::write(place, CompletionQueue { abi, adapter, handle, events, datagram_sl, polled }).into_abi())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    let wanted = Wanted { context, cqe, cq_context, channel, comp_vector };
    // SAFETY: the program passes a context and a channel that it has.
    pointer(unsafe { create(&wanted) }).cast()
}

pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attributes: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: the program passes attributes.
    let attributes = unsafe { &*attributes };
    if attributes.wc_flags & !extended_poll::OFFERED != 0 {
        return pointer(Err(Errno::UNSUPPORTED));
    }
    let wanted = Wanted {
        context,
        cqe: attributes.cqe as c_int,
        cq_context: attributes.cq_context,
        channel: attributes.channel,
        comp_vector: attributes.comp_vector as c_int,
    };
    // SAFETY: the program passes a context and a channel that it has.
    pointer(unsafe { create(&wanted) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: the program passes a queue that it has made.
    let this = unsafe { object::<CompletionQueue>(cq.cast()) };
    let destroyed = this.adapter.driver.call(|device| device.destroy_cq(this.handle));
    if destroyed.is_ok() {
        this.adapter.listeners.cqs.remove(&this.handle);
        CqEvents::retire(&this.events);
        // SAFETY: the program does not use it any more, and its channel is still there.
        let cq = unsafe { take_back::<CompletionQueue>(cq.cast()) };
        let channel = cq.abi.into_inner().channel;
        if !channel.is_null() {
            // SAFETY: a channel goes after the queues that use it.
            unsafe { object::<CompChannel>(channel) }.leave();
        }
    }
    status(destroyed)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    // SAFETY: the program passes a queue that it has made.
    let this = unsafe { object::<CompletionQueue>(cq.cast()) };
    let Ok(capacity) = usize::try_from(cqe) else { return status(Err(Errno::INVALID)) };
    let resized = this.adapter.driver.call(|device| device.resize_cq(this.handle, capacity));
    if resized.is_ok() {
        // SAFETY: the program does not read the size while it changes it.
        unsafe { (*cq).cqe = cqe };
    }
    status(resized)
}

/// What is changed is the moderation.
const IBV_CQ_ATTR_MODERATE: u32 = 1;

pub(crate) unsafe extern "C" fn modify_cq(cq: *mut ibv_cq, attributes: *mut ibv_modify_cq_attr) -> c_int {
    // SAFETY: the program passes a queue that it has made, and attributes.
    let (this, attributes) = unsafe { (object::<CompletionQueue>(cq.cast()), &*attributes) };
    if attributes.attr_mask & !IBV_CQ_ATTR_MODERATE != 0 {
        return status(Err(Errno::INVALID));
    }
    if attributes.attr_mask == 0 {
        return 0;
    }
    let moderate = attributes.moderate;
    let moderation = Moderation { count: moderate.cq_count, period_us: moderate.cq_period };
    status(this.adapter.driver.call(|device| device.moderate_cq(this.handle, moderation)))
}

pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the program passes a queue that it has made.
    let this = unsafe { object::<CompletionQueue>(cq.cast()) };
    let notify = if solicited_only == 0 { Notify::Any } else { Notify::Solicited };
    let armed = this.adapter.driver.call(|device| device.req_notify_cq(this.handle, notify));
    this.events.attend();
    status(armed)
}

pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, count: c_int, room: *mut ibv_wc) -> c_int {
    // SAFETY: the program passes a queue that it has made.
    let this = unsafe { object::<CompletionQueue>(cq.cast()) };
    let mut next = room;
    this.poll(count, |completion| {
        // SAFETY: the program passes room for `count` completions.
        unsafe {
            ptr::write(next, this.as_structure(completion));
            next = next.add(1);
        }
    })
}

/// A global routing header is before the payload.
const IBV_WC_GRH: c_uint = 1;
/// There is immediate data.
const IBV_WC_WITH_IMM: c_uint = 1 << 1;
/// A key was invalidated.
const IBV_WC_WITH_INV: c_uint = 1 << 3;

/// What comes with a received message.
pub(crate) fn flags(completion: &Completion) -> c_uint {
    let notice = match completion.notice {
        None => 0,
        Some(Notice::Immediate(_)) => IBV_WC_WITH_IMM,
        Some(Notice::Invalidated(_)) => IBV_WC_WITH_INV,
    };
    notice | if completion.source.is_some() { IBV_WC_GRH } else { 0 }
}

/// Immediate data as it was sent, or the key.
pub(crate) fn notice(completion: &Completion) -> u32 {
    match completion.notice {
        None => 0,
        Some(Notice::Immediate(data)) => u32::from_ne_bytes(data.0),
        Some(Notice::Invalidated(key)) => key.0,
    }
}

/// The service level of a datagram's completion, which RoCE v2 has no use for: mlx5 puts the type of the network header
/// there (1 is IPv6, 2 is IPv4), and UCX reads it on all devices to find the sender's GID before the payload.
fn service_level(address: IpAddr) -> u8 {
    if address.is_ipv4() { 2 } else { 1 }
}

/// `enum ibv_wc_opcode`.
pub(crate) fn opcode(operation: CompletedOperation) -> c_int {
    match operation {
        CompletedOperation::Send => 0,
        CompletedOperation::Write => 1,
        CompletedOperation::Read => 2,
        CompletedOperation::CompareSwap => 3,
        CompletedOperation::FetchAdd => 4,
        CompletedOperation::BindWindow => 5,
        CompletedOperation::LocalInvalidate => 6,
        CompletedOperation::Receive => 128,
        CompletedOperation::ReceiveWithWrite => 129,
    }
}

/// `enum ibv_wc_status`.
pub(crate) fn status_code(status: Status) -> c_int {
    match status {
        Status::Success => 0,
        Status::LocalLength => 1,
        Status::LocalQpOperation => 2,
        Status::LocalProtection => 4,
        Status::Flushed => 5,
        Status::WindowBind => 6,
        Status::BadResponse => 7,
        Status::LocalAccess => 8,
        Status::RemoteInvalidRequest => 9,
        Status::RemoteAccess => 10,
        Status::RemoteOperation => 11,
        Status::RetryExceeded => 12,
        Status::RnrRetryExceeded => 13,
        Status::Fatal => 19,
    }
}
