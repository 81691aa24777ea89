//! `struct sockaddr_in` and `struct sockaddr_in6`.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use super::fields::Fields;

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// Bytes of `struct sockaddr_in` and `struct sockaddr_in6`.
const IN_LEN: usize = 16;
pub(super) const IN6_LEN: usize = 28;

/// Bytes of `struct sockaddr_storage`.
pub(super) const STORAGE_LEN: usize = 128;

/// Reads an address; `None` if it is of another family.
pub(super) fn read(bytes: &[u8]) -> Option<SocketAddr> {
    let fields = Fields(bytes);
    let port = u16::from_be_bytes(fields.bytes(2));
    match fields.u16(0) {
        AF_INET => Some(SocketAddr::new(IpAddr::from(fields.bytes::<4>(4)), port)),
        AF_INET6 => {
            let (flow, scope) = (u32::from_be_bytes(fields.bytes(4)), fields.u32(24));
            Some(SocketAddrV6::new(fields.bytes::<16>(8).into(), port, flow, scope).into())
        }
        _ => None,
    }
}

/// Returns true if no family is given.
pub(super) fn is_absent(bytes: &[u8]) -> bool {
    Fields(bytes).u16(0) == 0
}

/// Writes an address.
pub(super) fn write(address: SocketAddr) -> Vec<u8> {
    let mut bytes = match address {
        SocketAddr::V4(_) => AF_INET,
        SocketAddr::V6(_) => AF_INET6,
    }
    .to_ne_bytes()
    .to_vec();
    bytes.extend(address.port().to_be_bytes());
    match address {
        SocketAddr::V4(address) => {
            bytes.extend(address.ip().octets());
            bytes.resize(IN_LEN, 0);
        }
        SocketAddr::V6(address) => {
            bytes.extend(address.flowinfo().to_be_bytes());
            bytes.extend(address.ip().octets());
            bytes.extend(address.scope_id().to_ne_bytes());
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_was_written() {
        for (address, len) in [("10.0.0.1:7174", IN_LEN), ("[fe80::1%3]:80", IN6_LEN), ("[::]:0", IN6_LEN)] {
            let address: SocketAddr = address.parse().unwrap();
            let bytes = write(address);
            assert_eq!((bytes.len(), read(&bytes)), (len, Some(address)));
        }
        assert_eq!(read(&27u16.to_ne_bytes()), None);
        assert!(is_absent(&[]) && !is_absent(&2u16.to_ne_bytes()));
    }
}
