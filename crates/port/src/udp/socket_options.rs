//! Options of UDP sockets (udp(7), ip(7), ipv6(7)).

use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::io::{self, Errno};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};

use crate::packet_options::set_option_of as set;

use super::local_addresses::interface_index;

const ON: libc::c_int = 1;
const OFF: libc::c_int = 0;

/// Makes an IPv4 socket set DF, and so identification 0, and report received ECN bits.
pub(super) fn prepare_ipv4(socket: &OwnedFd) -> io::Result<()> {
    set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
    set(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, ON)
}

/// Makes an IPv6 socket never fragment, report received ECN bits, and accept datagrams without a checksum,
/// which Linux's rxe sends.
pub(super) fn prepare_ipv6(socket: &OwnedFd) -> io::Result<()> {
    set(socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, ON)?;
    set(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)?;
    set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, ON)?;
    set(socket, libc::SOL_UDP, UDP_NO_CHECK6_RX, ON)
}

/// Makes an IPv6 socket send multicast through the interface of its address. IPv4 does so by default.
pub(super) fn send_through_own_interface(socket: &OwnedFd, local: IpAddr) -> io::Result<()> {
    match interface_index(local) {
        Some(index) => set(socket, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF, index as libc::c_int),
        // bind(2) will report the error.
        None => Ok(()),
    }
}

/// Not in libc.
const UDP_NO_CHECK6_RX: libc::c_int = 102;

/// Enables UDP_GRO, if the kernel supports it.
pub(super) fn coalesce(socket: &OwnedFd) -> io::Result<()> {
    set_coalescing(socket, ON)
}

/// Undoes [`coalesce`].
pub(super) fn do_not_coalesce(socket: &OwnedFd) -> io::Result<()> {
    set_coalescing(socket, OFF)
}

fn set_coalescing(socket: &OwnedFd, value: libc::c_int) -> io::Result<()> {
    match set(socket, libc::SOL_UDP, libc::UDP_GRO, value) {
        Err(Errno::NOPROTOOPT) => Ok(()),
        result => result,
    }
}

/// Returns true if the kernel supports UDP_SEGMENT (Linux 4.18).
pub(super) fn segments(socket: &OwnedFd) -> bool {
    const NONE: libc::c_int = 0;
    set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, NONE).is_ok()
}

/// Sets the receive buffer to `bytes`. More than `net.core.rmem_max` requires CAP_NET_ADMIN.
pub(super) fn reserve_room(socket: &OwnedFd, bytes: usize) -> io::Result<()> {
    set_socket_recv_buffer_size_force(socket, bytes).or_else(|_| set_socket_recv_buffer_size(socket, bytes))
}
