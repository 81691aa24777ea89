//! The sockets of multicast groups: one for each group.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use nichrome_port::udp::{ReceiveBatch, UdpError, UdpSocket};
use nichrome_port::{Epoll, Interest};
use nichrome_wire::Instant;
use nichrome_wire::rdma::ROCE_PORT;

use super::datagrams::{Sink, receive_batch};

/// The groups that an adapter has joined.
pub(crate) struct Groups {
    /// A place for each group; its index is its token in `ready`.
    sockets: Vec<Option<UdpSocket>>,
    /// Readable while a datagram waits at any socket.
    ready: Epoll,
    tokens: Vec<u64>,
    batch: ReceiveBatch,
}

impl Groups {
    /// Joins no group yet.
    ///
    /// # Errors
    /// No descriptor is free.
    pub(super) fn new() -> rustix::io::Result<Self> {
        let (sockets, tokens, batch) = (Vec::new(), Vec::new(), ReceiveBatch::default());
        Ok(Self { sockets, ready: Epoll::new()?, tokens, batch })
    }

    /// Joins a group on the interface of the address `local`.
    ///
    /// # Errors
    /// The kernel's: no membership or descriptor is left, or the interface takes no multicast.
    pub(super) fn join(&mut self, group: IpAddr, local: IpAddr) -> Result<(), UdpError> {
        let address = SocketAddr::new(group, ROCE_PORT);
        let socket = UdpSocket::open_group(address, local)?;
        let place = self.sockets.iter().position(Option::is_none).unwrap_or(self.sockets.len());
        let added = self.ready.add(&socket, place as u64, Interest::READ);
        added.map_err(|error| UdpError::Io { address, error })?;
        match self.sockets.get_mut(place) {
            Some(vacant) => *vacant = Some(socket),
            None => self.sockets.push(Some(socket)),
        }
        Ok(())
    }

    /// Leaves a group.
    pub(super) fn leave(&mut self, group: IpAddr) {
        let is_of_group = |socket: &UdpSocket| socket.local().ip() == group;
        for place in &mut self.sockets {
            *place = place.take().filter(|socket| !is_of_group(socket));
        }
    }

    /// Receives a batch from each socket where datagrams wait; returns true if more may wait.
    pub(super) fn receive(&mut self, sink: &mut impl Sink) -> bool {
        let Self { sockets, ready, tokens, batch } = self;
        if ready.wait(tokens, Some(Instant::ZERO)).is_err() {
            return false;
        }
        let ready = tokens.iter().filter_map(|token| sockets.get(usize::try_from(*token).ok()?)?.as_ref());
        let mut more = false;
        for socket in ready {
            more |= receive_batch(batch, socket, sink);
        }
        more
    }
}

impl AsFd for Groups {
    /// Readable while a datagram waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}
