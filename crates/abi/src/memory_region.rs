//! Memory regions: `ibv_reg_mr`, `ibv_rereg_mr`, `ibv_dereg_mr`.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use nichrome_rdma::{Access, DomainHandle, Paging, RegionConfig, RegionHandle};

use crate::adapter::Adapter;
use crate::domain::Domain;
use crate::errno::{Errno, pointer, status};
use crate::header::{ibv_context, ibv_mr, ibv_pd, ibv_sge};
use crate::object::{Object, cell, known, reclaim, reclaim_where};
use crate::retired;
use crate::users::Users;

/// A memory region.
#[repr(C)]
pub(crate) struct MemoryRegion {
    abi: UnsafeCell<ibv_mr>,
    adapter: Arc<Adapter>,
    handle: RegionHandle,
    /// The other structures of the region, which `ibv_import_mr` returned.
    users: Users,
    /// The current domain and configuration. `ibv_rereg_mr` keeps the parts that its flags do not name.
    current: UnsafeCell<(DomainHandle, RegionConfig)>,
}

// SAFETY: `repr(C)`, and the structure is the first field.
unsafe impl Object for MemoryRegion {
    type Abi = ibv_mr;

    fn handle_in(abi: &ibv_mr) -> u32 {
        abi.handle
    }
}

/// The bits of `enum ibv_access_flags` that have the same values in the engine.
const RIGHTS: c_uint = 0x33F;
/// Ignored: page sizes do not matter.
const IBV_ACCESS_HUGETLB: c_uint = 1 << 7;
/// `IBV_ACCESS_ON_DEMAND`: the memory need not exist before the device accesses it.
const ON_DEMAND: c_uint = 1 << 6;
/// Hints that a device may ignore (`IBV_ACCESS_OPTIONAL_RANGE`).
const HINTS: c_uint = 0x3FF0_0000;

/// Converts `enum ibv_access_flags` to access rights.
pub(crate) fn access(flags: c_uint) -> Result<Access, Errno> {
    let rights = flags & !(IBV_ACCESS_HUGETLB | HINTS);
    if rights & !RIGHTS != 0 {
        return Err(Errno::UNSUPPORTED);
    }
    Access::from_bits(rights as u16).ok_or(Errno::INVALID)
}

/// `IBV_ACCESS_ZERO_BASED`: the region's addresses begin at 0.
const ZERO_BASED: c_uint = 1 << 5;

/// Returns when the memory of a region with these flags must exist.
fn paging(flags: c_uint) -> Paging {
    if flags & ON_DEMAND == 0 { Paging::AtRegistration } else { Paging::OnDemand }
}

/// Returns the configuration of a region whose remote addresses start at `io_address`, or at 0 with
/// `ZERO_BASED`.
fn wanted(address: u64, len: usize, io_address: u64, flags: c_uint) -> Result<RegionConfig, Errno> {
    let io_address = if flags & ZERO_BASED == 0 { io_address } else { 0 };
    let access = access(flags & !(ZERO_BASED | ON_DEMAND))?;
    let paging = paging(flags);
    Ok(RegionConfig { address, len: len as u64, io_address, access, paging })
}

/// Registers a region.
pub(crate) unsafe fn register(
    pd: *mut ibv_pd,
    address: *mut c_void,
    len: usize,
    io_address: u64,
    flags: c_uint,
) -> Result<*mut ibv_mr, Errno> {
    let config = wanted(address as u64, len, io_address, flags)?;
    // SAFETY: the program passes a domain that it created.
    let domain = unsafe { known::<Domain>(pd) }?;
    let adapter = Arc::clone(&domain.adapter);
    let (handle, key) = adapter.driver().call(|device| {
        let handle = device.register(domain.handle, config)?;
        Ok::<_, Errno>((handle, device.query_region(handle)?.lkey.0))
    })?;
    // SAFETY: the domain is valid, as above.
    let context = unsafe { (*pd).context };
    let abi =
        cell(ibv_mr { context, pd, addr: address, length: len, handle: key >> 8, lkey: key, rkey: key });
    let current = UnsafeCell::new((domain.handle, config));
    let users = Users::default();
    Ok(Box::new(MemoryRegion { abi, adapter, handle, users, current }).into_abi())
}

impl MemoryRegion {
    /// Returns another C structure for the region, with the domain `pd`.
    pub(crate) fn imported(&self, pd: *mut ibv_pd, context: *mut ibv_context) -> Box<Self> {
        // SAFETY: the program does not change the region during this call.
        let (abi, current) = unsafe { (*self.abi.get(), *self.current.get()) };
        let (abi, current) = (cell(ibv_mr { context, pd, ..abi }), UnsafeCell::new(current));
        let (adapter, users) = (Arc::clone(&self.adapter), self.users.clone());
        Box::new(Self { abi, adapter, handle: self.handle, users, current })
    }

    pub(crate) fn adapter(&self) -> &Arc<Adapter> {
        &self.adapter
    }
}

/// `enum ibv_advise_mr_advice`: prefetch, prefetch for writing, prefetch without faults.
const ADVICES: std::ops::Range<c_int> = 0..3;
/// `IBV_ADVISE_MR_FLAG_FLUSH`: the call returns once the advice is carried out.
const ADVISE_FLUSH: u32 = 1;

