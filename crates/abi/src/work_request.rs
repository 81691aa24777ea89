//! Converts the header's work requests to the engine's.

use std::ffi::{c_int, c_uint};

use nichrome_rdma::{
    Bind, ImmediateData, LKey, Operation, QKey, QpNumber, RKey, Recipient, Remote, SendFlags, Sge,
};

use crate::address_handle::AddressHandle;
use crate::errno::Errno;
use crate::header::{ibv_mw, ibv_mw_bind_info, ibv_send_wr, ibv_sge};
use crate::memory_region::{MemoryRegion, access};
use crate::memory_window::MemoryWindow;
use crate::object::known;

/// Maximum number of scatter-gather elements in a request: the device's limit.
pub(crate) const MAX_BUFFERS: usize = 32;

/// The scatter-gather list of a request.
pub(crate) struct Buffers {
    entries: [Sge; MAX_BUFFERS],
    count: usize,
}

impl Buffers {
    /// Reads a scatter-gather list, which may be misaligned: libiscsi keeps its elements in packed
    /// structures. Fails with `EINVAL` if it has more than `MAX_BUFFERS` elements, or is null and has any.
    ///
    /// # Safety
    /// `list` has `count` elements, or is null.
    pub(crate) unsafe fn read(list: *const ibv_sge, count: c_int) -> Result<Self, Errno> {
        let mut entries = [Sge::default(); MAX_BUFFERS];
        let count =
            usize::try_from(count).ok().filter(|count| *count <= MAX_BUFFERS).ok_or(Errno::INVALID)?;
        if count > 0 {
            if list.is_null() {
                return Err(Errno::INVALID);
            }
            for (nth, place) in entries[..count].iter_mut().enumerate() {
                // SAFETY: guaranteed by the caller.
                *place = buffer(unsafe { list.add(nth).read_unaligned() });
            }
        }
        Ok(Self { entries, count })
    }

    pub(crate) fn as_slice(&self) -> &[Sge] {
        &self.entries[..self.count]
    }
}

pub(crate) fn buffer(sge: ibv_sge) -> Sge {
    Sge { address: sge.addr, len: sge.length, lkey: LKey(sge.lkey) }
}

/// `IBV_SEND_INLINE`: the bytes are copied when the request is posted.
pub(crate) const INLINE: c_uint = 1 << 3;

/// Converts `enum ibv_send_flags` to the engine's flags.
pub(crate) fn flags(bits: c_uint) -> SendFlags {
    let known = [(1, SendFlags::FENCE), (1 << 1, SendFlags::SIGNALED), (1 << 2, SendFlags::SOLICITED)];
    let set = known.into_iter().filter(|(bit, _)| bits & bit != 0);
    set.fold(SendFlags::NONE, |flags, (_, flag)| flags | flag)
}

/// Converts immediate data, which the header has in network byte order.
pub(crate) fn immediate(data: u32) -> ImmediateData {
    ImmediateData(data.to_ne_bytes())
}

/// Converts a request's opcode (`enum ibv_wr_opcode`) and operands to an operation.
///
/// # Safety
/// The request's unions hold the fields that its opcode uses.
pub(crate) unsafe fn operation(wr: &ibv_send_wr) -> Result<Operation, Errno> {
    // SAFETY: both fields consist of integers, for which any bits are valid; only the opcode's field is used.
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
        // SAFETY: the request names a window and a region that the program created.
        8 => unsafe { bind(wr.bind_mw.mw, wr.bind_mw.rkey, &wr.bind_mw.bind_info) }?,
        9 => Operation::SendWithInvalidate(RKey(wr.imm_data)),
        15 => Operation::AtomicWrite(remote),
        _ => return Err(Errno::UNSUPPORTED),
    })
}

/// Returns the operation that binds a window and sets the low byte of its key to that of `key`.
///
/// # Errors
/// A pointer is not to a live window or region, or the object's handle was overwritten. The region may be
/// null if the length is 0.
///
/// # Safety
/// No other thread destroys the window or the region.
pub(crate) unsafe fn bind(mw: *mut ibv_mw, key: u32, info: &ibv_mw_bind_info) -> Result<Operation, Errno> {
    let ibv_mw_bind_info { mr, addr: address, length: len, mw_access_flags } = *info;
    // SAFETY: guaranteed by the caller; `known` finds objects that exist.
    let (window, region) = unsafe {
        known::<MemoryWindow>(mw)?;
        if !mr.is_null() {
            known::<MemoryRegion>(mr)?;
        }
        (RKey((*mw).rkey), if mr.is_null() { 0 } else { (*mr).lkey })
    };
    let (region, access, key_byte) = (LKey(region), access(mw_access_flags)?, key as u8);
    Ok(Operation::BindWindow(Bind { window, key_byte, region, address, len, access }))
}

