//! Why a card does not work.

use std::io;

use nichrome_lro::ConfigError;
use rustix::io::Errno;
use thiserror::Error;

use crate::host::HostError;

/// Why a card does not work, or no longer.
#[derive(Debug, Error)]
pub enum CardError {
    /// The engine's configuration is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There are no queues, or fewer of the wire than of the host.
    #[error("a card needs a queue of the wire for each worker, and one of the host, or as many")]
    Queues,
    /// Each worker's engine must see what the host sends on its connections.
    #[error("active ACK needs as many queues of the host as there are workers")]
    ActiveAck,
    /// A thread or a descriptor cannot be had.
    #[error("cannot start a worker: {0}")]
    Start(#[from] io::Error),
    /// The wire does not work.
    #[error("the wire fails: {0}")]
    Wire(Errno),
    /// The host's interface does not work.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A worker has panicked, which is a fault in this program.
    #[error("a worker has panicked")]
    Panicked,
}
