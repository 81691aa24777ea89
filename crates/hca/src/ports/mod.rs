//! The ports of an adapter, and the one descriptor that is readable while anything waits at any of them.

mod datagrams;
mod groups;
mod streams;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use nichrome_port::udp::{UdpError, UdpSocket};
use nichrome_port::{Epoll, Interest};
use nichrome_wire::rdma::ROCE_PORT;
use rustix::io::Errno;

use crate::config::{AdapterConfig, OpenError, Reception, RoceSocket, Transport};

use self::datagrams::DatagramPort;
pub(crate) use self::datagrams::{Sink, flow_between};
use self::groups::Groups;
pub(crate) use self::streams::{StreamCounters, StreamPorts};

/// The ports of an adapter. Datagrams of every transport are sent from RoCE's port: StaR ignores the source port.
pub(crate) struct Ports {
    roce: DatagramPort,
    others: Vec<DatagramPort>,
    /// Watches all ports if there are several. A single port is waited for directly: an epoll in between costs 0.9 µs per
    /// wake-up. The driver's waker is not a member: programs that wait for the ports beside the thread would wake with it.
    ready: Option<Epoll>,
    /// The multicast groups, once one was joined. The driver's thread waits for these.
    groups: Option<Groups>,
    /// The streams of iWARP. RoCE's port then only reserves the address and is not received from.
    streams: Option<StreamPorts>,
}

impl Ports {
    /// Opens the ports of the configured transport, at the address of `socket`.
    ///
    /// # Errors
    /// A port is taken, or cannot be received from as configured.
    pub(crate) fn open(socket: RoceSocket, config: &AdapterConfig) -> Result<Self, OpenError> {
        let mut streams = None;
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
                streams = Some(StreamPorts::new(ready, config.faults.as_ref())?);
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
        Ok(Self { roce, others, ready, groups: None, streams })
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
        let ready = match (&self.streams, &self.ready) {
            (Some(streams), _) => streams.as_fd(),
            (None, Some(ready)) => ready.as_fd(),
            (None, None) => self.roce.as_fd(),
        };
        let duplicate = ready.try_clone_to_owned();
        duplicate.map_err(|error| OpenError::Thread(Errno::from_io_error(&error).unwrap_or(Errno::MFILE)))
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
        let more = self.roce.receive(sink);
        let more = self.others.iter_mut().fold(more, |more, port| port.receive(sink) || more);
        match &mut self.groups {
            None => more,
            Some(groups) => groups.receive(sink) || more,
        }
    }

    /// Joins a multicast group; returns a duplicate of the descriptor that is readable while a datagram to any group waits.
    ///
    /// # Errors
    /// The kernel's: no membership or descriptor is left, or the interface takes no multicast.
    pub(crate) fn join(&mut self, group: IpAddr) -> Result<OwnedFd, UdpError> {
        let local = self.socket().local().ip();
        let failed = |error| UdpError::Io { address: SocketAddr::new(group, ROCE_PORT), error };
        let groups = match &mut self.groups {
            Some(groups) => groups,
            none => none.insert(Groups::new().map_err(failed)?),
        };
        let duplicate = groups.as_fd().try_clone_to_owned();
        let duplicate =
            duplicate.map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::MFILE)))?;
        groups.join(group, local).map(|()| duplicate)
    }

    /// Leaves a multicast group.
    pub(crate) fn leave(&mut self, group: IpAddr) {
        if let Some(groups) = &mut self.groups {
            groups.leave(group);
        }
    }
}
