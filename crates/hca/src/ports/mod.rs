//! The ports of an adapter, and one descriptor that is readable while any of them has input.

mod datagrams;
mod side_ports;
mod streams;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use nichrome_port::udp::{MemoryLinks, ServicePorts, UdpError, UdpSocket};
use nichrome_port::{Epoll, Interest};
use nichrome_wire::rdma::ROCE_PORT;
use rustix::io::Errno;

use crate::config::{AdapterConfig, LocalPath, OpenError, Reception, RoceSocket, Transport};

use self::datagrams::{DatagramPort, pass_on};
pub(crate) use self::datagrams::{Sink, flow_between};
use self::side_ports::SidePorts;
pub(crate) use self::streams::{StreamCounters, StreamPorts};

/// The ports of an adapter. Datagrams of every transport are sent from RoCE's port: StaR ignores the source
/// port.
pub(crate) struct Ports {
    roce: DatagramPort,
    others: Vec<DatagramPort>,
    /// Watches all ports if there are several. The driver waits for a single port directly: an epoll in
    /// between costs 0.9 µs per wake-up. The driver's waker is not a member: it would wake programs that wait
    /// for the ports beside the thread.
    ready: Option<Epoll>,
    /// Links through memory to other processes of this user on this machine. They watch RoCE's socket, too.
    links: Option<MemoryLinks>,
    /// Calls of [`receive`](Self::receive).
    calls: usize,
    /// The sockets of multicast groups and of requests to connection managers, once there are any. Only the
    /// driver's thread waits for them.
    side: Option<SidePorts>,
    /// The streams of iWARP. RoCE's port then only reserves the address and is not received from.
    streams: Option<StreamPorts>,
}

/// While messages arrive through memory, every eighth call of [`Ports::receive`] also receives from the
/// socket: a system call costs more than a message from memory.
const SOCKET_INTERVAL: usize = 8;

/// Checks whether the configured transport supports the configured reception, local path and impairments.
///
/// # Errors
/// It does not.
pub(crate) fn check(config: &AdapterConfig) -> Result<(), OpenError> {
    check_local(config)?;
    match (config.transport, config.reception, &config.faults) {
        (Transport::Star, Reception::Packets, _) => Err(OpenError::StarFromPackets),
        (Transport::Iwarp, Reception::Packets, _) => Err(OpenError::IwarpFromPackets),
        (Transport::Iwarp, Reception::Socket, Some(faults)) => Ok(StreamPorts::check(faults)?),
        _ => Ok(()),
    }
}

/// Checks whether datagrams can take the configured path to other processes.
fn check_local(config: &AdapterConfig) -> Result<(), OpenError> {
    let what = match (config.local, config.transport, config.reception, &config.faults) {
        (LocalPath::Sockets, ..) | (_, Transport::Roce, Reception::Socket, None) => return Ok(()),
        (_, Transport::Star, ..) => "StaR's packets",
        (_, Transport::Iwarp, ..) => "iWARP's bytes",
        (_, _, Reception::Packets, _) => "packets received from the interfaces",
        (.., Some(_)) => "impaired packets",
    };
    Err(OpenError::NotThroughMemory(what))
}

impl Ports {
    /// Opens the ports of the configured transport, at the address of `socket`.
    ///
    /// # Errors
    /// A port is taken, or cannot be received from as configured.
    pub(crate) fn open(socket: RoceSocket, config: &AdapterConfig) -> Result<Self, OpenError> {
        check_local(config)?;
        let mut streams = None;
        let links = match config.local {
            LocalPath::Sockets => None,
            LocalPath::Memory => {
                Some(MemoryLinks::listen(socket.udp().local(), socket.slot()).map_err(OpenError::Links)?)
            }
        };
        let (roce, others) = match (config.transport, config.reception) {
            (Transport::Roce, Reception::Socket) => (DatagramPort::receiving_from(socket), vec![]),
            (Transport::Roce, Reception::Packets) => (DatagramPort::receiving_packets(socket)?, vec![]),
            (Transport::Star, Reception::Socket) => {
                let star = DatagramPort::receiving_from(socket.star()?);
                (DatagramPort::receiving_from(socket), vec![star])
            }
            (Transport::Star, Reception::Packets) => return Err(OpenError::StarFromPackets),
            (Transport::Iwarp, Reception::Socket) => {
                let ready = Epoll::new().map_err(OpenError::Thread)?;
                streams = Some(StreamPorts::new(ready, config.iwarp.silence, config.faults.as_ref())?);
                (DatagramPort::receiving_from(socket), vec![])
            }
            (Transport::Iwarp, Reception::Packets) => return Err(OpenError::IwarpFromPackets),
        };
        let ready = if others.is_empty() { None } else { Some(Epoll::new().map_err(OpenError::Thread)?) };
        if let Some(ready) = &ready {
            for (token, port) in [&roce].into_iter().chain(&others).enumerate() {
                ready.add(port, token as u64, Interest::READ).map_err(OpenError::Thread)?;
            }
        }
        if let Some(links) = &links {
            links.watch(&roce).map_err(OpenError::Links)?;
        }
        Ok(Self { roce, others, ready, links, calls: 0, side: None, streams })
    }

