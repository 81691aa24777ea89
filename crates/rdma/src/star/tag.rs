//! Keyed tags, by which the stateless card recognizes packets of its clients and the memory that they were
//! granted.
//!
//! All keys and codes follow from the server's secret and from fields of each packet, so the card computes
//! them for each packet and stores none. Keys and codes are SipHash-2-4, tags AEGIS-128X2 as a MAC (RFC
//! 10032), which takes the code as its nonce.
//!
//! | | of | known to |
//! |---|---|---|
//! | connection key | the connection's two ends | the client, from set-up |
//! | lease key | the two ends, the end of the lease | the client, from set-up and masked in elements |
//! | grant code | the two ends, key, range and rights | the client, in elements; no secret by itself |
//!
//! The tag of an RDP or GD is by the lease key, and covers the grant code, which the packet does not carry.
//! Knowing only one of them is not enough to compute it.

use std::fmt;
use std::net::IpAddr;

use aegis::aegis128x2::Aegis128X2Mac;
use nichrome_wire::rdma::{QpNumber, UdpFlow};
use nichrome_wire::star::{Authentication, GrantCode, Lease, NextLease, Rights};
use siphasher::{sip, sip128};

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The client's address.
    pub address: IpAddr,
    /// The client's number of the connection.
    pub client: QpNumber,
    /// The server's number of the connection.
    pub server: QpNumber,
}

/// The kind of value computed from the secret: the first byte of the input.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Purpose {
    Connection = 1,
    Lease = 2,
    Grant = 3,
}

/// Bytes that all inputs begin with.
const ENDS_LEN: usize = 28;

impl Ends {
    /// Returns the input for a purpose: the purpose, the client's number, the server's number, the client's
    /// address, and `rest`.
    #[inline]
    fn input<const LEN: usize>(&self, purpose: Purpose, rest: &[u8]) -> [u8; LEN] {
        let address = match self.address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let mut input = [0; LEN];
        input[..4].copy_from_slice(&[purpose as u8, 0, 0, 0]);
        input[4..8].copy_from_slice(&self.client.value().to_be_bytes());
        input[8..12].copy_from_slice(&self.server.value().to_be_bytes());
        input[12..ENDS_LEN].copy_from_slice(&address.octets());
        input[ENDS_LEN..].copy_from_slice(rest);
        input
    }
}

/// The server's secret, chosen at random at each start.
#[derive(Clone)]
pub struct ServerSecret([u8; 16]);

impl ServerSecret {
    /// Creates the secret from its bytes.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    #[inline]
    fn key(&self, input: &[u8]) -> ConnectionKey {
        ConnectionKey(sip128::SipHasher24::new_with_key(&self.0).hash(input).as_bytes())
    }

    /// Returns the key of a connection, by which the two drivers authenticate elements, completions and their
    /// acknowledgements.
    pub fn connection_key(&self, ends: &Ends) -> ConnectionKey {
        self.key(&ends.input::<ENDS_LEN>(Purpose::Connection, &[]))
    }

    /// Returns the key of a lease, by which the client and the card authenticate RDPs and GDs, and their
    /// answers.
    #[inline]
    pub fn lease_key(&self, ends: &Ends, lease: Lease) -> ConnectionKey {
        self.key(&ends.input::<{ ENDS_LEN + 4 }>(Purpose::Lease, &lease.0.to_be_bytes()))
    }

    /// Returns the code of memory that the connection was granted.
    #[inline]
    pub fn grant_code(&self, ends: &Ends, key: u32, (base, len): (u64, u64), rights: Rights) -> GrantCode {
        let mut rest = [0; 24];
        rest[..4].copy_from_slice(&key.to_be_bytes());
        rest[4] = rights.bits();
        rest[8..16].copy_from_slice(&base.to_be_bytes());
        rest[16..].copy_from_slice(&len.to_be_bytes());
        let input = ends.input::<{ ENDS_LEN + 24 }>(Purpose::Grant, &rest);
        GrantCode(sip::SipHasher24::new_with_key(&self.0).hash(&input))
    }
}

/// Shows nothing of the secret.
impl fmt::Debug for ServerSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerSecret")
    }
}

/// The key of one connection's tags or of one of its leases, known to its client and computed by the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ConnectionKey([u8; 16]);

impl ConnectionKey {
    /// Creates the key from its bytes, which set-up delivers.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes, for set-up.
    pub const fn bytes(&self) -> [u8; 16] {
        self.0
    }

    /// Returns the tag over a grant code, 0 where there is none, a packet's addresses and the datagram up to
    /// the tag.
    #[inline]
    pub fn tag(&self, code: GrantCode, addresses: &[u8], covered: &[u8]) -> u64 {
        let nonce = (u128::from(code.0) << 64).to_be_bytes();
        let mut mac = Aegis128X2Mac::<16>::new_with_nonce(&self.0, &nonce);
        mac.update(addresses);
        mac.update(covered);
        (u128::from_be_bytes(mac.finalize()) >> 64) as u64
    }

