//! UDP datagrams received with their IPv4 identification, through AF_PACKET (packet(7)).

use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nichrome_wire::{EthernetHeader, Ipv4Header, TrafficClass, UdpHeader, VirtioNetHeader};
use rustix::io::{self, Errno};
use rustix::net::{RecvFlags, recv};
use thiserror::Error;

use crate::device::{MAX_RECEIVE, Received};
use crate::os_error::OsError;
use crate::packet_options::{bind_to_interface, packet_socket, refuse_all, set_filter, set_option};

use super::socket::UdpSocket;

/// A failure to receive datagrams as packets.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PacketReceiverError {
    /// The address is not IPv4.
    #[error("{0} is an IPv6 address, and only IPv4 has an identification field: receive from the socket")]
    Ipv6(SocketAddr),
    /// The kernel returned an error.
    #[error(
        "cannot receive packets from the interfaces ({0}): that needs CAP_NET_RAW (sudo, or a user namespace)"
    )]
    Io(OsError),
}

/// Receives the datagrams of a [`UdpSocket`] at an IPv4 address in its place: a UDP socket does not report the
/// identification of the IP header. Fragments are ignored.
#[derive(Debug)]
pub struct PacketReceiver {
    fd: OwnedFd,
    buffer: Vec<u8>,
}

/// A received datagram, or several that one sender sent together.
#[derive(Debug)]
pub struct PacketArrival<'a> {
    /// The sender.
    pub peer: SocketAddr,
    /// The traffic class, ECN bits included.
    pub traffic_class: TrafficClass,
    /// The IPv4 identification of the first datagram; later ones count up.
    pub ident: u16,
    bytes: &'a mut [u8],
    segment_size: usize,
}

impl PacketArrival<'_> {
    /// Iterates over identifications and datagrams. Empty datagrams are skipped.
    pub fn datagrams(&mut self) -> impl Iterator<Item = (u16, &mut [u8])> {
        let first = self.ident;
        let parts = self.bytes.chunks_mut(self.segment_size).enumerate();
        parts.map(move |(nth, bytes)| (first.wrapping_add(nth as u16), bytes))
    }
}

impl PacketReceiver {
    /// Takes over reception from `socket`, which then only sends.
    ///
    /// # Errors
    /// The socket's address is not of IPv4, or the right to it (CAP_NET_RAW) is missing.
    pub fn open(socket: &UdpSocket) -> Result<Self, PacketReceiverError> {
        match socket.local() {
            SocketAddr::V4(local) => {
                open(socket, local).map_err(|error| PacketReceiverError::Io(error.into()))
            }
            address @ SocketAddr::V6(_) => Err(PacketReceiverError::Ipv6(address)),
        }
    }

    /// Returns the next arrival, if any.
    ///
    /// # Errors
    /// The kernel's, of the socket.
    pub fn receive(&mut self) -> io::Result<Option<PacketArrival<'_>>> {
        let len = loop {
            match recv(&self.fd, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok((len, _)) if arrival(&mut self.buffer[..len]).is_some() => break len,
                // INVAL: the kernel has dropped a packet whose offloads it cannot describe.
                Ok(_) | Err(Errno::INTR | Errno::INVAL) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error),
            }
        };
        Ok(arrival(&mut self.buffer[..len]))
    }
}

fn open(socket: &UdpSocket, local: SocketAddrV4) -> io::Result<PacketReceiver> {
    const ON: libc::c_int = 1;
    const EVERY_INTERFACE: u32 = 0;
    let fd = packet_socket()?;
    set_option(&fd, libc::PACKET_VNET_HDR, ON)?;
    set_option(&fd, libc::PACKET_IGNORE_OUTGOING, ON)?;
    set_filter(&fd, &mut datagrams_to(local))?;
    super::socket_options::reserve_room(&fd, super::socket::ROOM)?;
    bind_to_interface(&fd, EVERY_INTERFACE)?;
    // Coalescing discards the identifications.
    socket.stop_coalescing()?;
    refuse_all(socket.as_fd())?;
    Ok(PacketReceiver { fd, buffer: vec![0; MAX_RECEIVE] })
}

/// A filter for unfragmented IPv4 UDP datagrams to `local`. Filters run after VLAN tags have been stripped.
fn datagrams_to(local: SocketAddrV4) -> [libc::sock_filter; 13] {
    const LOAD_2: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
    const LOAD_1: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    const LOAD_4: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const ANY_BIT: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    const IP: u32 = EthernetHeader::LEN as u32;
    const FRAGMENT: u32 = 0x3FFF;
    const END: u8 = 12;
    let plain = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    // Continues at the next instruction if equal, else jumps to the end.
    let only = |at: u8, k: u32| libc::sock_filter { code: EQUAL as u16, jt: 0, jf: END - at - 1, k };
    [
        plain(LOAD_2, 12),
        only(1, 0x0800),
        plain(LOAD_1, IP + 9),
        only(3, 17),
        plain(LOAD_2, IP + 6),
        libc::sock_filter { code: ANY_BIT as u16, jt: END - 6, jf: 0, k: FRAGMENT },
        plain(LOAD_4, IP + 16),
        only(7, local.ip().to_bits()),
        plain(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, IP),
        plain(libc::BPF_LD | libc::BPF_H | libc::BPF_IND, IP + 2),
        only(10, u32::from(local.port())),
        plain(libc::BPF_RET | libc::BPF_K, u32::MAX),
        plain(libc::BPF_RET | libc::BPF_K, 0),
    ]
}

/// Parses a frame behind its virtio_net_hdr; `None` if it is truncated.
fn arrival(bytes: &mut [u8]) -> Option<PacketArrival<'_>> {
    let Received { virtio, frame, .. } = Received::parse(bytes)?;
    let packet = EthernetHeader::new(frame)?.payload();
    let ip = Ipv4Header::new(packet)?;
    let udp = UdpHeader::new(ip.payload()?)?;
    let peer = SocketAddr::new(ip.src().into(), udp.src_port());
    let (traffic_class, ident) = (ip.tos(), ip.ident());
    let len = udp.payload()?.len();
    let start = VirtioNetHeader::LEN + EthernetHeader::LEN + ip.header_len() + UdpHeader::LEN;
    let segment_size = match virtio.gso_type & !VirtioNetHeader::GSO_ECN {
        VirtioNetHeader::GSO_UDP_L4 => usize::from(virtio.gso_size),
        _ => len,
    };
    let bytes = bytes.get_mut(start..start + len)?;
    Some(PacketArrival { peer, traffic_class, ident, bytes, segment_size: segment_size.max(1) })
}

impl AsFd for PacketReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bytes_make_it_panic() {
        for len in 0..80 {
            for fill in [0x00, 0x45, 0xFF] {
                let _ = arrival(&mut vec![fill; len]);
            }
        }
    }
}
