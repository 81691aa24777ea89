//! An unconnected UDP socket.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{self, Errno};
use rustix::net::sockopt::socket_recv_buffer_size;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use thiserror::Error;

use crate::os_error::OsError;

use super::local_addresses::interface_mtu;
use super::socket_options::{
    coalesce, do_not_coalesce, prepare_ipv4, prepare_ipv6, reserve_room, segments, send_through_own_interface,
};

/// A failure to open a UDP socket.
#[derive(Debug, Error)]
pub enum UdpError {
    /// Another process uses the address.
    #[error("{0} is in use by another process or by the kernel's rdma_rxe: choose another address")]
    Taken(SocketAddr),
    /// The address is not local.
    #[error("{0} is not an address of this machine ('ip address' lists them)")]
    NotLocal(IpAddr),
    /// All slots of the address are taken.
    #[error("{address} is already shared by the maximum of {slots} processes")]
    NoSlot {
        /// The address.
        address: SocketAddr,
        /// The number of slots.
        slots: usize,
    },
    /// No address of 127.0.0.0/8 is free.
    #[error("UDP port {0} is in use on every address tried in 127.0.0.0/8")]
    NoLoopback(u16),
    /// Another error of the kernel.
    #[error("cannot open UDP {address}: {error}")]
    Io {
        /// The address.
        address: SocketAddr,
        /// The kernel's error.
        error: OsError,
    },
}

impl UdpError {
    pub(super) fn of(address: SocketAddr, error: Errno) -> Self {
        match error {
            Errno::ADDRINUSE => Self::Taken(address),
            Errno::ADDRNOTAVAIL => Self::NotLocal(address.ip()),
            error => Self::Io { address, error: error.into() },
        }
    }
}

/// Size of the receive buffer in bytes, as the kernel accounts for it.
pub(super) const ROOM: usize = 8 << 20;

/// An unconnected, non-blocking UDP socket at one address. Over IPv4 it sends with DF and identification 0;
/// with segmentation offload, identifications count from 0.
#[derive(Debug)]
pub struct UdpSocket {
    fd: OwnedFd,
    local: SocketAddr,
    room: usize,
    segments: AtomicBool,
}

impl UdpSocket {
    /// Opens a socket at `address` exclusively.
    pub fn open(address: SocketAddr) -> Result<Self, UdpError> {
        open(address, |_| Ok(())).map_err(|error| UdpError::of(address, error))
    }

    /// Wraps `fd`, which is bound to `local`.
    pub(super) fn of(fd: OwnedFd, local: SocketAddr) -> io::Result<Self> {
        let (room, segments) = (socket_recv_buffer_size(&fd)?, AtomicBool::new(segments(&fd)));
        Ok(Self { fd, local, room, segments })
    }

    /// Disables segmentation offload: before Linux 6.11 it fails on interfaces without checksum offload.
    pub(super) fn stop_segmenting(&self) {
        self.segments.store(false, Ordering::Relaxed);
    }

    /// Disables coalescing (UDP_GRO).
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

    /// Returns the size of the receive buffer in bytes, as the kernel accounts for it: about twice the
    /// payload that fits.
    pub fn room(&self) -> usize {
        self.room
    }

    /// Returns the MTU of the interface of the address, in bytes; 1500 if unknown.
    pub fn interface_mtu(&self) -> usize {
        interface_mtu(self.local.ip()).unwrap_or(1500)
    }

    /// Returns the maximum number of datagrams of `size` bytes in one message.
    pub fn max_segments(&self, size: usize) -> usize {
        if self.segments.load(Ordering::Relaxed) {
            (MAX_SEND / size.max(1)).clamp(1, MAX_SEGMENTS)
        } else {
            1
        }
    }
}

/// Maximum number of datagrams in one message (UDP_MAX_SEGMENTS).
pub(super) const MAX_SEGMENTS: usize = 64;

/// Maximum length of one message, in bytes.
const MAX_SEND: usize = 65_535 - 48;

/// Opens a socket at the first free address of `addresses`, if any.
pub(super) fn open_first(addresses: impl Iterator<Item = SocketAddr>) -> Result<Option<UdpSocket>, UdpError> {
    for address in addresses {
        match UdpSocket::open(address) {
            Err(UdpError::Taken(_)) => {}
            result => return result.map(Some),
        }
    }
    Ok(None)
}

/// Opens a socket at `address`; calls `prepare` before binding.
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
