//! AF_PACKET sockets: receive and send all frames of an interface (packet(7)).

use std::io::{IoSlice, IoSliceMut};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use nichrome_wire::{VirtioNetHeader, VlanTag};
use rustix::io::{self, Errno, writev};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{SendFlags, send};
use thiserror::Error;

use crate::device::{Device, Received};
use crate::interface_name::InterfaceName;
use crate::netlink::Interface;
use crate::os_error::OsError;
use crate::packet_options::{
    bind_to_interface, last_error, make_promiscuous, option, packet_socket, set_option,
};
use crate::stripped_tag::{ADDRESSES_LEN, TAG_LEN, behind_a_tag, stripped_tag, tag_bytes};

/// Size of the kernel's receive buffer, in bytes: some milliseconds at 10 Gb/s.
const RECEIVE_BUFFER: usize = 8 << 20;

/// A failure to open a packet socket.
#[derive(Debug, Error)]
#[error(
    "cannot open {name} for frames ({error}): that needs CAP_NET_RAW (sudo, or 'setcap cap_net_raw,cap_net_admin+ep')"
)]
pub struct PacketSocketError {
    name: InterfaceName,
    error: OsError,
}

/// A socket that receives all frames of an interface and sends through it. Frames carry a virtio_net_hdr,
/// which describes coalesced frames and pending offloads. VLAN tags that the kernel strips are reinserted.
/// Frames sent through the socket are not received. The interface is in promiscuous mode while the socket is
/// open.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    /// Frames that could not be read, and the sum of the readings of the kernel's counter, which each reading
    /// resets.
    dropped: AtomicU64,
}

impl PacketSocket {
    /// Opens a socket for `interface`, which must be in the network namespace of this thread.
    pub fn open(interface: &Interface) -> Result<Self, PacketSocketError> {
        open(interface.index).map_err(|error| PacketSocketError { name: interface.name, error: error.into() })
    }

    /// Returns the number of frames that the kernel has dropped because they were not read in time, or
    /// because no virtio_net_hdr describes their offloads: fragmentation of UDP, segmentation of SCTP.
    pub fn dropped(&self) -> io::Result<u64> {
        let new: libc::tpacket_stats_v3 = option(&self.fd, libc::PACKET_STATISTICS)?;
        let new = u64::from(new.tp_drops);
        Ok(self.dropped.fetch_add(new, Ordering::Relaxed) + new)
    }
}

fn open(index: u32) -> io::Result<PacketSocket> {
    let fd = packet_socket()?;
    let on: libc::c_int = 1;
    set_option(&fd, libc::PACKET_VNET_HDR, on)?;
    set_option(&fd, libc::PACKET_IGNORE_OUTGOING, on)?;
    set_option(&fd, libc::PACKET_AUXDATA, on)?;
    // Needs CAP_NET_ADMIN; without it, the usual limit stays.
    let _ = set_socket_recv_buffer_size_force(&fd, RECEIVE_BUFFER);
    make_promiscuous(&fd, index)?;
    bind_to_interface(&fd, index)?;
    Ok(PacketSocket { fd, dropped: AtomicU64::new(0) })
}

/// Receives into `buffer`. Returns the length and, if the socket has PACKET_AUXDATA, the auxiliary data.
#[allow(unsafe_code)]
pub(crate) fn receive(fd: &OwnedFd, buffer: &mut [u8]) -> io::Result<(usize, Option<libc::tpacket_auxdata>)> {
    let mut slices = [IoSliceMut::new(buffer)];
    // Holds a cmsghdr and a tpacket_auxdata, with the alignment of a cmsghdr.
    let mut control = [0u64; 8];
    // SAFETY: all zeros are a valid msghdr.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    // An IoSliceMut has the layout of an iovec (std::io::IoSliceMut).
    message.msg_iov = slices.as_mut_ptr().cast();
    message.msg_iovlen = slices.len();
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // recvmsg(2) as a raw system call: the C library's function is a cancellation point (pthreads(7)), and
    // the caller may hold locks. SAFETY: recvmsg(2) writes to the buffer of the one slice and to `control`,
    // within their lengths.
    let len = unsafe { libc::syscall(libc::SYS_recvmsg, fd.as_raw_fd(), &raw mut message, 0) };
    let len = usize::try_from(len).map_err(|_| last_error())?;
    Ok((len, auxiliary_data(&message)))
}

/// Returns the PACKET_AUXDATA control message: the first one, since no other kind is enabled.
#[allow(unsafe_code)]
fn auxiliary_data(message: &libc::msghdr) -> Option<libc::tpacket_auxdata> {
    // SAFETY: the message's control buffer is alive, aligned, and has the stated length.
    let header = unsafe { libc::CMSG_FIRSTHDR(message) };
    if header.is_null() {
        return None;
    }
    // SAFETY: a header that was returned lies in the buffer, and holds integers.
    let libc::cmsghdr { cmsg_level, cmsg_type, cmsg_len } = unsafe { *header };
    // SAFETY: CMSG_LEN only computes a length.
    let len = unsafe { libc::CMSG_LEN(size_of::<libc::tpacket_auxdata>() as libc::c_uint) } as usize;
    if (cmsg_level, cmsg_type) != (libc::SOL_PACKET, libc::PACKET_AUXDATA) || cmsg_len < len {
        return None;
    }
    // SAFETY: the length check above: a whole tpacket_auxdata follows the header, and any bytes are valid in
    // it.
    Some(unsafe { ptr::read_unaligned(libc::CMSG_DATA(header).cast()) })
}

/// Parses `bytes`, which begin with room for a tag and then the virtio_net_hdr, and inserts `tag`.
#[inline]
fn with_tag(bytes: &mut [u8], tag: Option<VlanTag>) -> Option<Received<'_>> {
    const PLACE: usize = VirtioNetHeader::LEN + ADDRESSES_LEN;
    match tag {
        Some(tag) if bytes.len() >= PLACE + TAG_LEN => {
            bytes.copy_within(TAG_LEN..TAG_LEN + PLACE, 0);
            bytes[PLACE..][..TAG_LEN].copy_from_slice(&tag_bytes(tag));
            let received = Received::parse(bytes)?;
            Some(Received { virtio: behind_a_tag(received.virtio), ..received })
        }
        _ => {
            let received = Received::parse(bytes.get(TAG_LEN..)?)?;
            Some(Received { at: TAG_LEN + received.at, ..received })
        }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Device for PacketSocket {
    #[inline]
    fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<Received<'a>>> {
        loop {
            let behind_room = buffer.get_mut(TAG_LEN..).unwrap_or_default();
            match receive(&self.fd, behind_room) {
                Ok((len, data)) => {
                    let tag = data
                        .and_then(|data| stripped_tag(data.tp_status, data.tp_vlan_tci, data.tp_vlan_tpid));
                    return Ok(with_tag(&mut buffer[..TAG_LEN + len], tag));
                }
                Err(Errno::AGAIN) => return Ok(None),
                // The kernel has dropped a frame whose offloads it cannot describe.
                Err(Errno::INVAL) => {
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_messages_make_no_frame_and_no_panic() {
        let tag = Some(VlanTag::default());
        for len in 0..40 {
            for tag in [None, tag] {
                let mut bytes = vec![0; len];
                let received = with_tag(&mut bytes, tag).map(|received| received.frame.len());
                let tagged = tag.is_some() && len >= 26;
                let expected = if tagged { Some(len - 10) } else { len.checked_sub(14) };
                assert_eq!(received, expected, "{len} {tag:?}");
            }
        }
    }
}
