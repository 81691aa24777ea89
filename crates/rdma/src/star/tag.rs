//! Keyed tags, by which the stateless card authenticates packets.
//!
//! A connection's key is a function of the server's secret and of fields in each packet, so the card computes it for each
//! packet and stores none. Keys are SipHash-2-4 with 128 bits of output, tags with 64.

use std::fmt;
use std::hash::Hasher as _;
use std::net::IpAddr;

use nichrome_wire::rdma::{QpNumber, UdpFlow};
use nichrome_wire::star::Authentication;
use siphasher::{sip, sip128};

/// The server's secret, chosen at random at each start.
#[derive(Clone)]
pub struct ServerSecret([u8; 16]);

impl ServerSecret {
    /// The secret of these bytes.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The key of a client's connection, by the client's address and number for it, and the server's protection domain.
    #[inline]
    pub fn connection_key(&self, client: IpAddr, connection: QpNumber, domain: u32) -> ConnectionKey {
        let address = match client {
            IpAddr::V4(client) => client.to_ipv6_mapped(),
            IpAddr::V6(client) => client,
        };
        let mut input = [0; 24];
        input[..16].copy_from_slice(&address.octets());
        input[16..20].copy_from_slice(&connection.value().to_be_bytes());
        input[20..].copy_from_slice(&domain.to_be_bytes());
        ConnectionKey(sip128::SipHasher24::new_with_key(&self.0).hash(&input).as_bytes())
    }
}

/// Shows nothing of the secret.
impl fmt::Debug for ServerSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerSecret")
    }
}

/// The key of one connection's tags, known to its client and computed by the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ConnectionKey([u8; 16]);

impl ConnectionKey {
    /// The key of these bytes, from set-up.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes, for set-up.
    pub const fn bytes(&self) -> [u8; 16] {
        self.0
    }

    /// The tag over a packet's addresses and the datagram up to the tag.
    #[inline]
    pub fn tag(&self, addresses: &[u8], covered: &[u8]) -> u64 {
        let mut hasher = sip::SipHasher24::new_with_key(&self.0);
        hasher.write(addresses);
        hasher.write(covered);
        hasher.finish()
    }

    /// Whether a received datagram has the tag of this key.
    #[inline]
    pub fn is_right(&self, flow: &UdpFlow, datagram: &[u8], authentication: &Authentication) -> bool {
        let tag = Authentication::covered(flow, datagram, |addresses, covered| self.tag(addresses, covered));
        tag == Some(authentication.tag)
    }
}

/// Shows nothing of the key.
impl fmt::Debug for ConnectionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConnectionKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const SECRET: ServerSecret = ServerSecret::new([7; 16]);
    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

    fn key(client: IpAddr, connection: u32, domain: u32) -> ConnectionKey {
        SECRET.connection_key(client, QpNumber::new(connection).unwrap(), domain)
    }

    #[test]
    fn each_connection_has_a_key_of_its_own() {
        let one = key(CLIENT, 17, 3);
        assert_eq!(one, key(CLIENT, 17, 3));
        let other_secret = ServerSecret::new([8; 16]);
        let other = other_secret.connection_key(CLIENT, QpNumber::new(17).unwrap(), 3);
        let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
        for other in [other, key(address, 17, 3), key(CLIENT, 18, 3), key(CLIENT, 17, 4)] {
            assert_ne!(one, other);
        }
    }

    /// The first and the last vector of SipHash-2-4's authors: a key and a message of ascending bytes.
    #[test]
    fn the_tag_is_siphash_2_4() {
        let key = ConnectionKey::new(std::array::from_fn(|nth| nth as u8));
        let message: [u8; 63] = std::array::from_fn(|nth| nth as u8);
        assert_eq!(key.tag(&[], &[]), 0x726F_DB47_DD0E_0E31);
        assert_eq!(key.tag(&message[..8], &message[8..]), 0x958A_324C_EB06_4572);
    }

    #[test]
    fn secrets_are_not_printed() {
        assert_eq!(format!("{SECRET:?} {:?}", key(CLIENT, 17, 3)), "ServerSecret ConnectionKey");
    }
}
