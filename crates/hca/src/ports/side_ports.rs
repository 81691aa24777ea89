//! Sockets beside an adapter's port: one for each multicast group, and one for connection managers' requests
//! for ports at which no process listens.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use nichrome_port::udp::{ReceiveBatch, UdpError, UdpSocket};
use nichrome_port::{Epoll, Interest};
use nichrome_wire::Instant;
use nichrome_wire::rdma::ROCE_PORT;

use super::datagrams::{Sink, receive_batch};

/// Calls of [`SidePorts::receive`] per check of the sockets while there are no groups: a check is a system
/// call, and requests for ports without a listener may wait for their refusal.
const CALLS_PER_CHECK: u32 = 64;

/// The sockets beside an adapter's port.
pub(crate) struct SidePorts {
    /// A place for each socket; its index is its token in `ready`.
    sockets: Vec<Option<SidePort>>,
    /// Groups that were joined.
    groups: usize,
    /// Calls of [`SidePorts::receive`] since the last check.
    calls: u32,
    /// Readable while a datagram waits at any socket.
    ready: Epoll,
    tokens: Vec<u64>,
    batch: ReceiveBatch,
}

/// The socket of a group, or of requests.
struct SidePort {
    socket: UdpSocket,
    /// How often the group was joined and not left; 1 for the socket of requests.
    joins: usize,
}

impl SidePorts {
    /// Starts without sockets.
    ///
    /// # Errors
    /// No descriptor is free.
    pub(super) fn new() -> rustix::io::Result<Self> {
        let (sockets, tokens, batch) = (Vec::new(), Vec::new(), ReceiveBatch::default());
        Ok(Self { sockets, groups: 0, calls: 0, ready: Epoll::new()?, tokens, batch })
    }

    /// Joins a group on the interface of the address `local`. The group is left after as many calls of
    /// [`leave`](Self::leave).
    ///
    /// # Errors
    /// The kernel's: no membership or descriptor is left, or the interface takes no multicast.
    pub(super) fn join(&mut self, group: IpAddr, local: IpAddr) -> Result<(), UdpError> {
        if let Some(joined) = self.sockets.iter_mut().flatten().find(|joined| joined.is_of(group)) {
            joined.joins += 1;
            return Ok(());
        }
        let address = SocketAddr::new(group, ROCE_PORT);
        let socket = UdpSocket::open_group(address, local)?;
        self.add(socket).map_err(|error| UdpError::Io { address, error: error.into() })?;
        self.groups += 1;
        Ok(())
    }

    /// Adds the socket that receives requests for service ports at which no process listens.
    ///
    /// # Errors
    /// The kernel cannot watch the socket.
    pub(super) fn add_requests(&mut self, socket: UdpSocket) -> Result<(), UdpError> {
        let address = socket.local();
        self.add(socket).map_err(|error| UdpError::Io { address, error: error.into() })
    }

    fn add(&mut self, socket: UdpSocket) -> rustix::io::Result<()> {
        let place = self.sockets.iter().position(Option::is_none).unwrap_or(self.sockets.len());
        self.ready.add(&socket, place as u64, Interest::READ)?;
        let added = Some(SidePort { socket, joins: 1 });
        match self.sockets.get_mut(place) {
            Some(vacant) => *vacant = added,
            None => self.sockets.push(added),
        }
        Ok(())
    }

    /// Leaves a group.
    pub(super) fn leave(&mut self, group: IpAddr) {
        let is_of_group =
            |place: &&mut Option<SidePort>| place.as_ref().is_some_and(|joined| joined.is_of(group));
        if let Some(place) = self.sockets.iter_mut().find(is_of_group) {
            if let Some(SidePort { socket, joins: 1 }) = place {
                // Closing the socket does not end its registration while a forked child has it, too.
                let _ = self.ready.remove(&*socket);
            }
            *place = place.take().and_then(SidePort::after_leave);
            self.groups -= usize::from(place.is_none());
        }
    }

    /// Receives a batch from each socket where datagrams wait; returns true if more may wait.
    pub(super) fn receive(&mut self, sink: &mut impl Sink) -> bool {
        self.calls = (self.calls + 1) % CALLS_PER_CHECK;
        if self.groups == 0 && self.calls != 0 {
            return false;
        }
        let Self { sockets, ready, tokens, batch, .. } = self;
        if ready.wait(tokens, Some(Instant::ZERO)).is_err() {
            return false;
        }
        let ready = tokens.iter().filter_map(|token| sockets.get(usize::try_from(*token).ok()?)?.as_ref());
        let mut more = false;
        for SidePort { socket, .. } in ready {
            more |= receive_batch(batch, socket, sink);
        }
        more
    }
}

impl SidePort {
    fn is_of(&self, group: IpAddr) -> bool {
        self.socket.local().ip() == group
    }

    /// The membership after one leave; `None` after the last.
    fn after_leave(self) -> Option<Self> {
        let joins = self.joins - 1;
        (joins > 0).then_some(Self { joins, ..self })
    }
}

impl AsFd for SidePorts {
    /// Readable while a datagram waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use nichrome_port::clock;
    use nichrome_port::udp::{Envelope, SendBatch};
    use nichrome_wire::TrafficClass;

    use super::*;

    /// A copy of the socket keeps the registration, as a forked child does.
    #[test]
    fn a_group_that_was_left_does_not_wake_where_a_forked_child_has_its_socket() {
        let (group, local) = (IpAddr::from([239, 255, 77, 9]), IpAddr::V4(Ipv4Addr::LOCALHOST));
        let mut ports = SidePorts::new().unwrap();
        let is_readable = |ports: &SidePorts| clock::wait([ports.as_fd()], Some(Instant::ZERO)) == Ok([true]);
        (0..2).for_each(|_| ports.join(group, local).unwrap());
        let copy = ports.sockets[0].as_ref().unwrap().socket.as_fd().try_clone_to_owned().unwrap();
        ports.leave(group);
        let sender = UdpSocket::open_loopback(14_795).unwrap();
        let mut batch = SendBatch::default();
        let peer = SocketAddr::new(group, ROCE_PORT);
        batch.stage(Envelope { peer, traffic_class: TrafficClass(0), hop_limit: Some(1) }, 1, 1);
        batch.send(&sender);
        clock::wait([copy.as_fd()], Some(clock::now() + std::time::Duration::from_secs(5))).unwrap();
        assert!(is_readable(&ports), "joined twice and left once");
        ports.leave(group);
        assert!(!is_readable(&ports));
    }
}
