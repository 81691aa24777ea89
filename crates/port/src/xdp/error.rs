//! Errors of opening AF_XDP.

use rustix::io::Errno;
use thiserror::Error;

use super::mode::XdpMode;
use crate::interface_name::InterfaceName;
use crate::os_error::OsError;

/// A failure to open AF_XDP.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum XdpError {
    /// The user lacks the capabilities.
    #[error(
        "the kernel refuses {what} ({error}): AF_XDP needs CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW outside of any user \
         namespace (sudo, or 'setcap cap_bpf,cap_ipc_lock,cap_net_admin,cap_net_raw+ep'); AF_PACKET needs less"
    )]
    NotPermitted {
        /// The refused operation.
        what: &'static str,
        /// The kernel's error.
        error: OsError,
    },
    /// Another XDP program is attached.
    #[error(
        "{0} has an XDP program already: stop the program that attached it ('bpftool link' names it), or 'ip link set dev {0} xdp off'"
    )]
    Busy(InterfaceName),
    /// The interface was removed, or is in another network namespace.
    #[error("there is no interface called {0} here ('ip link' lists them)")]
    NoInterface(InterfaceName),
    /// The driver does not support this mode.
    #[error("{name} does not accept an XDP program in {mode} mode ({error})")]
    Mode {
        /// The interface.
        name: InterfaceName,
        /// The mode.
        mode: XdpMode,
        /// The kernel's error.
        error: OsError,
    },
    /// The queue does not exist.
    #[error("{name} has no receive queue {queue}: they are 0 to {last} ('ethtool -l {name}')")]
    NoQueue {
        /// The interface.
        name: InterfaceName,
        /// The requested queue.
        queue: u32,
        /// The highest queue number.
        last: u32,
    },
    /// Another AF_XDP socket is bound to the queue.
    #[error(
        "queue {queue} of {name} has an AF_XDP socket already: stop the program that opened it ('ss --xdp' lists them)"
    )]
    QueueBusy {
        /// The interface.
        name: InterfaceName,
        /// The queue.
        queue: u32,
    },
    /// Frames of the interface are longer than a chunk, and kernel or driver do not divide them.
    #[error(
        "{name} has an MTU of {mtu} bytes, but this kernel or its driver receives frames of at most {most} bytes by AF_XDP \
         (Linux 6.6 and later divide longer ones): use AF_PACKET, or 'ip link set {name} mtu 1500'"
    )]
    Mtu {
        /// The interface.
        name: InterfaceName,
        /// Its MTU in bytes.
        mtu: u32,
        /// The longest frame in bytes.
        most: u32,
    },
    /// The kernel cannot allocate the UMEM.
    #[error(
        "the kernel refuses {bytes} bytes of memory for frames ({error}): use fewer frames, or allow more locked memory \
         ('ulimit -l', or CAP_IPC_LOCK)"
    )]
    Memory {
        /// The requested size, in bytes.
        bytes: u64,
        /// The kernel's error.
        error: OsError,
    },
    /// The kernel refused another operation.
    #[error("cannot receive from {name} by AF_XDP: the kernel refuses {what} ({error})")]
    Refused {
        /// The interface.
        name: InterfaceName,
        /// The operation.
        what: &'static str,
        /// The kernel's error.
        error: OsError,
    },
}

/// Maps the kernel's error of operation `what`.
pub(super) fn refused(name: InterfaceName, what: &'static str) -> impl Fn(Errno) -> XdpError {
    move |error| match error {
        Errno::PERM | Errno::ACCESS => XdpError::NotPermitted { what, error: error.into() },
        Errno::NODEV | Errno::NXIO => XdpError::NoInterface(name),
        error => XdpError::Refused { name, what, error: error.into() },
    }
}
