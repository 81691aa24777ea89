//! Multicast groups (ip(7), ipv6(7)).

use std::net::{IpAddr, SocketAddr};

use rustix::io::{self, Errno};
use rustix::net::sockopt::{set_ip_add_membership, set_ipv6_add_membership, set_socket_reuseaddr};

use crate::packet_options::set_option_of as set;

use super::local_addresses::interface_index;
use super::socket::{UdpError, UdpSocket, open};

/// Not in libc.
const IPV6_MULTICAST_ALL: libc::c_int = 29;

impl UdpSocket {
    /// Opens a socket that receives datagrams for a multicast group on the interface of address `local`.
    /// Every process of the machine that opens one gets a copy. Dropping the socket leaves the group.
    ///
    /// # Errors
    /// The group is no multicast address of the family of `local`, or `local` is not an address of this
    /// machine.
    pub fn open_group(group: SocketAddr, local: IpAddr) -> Result<Self, UdpError> {
        let failed = |error| UdpError::of(group, error);
        let socket = open(group, |fd| set_socket_reuseaddr(fd, true)).map_err(failed)?;
        match join(&socket, group.ip(), local) {
            Err(Errno::NODEV | Errno::ADDRNOTAVAIL) => Err(UdpError::NotLocal(local)),
            joined => joined.map(|()| socket).map_err(failed),
        }
    }
}

fn join(socket: &UdpSocket, group: IpAddr, local: IpAddr) -> io::Result<()> {
    const OFF: libc::c_int = 0;
    let fd = socket.fd();
    match (group, local) {
        (IpAddr::V4(group), IpAddr::V4(local)) => {
            // Otherwise the socket also receives datagrams of the group that arrive on interfaces that other
            // sockets joined.
            set(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, OFF)?;
            set_ip_add_membership(fd, &group, &local)
        }
        (IpAddr::V6(group), IpAddr::V6(_)) => {
            set(fd, libc::IPPROTO_IPV6, IPV6_MULTICAST_ALL, OFF)?;
            set_ipv6_add_membership(fd, &group, interface_index(local).ok_or(Errno::NODEV)?)
        }
        _ => Err(Errno::AFNOSUPPORT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::{Envelope, ReceiveBatch, SendBatch};
    use nichrome_wire::TrafficClass;
    use std::net::Ipv4Addr;
    use std::time::Duration;

    fn send(from: &UdpSocket, peer: SocketAddr, bytes: &[u8]) {
        let mut batch = SendBatch::default();
        batch.room().unwrap()[..bytes.len()].copy_from_slice(bytes);
        let envelope = Envelope { peer, traffic_class: TrafficClass(0), hop_limit: Some(1) };
        batch.stage(envelope, bytes.len(), bytes.len());
        assert_eq!(batch.send(from).sent, 1);
    }

    fn received(socket: &UdpSocket) -> Vec<Vec<u8>> {
        let mut batch = ReceiveBatch::default();
        for _ in 0..100 {
            batch.receive(socket).unwrap();
            let all: Vec<_> =
                batch.arrivals().flat_map(|arrival| arrival.datagrams().map(<[u8]>::to_vec)).collect();
            if !all.is_empty() {
                return all;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Vec::new()
    }

    #[test]
    fn every_socket_of_a_group_gets_a_copy_and_no_other_group_does() {
        let sender = UdpSocket::open_loopback(14_792).unwrap();
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let group = |last| SocketAddr::from((Ipv4Addr::new(239, 255, 77, last), 14_793));
        let open = |last| UdpSocket::open_group(group(last), local).unwrap();
        let (one, two, other) = (open(1), open(1), open(2));
        send(&sender, group(1), b"to all");
        assert_eq!((received(&one), received(&two)), (vec![b"to all".to_vec()], vec![b"to all".to_vec()]));
        assert!(received(&other).is_empty());
        drop(one);
        send(&sender, group(1), b"to one");
        assert_eq!(received(&two), [b"to one"]);
    }

    #[test]
    fn a_group_is_a_multicast_address_and_joined_from_an_address_of_this_machine() {
        let group = |ip: &str| SocketAddr::new(ip.parse().unwrap(), 14_794);
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert!(UdpSocket::open_group(group("127.0.0.5"), local).is_err());
        let other = "192.0.2.1".parse().unwrap();
        let refused = UdpSocket::open_group(group("239.255.77.3"), other);
        assert!(matches!(refused, Err(UdpError::NotLocal(address)) if address == other));
        assert!(UdpSocket::open_group(group("ff15::77"), local).is_err());
    }
}
