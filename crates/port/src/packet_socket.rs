//! AF_PACKET sockets: the frames of an interface as they come, and frames sent through it (packet(7)).

use std::io::IoSlice;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::{self, Errno, writev};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use thiserror::Error;

use crate::device::{Device, Received};
use crate::interface_name::InterfaceName;
use crate::netlink::Interface;

/// Why frames of an interface cannot be had.
#[derive(Debug, Error)]
#[error(
    "cannot open {name} for frames ({error}): that needs CAP_NET_RAW (sudo, or 'setcap cap_net_raw,cap_net_admin+ep')"
)]
pub struct PacketSocketError {
    name: InterfaceName,
    error: Errno,
}

/// A socket for all frames that an interface receives, whomever they are for, and for sending through it. Frames come
/// with their virtio_net_hdr: those that the kernel has coalesced or has not segmented yet say so. What is sent is
/// not received again. The interface is in promiscuous mode while the socket is open.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
}

impl PacketSocket {
    /// Opens a socket for `interface`, which must be in the network namespace of this thread.
    pub fn open(interface: &Interface) -> Result<Self, PacketSocketError> {
        open(interface.index).map_err(|error| PacketSocketError { name: interface.name, error })
    }
}

#[allow(unsafe_code)]
fn open(index: u32) -> io::Result<PacketSocket> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: socket(2) takes numbers. Protocol 0: nothing is received before the socket is bound to its interface.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    check(fd)?;
    // SAFETY: `fd` is new, and no one else's.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    set_option(&fd, libc::PACKET_VNET_HDR, &1)?;
    set_option(&fd, libc::PACKET_IGNORE_OUTGOING, &1)?;
    let promiscuous = libc::packet_mreq {
        mr_ifindex: index as libc::c_int,
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(&fd, libc::PACKET_ADD_MEMBERSHIP, &promiscuous)?;
    // SAFETY: all zeros are a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as libc::c_int;
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: bind(2) reads `len` bytes at the address, which is a sockaddr_ll.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) })?;
    Ok(PacketSocket { fd })
}

#[allow(unsafe_code)]
fn set_option<T>(fd: &OwnedFd, name: libc::c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: setsockopt(2) reads `len` bytes at `value`.
    check(unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_PACKET, name, std::ptr::from_ref(value).cast(), len)
    })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    Ok(())
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Device for PacketSocket {
    #[inline]
    fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<Received<'a>>> {
        match recv(&self.fd, &mut *buffer, RecvFlags::empty()) {
            Ok((_, len)) => Ok(Received::parse(&buffer[..len])),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(error),
        }
    }

    #[inline]
    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        writev(&self.fd, parts).map(drop)
    }

    #[inline]
    fn send_bytes(&self, bytes: &[u8]) -> io::Result<()> {
        send(&self.fd, bytes, SendFlags::empty()).map(drop)
    }
}
