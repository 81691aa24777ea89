//! Work requests of the header, read.

use std::ffi::{c_int, c_uint};
use std::slice;

use nichrome_rdma::{
    Bind, ImmediateData, LKey, Operation, QKey, QpNumber, RKey, Recipient, Remote, SendFlags, Sge,
};

use crate::address_handle::AddressHandle;
use crate::errno::Errno;
use crate::header::{ibv_mw, ibv_mw_bind_info, ibv_send_wr, ibv_sge};
use crate::memory_region::access;
use crate::object::object;

/// Buffers in one request at most: the limit of the device.
pub(crate) const MAX_BUFFERS: usize = 32;

/// Buffers of a request, in the engine's terms.
pub(crate) struct Buffers {
    room: [Sge; MAX_BUFFERS],
    count: usize,
}

impl Buffers {
    /// Reads a list of buffers.
    ///
    /// # Safety
    /// `list` has `count` entries.
    pub(crate) unsafe fn read(list: *const ibv_sge, count: c_int) -> Result<Self, Errno> {
        let mut room = [Sge::default(); MAX_BUFFERS];
        let count =
            usize::try_from(count).ok().filter(|count| *count <= MAX_BUFFERS).ok_or(Errno::INVALID)?;
        if count > 0 {
            // SAFETY: the caller says so.
            let list = unsafe { slice::from_raw_parts(list, count) };
            room.iter_mut().zip(list).for_each(|(place, sge)| *place = buffer(sge));
        }
        Ok(Self { room, count })
    }

    pub(crate) fn as_slice(&self) -> &[Sge] {
        &self.room[..self.count]
    }
}

pub(crate) fn buffer(sge: &ibv_sge) -> Sge {
    Sge { address: sge.addr, len: sge.length, lkey: LKey(sge.lkey) }
}

/// The bytes are taken when the request is posted (`IBV_SEND_INLINE`).
pub(crate) const INLINE: c_uint = 1 << 3;

/// The engine's flags of `enum ibv_send_flags`.
pub(crate) fn flags(bits: c_uint) -> SendFlags {
    let known = [(1, SendFlags::FENCE), (1 << 1, SendFlags::SIGNALED), (1 << 2, SendFlags::SOLICITED)];
    let set = known.into_iter().filter(|(bit, _)| bits & bit != 0);
    set.fold(SendFlags::NONE, |flags, (_, flag)| flags | flag)
}

/// Immediate data, which the header has in network byte order.
pub(crate) fn immediate(data: u32) -> ImmediateData {
    ImmediateData(data.to_ne_bytes())
}

/// What a request asks for (`enum ibv_wr_opcode`).
///
/// # Safety
/// The request is one for which its union holds what its opcode says.
pub(crate) unsafe fn operation(wr: &ibv_send_wr) -> Result<Operation, Errno> {
    // SAFETY: all of the union is integers and pointers, of which those are used that the opcode names.
    let (rdma, atomic) = unsafe { (wr.wr.rdma, wr.wr.atomic) };
    let remote = Remote { address: rdma.remote_addr, rkey: RKey(rdma.rkey) };
    let word = Remote { address: atomic.remote_addr, rkey: RKey(atomic.rkey) };
    Ok(match wr.opcode {
        0 => Operation::Write(remote),
        1 => Operation::WriteWithImmediate(remote, immediate(wr.imm_data)),
        2 => Operation::Send,
        3 => Operation::SendWithImmediate(immediate(wr.imm_data)),
        4 => Operation::Read(remote),
        5 => Operation::CompareSwap { remote: word, compare: atomic.compare_add, swap: atomic.swap },
        6 => Operation::FetchAdd { remote: word, add: atomic.compare_add },
        7 => Operation::LocalInvalidate(RKey(wr.imm_data)),
        // SAFETY: the window and the region are ones that the program has made.
        8 => unsafe { bind(wr.bind_mw.mw, wr.bind_mw.rkey, &wr.bind_mw.bind_info) }?,
        9 => Operation::SendWithInvalidate(RKey(wr.imm_data)),
        _ => return Err(Errno::UNSUPPORTED),
    })
}

/// The operation that binds a window and gives it `key`.
///
/// # Safety
/// The window and the region are there; the region may be missing where the length is 0.
pub(crate) unsafe fn bind(mw: *mut ibv_mw, key: u32, info: &ibv_mw_bind_info) -> Result<Operation, Errno> {
    let ibv_mw_bind_info { mr, addr: address, length: len, mw_access_flags } = *info;
    // SAFETY: the caller says so.
    let (window, region) = unsafe { (RKey((*mw).rkey), if mr.is_null() { 0 } else { (*mr).lkey }) };
    let (region, access, key_byte) = (LKey(region), access(mw_access_flags)?, key as u8);
    Ok(Operation::BindWindow(Bind { window, key_byte, region, address, len, access }))
}

/// Gives the structure of a window the key of a bind that was posted. The window is found by this key when the next bind is
/// done.
///
/// # Safety
/// The window is there.
pub(crate) unsafe fn set_key(mw: *mut ibv_mw, key: u32) {
    // SAFETY: the caller says so; who posts a bind lets nobody else use the window meanwhile.
    unsafe { (*mw).rkey = (*mw).rkey & !0xFF | key & 0xFF };
}

/// Whether an operation has bytes of its own to send, which can be inline.
pub(crate) fn sends_bytes(operation: &Operation) -> bool {
    use Operation as O;
    matches!(
        operation,
        O::Send
            | O::SendWithImmediate(_)
            | O::SendWithInvalidate(_)
            | O::Write(_)
            | O::WriteWithImmediate(..)
    )
}

/// Whom a datagram is for.
///
/// # Safety
/// The handle is one that the program has made, or missing.
pub(crate) unsafe fn recipient(
    ah: *mut crate::header::ibv_ah,
    number: u32,
    qkey: u32,
) -> Result<Recipient, Errno> {
    if ah.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: the caller says so.
    let address = unsafe { object::<AddressHandle>(ah) }.handle;
    let qp = QpNumber::new(number).ok_or(Errno::INVALID)?;
    Ok(Recipient { address, qp, qkey: QKey(qkey) })
}
