//! The socket.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{self, Errno};
use rustix::net::sockopt::socket_recv_buffer_size;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use thiserror::Error;

use super::local_addresses::interface_mtu;
use super::socket_options::{
    coalesce, do_not_coalesce, prepare_ipv4, prepare_ipv6, reserve_room, segments, send_through_own_interface,
};

/// Why there is no socket at an address.
#[derive(Debug, Error)]
pub enum UdpError {
    /// Another process has it.
    #[error("{0} is taken: another process, or the kernel's rdma_rxe, uses it: choose another address")]
    Taken(SocketAddr),
    /// It is not one of this machine's.
    #[error("{0} is no address of this machine: 'ip address' lists those that are")]
    NotLocal(IpAddr),
    /// Every slot of the address is taken.
    #[error("{address} is shared by {slots} processes already, which is the most")]
    NoSlot {
        /// The address.
        address: SocketAddr,
        /// How many processes can share it.
        slots: usize,
    },
    /// No address of 127.0.0.0/8 is free.
    #[error("no address of 127.0.0.0/8 has UDP port {0} free")]
    NoLoopback(u16),
    /// Anything else.
    #[error("cannot open UDP {address}: {error}")]
    Io {
        /// The address.
        address: SocketAddr,
        /// What the kernel said.
        error: Errno,
    },
}

impl UdpError {
    pub(super) fn of(address: SocketAddr, error: Errno) -> Self {
        match error {
            Errno::ADDRINUSE => Self::Taken(address),
            Errno::ADDRNOTAVAIL => Self::NotLocal(address.ip()),
            error => Self::Io { address, error },
        }
    }
}

/// Bytes received and not read yet, as the kernel counts them, that a socket asks room for.
pub(super) const ROOM: usize = 8 << 20;

/// An unconnected UDP socket at one address. Over IPv4 what it sends has DF set and identification 0, and, where the
/// kernel segments it, 0, 1, 2, …. Nothing blocks.
#[derive(Debug)]
pub struct UdpSocket {
    fd: OwnedFd,
    local: SocketAddr,
    room: usize,
    segments: AtomicBool,
}

impl UdpSocket {
    /// Opens a socket at `address`, which no other process can use then.
    pub fn open(address: SocketAddr) -> Result<Self, UdpError> {
        open(address, |_| Ok(())).map_err(|error| UdpError::of(address, error))
    }

    /// The socket `fd`, which is bound to `local`.
    pub(super) fn of(fd: OwnedFd, local: SocketAddr) -> io::Result<Self> {
        let (room, segments) = (socket_recv_buffer_size(&fd)?, AtomicBool::new(segments(&fd)));
        Ok(Self { fd, local, room, segments })
    }

    /// Sends nothing as one any more: before Linux 6.11, what goes through an interface without checksum offload cannot be.
    pub(super) fn stop_segmenting(&self) {
        self.segments.store(false, Ordering::Relaxed);
    }

    /// Has the kernel hand over datagrams as they come.
    pub(super) fn stop_coalescing(&self) -> io::Result<()> {
        do_not_coalesce(&self.fd)
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub(super) fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// The address.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Bytes of room for what was received, as the kernel counts them: about twice what can be in flight.
    pub fn room(&self) -> usize {
        self.room
    }

    /// The longest IP packet that the interface of the address takes, in bytes; where that cannot be found out,
    /// Ethernet's 1500.
    pub fn interface_mtu(&self) -> usize {
        interface_mtu(self.local.ip()).unwrap_or(1500)
    }

    /// How many datagrams of `size` bytes can be sent as one.
    pub fn max_segments(&self, size: usize) -> usize {
        if self.segments.load(Ordering::Relaxed) {
            (MAX_SEND / size.max(1)).clamp(1, MAX_SEGMENTS)
        } else {
            1
        }
    }
}

/// Datagrams of one send at most: UDP_MAX_SEGMENTS.
const MAX_SEGMENTS: usize = 64;

/// Bytes of one send at most: an IP packet's.
const MAX_SEND: usize = 65_535 - 48;

/// Opens a socket at the first of `addresses` that is free; `None` where none is.
pub(super) fn open_first(addresses: impl Iterator<Item = SocketAddr>) -> Result<Option<UdpSocket>, UdpError> {
    for address in addresses {
        match UdpSocket::open(address) {
            Err(UdpError::Taken(_)) => {}
            result => return result.map(Some),
        }
    }
    Ok(None)
}

/// Opens a socket at `address`, `prepare`d before it is bound.
pub(super) fn open(
    address: SocketAddr,
    prepare: impl FnOnce(&OwnedFd) -> io::Result<()>,
) -> io::Result<UdpSocket> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = socket_with(family, SocketType::DGRAM, flags, None)?;
    match address {
        SocketAddr::V4(_) => prepare_ipv4(&fd)?,
        SocketAddr::V6(_) => {
            prepare_ipv6(&fd)?;
            send_through_own_interface(&fd, address.ip())?;
        }
    }
    coalesce(&fd)?;
    reserve_room(&fd, ROOM)?;
    prepare(&fd)?;
    bind(&fd, &address)?;
    UdpSocket::of(fd, address)
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
