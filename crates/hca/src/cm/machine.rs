//! Answers the connection manager's questions about the machine: addresses, routes, ports.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use nichrome_cm::{Errno, Host, PortCondition, PortUse, ReserveError};
use nichrome_port::udp::{ServicePort, ServicePorts, ServiceUse, UdpError};
use nichrome_wire::cm::PortSpace;
use nichrome_wire::rdma::ROCE_PORT;

use super::error::errno;
use super::tcp_ports::TcpPorts;
use crate::management_steering::service_port;

/// The addresses, routes and ports of an adapter's machine; by default without an open adapter.
#[derive(Default)]
pub(crate) struct Machine {
    /// The adapter's address; `None` until it is open.
    address: Option<IpAddr>,
    /// Ports that the processes at the address share; `None` if the address is not shared.
    services: Option<ServicePorts>,
    /// TCP's ports, if the adapter's transport is iWARP.
    tcp: Option<TcpPorts>,
}

impl Machine {
    pub(crate) fn new(address: IpAddr, services: Option<ServicePorts>) -> Self {
        Self { address: Some(address), services, tcp: None }
    }

    /// The machine of an adapter whose transport is iWARP.
    pub(crate) fn of_iwarp(address: IpAddr) -> Self {
        Self { address: Some(address), services: None, tcp: Some(TcpPorts::default()) }
    }

    /// Gives up the ports in a forked child; its parent keeps them. Commands reserve no ports from now on.
    pub(super) fn close_in_child(&mut self) {
        self.tcp = None;
        if let Some(services) = self.services.take() {
            services.close_in_child();
        }
    }

    /// TCP's ports; `None` if the adapter's transport is not iWARP.
    pub(super) fn tcp_ports(&mut self) -> Option<&mut TcpPorts> {
        self.tcp.as_mut()
    }

    /// Calls `f` with the shared ports and one of their ports; returns `alone` if the address is not shared.
    fn with_service<T>(
        &self,
        (space, port): (PortSpace, u16),
        alone: T,
        f: impl FnOnce(&ServicePorts, ServicePort) -> T,
    ) -> T {
        match (&self.services, service_port(space, port)) {
            (Some(services), Some(port)) => f(services, port),
            _ => alone,
        }
    }

    /// The source address for a destination: the adapter's, if the kernel has a route from it.
    pub(super) fn source_to(&self, destination: IpAddr) -> Result<IpAddr, Errno> {
        let address = self.address.ok_or(Errno::ENODEV)?;
        if destination.is_ipv4() != address.is_ipv4() {
            return Err(Errno::ENODEV);
        }
        let route = UdpSocket::bind(SocketAddr::new(address, 0))
            .and_then(|socket| socket.connect(SocketAddr::new(destination, ROCE_PORT)));
        route.map(|()| address).map_err(|error| errno(&error))
    }
}

impl Host for Machine {
    fn source_index(&mut self, address: IpAddr) -> Option<u8> {
        (Some(address) == self.address).then_some(0)
    }

    fn is_wildcard(&self, address: IpAddr) -> bool {
        let is_elsewhere = || self.address.is_some_and(|own| !own.is_loopback());
        address.is_unspecified() || address.is_loopback() && is_elsewhere()
    }

    fn reserve_port(
        &mut self,
        space: PortSpace,
        address: IpAddr,
        port: u16,
        condition: PortCondition,
    ) -> Result<(), ReserveError> {
        if let (PortSpace::Tcp, Some(tcp), Some(own)) = (space, &mut self.tcp, self.address) {
            let address = if address.is_unspecified() { own } else { address };
            return tcp.reserve(SocketAddr::new(address, port), condition);
        }
        let is_reserved = self.with_service((space, port), true, ServicePorts::reserve);
        is_reserved.then_some(()).ok_or(ReserveError::Taken)
    }

    fn listen(&mut self, space: PortSpace, port: u16) -> bool {
        if let Some(tcp) = &mut self.tcp {
            return space == PortSpace::Tcp && tcp.listen(port);
        }
        self.with_service((space, port), true, |services, port| services.listen(port).is_ok())
    }

    fn use_by_others(&mut self, space: PortSpace, port: u16) -> PortUse {
        self.with_service((space, port), PortUse::Free, |services, port| match services.use_by_others(port) {
            ServiceUse::Free => PortUse::Free,
            ServiceUse::Reserved => PortUse::Reserved,
            ServiceUse::Listening => PortUse::Listening,
        })
    }

    fn release_port(&mut self, space: PortSpace, port: u16) {
        if let (PortSpace::Tcp, Some(tcp)) = (space, &mut self.tcp) {
            tcp.release(port);
        }
        self.with_service((space, port), (), ServicePorts::release);
    }

    fn stop_listening(&mut self, space: PortSpace, port: u16) {
        self.with_service((space, port), (), ServicePorts::stop_listening);
    }
}

/// The error number of a socket that cannot be opened.
pub(crate) fn errno_of(error: &UdpError) -> rustix::io::Errno {
    match error {
        UdpError::Taken(_) => rustix::io::Errno::ADDRINUSE,
        UdpError::NotLocal(_) | UdpError::NoLoopback(_) | UdpError::NoSlot { .. } => {
            rustix::io::Errno::ADDRNOTAVAIL
        }
        UdpError::Io { error, .. } => rustix::io::Errno::from_raw_os_error(error.raw_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn ports_of_datagram_services_are_no_tcp_ports() {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let mut machine = Machine::of_iwarp(here);
        for space in [PortSpace::Tcp, PortSpace::Udp] {
            assert_eq!(machine.reserve_port(space, here, 0, PortCondition::Reusable), Ok(()));
        }
        machine.release_port(PortSpace::Udp, 0);
        assert!(machine.listen(PortSpace::Tcp, 0));
    }
}
