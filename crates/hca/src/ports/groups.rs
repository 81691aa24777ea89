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
    sockets: Vec<Option<Membership>>,
    /// Readable while a datagram waits at any socket.
    ready: Epoll,
    tokens: Vec<u64>,
    batch: ReceiveBatch,
}

/// A group's socket.
struct Membership {
    socket: UdpSocket,
    /// How often the group was joined and not left.
    joins: usize,
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

    /// Joins a group on the interface of the address `local`. As many calls of [`leave`](Self::leave) leave it.
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
        let place = self.sockets.iter().position(Option::is_none).unwrap_or(self.sockets.len());
        let added = self.ready.add(&socket, place as u64, Interest::READ);
        added.map_err(|error| UdpError::Io { address, error })?;
        let joined = Some(Membership { socket, joins: 1 });
        match self.sockets.get_mut(place) {
            Some(vacant) => *vacant = joined,
            None => self.sockets.push(joined),
        }
        Ok(())
    }

    /// Leaves a group.
    pub(super) fn leave(&mut self, group: IpAddr) {
        let is_of_group =
            |place: &&mut Option<Membership>| place.as_ref().is_some_and(|joined| joined.is_of(group));
        if let Some(place) = self.sockets.iter_mut().find(is_of_group) {
            *place = place.take().and_then(Membership::left_once);
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
        for Membership { socket, .. } in ready {
            more |= receive_batch(batch, socket, sink);
        }
        more
    }
}

impl Membership {
    fn is_of(&self, group: IpAddr) -> bool {
        self.socket.local().ip() == group
    }

    /// What remains when one of its joins is taken back.
    fn left_once(self) -> Option<Self> {
        let joins = self.joins - 1;
        (joins > 0).then_some(Self { joins, ..self })
    }
}

impl AsFd for Groups {
    /// Readable while a datagram waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}
