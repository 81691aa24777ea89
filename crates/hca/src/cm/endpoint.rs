//! The connections of Rust programs.

use nichrome_cm::IdName;
use nichrome_rdma::QpHandle;

use super::error::ConnectError;

/// The program's number of a listener or connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EndpointNumber(pub(super) u64);

/// The progress of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The connection waits for the peer.
    Pending,
    /// The peer accepts, with private data.
    Responded(Vec<u8>),
    Established,
    Failed(ConnectError),
    Disconnected,
}

/// A connection of the program.
pub(super) struct Connection {
    pub(super) id: IdName,
    pub(super) qp: QpHandle,
    pub(super) progress: Progress,
    /// Private data with which the peer accepted a connection that needs no RTU (iWARP).
    pub(super) accept_private_data: Option<Vec<u8>>,
}

impl Connection {
    pub(super) const fn new(id: IdName, qp: QpHandle) -> Self {
        Self { id, qp, progress: Progress::Pending, accept_private_data: None }
    }
}