    /// The socket that datagrams are sent from, at the adapter's address.
    #[inline]
    pub(crate) fn socket(&self) -> &UdpSocket {
        self.roce.socket()
    }

    /// A duplicate of the descriptor that is readable while anything waits at a port.
    ///
    /// # Errors
    /// No descriptor is free.
    pub(crate) fn readiness(&self) -> Result<OwnedFd, OpenError> {
        let ready = match (&self.streams, &self.links, &self.ready) {
            (Some(streams), ..) => streams.as_fd(),
            (None, Some(links), _) => links.as_fd(),
            (None, None, Some(ready)) => ready.as_fd(),
            (None, None, None) => self.roce.as_fd(),
        };
        let duplicate = ready.try_clone_to_owned();
        duplicate.map_err(|error| OpenError::Thread(Errno::from_io_error(&error).unwrap_or(Errno::MFILE)))
    }

    /// The links to other processes of this machine, if the adapter has them.
    #[inline]
    pub(crate) fn links_mut(&mut self) -> Option<&mut MemoryLinks> {
        self.links.as_mut()
    }

    /// The streams of iWARP.
    #[inline]
    pub(crate) fn streams(&self) -> Option<&StreamPorts> {
        self.streams.as_ref()
    }

    /// The streams of iWARP, mutable.
    #[inline]
    pub(crate) fn streams_mut(&mut self) -> Option<&mut StreamPorts> {
        self.streams.as_mut()
    }

    /// Receives a batch of datagrams from each port; returns true if more may wait.
    #[inline]
    pub(crate) fn receive(&mut self, sink: &mut impl Sink) -> bool {
        self.calls += 1;
        if let Some(links) = &mut self.links {
            let local = self.roce.socket().local();
            let has_received = links.receive(|arrival| pass_on(&arrival, local, sink));
            if has_received && !self.calls.is_multiple_of(SOCKET_INTERVAL) {
                return links.has_message();
            }
        }
        let more = self.roce.receive(sink);
        let more = self.others.iter_mut().fold(more, |more, port| port.receive(sink) || more);
        match &mut self.side {
            None => more,
            Some(side) => side.receive(sink) || more,
        }
    }

    /// Returns how many messages of several datagrams the kernel dropped instead of passing them on as
    /// packets.
    pub(crate) fn dropped_offloads(&self) -> u64 {
        self.roce.dropped_offloads()
    }

    /// The slot at a shared address.
    pub(crate) fn slot(&self) -> Option<usize> {
        self.roce.slot()
    }

    /// Receives requests of connection managers from now on. Returns the service ports of this process and a
    /// duplicate of the descriptor that is readable while a datagram waits at a side port; `None` where the
    /// address is not shared.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn open_services(&mut self) -> Result<Option<(ServicePorts, OwnedFd)>, UdpError> {
        let Some((services, requests)) = self.roce.open_services()? else { return Ok(None) };
        let address = self.socket().local();
        let (side, duplicate) = self.side_ports(address)?;
        side.add_requests(requests)?;
        Ok(Some((services, duplicate)))
    }

    /// Joins a multicast group; returns a duplicate of the descriptor that is readable while a datagram waits
    /// at a side port.
    ///
    /// # Errors
    /// The kernel's: no membership or descriptor is left, or the interface takes no multicast.
    pub(crate) fn join(&mut self, group: IpAddr) -> Result<OwnedFd, UdpError> {
        let local = self.socket().local().ip();
        let (side, duplicate) = self.side_ports(SocketAddr::new(group, ROCE_PORT))?;
        side.join(group, local).map(|()| duplicate)
    }

    /// The side ports, and a duplicate of their descriptor. Errors name `address`.
    fn side_ports(&mut self, address: SocketAddr) -> Result<(&mut SidePorts, OwnedFd), UdpError> {
        let failed = |error: Errno| UdpError::Io { address, error: error.into() };
        let side = match &mut self.side {
            Some(side) => side,
            none => none.insert(SidePorts::new().map_err(failed)?),
        };
        let duplicate = side.as_fd().try_clone_to_owned();
        let duplicate =
            duplicate.map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::MFILE)))?;
        Ok((side, duplicate))
    }

    /// Gives up the sockets in a forked child; its parent keeps them. The child uses none from now on.
    pub(crate) fn close_in_child(&mut self) {
        [&self.roce].into_iter().chain(&self.others).for_each(DatagramPort::close_in_child);
        (self.links, self.side) = (None, None);
        if let Some(streams) = &mut self.streams {
            streams.close_in_child();
        }
    }

    /// Leaves a multicast group.
    pub(crate) fn leave(&mut self, group: IpAddr) {
        if let Some(side) = &mut self.side {
            side.leave(group);
        }
    }
}
