//! Errors of hosts and paths.

use nichrome_nic::{CardError, WireError};
use nichrome_port::{InvalidName, NamespaceError, NetlinkError, TapError};

/// An error of a host or a path.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The kernel refuses a namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The interface name is invalid.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// Creating the host's interface failed.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// Configuring the host's interface failed.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// Assigning a host's address failed.
    #[error("the host on the {side}: {error}")]
    Address {
        /// The host.
        side: &'static str,
        /// The cause.
        error: NetlinkError,
    },
    /// The impairments contradict each other.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A card failed to start, or ended early.
    #[error(transparent)]
    Card(#[from] CardError),
}
