//! TCP ports that peers connect to.

use std::io;
use std::net::{SocketAddr, TcpListener};

use nichrome_port::udp::UdpError;
use rustix::io::Errno;

/// Connections that wait to be accepted; net.core.somaxconn bounds it too, by default 4,096. Linux drops further SYNs, which
/// their senders retransmit after 1 s.
const BACKLOG: i32 = 4096;

/// Listens at an address and port.
///
/// # Errors
/// The kernel's.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// Opens the TCP port of an adapter's set-up.
///
/// # Errors
/// The port is taken.
pub(crate) fn open_port(address: SocketAddr) -> Result<TcpListener, UdpError> {
    listen(address).map_err(|error| match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
        Errno::ADDRINUSE => UdpError::Taken(address),
        error => UdpError::Io { address, error: error.into() },
    })
}