    /// Returns true if a received datagram has the tag of this key.
    #[inline]
    pub fn is_valid(
        &self,
        code: GrantCode,
        flow: &UdpFlow,
        datagram: &[u8],
        authentication: &Authentication,
    ) -> bool {
        let tag =
            Authentication::covered(flow, datagram, |addresses, covered| self.tag(code, addresses, covered));
        // One word is compared in constant time.
        tag.is_some_and(|tag| tag ^ authentication.tag == 0)
    }

    /// Masks the key of a lease by the key of its connection; each lease is masked once. Masking again gives
    /// the key.
    fn mask(&self, lease: Lease, bytes: [u8; 16]) -> [u8; 16] {
        let mask = sip128::SipHasher24::new_with_key(&self.0).hash(&lease.0.to_be_bytes()).as_bytes();
        std::array::from_fn(|nth| bytes[nth] ^ mask[nth])
    }

    /// Returns the element that hands over a lease, of a connection with this key.
    pub fn next_lease(&self, lease: Lease, key: Self) -> NextLease {
        NextLease { lease, masked_key: self.mask(lease, key.0) }
    }

    /// Returns the key of a lease that an element hands over.
    pub fn lease_key(&self, next: &NextLease) -> Self {
        Self(self.mask(next.lease, next.masked_key))
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

    fn ends(address: u8, client: u32, server: u32) -> Ends {
        let [client, server] = [client, server].map(|number| QpNumber::new(number).unwrap());
        Ends { address: Ipv4Addr::new(10, 0, 0, address).into(), client, server }
    }

    #[test]
    fn each_connection_lease_and_grant_has_a_value_of_its_own() {
        let mut keys = Vec::new();
        let mut codes = Vec::new();
        for secret in [SECRET, ServerSecret::new([8; 16])] {
            for ends in [ends(1, 17, 3), ends(2, 17, 3), ends(1, 18, 3), ends(1, 17, 4)] {
                keys.push(secret.connection_key(&ends));
                keys.extend([1, 2].map(|lease| secret.lease_key(&ends, Lease(lease))));
                for (key, range, rights) in [
                    (1, (8, 8), Rights::STORE),
                    (2, (8, 8), Rights::STORE),
                    (1, (9, 8), Rights::STORE),
                    (1, (8, 9), Rights::STORE),
                    (1, (8, 8), Rights::FETCH),
                    (1, (8, 8), Rights::STORE | Rights::ELEMENT),
                ] {
                    codes.push(secret.grant_code(&ends, key, range, rights).0);
                }
            }
        }
        let distinct = |values: &[u128]| {
            let mut values = values.to_vec();
            values.sort_unstable();
            values.dedup();
            values.len()
        };
        let keys: Vec<u128> = keys.iter().map(|key| u128::from_le_bytes(key.bytes())).collect();
        let codes: Vec<u128> = codes.into_iter().map(u128::from).collect();
        assert_eq!((distinct(&keys), distinct(&codes)), (24, 48));
        assert_eq!(SECRET.connection_key(&ends(1, 17, 3)), SECRET.connection_key(&ends(1, 17, 3)));
    }

    /// The crate tests itself against the vectors of RFC 10032.
    #[test]
    fn the_tag_is_an_aegis_mac_of_addresses_and_datagram_under_key_and_code() {
        let bytes: [u8; 40] = std::array::from_fn(|nth| nth as u8);
        let key = ConnectionKey::new(std::array::from_fn(|nth| nth as u8));
        let code = GrantCode(0x0001_0203_0405_0607);
        let tag = |key: &ConnectionKey, code, datagram: &[u8]| key.tag(code, &bytes[8..16], datagram);
        let nonce = [[0, 1, 2, 3, 4, 5, 6, 7], [0; 8]].concat().try_into().unwrap();
        let mut mac = Aegis128X2Mac::<16>::new_with_nonce(&key.bytes(), &nonce);
        mac.update(&bytes[8..]);
        let whole = mac.finalize();
        assert_eq!(tag(&key, code, &bytes[16..]).to_be_bytes(), whole[..8]);
        let others = [
            tag(&key, GrantCode(0), &bytes[16..]),
            tag(&key, code, &bytes[17..]),
            tag(&ConnectionKey::new([1; 16]), code, &bytes[16..]),
            key.tag(code, &bytes[7..15], &bytes[16..]),
        ];
        assert!(!others.contains(&tag(&key, code, &bytes[16..])));
    }

    #[test]
    fn the_key_of_a_lease_is_read_with_the_key_of_its_connection() {
        let (connection, key) = (ConnectionKey::new([1; 16]), ConnectionKey::new([9; 16]));
        let next = connection.next_lease(Lease(5), key);
        assert_ne!(next.masked_key, key.bytes());
        assert_eq!(connection.lease_key(&next), key);
        assert_ne!(ConnectionKey::new([2; 16]).lease_key(&next), key);
    }

    #[test]
    fn secrets_are_not_printed() {
        let key = SECRET.connection_key(&ends(1, 17, 3));
        assert_eq!(format!("{SECRET:?} {key:?}"), "ServerSecret ConnectionKey");
    }
}
