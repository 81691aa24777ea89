//! Errors of the connection manager.

use nichrome_cm::{CommandError, ConfigError};
use nichrome_rdma::ModifyError;
use nichrome_wire::cm::RejectReason;
use rustix::io::Errno;
use thiserror::Error;

use crate::descriptors::remedy;

/// Why an adapter has no connection manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unavailable {
    /// No adapter is open.
    #[error("no adapter is open")]
    Closed,
    /// The processes at a shared address cannot share service ports. EOPNOTSUPP: the adapter receives packets
    /// from the interfaces.
    #[error("cannot share service ports with other processes at the address: {0}")]
    Services(Errno),
    /// No descriptor is left for connections.
    #[error("cannot watch connections: {0}")]
    Sockets(Errno),
    /// An option is out of range.
    #[error(transparent)]
    Options(ConfigError),
}

/// Why listening at a port fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The adapter has no connection manager.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The port is in use, or no listener is left.
    #[error(transparent)]
    Command(#[from] CommandError),
}

/// Why waiting for a peer fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WaitError {
    /// No descriptor is free to wait with.
    #[error("cannot create an eventfd to wait for the peer: {}{}", .0, remedy(*.0))]
    Waker(Errno),
    /// A peer has connected over TCP, and the connection cannot be accepted, most likely because no
    /// descriptor is free.
    #[error("cannot accept the connections of peers: {}{}", .0, remedy(*.0))]
    Accept(Errno),
}

/// Why a connection was not established.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The adapter has no connection manager.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The peer's port has no listener (REJ, reason 8).
    #[error("the peer's port has no listener")]
    NoListener,
    /// The peer's program rejected the connection (REJ, reason 28), with this private data, and zeros up to
    /// 148 bytes.
    #[error("the peer's program rejected the connection")]
    Rejected(Vec<u8>),
    /// The peer's connection manager rejected the connection.
    #[error("the peer rejected the connection: reason {} of REJ", .0.0)]
    Refused(RejectReason),
    /// No route leads from the adapter's address to the peer.
    #[error("no route from the adapter's address to the peer: {0}")]
    Unreachable(Errno),
    /// The peer does not answer.
    #[error("the peer does not answer")]
    TimedOut,
    /// The peer ended the connection during its set-up.
    #[error("the peer ended the connection during its set-up")]
    Withdrawn,
    /// The peer's answer breaks the rules of MPA.
    #[error("the peer's answer breaks the rules of MPA")]
    Protocol,
    /// The connection failed on this side, for example because no descriptor is left.
    #[error("the connection failed on this side: {}{}", .0, remedy(*.0))]
    Local(Errno),
    /// The private data is too long, the peer's address is of another family, or no port is free.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The queue pair is connected already, or an attribute is out of range.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// Waiting for the peer fails.
    #[error(transparent)]
    Wait(#[from] WaitError),
}

/// Returns true if the error is a shortage of descriptors or memory: no socket can be opened for now, to any
/// destination.
pub(super) fn is_shortage(error: Errno) -> bool {
    matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
}

impl ConnectError {
    /// The error of a route lookup, which opens a socket.
    pub(super) fn unreachable(error: nichrome_cm::Errno) -> Self {
        let error = Errno::from_raw_os_error(error.0);
        if is_shortage(error) { Self::Local(error) } else { Self::Unreachable(error) }
    }

    /// The error of a `ConnectError` event, by its status.
    pub(super) fn of_event(status: i32) -> Self {
        match Errno::from_raw_os_error(-status) {
            Errno::PROTO => Self::Protocol,
            error @ (Errno::HOSTUNREACH | Errno::NETUNREACH) => Self::Unreachable(error),
            error => Self::Local(error),
        }
    }
}

/// The error number of a socket call.
pub(super) fn errno(error: &std::io::Error) -> nichrome_cm::Errno {
    error.raw_os_error().map_or(nichrome_cm::Errno::EHOSTUNREACH, nichrome_cm::Errno)
}
