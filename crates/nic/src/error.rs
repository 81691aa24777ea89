//! Errors of a card.

use std::io;

use nichrome_lro::ConfigError;
use nichrome_port::OsError;
use thiserror::Error;

use crate::host::HostError;

/// A card that cannot start or run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CardError {
    /// The engine's configuration is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There are no queues, or the host has neither one queue nor as many as the wire.
    #[error(
        "a card needs one queue of the wire per worker, and one queue of the host in total or per worker"
    )]
    Queues,
    /// With active ACK, each worker must read the host queue of its connections.
    #[error("active ACK needs one queue of the host per worker")]
    ActiveAck,
    /// With active ACK, a worker must also read the packets of the host that it delivers to.
    #[error("active ACK needs a worker that carries the packets of its host in both directions")]
    OtherHost,
    /// The kernel refuses to create a thread or a descriptor.
    #[error("cannot start a worker: {0}")]
    Start(#[from] io::Error),
    /// The wire failed.
    #[error("the wire failed: {0}")]
    Wire(OsError),
    /// The host's interface failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A worker has panicked: a bug.
    #[error("a worker has panicked")]
    Panicked,
}
