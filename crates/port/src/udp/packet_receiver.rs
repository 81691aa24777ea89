//! UDP datagrams received with their IPv4 identification, through AF_PACKET (packet(7)).

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nichrome_wire::{EthernetHeader, Ipv4Header, TrafficClass, UdpHeader, VirtioNetHeader};
use rustix::io::{self, Errno};
use rustix::net::{SendFlags, send};
use thiserror::Error;

use crate::device::{MAX_RECEIVE, Received};
use crate::interface_name::InterfaceName;
use crate::os_error::OsError;
use crate::packet_options::{
    bind_to_protocol, bind_to_send, packet_socket, refuse_all, set_filter, set_option,
};
use crate::packet_socket;

use super::local_addresses::{interface_index, interface_of};
use super::socket::UdpSocket;

/// Link types whose packets have an Ethernet header.
const WITH_ETHERNET_HEADER: [u16; 2] = [libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK];

/// Link types whose packets begin with the IP header: tun and WireGuard, PPP, raw IP of modems, IP in IP, IP
/// in IPv6, and SIT.
const WITHOUT_HEADER: [u16; 6] = [
    libc::ARPHRD_NONE,
    libc::ARPHRD_PPP,
    ARPHRD_RAWIP,
    libc::ARPHRD_TUNNEL,
    libc::ARPHRD_TUNNEL6,
    libc::ARPHRD_SIT,
];

/// Not in libc.
const ARPHRD_RAWIP: u16 = 519;

const ON: libc::c_int = 1;

/// A failure to receive datagrams as packets.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PacketReceiverError {
    /// The address is not IPv4.
    #[error("{0} is an IPv6 address, and only IPv4 has an identification field: receive from the socket")]
    Ipv6(SocketAddr),
    /// The interface of the address has an unknown link-layer header.
    #[error(
        "{address} is on {interface}, whose packets have an unknown link-layer header (type {link_type}): receive from the socket"
    )]
    LinkType {
        /// The address.
        address: SocketAddr,
        /// The interface.
        interface: InterfaceName,
        /// Its link type (an `ARPHRD_` number, linux/if_arp.h).
        link_type: u16,
    },
    /// The address is a loopback address, whose peers send datagrams together (UDP_SEGMENT), and the kernel
    /// drops those.
    #[error(
        "{0} is a loopback address, and this kernel drops datagrams that a local process sends together (since Linux 6.2 it does not): \
         receive from the socket"
    )]
    Segmented(SocketAddr),
    /// The kernel returned an error.
    #[error(
        "cannot receive packets from the interfaces ({0}): that needs CAP_NET_RAW (sudo, or a user namespace)"
    )]
    Io(OsError),
}

/// Receives the datagrams of a [`UdpSocket`] at an IPv4 address in its place: a UDP socket does not report
/// the identification of the IP header. Fragments are ignored.
#[derive(Debug)]
pub struct PacketReceiver {
    fd: OwnedFd,
    buffer: Vec<u8>,
    dropped_offloads: u64,
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
    /// The socket's address is not IPv4; its interface has an unknown link-layer header; the kernel drops
    /// datagrams that local peers send together; or CAP_NET_RAW is missing.
    pub fn open(socket: &UdpSocket) -> Result<Self, PacketReceiverError> {
        let failed = |error: Errno| PacketReceiverError::Io(error.into());
        let address = socket.local();
        let SocketAddr::V4(local) = address else { return Err(PacketReceiverError::Ipv6(address)) };
        if let Some(interface) = interface_of(address.ip())
            && let (interface, link_type) = (interface.name, interface.link_type)
            && !WITH_ETHERNET_HEADER.contains(&link_type)
            && !WITHOUT_HEADER.contains(&link_type)
        {
            return Err(PacketReceiverError::LinkType { address, interface, link_type });
        }
        if local.ip().is_loopback() && !can_describe(VirtioNetHeader::GSO_UDP_L4).map_err(failed)? {
            return Err(PacketReceiverError::Segmented(address));
        }
        open(socket, local).map_err(failed)
    }

    /// Returns how many packets the kernel dropped because no virtio_net_hdr describes their offloads: before
    /// Linux 6.2 all messages of several datagrams that a process of this machine sends together
    /// (UDP_SEGMENT).
    pub fn dropped_offloads(&self) -> u64 {
        self.dropped_offloads
    }

    /// Returns the next arrival, if any.
    ///
    /// # Errors
    /// The kernel's, of the socket.
    pub fn receive(&mut self) -> io::Result<Option<PacketArrival<'_>>> {
        let (len, link_len) = loop {
            match packet_socket::receive(&self.fd, &mut self.buffer) {
                Ok((len, Some(data))) => {
                    let link_len = data.tp_net.into();
                    if arrival(&mut self.buffer[..len], link_len).is_some() {
                        break (len, link_len);
                    }
                }
                // The kernel has dropped a packet whose offloads it cannot describe.
                Err(Errno::INVAL) => self.dropped_offloads += 1,
                Ok((_, None)) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error),
            }
        };
        Ok(arrival(&mut self.buffer[..len], link_len))
    }
}

fn open(socket: &UdpSocket, local: SocketAddrV4) -> io::Result<PacketReceiver> {
    let fd = packet_socket()?;
    set_option(&fd, libc::PACKET_VNET_HDR, ON)?;
    set_option(&fd, libc::PACKET_AUXDATA, ON)?;
    set_filter(&fd, &mut datagrams_to(local))?;
    super::socket_options::reserve_room(&fd, super::socket::ROOM)?;
    bind_to_protocol(&fd, libc::ETH_P_IP as u16)?;
    // Coalescing discards the identifications.
    socket.stop_coalescing()?;
    refuse_all(socket.as_fd())?;
    Ok(PacketReceiver { fd, buffer: vec![0; MAX_RECEIVE], dropped_offloads: 0 })
}

