//! The addresses of a connection.

use crate::HostId;

/// The addresses of a connection, from the host's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoints {
    /// The local port.
    pub local_port: u16,
    /// The remote host.
    pub remote: HostId,
    /// The remote port.
    pub remote_port: u16,
}
