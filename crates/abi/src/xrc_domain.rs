//! XRC domains: `ibv_open_xrcd`, `ibv_close_xrcd`.
//!
//! Opens with descriptors of the same file share one domain. Processes do not share domains, because each has
//! its own device.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use nichrome_hca::Transport;
use nichrome_rdma::{Device, XrcHandle};

use crate::adapter::Adapter;
use crate::cancellation::Uncancelled;
use crate::context::Context;
use crate::errno::{Errno, pointer, status};
use crate::header::{ibv_context, ibv_xrcd, ibv_xrcd_init_attr};
use crate::object::{Object, cell, known, reclaim};

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
    /// Its file; `None` if it was opened without.
    file: Option<OpenFile>,
}

/// An open file.
struct OpenFile {
    identity: Identity,
    /// A duplicate of the program's descriptor: while it is open, no other file has this identity.
    _descriptor: OwnedFd,
}

/// Device and inode of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity(u64, u64);

impl Shared {
    /// Returns true if it is the domain of this file on this device. A forked child inherits the domains of
    /// its parent's device.
    fn is_of(&self, adapter: &Arc<Adapter>, file: Identity) -> bool {
        Arc::ptr_eq(&self.adapter, adapter) && self.file.as_ref().is_some_and(|own| own.identity == file)
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

/// Locks the list until the result is dropped: for a process that is about to fork. The caller does not hold
/// the device's lock.
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

/// Returns the file of a descriptor; `None` for descriptor −1, which means no file.
///
/// # Errors
/// `EBADF`: the descriptor is not open. `EMFILE`: no descriptor is free for the duplicate.
fn file(fd: c_int) -> Result<Option<OpenFile>, Errno> {
    if fd == -1 {
        return Ok(None);
    }
    // SAFETY: no pointers; fcntl(2) refuses a number that is not an open descriptor.
    let duplicate = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    if duplicate < 0 {
        return Err(Errno::last());
    }
    // SAFETY: the descriptor is new.
    let descriptor = unsafe { OwnedFd::from_raw_fd(duplicate) };
    let found = rustix::fs::fstat(&descriptor).map_err(|error| Errno(error.raw_os_error()))?;
    Ok(Some(OpenFile { identity: Identity(found.st_dev, found.st_ino), _descriptor: descriptor }))
}

/// `enum ibv_xrcd_init_attr_mask`: file descriptor and flags, both of which are required.
const MASK: u32 = 0b11;

/// Opens a domain with the flags of open(2), which have the meaning that the kernel's `ib_uverbs_open_xrcd`
/// gives them.
fn open(adapter: &Arc<Adapter>, attributes: &ibv_xrcd_init_attr) -> Result<Arc<Shared>, Errno> {
    if attributes.comp_mask != MASK || attributes.oflags & !(libc::O_CREAT | libc::O_EXCL) != 0 {
        return Err(Errno::INVALID);
    }
    let file = file(attributes.fd)?;
    let mut open = all_open();
    open.retain(|domain| domain.strong_count() > 0);
    let known = file.as_ref().and_then(|file| {
        open.iter().filter_map(Weak::upgrade).find(|domain| domain.is_of(adapter, file.identity))
    });
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
    let _uncancelled = Uncancelled::begin();
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
    let _uncancelled = Uncancelled::begin();
    // SAFETY: the program passes a domain that it opened.
    let this = match unsafe { known::<XrcDomain>(xrcd) } {
        Ok(this) => this,
        Err(errno) => return status(Err(errno)),
    };
    // Held so that no other thread opens the domain meanwhile.
    let _open = all_open();
    let closed = match Arc::strong_count(&this.domain) {
        1 => this.adapter().driver().call(|device| device.destroy_xrc_domain(this.handle())),
        _ => Ok(()),
    };
    if closed.is_ok() {
        // SAFETY: the program does not use it after this call.
        drop(unsafe { reclaim::<XrcDomain>(xrcd) });
    }
    status(closed)
}
