//! Buffers that the library allocates: `ibv_alloc_buf`, `ibv_reg_buf_mr`, and `ibv_reg_mr_ex`, which
//! registers them too.
//!
//! In a confidential virtual machine, a hardware device needs memory that the machine shares with it. This
//! device is part of the process and accesses any memory, so a buffer is pages of anonymous memory. A buffer
//! cannot be exported as a DMA buffer.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use crate::domain::Domain;
use crate::errno::{Errno, pointer};
use crate::header::{ibv_mr, ibv_pd};
use crate::memory_region::register;
use crate::object::{Object, cell, known, reclaim};
use crate::users::Users;

/// A buffer's handle, which the header does not define.
#[repr(C)]
struct BufferAbi(u64);

/// `ibv_mr_init_attr` of rdma-core 65; earlier releases end before `buf`.
#[repr(C)]
struct RegionAttributes {
    length: usize,
    access: c_int,
    comp_mask: u64,
    iova: u64,
    addr: *mut c_void,
    fd: c_int,
    fd_offset: u64,
    dma_handle: *mut c_void,
    buf: *mut BufferAbi,
}

/// A buffer.
#[repr(C)]
struct Buffer {
    abi: UnsafeCell<BufferAbi>,
    /// The domain that the program allocated it from.
    pd: *mut ibv_pd,
    _domain: Users,
    address: *mut c_void,
    len: usize,
}

// SAFETY: `repr(C)`, and the structure is the first field.
unsafe impl Object for Buffer {
    type Abi = BufferAbi;

    fn handle_in(_: &BufferAbi) -> u32 {
        0
    }
}

impl Buffer {
    unsafe fn allocate(pd: *mut ibv_pd, len: usize) -> Result<Self, Errno> {
        // SAFETY: the program passes a domain that it created.
        let users = unsafe { known::<Domain>(pd) }?.users.clone();
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping changes no other memory.
        let address = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        Ok(Self { abi: cell(BufferAbi(0)), pd, _domain: users, address, len })
    }

    /// Checks that `pd` is the buffer's domain and that the range lies within the buffer; `EINVAL` otherwise.
    fn check(&self, pd: *mut ibv_pd, address: *mut c_void, len: usize) -> Result<(), Errno> {
        let at = (address as usize).checked_sub(self.address as usize);
        let end = at.and_then(|at| at.checked_add(len));
        if pd == self.pd && end.is_some_and(|end| end <= self.len) { Ok(()) } else { Err(Errno::INVALID) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the mapping is the buffer's, and the program does not use it after it has freed the buffer.
        unsafe { libc::munmap(self.address, self.len) };
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_alloc_buf(pd: *mut ibv_pd, len: usize, buffer: *mut *mut BufferAbi) -> *mut c_void {
    // SAFETY: the program passes a domain that it created, and a place for the handle.
    pointer(unsafe {
        Buffer::allocate(pd, len).map(|allocated| {
            let address = allocated.address;
            *buffer = Box::new(allocated).into_abi();
            address
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_free_buf(buffer: *mut BufferAbi) {
    // SAFETY: the program passes a buffer that it allocated, and does not use it after this call.
    unsafe {
        if known::<Buffer>(buffer).is_ok() {
            drop(reclaim::<Buffer>(buffer));
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_export_buf_dmabuf_fd(_: *mut BufferAbi) -> c_int {
    Errno::NO_DATA.set();
    -1
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_buf_mr(
    pd: *mut ibv_pd,
    buffer: *mut BufferAbi,
    address: *mut c_void,
    len: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the program passes a buffer and a domain that it created.
    pointer(unsafe {
        let checked = known::<Buffer>(buffer).and_then(|buffer| buffer.check(pd, address, len));
        checked.and_then(|()| register(pd, address, len, address as u64, access as c_uint))
    })
}

/// `enum ibv_mr_init_attr_mask`.
const IO_ADDRESS: u64 = 1;
const ADDRESS: u64 = 1 << 1;
const DESCRIPTOR: u64 = 1 << 2;
const DESCRIPTOR_OFFSET: u64 = 1 << 3;
const DMA_HANDLE: u64 = 1 << 4;
const BUFFER: u64 = 1 << 5;

/// Registers a region. Reads only the fields that the mask names: the structure of earlier releases has
/// fewer.
unsafe fn register_with(pd: *mut ibv_pd, attributes: *const RegionAttributes) -> Result<*mut ibv_mr, Errno> {
    // SAFETY: the program passes attributes with the fields of the mask.
    unsafe {
        let (mask, len) = ((*attributes).comp_mask, (*attributes).length);
        if mask & (DMA_HANDLE | DESCRIPTOR | DESCRIPTOR_OFFSET) != 0 && mask & BUFFER == 0 {
            return Err(Errno::UNSUPPORTED);
        }
        if mask & !(IO_ADDRESS | BUFFER) != ADDRESS {
            return Err(Errno::INVALID);
        }
        let address = (*attributes).addr;
        if mask & BUFFER != 0 {
            known::<Buffer>((*attributes).buf)?.check(pd, address, len)?;
        }
        let io_address = if mask & IO_ADDRESS == 0 { address as u64 } else { (*attributes).iova };
        register(pd, address, len, io_address, (*attributes).access as c_uint)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr_ex(pd: *mut ibv_pd, attributes: *mut RegionAttributes) -> *mut ibv_mr {
    // SAFETY: the program passes a domain that it created, and attributes.
    pointer(unsafe { register_with(pd, attributes) })
}
