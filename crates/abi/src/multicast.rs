//! Multicast groups: `ibv_attach_mcast`, `ibv_detach_mcast`.

use std::ffi::c_int;
use std::net::IpAddr;

use nichrome_hca::JoinError;
use nichrome_rdma::MulticastError;

use crate::address_handle::in_family_of;
use crate::cancellation::Uncancelled;
use crate::errno::{Errno, status};
use crate::header::{ibv_gid, ibv_qp};
use crate::object::known;
use crate::port::address_in;
use crate::queue_pair::QueuePair;

/// Returns the queue pair, and the group of a GID.
unsafe fn arguments<'a>(qp: *mut ibv_qp, gid: *const ibv_gid) -> Result<(&'a QueuePair, IpAddr), Errno> {
    // SAFETY: the program passes a queue pair that it created, and a GID.
    let (this, gid) = unsafe { (known::<QueuePair>(qp.cast())?, *gid) };
    Ok((this, in_family_of(this.adapter.address(), address_in(gid))))
}

/// Converts an error: `EINVAL` for a queue pair that is not UD, as on rxe, `ENOMEM` at a limit of groups or
/// members.
fn errno_of(error: MulticastError) -> Errno {
    match error {
        MulticastError::Object(error) => error.into(),
        _ => Errno::INVALID,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int {
    let _uncancelled = Uncancelled::begin();
    // SAFETY: guaranteed by the caller.
    let found = unsafe { arguments(qp, gid) };
    status(found.and_then(|(this, group)| {
        this.adapter.driver().attach_multicast(this.handle, group).map_err(|error| match error {
            JoinError::Multicast(error) => errno_of(error),
            JoinError::Udp(_) => Errno::NO_MEMORY,
        })
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int {
    let _uncancelled = Uncancelled::begin();
    // SAFETY: guaranteed by the caller.
    let found = unsafe { arguments(qp, gid) };
    status(found.and_then(|(this, group)| {
        this.adapter.driver().detach_multicast(this.handle, group).map_err(errno_of)
    }))
}
