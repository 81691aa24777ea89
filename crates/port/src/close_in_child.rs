//! Descriptors that a forked child has inherited.

use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::{DupFlags, dup3};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Closes the files behind descriptors, which this process shares with its parent. The descriptors stay open,
/// since objects own them: afterwards each refers to an unconnected socket that is never readable and cannot
/// send. Without a free descriptor for that socket, nothing changes.
#[allow(unsafe_code)]
pub fn close_in_child<'a>(descriptors: impl IntoIterator<Item = BorrowedFd<'a>>) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let Ok(unconnected) = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None) else { return };
    for descriptor in descriptors {
        // SAFETY: the descriptor is open for as long as it is borrowed, and is not closed here.
        let mut descriptor = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(descriptor.as_raw_fd()) });
        // Fails only for descriptors beyond the limit of open ones, which may have been lowered since.
        let _ = dup3(&unconnected, &mut descriptor, DupFlags::CLOEXEC);
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use nichrome_wire::Instant;

    use super::*;
    use crate::clock;

    #[test]
    fn a_descriptor_whose_file_is_closed_stays_open_and_frees_its_port() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (address, copy) = (socket.local_addr().unwrap(), socket.try_clone().unwrap());
        close_in_child([socket.as_fd()]);
        assert!(UdpSocket::bind(address).is_err(), "the copy is not closed");
        close_in_child([copy.as_fd()]);
        let again = UdpSocket::bind(address).unwrap();
        again.send_to(b"x", address).unwrap();
        assert_eq!(clock::wait([again.as_fd(), socket.as_fd()], None), Ok([true, false]));
        assert_eq!(clock::wait([socket.as_fd()], Some(Instant::ZERO)), Ok([false]));
        assert!(socket.recv(&mut [0]).is_err() && socket.send_to(b"x", address).is_err());
    }
}
