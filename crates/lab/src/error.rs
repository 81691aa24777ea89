//! Why there is no host or no path.

use nichrome_nic::{CardError, WireError};
use nichrome_port::{InvalidName, NamespaceError, NetlinkError, TapError};

/// Why there is no host or no path.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The kernel refuses a namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// An interface cannot be called so.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// The host's interface cannot be made.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// The host's interface cannot be set up.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A host's address is refused.
    #[error("the host on the {side}: {error}")]
    Address {
        /// Which host.
        side: &'static str,
        /// Why.
        error: NetlinkError,
    },
    /// The impairments contradict each other.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A card cannot be started, or has ended early.
    #[error(transparent)]
    Card(#[from] CardError),
}
