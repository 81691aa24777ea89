//! The IP addressing header in front of private data (annex A11).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

use super::private_data::{PrivateData, PrivateDataError};
use crate::bytes::{array, be16, put};

/// Why private data does not begin with an IP addressing header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IpHeaderError {
    /// A version of the header other than 0.
    #[error("IP addressing header of version {0:#04x}, where 0 is expected")]
    Version(u8),
    /// An IP version other than 4 and 6.
    #[error("IP version {0}, where 4 or 6 is expected")]
    IpVersion(u8),
}

/// The addresses of both ends of a connection request. The destination's port is in the service identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpHeader {
    /// Address and port of the sender.
    pub source: SocketAddr,
    /// Address of the receiver, of the same family.
    pub destination: IpAddr,
}

/// Private data, split into the IP addressing header and the program's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressedPrivateData<'a> {
    /// The header.
    pub header: IpHeader,
    /// The program's data, padded with zeros.
    pub data: &'a [u8],
}

impl IpHeader {
    /// Bytes of the header.
    pub const LEN: usize = 36;

    /// Splits private data into the header and the program's data.
    ///
    /// # Errors
    /// [`IpHeaderError`].
    pub fn split<const N: usize>(data: &PrivateData<N>) -> Result<AddressedPrivateData<'_>, IpHeaderError> {
        const { assert!(N > Self::LEN) };
        let bytes: [u8; Self::LEN] = array(&data.0, 0);
        Ok(AddressedPrivateData { header: Self::from_bytes(&bytes)?, data: &data.0[Self::LEN..] })
    }

    /// Returns private data that consists of the header and `data`.
    ///
    /// # Errors
    /// `data` is longer than `N` minus the header's length.
    pub fn join<const N: usize>(self, data: &[u8]) -> Result<PrivateData<N>, PrivateDataError> {
        const { assert!(N > Self::LEN) };
        let mut bytes = [0; N];
        put(&mut bytes, 0, self.to_bytes());
        let error = PrivateDataError { given: data.len(), room: N - Self::LEN };
        let room = bytes[Self::LEN..].get_mut(..data.len());
        room.ok_or(error)?.copy_from_slice(data);
        Ok(PrivateData(bytes))
    }

    fn from_bytes(bytes: &[u8; Self::LEN]) -> Result<Self, IpHeaderError> {
        if bytes[0] != 0 {
            return Err(IpHeaderError::Version(bytes[0]));
        }
        let [source, destination] = match bytes[1] >> 4 {
            4 => [16, 32].map(|at| IpAddr::V4(Ipv4Addr::from(array::<4, _>(bytes, at)))),
            6 => [4, 20].map(|at| IpAddr::V6(Ipv6Addr::from(array::<16, _>(bytes, at)))),
            other => return Err(IpHeaderError::IpVersion(other)),
        };
        Ok(Self { source: SocketAddr::new(source, be16(bytes, 2)), destination })
    }

    fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        put(&mut bytes, 2, self.source.port().to_be_bytes());
        match (self.source.ip(), self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                bytes[1] = 4 << 4;
                put(&mut bytes, 16, source.octets());
                put(&mut bytes, 32, destination.octets());
            }
            (source, destination) => {
                bytes[1] = 6 << 4;
                put(&mut bytes, 4, as_v6(source).octets());
                put(&mut bytes, 20, as_v6(destination).octets());
            }
        }
        bytes
    }
}

const fn as_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_addresses_are_the_last_four_bytes_of_theirs() {
        let header =
            IpHeader { source: "10.0.0.1:256".parse().unwrap(), destination: IpAddr::from([10, 0, 0, 2]) };
        let data = header.join::<92>(b"x").unwrap();
        assert_eq!(data.0[..4], [0, 0x40, 1, 0]);
        assert_eq!((&data.0[16..20], &data.0[32..37]), (&[10, 0, 0, 1][..], &[10, 0, 0, 2, b'x'][..]));
        let split = IpHeader::split(&data).unwrap();
        assert_eq!((split.header, split.data.len(), split.data[0]), (header, 56, b'x'));
        assert!(header.join::<92>(&[0; 56]).is_ok());
        assert_eq!(header.join::<92>(&[0; 57]), Err(PrivateDataError { given: 57, room: 56 }));
    }

    #[test]
    fn other_versions_are_refused() {
        let mut data = PrivateData::<92>::default();
        assert_eq!(IpHeader::split(&data), Err(IpHeaderError::IpVersion(0)));
        data.0[0] = 1;
        assert_eq!(IpHeader::split(&data), Err(IpHeaderError::Version(1)));
    }
}
