//! TCP ports of a connection manager: bound while identifiers use them, so that other processes cannot bind
//! them.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use nichrome_cm::{Errno, PortCondition, ReserveError};
use rustix::io;
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};

use super::error::is_shortage;

/// Maximum number of connections that wait for accept(2); net.core.somaxconn bounds it too.
const BACKLOG: i32 = 4096;

/// The ports of the process, by number.
#[derive(Default)]
pub(super) struct TcpPorts {
    bound: BTreeMap<u16, OwnedFd>,
    /// The value is `None` once the listener was taken.
    listening: BTreeMap<u16, Option<TcpListener>>,
}

impl TcpPorts {
    /// Reserves a port.
    ///
    /// # Errors
    /// Another process has it, the condition is not met, or no socket can be opened.
    pub(super) fn reserve(
        &mut self,
        address: SocketAddr,
        condition: PortCondition,
    ) -> Result<(), ReserveError> {
        let socket = bound(address, condition).map_err(|error| match is_shortage(error) {
            true => ReserveError::NoSocket(Errno(error.raw_os_error())),
            false => ReserveError::Taken,
        })?;
        self.bound.insert(address.port(), socket);
        Ok(())
    }

    /// Listens at a reserved port; returns false if another process does. Identifiers of the two address
    /// families share a listener: the adapter has one address.
    pub(super) fn listen(&mut self, port: u16) -> bool {
        if self.listening.contains_key(&port) {
            return true;
        }
        let Some(socket) = self.bound.remove(&port) else { return false };
        if listen(&socket, BACKLOG).is_err() {
            self.bound.insert(port, socket);
            return false;
        }
        self.listening.insert(port, Some(socket.into()));
        true
    }

    /// Reserves a port again whose listener was closed, for identifiers that are still bound to it.
    pub(super) fn listener_closed(&mut self, address: SocketAddr) {
        if self.listening.remove(&address.port()).is_some() {
            // Fails if another process has bound the port meanwhile; identifiers cannot listen there then.
            let _ = self.reserve(address, PortCondition::Reusable);
        }
    }

    /// Takes the listener of a port; `None` if it was taken.
    pub(super) fn take_listener(&mut self, port: u16) -> Option<TcpListener> {
        self.listening.get_mut(&port)?.take()
    }

    /// Takes the socket of a reserved port, to connect it.
    pub(super) fn take_bound(&mut self, port: u16) -> Option<OwnedFd> {
        self.bound.remove(&port)
    }

    /// Releases a port.
    pub(super) fn release(&mut self, port: u16) {
        self.bound.remove(&port);
        self.listening.remove(&port);
    }
}

/// A socket at an address. The port may be reused after its connections have ended.
fn bound(address: SocketAddr, condition: PortCondition) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_reuseaddr(&socket, condition == PortCondition::Reusable)?;
    bind(&socket, &address)?;
    set_socket_reuseaddr(&socket, true)?;
    Ok(socket)
}
