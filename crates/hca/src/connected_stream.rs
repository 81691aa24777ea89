//! A TCP connection that is set up, before a queue pair uses it.

use std::net::TcpStream;

/// The end of a stream that has sent some of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// This adapter.
    Local,
    /// The peer.
    Peer,
}

impl Sender {
    /// The other end.
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Local => Self::Peer,
            Self::Peer => Self::Local,
        }
    }
}

/// A TCP connection that is set up.
#[derive(Debug)]
pub(crate) struct ConnectedStream {
    /// The connection, non-blocking.
    pub(crate) socket: TcpStream,
    /// The bytes of the set-up in order, for the capture. The side that connected sent the first.
    pub(crate) set_up: Vec<(Sender, Vec<u8>)>,
    /// Bytes that the peer sent after the set-up.
    pub(crate) rest: Vec<u8>,
    /// The peer was connected by queue pair number, without a connection manager.
    pub(crate) by_number: bool,
}

impl ConnectedStream {
    /// Creates a connection. `set_up` ends with `rest`, which this function cuts off.
    pub(crate) fn new(socket: TcpStream, mut set_up: Vec<(Sender, Vec<u8>)>, rest: Vec<u8>) -> Self {
        if let Some((Sender::Peer, last)) = set_up.last_mut() {
            last.truncate(last.len() - rest.len());
        }
        Self { socket, set_up, rest, by_number: false }
    }
}