/// Returns true if a virtio_net_hdr of this kernel can have the type `gso_type`: the type of UDP_SEGMENT
/// since Linux 6.2. Returns true also if the loopback interface is down.
///
/// Sends a frame of this type through the loopback interface. The receiving side drops the frame, because it
/// is for another MAC address.
fn can_describe(gso_type: u8) -> io::Result<bool> {
    const OTHER_STATION: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const PAYLOAD: [u8; 2] = [0; 2];
    let Some(loopback) = interface_index(Ipv4Addr::LOCALHOST.into()) else { return Ok(true) };
    let fd = packet_socket()?;
    set_option(&fd, libc::PACKET_VNET_HDR, ON)?;
    bind_to_send(&fd, loopback)?;
    let virtio = VirtioNetHeader {
        flags: VirtioNetHeader::NEEDS_CSUM,
        gso_type,
        hdr_len: 42,
        gso_size: 1,
        csum_start: 34,
        csum_offset: 6,
    };
    let ethernet = [&OTHER_STATION[..], &[0; 6], &[0x08, 0x00]].concat();
    let ip = [0x45, 0, 0, 30, 0, 0, 0, 0, 1, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let udp = [0, 0, 0, 0, 0, 10, 0, 0];
    let frame = [&virtio.to_bytes()[..], &ethernet, &ip, &udp, &PAYLOAD].concat();
    Ok(send(&fd, &frame, SendFlags::empty()) != Err(Errno::INVAL))
}

/// Returns a filter that accepts unfragmented UDP datagrams to `local`, for a socket that receives IPv4
/// packets. Offsets count from the link-layer header if the interface has one, else from the IP header.
fn datagrams_to(local: SocketAddrV4) -> [libc::sock_filter; 21] {
    const LINK_TYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_HATYPE).cast_unsigned();
    const LOAD_4: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    // Offsets of the next three count from X, which is the length of the link-layer header.
    const LOAD_1_OF_IP: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_IND;
    const LOAD_2_OF_IP: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_IND;
    const LOAD_4_OF_IP: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_IND;
    const SET_X: u32 = libc::BPF_LDX | libc::BPF_W | libc::BPF_IMM;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const ANY_BIT: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    const FRAGMENT: u32 = 0x3FFF;
    const END: u8 = 20;
    let plain = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let jump = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    // Continues at the next instruction if equal, else jumps to the end.
    let only = |at: u8, k: u32| jump(EQUAL, k, 0, END - at - 1);
    let [ethernet, loopback] = WITH_ETHERNET_HEADER.map(u32::from);
    [
        plain(LOAD_4, LINK_TYPE),
        jump(EQUAL, ethernet, 1, 0),
        jump(EQUAL, loopback, 0, 2),
        plain(SET_X, EthernetHeader::LEN as u32),
        plain(libc::BPF_JMP | libc::BPF_JA, 1),
        plain(SET_X, 0),
        plain(LOAD_1_OF_IP, 9),
        only(7, 17),
        plain(LOAD_2_OF_IP, 6),
        jump(ANY_BIT, FRAGMENT, END - 10, 0),
        plain(LOAD_4_OF_IP, 16),
        only(11, local.ip().to_bits()),
        // X += 4 * IHL.
        plain(LOAD_1_OF_IP, 0),
        plain(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0x0F),
        plain(libc::BPF_ALU | libc::BPF_LSH | libc::BPF_K, 2),
        plain(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_X, 0),
        plain(libc::BPF_MISC | libc::BPF_TAX, 0),
        plain(LOAD_2_OF_IP, 2),
        only(18, u32::from(local.port())),
        plain(libc::BPF_RET | libc::BPF_K, u32::MAX),
        plain(libc::BPF_RET | libc::BPF_K, 0),
    ]
}

/// Parses a packet behind its virtio_net_hdr and a link-layer header of `link_len` bytes; `None` if it is
/// truncated.
fn arrival(bytes: &mut [u8], link_len: usize) -> Option<PacketArrival<'_>> {
    let Received { virtio, frame, .. } = Received::parse(bytes)?;
    let ip = Ipv4Header::new(frame.get(link_len..)?)?;
    let udp = UdpHeader::new(ip.payload()?)?;
    let peer = SocketAddr::new(ip.src().into(), udp.src_port());
    let (traffic_class, ident) = (ip.tos(), ip.ident());
    let len = udp.payload()?.len();
    let start = VirtioNetHeader::LEN + link_len + ip.header_len() + UdpHeader::LEN;
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
    use crate::{Netlink, NetworkNamespace};

    #[test]
    fn no_bytes_make_it_panic() {
        for len in 0..80 {
            for fill in [0x00, 0x45, 0xFF] {
                for link_len in [0, EthernetHeader::LEN, 100] {
                    let _ = arrival(&mut vec![fill; len], link_len);
                }
            }
        }
    }

    #[test]
    fn a_probe_finds_which_offloads_the_kernel_can_describe() {
        const UNKNOWN: u8 = 7;
        let can_describe = || {
            let netlink = Netlink::open().unwrap();
            netlink.set_up(&netlink.interface("lo".parse().unwrap()).unwrap()).unwrap();
            [VirtioNetHeader::GSO_UDP, UNKNOWN].map(|gso_type| can_describe(gso_type).unwrap())
        };
        assert_eq!(NetworkNamespace::new().unwrap().run(can_describe).unwrap(), [true, false]);
    }
}
