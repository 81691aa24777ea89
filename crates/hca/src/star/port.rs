//! StaR's port: UDP for its packets, TCP for set-up, both at the adapter's address.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nichrome_port::udp::{ReceiveBatch, UdpError, UdpSocket};
use nichrome_wire::star::STAR_PORT;
use rustix::event::epoll;
use rustix::io::{self, Errno};

/// What comes for StaR's port. What goes to it is sent from RoCE's socket: the source port means nothing.
pub(crate) struct StarPort {
    socket: UdpSocket,
    batch: ReceiveBatch,
    /// Readable when this socket is, or RoCE's.
    either: OwnedFd,
}

impl StarPort {
    /// Opens the port at the address of `roce`.
    pub(crate) fn open(roce: &UdpSocket) -> Result<Self, UdpError> {
        let address = SocketAddr::new(roce.local().ip(), STAR_PORT);
        let socket = UdpSocket::open(address)?;
        let either =
            watch([roce.as_fd(), socket.as_fd()]).map_err(|error| UdpError::Io { address, error })?;
        Ok(Self { socket, batch: ReceiveBatch::default(), either })
    }

    /// Opens the port for set-up at the address of `roce`.
    pub(crate) fn listen(roce: SocketAddr) -> Result<TcpListener, UdpError> {
        let address = SocketAddr::new(roce.ip(), STAR_PORT);
        let listener = TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        listener.map_err(|error| match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
            Errno::ADDRINUSE => UdpError::Taken(address),
            error => UdpError::Io { address, error },
        })
    }

    pub(crate) fn either(&self) -> BorrowedFd<'_> {
        self.either.as_fd()
    }

    /// Receives a batch; returns whether there may be more.
    pub(crate) fn receive(&mut self) -> bool {
        self.batch.receive(&self.socket).unwrap_or(false)
    }

    pub(crate) fn batch(&self) -> &ReceiveBatch {
        &self.batch
    }
}

fn watch(sockets: [BorrowedFd<'_>; 2]) -> io::Result<OwnedFd> {
    let either = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for socket in sockets {
        epoll::add(&either, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(either)
}
