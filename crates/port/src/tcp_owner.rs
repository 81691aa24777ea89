//! The user at the other end of a local TCP connection (`NETLINK_SOCK_DIAG`).

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream};

use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr as NetlinkAddress};

use crate::unix_names::{UNMAPPED_USER, maps_all_users};

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `NLMSG_ERROR`.
const ERROR: u16 = 2;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// `NLM_F_DUMP`.
const DUMP: u16 = 0x300;
/// `NLMSG_DONE`.
const DONE: u16 = 3;

const HEADER_LEN: usize = 16;
/// Bytes of `struct inet_diag_req_v2`.
const REQUEST_LEN: usize = 56;
/// Offsets in `struct inet_diag_msg`.
const UID: usize = 64;
const INODE: usize = 68;

/// The owner of the remote socket of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOwner {
    /// The user ID.
    User(u32),
    /// No known user. Either no socket of this network namespace is the remote one: the peer is remote,
    /// closed, or not accepted yet. Or this process's user namespace does not map its user.
    Nobody,
    /// The kernel does not report the owner.
    Unknown,
}

/// Returns the owner of the remote socket of `stream`.
///
/// # Errors
/// The stream is not connected, or the kernel gives no netlink socket.
pub fn tcp_peer_owner(stream: &TcpStream) -> io::Result<TcpOwner> {
    let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
    let socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.connect(&NetlinkAddress::new(0, 0))?;
    let ask = |request: &[u8]| -> io::Result<Vec<u8>> {
        socket.send(request, 0)?;
        Ok(socket.recv_from_full()?.0)
    };
    let answer = ask(&request(peer, local, Sockets::One))?;
    let truncated = || io::Error::new(ErrorKind::InvalidData, "a truncated sock_diag response");
    match parse(&answer, maps_all_users).ok_or_else(truncated)? {
        // A kernel without the module tcp_diag gives this answer, too, but then it gives no list either.
        TcpOwner::Nobody if !is_list(&ask(&request(peer, local, Sockets::NoneOfList))?) => {
            Ok(TcpOwner::Unknown)
        }
        owner => Ok(owner),
    }
}

/// The sockets to report.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sockets {
    /// The socket of the connection.
    One,
    /// A list of the sockets in none of TCP's states: the kernel answers with the end of the list at once.
    NoneOfList,
}

/// Builds a request for the socket at `ours` that is connected to `theirs`, or for a list.
fn request(ours: SocketAddr, theirs: SocketAddr, sockets: Sockets) -> [u8; HEADER_LEN + REQUEST_LEN] {
    let mut bytes = [0; HEADER_LEN + REQUEST_LEN];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0, &((HEADER_LEN + REQUEST_LEN) as u32).to_ne_bytes());
    put(4, &BY_FAMILY.to_ne_bytes());
    let (flags, states) = match sockets {
        Sockets::One => (REQUEST, u32::MAX),
        Sockets::NoneOfList => (REQUEST | DUMP, 0),
    };
    put(6, &flags.to_ne_bytes());
    let family = if ours.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    put(HEADER_LEN, &[family as u8, libc::IPPROTO_TCP as u8]);
    put(HEADER_LEN + 4, &states.to_ne_bytes());
    put(HEADER_LEN + 8, &ours.port().to_be_bytes());
    put(HEADER_LEN + 10, &theirs.port().to_be_bytes());
    for (at, address) in [(12, ours.ip()), (28, theirs.ip())] {
        match address {
            IpAddr::V4(address) => put(HEADER_LEN + at, &address.octets()),
            IpAddr::V6(address) => put(HEADER_LEN + at, &address.octets()),
        }
    }
    // INET_DIAG_NOCOOKIE.
    put(HEADER_LEN + 48, &[0xFF; 8]);
    bytes
}

/// Returns true for the end of a list, which only a kernel that knows TCP's sockets gives.
fn is_list(answer: &[u8]) -> bool {
    answer.get(4..6) == Some(&DONE.to_ne_bytes())
}

/// Parses an answer; `None` if it is too short. [`UNMAPPED_USER`] names one user only if all users are
/// mapped.
fn parse(answer: &[u8], maps_all_users: impl FnOnce() -> bool) -> Option<TcpOwner> {
    let field = |at: usize| Some(u32::from_ne_bytes(*answer.get(at..)?.first_chunk()?));
    let kind = u16::from_ne_bytes(*answer.get(4..)?.first_chunk()?);
    if kind == ERROR {
        let error = field(HEADER_LEN)?.cast_signed();
        let known = error == -libc::ENOENT && field(HEADER_LEN + 8)? & 0xFFFF == u32::from(BY_FAMILY);
        return Some(if known { TcpOwner::Nobody } else { TcpOwner::Unknown });
    }
    let (uid, inode) = (field(HEADER_LEN + UID)?, field(HEADER_LEN + INODE)?);
    let is_known = inode != 0 && (uid != UNMAPPED_USER || maps_all_users());
    Some(if is_known { TcpOwner::User(uid) } else { TcpOwner::Nobody })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn owner(address: &str) -> [TcpOwner; 3] {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let before = tcp_peer_owner(&caller).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let both = [tcp_peer_owner(&caller).unwrap(), tcp_peer_owner(&accepted).unwrap()];
        [before, both[0], both[1]]
    }

    #[test]
    fn both_ends_of_a_connection_have_an_owner_once_it_is_accepted() {
        let us = TcpOwner::User(rustix::process::geteuid().as_raw());
        assert_eq!(owner("127.0.0.1"), [TcpOwner::Nobody, us, us]);
    }

    #[test]
    fn a_closed_end_has_no_owner() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        drop(caller);
        assert_eq!(tcp_peer_owner(&accepted).unwrap(), TcpOwner::Nobody);
    }

    /// Without the module, the kernel answers both requests with ENOENT.
    #[test]
    fn only_a_kernel_that_knows_the_sockets_has_a_list_of_them() {
        let header = |kind: u16| [&20u32.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10]].concat();
        assert!(is_list(&[header(DONE), vec![0; 4]].concat()));
        assert!(!is_list(&[header(ERROR), (-libc::ENOENT).to_ne_bytes().to_vec()].concat()));
        assert!(!is_list(&[0; 3]));
    }

    #[test]
    fn short_answers_are_no_owner() {
        assert_eq!([&[0; 3][..], &[0; 70]].map(|answer| parse(answer, || true)), [None, None]);
    }

    #[test]
    fn a_user_that_the_namespace_does_not_map_is_unknown() {
        let owner = |user: u32, maps_all_users: bool| {
            let mut answer = [0; HEADER_LEN + INODE + 4];
            answer[HEADER_LEN + UID..][..4].copy_from_slice(&user.to_ne_bytes());
            answer[HEADER_LEN + INODE] = 1;
            parse(&answer, || maps_all_users)
        };
        for maps_all_users in [false, true] {
            assert_eq!(owner(1000, maps_all_users), Some(TcpOwner::User(1000)));
        }
        assert_eq!(owner(65_534, true), Some(TcpOwner::User(65_534)));
        assert_eq!(owner(65_534, false), Some(TcpOwner::Nobody));
    }
}