/// Sets the low byte of the window's key in its C structure after a bind was posted. The next bind looks the
/// window up by this key.
///
/// # Safety
/// The window is valid.
pub(crate) unsafe fn set_key(mw: *mut ibv_mw, key: u32) {
    // SAFETY: guaranteed by the caller; a program that posts a bind does not use the window concurrently.
    unsafe { (*mw).rkey = (*mw).rkey & !0xFF | key & 0xFF };
}

/// Returns true if an operation sends payload, which can be inline.
pub(crate) fn sends_bytes(operation: &Operation) -> bool {
    use Operation as O;
    matches!(
        operation,
        O::Send
            | O::SendWithImmediate(_)
            | O::SendWithInvalidate(_)
            | O::Write(_)
            | O::WriteWithImmediate(..)
            | O::AtomicWrite(_)
    )
}

/// Returns the recipient of a datagram.
///
/// # Errors
/// The pointer is not to a live address handle, or the object's handle was overwritten.
///
/// # Safety
/// No other thread destroys the address handle.
pub(crate) unsafe fn recipient(
    ah: *mut crate::header::ibv_ah,
    number: u32,
    qkey: u32,
) -> Result<Recipient, Errno> {
    // SAFETY: guaranteed by the caller.
    let address = unsafe { known::<AddressHandle>(ah) }?.handle;
    let qp = QpNumber::new(number).ok_or(Errno::INVALID)?;
    Ok(Recipient { address, qp, qkey: QKey(qkey) })
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;
    use crate::object::zeroed;

    #[test]
    fn a_list_is_read_at_any_alignment() {
        let sges = [1, 2, 3].map(|nth| ibv_sge { addr: nth << 32, length: nth as u32, lkey: 7 });
        let mut bytes = vec![0u8; 1 + size_of_val(&sges)];
        // SAFETY: the bytes behind the first have the length of the list, of which `read` gets the beginning.
        let read = unsafe {
            let list: *mut ibv_sge = bytes.as_mut_ptr().add(1).cast();
            sges.iter().enumerate().for_each(|(nth, sge)| list.add(nth).write_unaligned(*sge));
            Buffers::read(list, 2).unwrap()
        };
        let found: Vec<_> = read.as_slice().iter().map(|sge| (sge.address, sge.len, sge.lkey)).collect();
        assert_eq!(found, [(1 << 32, 1, LKey(7)), (2 << 32, 2, LKey(7))]);
    }

    #[test]
    fn wrong_lists_are_refused_without_access() {
        let read = |count| {
            // SAFETY: a null list is never read.
            unsafe { Buffers::read(ptr::null(), count) }.map(|read| read.as_slice().len())
        };
        assert_eq!(read(0), Ok(0));
        for count in [1, MAX_BUFFERS as c_int + 1, -1] {
            assert_eq!(read(count), Err(Errno::INVALID));
        }
    }

    #[test]
    fn operands_are_those_of_the_opcode() {
        let mut wr: ibv_send_wr = zeroed();
        wr.imm_data = 9;
        wr.wr.atomic = zeroed();
        wr.wr.atomic.remote_addr = 0x1000;
        (wr.wr.atomic.compare_add, wr.wr.atomic.swap, wr.wr.atomic.rkey) = (5, 6, 7);
        let remote = Remote { address: 0x1000, rkey: RKey(7) };
        for (opcode, expected) in [
            (2, Ok(Operation::Send)),
            (5, Ok(Operation::CompareSwap { remote, compare: 5, swap: 6 })),
            (6, Ok(Operation::FetchAdd { remote, add: 5 })),
            (7, Ok(Operation::LocalInvalidate(RKey(9)))),
            (10, Err(Errno::UNSUPPORTED)),
        ] {
            wr.opcode = opcode;
            // SAFETY: the unions are filled with integers, and the opcode is none that uses pointers.
            assert_eq!(unsafe { operation(&wr) }, expected);
        }
    }
}
