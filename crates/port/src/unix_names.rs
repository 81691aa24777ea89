//! Unix sockets with abstract names, which are local to the network namespace, and descriptors passed through them.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect, recvmsg,
    sendmsg, socket_with,
};

/// Descriptors in one message at most.
const MOST_PASSED: usize = 67;

/// Opens a socket that has a name. The kernel frees the name when the last duplicate is closed.
///
/// # Errors
/// EADDRINUSE: the name is taken.
pub(crate) fn named(name: &str, kind: SocketType) -> io::Result<OwnedFd> {
    let socket = unix_socket(kind)?;
    bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket)
}

/// Opens a socket without a name.
pub(crate) fn unix_socket(kind: SocketType) -> io::Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
}

/// Connects a socket to a name.
///
/// # Errors
/// ECONNREFUSED: nothing listens at the name.
pub(crate) fn connect_to(socket: &OwnedFd, name: &str) -> io::Result<()> {
    connect(socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

/// Sends descriptors, 67 at most, with some bytes.
pub(crate) fn send_descriptors(
    connection: &OwnedFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_PASSED))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(descriptors));
    sendmsg(connection, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// Receives descriptors and the bytes sent with them; returns how many bytes.
pub(crate) fn receive_descriptors(
    connection: &OwnedFd,
    bytes: &mut [u8],
    flags: RecvFlags,
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_PASSED))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(connection, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
    let rights = |message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    };
    Ok((received.bytes, control.drain().filter_map(rights).flatten().collect()))
}
