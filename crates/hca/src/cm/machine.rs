//! What the connection manager asks of the machine: addresses, routes, ports.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use nichrome_cm::{Errno, Host};
use nichrome_port::udp::UdpError;
use nichrome_wire::cm::PortSpace;
use nichrome_wire::rdma::ROCE_PORT;

/// The machine of an adapter.
pub(crate) struct Machine {
    address: IpAddr,
}

impl Machine {
    pub(crate) fn new(address: IpAddr) -> Self {
        Self { address }
    }

    /// The address to send from to a destination: the adapter's, if the kernel has a route from there.
    pub(super) fn source_to(&self, destination: IpAddr) -> Result<IpAddr, Errno> {
        if destination.is_ipv4() != self.address.is_ipv4() {
            return Err(Errno::ENODEV);
        }
        let route = UdpSocket::bind(SocketAddr::new(self.address, 0))
            .and_then(|socket| socket.connect(SocketAddr::new(destination, ROCE_PORT)));
        route.map(|()| self.address).map_err(|error| errno(&error))
    }
}

impl Host for Machine {
    fn source_index(&mut self, address: IpAddr) -> Option<u8> {
        (address == self.address).then_some(0)
    }

    fn reserve_port(&mut self, _: PortSpace, _: IpAddr, _: u16) -> bool {
        true
    }

    fn listen(&mut self, _: PortSpace, _: u16) -> bool {
        true
    }

    fn release_port(&mut self, _: PortSpace, _: u16) {}
}

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EHOSTUNREACH, Errno)
}

/// The error number of a group that cannot be joined.
pub(crate) fn join_errno(error: &UdpError) -> Errno {
    match error {
        UdpError::Taken(_) => Errno::EADDRINUSE,
        UdpError::NotLocal(_) | UdpError::NoLoopback(_) | UdpError::NoSlot { .. } => Errno::EADDRNOTAVAIL,
        UdpError::Io { error, .. } => Errno(error.raw_os_error()),
    }
}