/// Validates the arguments; advice has no effect.
pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: c_int,
    flags: u32,
    _: *mut ibv_sge,
    _: u32,
) -> c_int {
    // SAFETY: the program passes a domain that it created.
    let found = unsafe { known::<Domain>(pd) };
    status(found.and_then(|_| {
        let is_known = ADVICES.contains(&advice) && flags & !ADVISE_FLUSH == 0;
        if is_known { Ok(()) } else { Err(Errno::INVALID) }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    address: *mut c_void,
    len: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the program passes a domain that it created, and keeps the memory mapped while it is
    // registered.
    pointer(unsafe { register(pd, address, len, address as u64, access as c_uint) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    address: *mut c_void,
    len: usize,
    io_address: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: as above.
    pointer(unsafe { register(pd, address, len, io_address, access as c_uint) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    address: *mut c_void,
    len: usize,
    io_address: u64,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: as above.
    pointer(unsafe { register(pd, address, len, io_address, access) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: the program passes a region that it created.
    let this = match unsafe { known::<MemoryRegion>(mr) } {
        Ok(this) => this,
        Err(errno) => return status(Err(errno)),
    };
    let deregistered = this.adapter.driver().call(|device| device.deregister(this.handle));
    if deregistered.is_ok() {
        // SAFETY: the program does not use it after this call.
        drop(unsafe { reclaim::<MemoryRegion>(mr) });
    }
    status(deregistered)
}

/// Deregisters the regions that the program has left in a context that it closes.
pub(crate) fn deregister_regions_of(context: *const ibv_context) {
    // SAFETY: the program uses no object of a context that it closes.
    for region in unsafe { reclaim_where::<MemoryRegion>(|mr| ptr::eq((*mr).context, context)) } {
        if region.users.are_none() {
            // Fails if the program has deregistered it by another structure, or left a window bound to it.
            let _ = region.adapter.driver().call(|device| device.deregister(region.handle));
        }
        retired::drop_and_keep_memory(region);
    }
}

/// `enum ibv_rereg_mr_flags`.
const CHANGE_TRANSLATION: c_int = 1;
const CHANGE_DOMAIN: c_int = 1 << 1;
const CHANGE_ACCESS: c_int = 1 << 2;

/// Return values if the region is unchanged (`IBV_REREG_MR_ERR_INPUT`, `IBV_REREG_MR_ERR_CMD`). −3 means that
/// it has changed.
const ERROR_IN_INPUT: c_int = -1;
const ERROR_IN_COMMAND: c_int = -4;

/// Returns the result of `ibv_rereg_mr` for arguments that contradict each other, as libibverbs (`verbs.c`)
/// and the kernel (`ib_uverbs_rereg_mr`) check them.
fn contradiction(flags: c_int, address: *mut c_void, len: usize, access_flags: c_int) -> Option<c_int> {
    let has_others = flags & !(CHANGE_TRANSLATION | CHANGE_DOMAIN | CHANGE_ACCESS) != 0;
    let is_empty = flags & CHANGE_TRANSLATION != 0 && (address.is_null() || len == 0);
    let has_unused_access = flags & CHANGE_ACCESS == 0 && access_flags != 0;
    if has_others || is_empty || has_unused_access {
        Some(ERROR_IN_INPUT)
    } else {
        (flags == 0).then_some(ERROR_IN_COMMAND)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    address: *mut c_void,
    len: usize,
    access_flags: c_int,
) -> c_int {
    if let Some(contradiction) = contradiction(flags, address, len, access_flags) {
        Errno::INVALID.set();
        return contradiction;
    }
    // SAFETY: the program passes a region that it created.
    let this = match unsafe { known::<MemoryRegion>(mr) } {
        Ok(this) => this,
        Err(errno) => {
            errno.set();
            return ERROR_IN_INPUT;
        }
    };
    // SAFETY: the program does not use the region during this call.
    let (mut domain, mut config) = unsafe { *this.current.get() };
    if flags & CHANGE_DOMAIN != 0 {
        // SAFETY: the program passes a domain that it created.
        match unsafe { known::<Domain>(pd) } {
            Ok(other) => domain = other.handle,
            Err(errno) => {
                errno.set();
                return ERROR_IN_INPUT;
            }
        }
    }
    if flags & CHANGE_TRANSLATION != 0 {
        config = RegionConfig {
            paging: config.paging,
            ..RegionConfig::new(address as u64, len as u64, config.access)
        };
    }
    if flags & CHANGE_ACCESS != 0 {
        let flags = access_flags as c_uint;
        match access(flags & !ON_DEMAND) {
            Ok(access) => (config.access, config.paging) = (access, paging(flags)),
            Err(errno) => {
                errno.set();
                return ERROR_IN_INPUT;
            }
        }
    }
    let changed = this.adapter.driver().call(|device| {
        device.reregister(this.handle, domain, config)?;
        Ok::<_, Errno>(device.query_region(this.handle)?.lkey.0)
    });
    match changed {
        Err(errno) => {
            errno.set();
            ERROR_IN_COMMAND
        }
        Ok(key) => {
            // SAFETY: as above.
            unsafe {
                *this.current.get() = (domain, config);
                ((*mr).lkey, (*mr).rkey) = (key, key);
                if flags & CHANGE_DOMAIN != 0 {
                    (*mr).pd = pd;
                }
                if flags & CHANGE_TRANSLATION != 0 {
                    ((*mr).addr, (*mr).length) = (address, len);
                }
            }
            0
        }
    }
}
