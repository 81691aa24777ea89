//! Finds an unused address on the loopback interface.

use std::net::{Ipv4Addr, SocketAddr};

use super::socket::{UdpError, UdpSocket, open_first};

/// The range of candidates: 127.1.0.1 to 127.255.255.254. Lower addresses are localhost, local resolvers, and
/// Debian's address of the host name.
const FIRST: u32 = 0x7F01_0001;
const COUNT: u32 = 0x7FFF_FFFF - FIRST;

/// Addresses tried before giving up.
const TRIES: u32 = 4096;

impl UdpSocket {
    /// Opens a socket at `port` of an unused address of 127.0.0.0/8.
    pub fn open_loopback(port: u16) -> Result<Self, UdpError> {
        // Processes start at different addresses, so that collisions are rare.
        let start = std::process::id().wrapping_mul(0x9E37_79B1);
        let addresses = (0..TRIES).map(|nth| {
            let ip = Ipv4Addr::from_bits(FIRST + start.wrapping_add(nth) % COUNT);
            SocketAddr::from((ip, port))
        });
        open_first(addresses)?.ok_or(UdpError::NoLoopback(port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_socket_has_an_address_of_its_own() {
        let sockets: Vec<_> = (0..20).map(|_| UdpSocket::open_loopback(14_791).unwrap()).collect();
        for (nth, socket) in sockets.iter().enumerate() {
            let address = socket.local();
            assert!(address.ip().is_loopback() && address.port() == 14_791);
            assert!(sockets[..nth].iter().all(|other| other.local() != address));
            assert!(matches!(UdpSocket::open(address), Err(UdpError::Taken(taken)) if taken == address));
        }
    }
}
