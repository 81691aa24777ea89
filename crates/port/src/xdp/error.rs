//! Why frames cannot be had by AF_XDP.

use rustix::io::Errno;
use thiserror::Error;

use super::mode::XdpMode;
use crate::interface_name::InterfaceName;

/// Why frames of an interface cannot be had by AF_XDP.
#[derive(Debug, Error)]
pub enum XdpError {
    /// This user may not do it.
    #[error(
        "the kernel refuses {what} ({error}): AF_XDP needs CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW outside of any user \
         namespace (sudo, or 'setcap cap_bpf,cap_net_admin,cap_net_raw+ep'); AF_PACKET needs less"
    )]
    NotPermitted {
        /// What was refused.
        what: &'static str,
        /// What the kernel said.
        error: Errno,
    },
    /// Another program is there.
    #[error(
        "{0} has an XDP program already: stop what attached it ('bpftool link' names it), or 'ip link set dev {0} xdp off'"
    )]
    Busy(InterfaceName),
    /// The interface has gone, or is in another network namespace.
    #[error("there is no interface called {0} here ('ip link' lists them)")]
    NoInterface(InterfaceName),
    /// The driver cannot, in this mode.
    #[error("{name} takes no XDP program in {mode} mode ({error})")]
    Mode {
        /// The interface.
        name: InterfaceName,
        /// The mode.
        mode: XdpMode,
        /// What the kernel said.
        error: Errno,
    },
    /// There is no such queue.
    #[error("{name} has no receive queue {queue}: they are 0 to {last} ('ethtool -l {name}')")]
    NoQueue {
        /// The interface.
        name: InterfaceName,
        /// What was asked for.
        queue: u32,
        /// The last that there is.
        last: u32,
    },
    /// Another socket has the queue.
    #[error(
        "queue {queue} of {name} has an AF_XDP socket already: stop the program that opened it ('ss --xdp' lists them)"
    )]
    QueueBusy {
        /// The interface.
        name: InterfaceName,
        /// The queue.
        queue: u32,
    },
    /// There is no memory for frames.
    #[error(
        "the kernel refuses {bytes} bytes of memory for frames ({error}): use fewer frames, or allow more locked memory \
         ('ulimit -l', or CAP_IPC_LOCK)"
    )]
    Memory {
        /// What was asked for.
        bytes: u64,
        /// What the kernel said.
        error: Errno,
    },
    /// The kernel said no to something else.
    #[error("cannot receive from {name} by AF_XDP: the kernel refuses {what} ({error})")]
    Refused {
        /// The interface.
        name: InterfaceName,
        /// What it refused.
        what: &'static str,
        /// What it said.
        error: Errno,
    },
}

/// What the kernel's answer to `what` means.
pub(super) fn refused(name: InterfaceName, what: &'static str) -> impl Fn(Errno) -> XdpError {
    move |error| match error {
        Errno::PERM | Errno::ACCESS => XdpError::NotPermitted { what, error },
        Errno::NODEV | Errno::NXIO => XdpError::NoInterface(name),
        error => XdpError::Refused { name, what, error },
    }
}
