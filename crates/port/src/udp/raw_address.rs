//! Socket addresses in the kernel's format (ip(7), ipv6(7)).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// A `sockaddr_in` or a `sockaddr_in6`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RawAddress {
    bytes: [u8; 28],
}

const V4_LEN: usize = 16;
const V6_LEN: usize = 28;

impl RawAddress {
    /// Maximum length, in bytes.
    pub(super) const CAPACITY: usize = V6_LEN;

    /// Encodes an address. Returns its length too.
    #[inline]
    pub(super) fn new(address: &SocketAddr) -> (Self, usize) {
        let mut bytes = [0; V6_LEN];
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        let (family, len) = match address {
            SocketAddr::V4(v4) => {
                bytes[4..8].copy_from_slice(&v4.ip().octets());
                (libc::AF_INET, V4_LEN)
            }
            SocketAddr::V6(v6) => {
                bytes[8..24].copy_from_slice(&v6.ip().octets());
                bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
                (libc::AF_INET6, V6_LEN)
            }
        };
        bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        (Self { bytes }, len)
    }

    /// Decodes the address at `place`; `None` if null or neither IPv4 nor IPv6.
    ///
    /// # Safety
    /// `place` is null, or points to as many bytes as its address family has.
    #[allow(unsafe_code)]
    pub(super) unsafe fn read(place: *const libc::sockaddr) -> Option<SocketAddr> {
        // SAFETY: every address begins with its family.
        let len = match i32::from(unsafe { place.as_ref() }?.sa_family) {
            libc::AF_INET => V4_LEN,
            libc::AF_INET6 => V6_LEN,
            _ => return None,
        };
        let mut raw = Self::default();
        // SAFETY: an address of this family has `len` bytes.
        raw.bytes[..len].copy_from_slice(unsafe { std::slice::from_raw_parts(place.cast(), len) });
        raw.get()
    }

    /// Decodes the address; `None` if it is neither IPv4 nor IPv6.
    #[inline]
    pub(super) fn get(&self) -> Option<SocketAddr> {
        let port = u16::from_be_bytes([self.bytes[2], self.bytes[3]]);
        match i32::from(u16::from_ne_bytes([self.bytes[0], self.bytes[1]])) {
            libc::AF_INET => {
                let octets: [u8; 4] = self.bytes[4..8].try_into().ok()?;
                Some(SocketAddrV4::new(Ipv4Addr::from(octets), port).into())
            }
            libc::AF_INET6 => {
                let octets: [u8; 16] = self.bytes[8..24].try_into().ok()?;
                let scope: [u8; 4] = self.bytes[24..28].try_into().ok()?;
                let scope = u32::from_ne_bytes(scope);
                Some(SocketAddrV6::new(Ipv6Addr::from(octets), port, 0, scope).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_back() {
        for (address, len) in [("127.1.2.3:4791", 16), ("[fe80::1%7]:65535", 28)] {
            let address: SocketAddr = address.parse().unwrap();
            let (raw, raw_len) = RawAddress::new(&address);
            assert_eq!((raw.get(), raw_len), (Some(address), len));
        }
        assert_eq!(RawAddress::default().get(), None);
    }
}
