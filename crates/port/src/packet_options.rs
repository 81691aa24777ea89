//! Options of AF_PACKET sockets (packet(7)).

use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::{self, Errno};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::mapping::{Plain, plain};

plain!(libc::tpacket_req3, libc::tpacket_stats_v3, libc::packet_mreq);

/// Opens a socket that receives nothing until it is bound.
pub(crate) fn packet_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
}

/// Puts the interface in promiscuous mode while the socket is open.
pub(crate) fn make_promiscuous(socket: &OwnedFd, index: u32) -> io::Result<()> {
    let membership = libc::packet_mreq {
        mr_ifindex: index as libc::c_int,
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(socket, libc::PACKET_ADD_MEMBERSHIP, membership)
}

/// Binds the socket to all frames of an interface.
pub(crate) fn bind_to_interface(socket: &OwnedFd, index: u32) -> io::Result<()> {
    bind(socket, libc::ETH_P_ALL as u16, index)
}

/// Binds the socket to the received packets of an EtherType on all interfaces. If a VLAN, bridge, bond or
/// macvlan interface receives a packet through another interface, the socket receives it once, from the
/// interface on which the network layer receives it. The socket does not receive sent packets.
pub(crate) fn bind_to_protocol(socket: &OwnedFd, ether_type: u16) -> io::Result<()> {
    const EVERY_INTERFACE: u32 = 0;
    bind(socket, ether_type, EVERY_INTERFACE)
}

/// Binds the socket to an interface that it sends through. It receives nothing.
pub(crate) fn bind_to_send(socket: &OwnedFd, index: u32) -> io::Result<()> {
    const NO_PROTOCOL: u16 = 0;
    bind(socket, NO_PROTOCOL, index)
}

#[allow(unsafe_code)]
fn bind(socket: &OwnedFd, ether_type: u16, index: u32) -> io::Result<()> {
    // SAFETY: all zeros are a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_protocol = ether_type.to_be();
    address.sll_ifindex = index as libc::c_int;
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: bind(2) reads `len` bytes at the address, which is a sockaddr_ll.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) })
}

/// Sets an option of level SOL_PACKET.
pub(crate) fn set_option<T: Plain>(socket: &OwnedFd, name: libc::c_int, value: T) -> io::Result<()> {
    set_option_of(socket, libc::SOL_PACKET, name, value)
}

/// Sets a socket option of any `level`.
#[allow(unsafe_code)]
pub(crate) fn set_option_of<T: Plain>(
    socket: &OwnedFd,
    level: libc::c_int,
    name: libc::c_int,
    value: T,
) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: setsockopt(2) reads `len` bytes at `value`, which has that length.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), len) })
}

/// Reads an option of level SOL_PACKET.
#[allow(unsafe_code)]
pub(crate) fn option<T: Plain>(socket: &OwnedFd, name: libc::c_int) -> io::Result<T> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: all bit patterns are valid for `T`, and so is this one.
    let mut value: T = unsafe { mem::zeroed() };
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: getsockopt(2) writes at most `len` bytes to `value`, which has that length and accepts any
    // bytes.
    check(unsafe { libc::getsockopt(fd, libc::SOL_PACKET, name, (&raw mut value).cast(), &raw mut len) })?;
    Ok(value)
}

/// Attaches a filter that drops all frames.
pub(crate) fn refuse_all(socket: impl AsFd) -> io::Result<()> {
    // One instruction: accept 0 bytes of any frame (BPF_RET | BPF_K).
    set_filter(socket, &mut [libc::sock_filter { code: 6, jt: 0, jf: 0, k: 0 }])
}

/// Attaches a filter that drops sent frames, in place of the filter of [`refuse_all`].
pub(crate) fn refuse_outgoing(socket: impl AsFd) -> io::Result<()> {
    const PACKET_TYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE).cast_unsigned();
    let instruction = |code: u32, jf, k| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let accept = |len| instruction(libc::BPF_RET | libc::BPF_K, 0, len);
    let outgoing = u32::from(libc::PACKET_OUTGOING);
    let mut program = [
        instruction(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, PACKET_TYPE),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, outgoing),
        accept(0),
        accept(u32::MAX),
    ];
    set_filter(socket, &mut program)
}

/// Attaches a classic BPF filter.
pub(crate) fn set_filter(socket: impl AsFd, program: &mut [libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    filter(socket.as_fd(), libc::SO_ATTACH_FILTER, &program)
}

/// Removes the filter that [`refuse_all`] attached.
pub(crate) fn accept_all(socket: &OwnedFd) -> io::Result<()> {
    filter(socket.as_fd(), libc::SO_DETACH_FILTER, &libc::sock_fprog { len: 0, filter: std::ptr::null_mut() })
}

#[allow(unsafe_code)]
fn filter(socket: BorrowedFd<'_>, name: libc::c_int, program: &libc::sock_fprog) -> io::Result<()> {
    let len = size_of_val(program) as libc::socklen_t;
    let fd = socket.as_raw_fd();
    // SAFETY: setsockopt(2) reads `len` bytes at `program`, and the number of instructions that it states.
    check(unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, name, std::ptr::from_ref(program).cast(), len) })
}

/// Converts the return value of a libc system call, −1 on failure.
pub(crate) fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(last_error());
    }
    Ok(())
}

/// Returns errno of this thread.
pub(crate) fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
