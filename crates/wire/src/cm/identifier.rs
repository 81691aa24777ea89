//! Identifiers and small types of several messages.

use std::net::{IpAddr, Ipv6Addr};

/// A communication identifier: names a connection at one of its ends. 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommId(pub u32);

impl CommId {
    /// No connection.
    pub const NONE: Self = Self(0);
}

/// The identifiers of a connection, as the sender of a message sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CommIds {
    /// The sender's.
    pub local: CommId,
    /// The receiver's.
    pub remote: CommId,
}

/// The transaction of a MAD: retransmissions and answers keep the number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TransactionId(pub u64);

/// The globally unique identifier of an adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid(pub u64);

/// Enhanced connection establishment: options of a vendor, 0 without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ece {
    /// The vendor, 24 bits.
    pub vendor: u32,
    /// Its options, in the attribute modifier of the MAD header.
    pub options: u32,
}

/// A port's global identifier. In RoCEv2 an IPv6 address, or an IPv4 address mapped into one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Gid(pub [u8; 16]);

impl From<IpAddr> for Gid {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self(address.to_ipv6_mapped().octets()),
            IpAddr::V6(address) => Self(address.octets()),
        }
    }
}

impl From<Gid> for IpAddr {
    fn from(gid: Gid) -> Self {
        Self::V6(Ipv6Addr::from(gid.0)).to_canonical()
    }
}

/// A duration of 4.096 µs · 2ⁿ, n of 5 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeExponent(u8);

impl TimeExponent {
    /// The longest: 2.4 hours.
    pub const MAX: Self = Self(31);

    /// The duration with exponent `n`, at most 31.
    pub const fn new(n: u8) -> Self {
        if n > 31 { Self::MAX } else { Self(n) }
    }

    /// The exponent.
    pub const fn exponent(self) -> u8 {
        self.0
    }

    /// Nanoseconds.
    pub const fn nanos(self) -> u64 {
        4096 << self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_its_gid_and_back() {
        for address in ["10.77.0.2", "fe80::1", "::"] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(IpAddr::from(Gid::from(address)), address);
        }
        let mapped = Gid::from(IpAddr::from([10, 77, 0, 2]));
        assert_eq!(mapped.0, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 77, 0, 2]);
    }

    #[test]
    fn an_exponent_has_five_bits() {
        assert_eq!(
            (TimeExponent::new(20).nanos(), TimeExponent::new(200)),
            (4_294_967_296, TimeExponent::MAX)
        );
    }
}
