//! TCP ports that peers connect to.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use nichrome_port::udp::UdpError;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_reuseport;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

/// Connections that wait to be accepted; net.core.somaxconn bounds it too, by default 4,096. Linux drops
/// further SYNs, which their senders retransmit after 1 s.
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
    listen(address).map_err(|error| failed(address, Errno::from_io_error(&error).unwrap_or(Errno::IO)))
}

/// Binds a TCP port without listening, so that connections to it are refused. Other processes of this user
/// may reserve it too, and no other user may bind it.
///
/// # Errors
/// The port is taken.
pub(crate) fn reserve_port(address: SocketAddr) -> Result<OwnedFd, UdpError> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let reserve = || {
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        set_socket_reuseport(&socket, true)?;
        bind(&socket, &address)?;
        Ok(socket)
    };
    reserve().map_err(|error| failed(address, error))
}

fn failed(address: SocketAddr, error: Errno) -> UdpError {
    match error {
        Errno::ADDRINUSE => UdpError::Taken(address),
        error => UdpError::Io { address, error: error.into() },
    }
}
