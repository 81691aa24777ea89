//! Failed rtnetlink requests.

use std::io;

use thiserror::Error;

use crate::interface_name::InterfaceName;

/// A failed rtnetlink request.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NetlinkError {
    /// No interface of this network namespace has this name.
    #[error("there is no interface called {0} ('ip link' lists them)")]
    NoInterface(InterfaceName),
    /// The interface is up but cannot send.
    #[error("{0} has no carrier: its other end is not connected, or down")]
    NoCarrier(InterfaceName),
    /// The kernel returned an error.
    #[error("cannot {what}: {error}")]
    Refused {
        /// The request.
        what: String,
        /// The kernel's error.
        error: io::Error,
    },
    /// The kernel's answer has an unexpected type.
    #[error("cannot {what}: the kernel's answer is unexpected")]
    Answer {
        /// The request.
        what: String,
    },
}
