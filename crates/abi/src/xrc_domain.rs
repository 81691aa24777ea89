//! XRC domains: `ibv_open_xrcd`, `ibv_close_xrcd`.
//!
//! A domain that is opened with a file descriptor is shared by all who open it with a descriptor of the same file. Processes do
//! not share domains: each has a device of its own.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use nichrome_hca::Transport;
use nichrome_rdma::{Device, XrcHandle};

use crate::adapter::Adapter;
use crate::context::Context;
use crate::errno::{Errno, pointer, status};
use crate::header::{ibv_context, ibv_xrcd, ibv_xrcd_init_attr};
use crate::object::{Object, cell, known, take_back};

/// An open XRC domain.
#[repr(C)]
pub(crate) struct XrcDomain {
    abi: UnsafeCell<ibv_xrcd>,
    domain: Arc<Shared>,
}

/// A domain of the device.
struct Shared {
    adapter: Arc<Adapter>,
    handle: XrcHandle,
    /// Identity of its file; `None` if it was opened without.
    file: Option<File>,
}

/// Device and inode of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct File(libc::dev_t, libc::ino_t);

impl Shared {
    /// Returns true if it is the domain of this file on this device. A forked child inherits the domains of its parent's device.
    fn is_of(&self, adapter: &Arc<Adapter>, file: File) -> bool {
        Arc::ptr_eq(&self.adapter, adapter) && self.file == Some(file)
    }
}

/// The open domains.
static OPEN: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

fn all_open() -> MutexGuard<'static, Vec<Weak<Shared>>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The locked list of open domains.
pub(crate) struct Held {
    _open: MutexGuard<'static, Vec<Weak<Shared>>>,
}

/// Locks the list until the result is dropped: for a process that is about to fork. The caller does not hold the device's lock.
pub(crate) fn hold() -> Held {
    Held { _open: all_open() }
}

// SAFETY: `repr(C)`, and the structure is the first field.
unsafe impl Object for XrcDomain {
    type Abi = ibv_xrcd;

    fn handle_in(_: &ibv_xrcd) -> u32 {
        0
    }
}

impl XrcDomain {
    pub(crate) fn adapter(&self) -> &Arc<Adapter> {
        &self.domain.adapter
    }

    pub(crate) fn handle(&self) -> XrcHandle {
        self.domain.handle
    }
}

/// Returns the identity of an open file; `None` for descriptor −1, which means no file.
fn file(fd: c_int) -> Result<Option<File>, Errno> {
    if fd == -1 {
        return Ok(None);
    }
    // SAFETY: all zeros are a valid `stat`.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: fstat(2) writes a `stat`; it refuses what is no descriptor.
    match unsafe { libc::fstat(fd, &raw mut found) } {
        0 => Ok(Some(File(found.st_dev, found.st_ino))),
        _ => Err(Errno(libc::EBADF)),
    }
}

/// `enum ibv_xrcd_init_attr_mask`: file descriptor and flags, both of which are required.
const MASK: u32 = 0b11;

/// Opens a domain with the flags of open(2), which mean what they do in the kernel's `ib_uverbs_open_xrcd`.
fn open(adapter: &Arc<Adapter>, attributes: &ibv_xrcd_init_attr) -> Result<Arc<Shared>, Errno> {
    if attributes.comp_mask != MASK || attributes.oflags & !(libc::O_CREAT | libc::O_EXCL) != 0 {
        return Err(Errno::INVALID);
    }
    let file = file(attributes.fd)?;
    let mut open = all_open();
    open.retain(|domain| domain.strong_count() > 0);
    let known = file
        .and_then(|file| open.iter().filter_map(Weak::upgrade).find(|domain| domain.is_of(adapter, file)));
    match known {
        Some(_) if attributes.oflags & libc::O_EXCL != 0 => Err(Errno::INVALID),
        Some(domain) => Ok(domain),
        None if file.is_some() && attributes.oflags & libc::O_CREAT == 0 => Err(Errno(libc::EAGAIN)),
        None => {
            let handle = adapter.driver().call(Device::create_xrc_domain)?;
            let domain = Arc::new(Shared { adapter: Arc::clone(adapter), handle, file });
            open.push(Arc::downgrade(&domain));
            Ok(domain)
        }
    }
}

pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    attributes: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    // SAFETY: the program passes an open context and attributes.
    let (opened, attributes) = unsafe { (Context::known(context), &*attributes) };
    pointer(opened.and_then(|opened| {
        if opened.adapter().driver().transport() == Transport::Iwarp {
            return Err(Errno::UNSUPPORTED);
        }
        let (abi, domain) = (cell(ibv_xrcd { context }), open(opened.adapter(), attributes)?);
        Ok(Box::new(XrcDomain { abi, domain }).into_abi())
    }))
}

pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    // SAFETY: the program passes a domain that it opened.
    let this = match unsafe { known::<XrcDomain>(xrcd) } {
        Ok(this) => this,
        Err(errno) => return status(Err(errno)),
    };
    // No other thread opens it meanwhile.
    let _open = all_open();
    let closed = match Arc::strong_count(&this.domain) {
        1 => this.adapter().driver().call(|device| device.destroy_xrc_domain(this.handle())),
        _ => Ok(()),
    };
    if closed.is_ok() {
        // SAFETY: the program does not use it after this call.
        drop(unsafe { take_back::<XrcDomain>(xrcd) });
    }
    status(closed)
}
