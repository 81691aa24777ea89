//! Unix sockets with abstract names, which are local to the network namespace, and descriptors passed through
//! them.

use std::fs;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect, recvmsg,
    sendmsg, socket_with,
};
use rustix::process::{Uid, getuid};

/// Maximum number of descriptors in one message.
const MAX_PASSED: usize = 67;

/// User ID that stands for all users without a mapping in this process's user namespace
/// (`kernel.overflowuid`).
pub(crate) const UNMAPPED_USER: u32 = 65_534;

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
pub(crate) fn connect_to(socket: impl AsFd, name: &str) -> io::Result<()> {
    connect(socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

/// Returns true if the process at the other end of a connection, as it was when it connected or listened, has
/// the user ID of this thread, mapped or not: in the namespaces of `nichrome wan` the user is not mapped, and
/// only that user and root enter them.
pub(crate) fn has_same_user_id(connection: impl AsFd) -> io::Result<bool> {
    Ok(socket_peercred(connection)?.uid == getuid())
}

/// As [`has_same_user_id`], but false if the ID may stand for another user.
pub(crate) fn is_of_same_user(connection: impl AsFd) -> io::Result<bool> {
    Ok(is_same_user(socket_peercred(connection)?.uid, getuid(), maps_all_users))
}

/// Returns true if two user IDs name the same user. [`UNMAPPED_USER`] names one user only if all users are
/// mapped.
fn is_same_user(peer: Uid, own: Uid, maps_all_users: impl FnOnce() -> bool) -> bool {
    peer == own && (own.as_raw() != UNMAPPED_USER || maps_all_users())
}

/// Returns true if each user of the machine has an ID of its own in this process's user namespace, as in the
/// first namespace.
pub(crate) fn maps_all_users() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Sends descriptors, 67 at most, with some bytes.
pub(crate) fn send_descriptors(
    connection: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_PASSED))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(descriptors));
    sendmsg(connection, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// Receives descriptors and the bytes sent with them; returns the number of bytes and the descriptors.
pub(crate) fn receive_descriptors(
    connection: impl AsFd,
    bytes: &mut [u8],
    flags: RecvFlags,
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_PASSED))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(connection, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
    let rights = |message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    };
    Ok((received.bytes, control.drain().filter_map(rights).flatten().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_that_a_namespace_does_not_map_are_not_taken_for_one() {
        let user = Uid::from_raw;
        for maps_all in [false, true] {
            let is_same = |peer, own| is_same_user(user(peer), user(own), || maps_all);
            assert!(is_same(1000, 1000) && is_same(0, 0));
            assert!(!is_same(1001, 1000) && !is_same(0, 1000) && !is_same(UNMAPPED_USER, 1000));
            assert_eq!(is_same(UNMAPPED_USER, UNMAPPED_USER), maps_all);
        }
    }
}
