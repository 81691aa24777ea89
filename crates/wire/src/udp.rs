//! UDP datagrams (RFC 768).

use thiserror::Error;

use crate::bytes::{be16, put};
use crate::ip::{AddressPair, IpProtocol};

/// An unchecked view of a UDP header and its payload.
#[derive(Clone, Copy, Debug)]
pub struct UdpHeader<'a> {
    fixed: &'a [u8; 8],
    rest: &'a [u8],
}

impl<'a> UdpHeader<'a> {
    /// Bytes of a header.
    pub const LEN: usize = 8;

    /// A view of `datagram`; `None` if it is shorter than a header.
    #[inline]
    pub fn new(datagram: &'a [u8]) -> Option<Self> {
        let (fixed, rest) = datagram.split_first_chunk()?;
        Some(Self { fixed, rest })
    }

    /// Returns the source port; 0 for none.
    #[inline]
    pub fn src_port(&self) -> u16 {
        be16(self.fixed, 0)
    }

    /// The receiver's port.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        be16(self.fixed, 2)
    }

    /// Length of header and payload, in bytes.
    #[inline]
    pub fn length(&self) -> u16 {
        be16(self.fixed, 4)
    }

    /// Returns the checksum; 0 for none.
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.fixed, 6)
    }

    /// Returns the payload without bytes behind the length; `None` if the length is below 8 or beyond the
    /// bytes.
    #[inline]
    pub fn payload(&self) -> Option<&'a [u8]> {
        self.rest.get(..usize::from(self.length()).checked_sub(Self::LEN)?)
    }
}

/// A mutable view of a UDP header, for the fields that engines rewrite.
#[derive(Debug)]
pub struct UdpHeaderMut<'a> {
    fixed: &'a mut [u8; 8],
}

impl<'a> UdpHeaderMut<'a> {
    /// A mutable view of `datagram`; `None` if it is shorter than a header.
    #[inline]
    pub fn new(datagram: &'a mut [u8]) -> Option<Self> {
        Some(Self { fixed: datagram.first_chunk_mut()? })
    }

    /// Sets the length of header and payload, in bytes.
    #[inline]
    pub fn set_length(&mut self, length: u16) {
        put(self.fixed, 4, length.to_be_bytes());
    }

    /// Sets the checksum field verbatim: see [`transmitted_checksum`].
    #[inline]
    pub fn set_checksum(&mut self, checksum: u16) {
        put(self.fixed, 6, checksum.to_be_bytes());
    }
}

/// Returns the transmitted form of a computed checksum: 0 means no checksum, so 0xFFFF, its equal, is sent
/// (RFC 768).
#[inline]
pub const fn transmitted_checksum(checksum: u16) -> u16 {
    if checksum == 0 { 0xFFFF } else { checksum }
}

/// An invalid UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UdpError {
    /// The bytes end before the datagram.
    #[error("the UDP datagram is cut short: {len} bytes of {expected}")]
    Truncated {
        /// Bytes available.
        len: usize,
        /// Bytes required by the header.
        expected: usize,
    },
    /// The length does not cover the header.
    #[error("the UDP length {0} is shorter than the header")]
    Length(u16),
    /// The checksum is wrong.
    #[error("the UDP checksum is wrong")]
    Checksum,
    /// No checksum over IPv6 (RFC 8200 section 8.1).
    #[error("a UDP datagram over IPv6 needs a checksum")]
    NoChecksum,
    /// Header and payload to write exceed 65,535 bytes.
    #[error("a UDP datagram of {0} bytes is longer than 65535")]
    TooLong(usize),
}

/// Presence of a checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UdpChecksum {
    /// A correct checksum.
    #[default]
    Present,
    /// None: over IPv4 only.
    Absent,
}

/// A valid UDP header. Length and checksum derive from payload and addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UdpRepr {
    /// The source port; 0 for none.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// Presence of a checksum.
    pub checksum: UdpChecksum,
}

impl UdpRepr {
    /// Parses the header of `datagram`, an IP payload between `addresses`; returns it and the UDP payload
    /// without bytes behind the length.
    pub fn parse<'a>(datagram: &'a [u8], addresses: &AddressPair) -> Result<(Self, &'a [u8]), UdpError> {
        let truncated = |expected| UdpError::Truncated { len: datagram.len(), expected };
        let header = UdpHeader::new(datagram).ok_or(truncated(UdpHeader::LEN))?;
        let length = header.length();
        if usize::from(length) < UdpHeader::LEN {
            return Err(UdpError::Length(length));
        }
        let payload = header.payload().ok_or(truncated(usize::from(length)))?;
        let checksum = if header.checksum() == 0 { UdpChecksum::Absent } else { UdpChecksum::Present };
        check_presence(checksum, addresses)?;
        let sum = addresses
            .pseudo_header(IpProtocol::UDP, length.into())
            .add_bytes(header.fixed)
            .add_bytes(payload);
        if checksum == UdpChecksum::Present && sum.finish() != 0 {
            return Err(UdpError::Checksum);
        }
        Ok((Self { src_port: header.src_port(), dst_port: header.dst_port(), checksum }, payload))
    }

    /// Appends the datagram, header and payload, between `addresses` to `out`.
    pub fn emit(&self, addresses: &AddressPair, payload: &[u8], out: &mut Vec<u8>) -> Result<(), UdpError> {
        check_presence(self.checksum, addresses)?;
        let length = UdpHeader::LEN + payload.len();
        let length = u16::try_from(length).map_err(|_| UdpError::TooLong(length))?;
        let mut fixed = [0; UdpHeader::LEN];
        put(&mut fixed, 0, self.src_port.to_be_bytes());
        put(&mut fixed, 2, self.dst_port.to_be_bytes());
        put(&mut fixed, 4, length.to_be_bytes());
        if self.checksum == UdpChecksum::Present {
            let sum =
                addresses.pseudo_header(IpProtocol::UDP, length.into()).add_bytes(&fixed).add_bytes(payload);
            put(&mut fixed, 6, transmitted_checksum(sum.finish()).to_be_bytes());
        }
        out.extend(fixed);
        out.extend(payload);
        Ok(())
    }
}

/// Checks that a checksum is absent over IPv4 only. The exception for tunnels (RFC 6935) is not supported.
fn check_presence(checksum: UdpChecksum, addresses: &AddressPair) -> Result<(), UdpError> {
    match (checksum, addresses) {
        (UdpChecksum::Absent, AddressPair::V6 { .. }) => Err(UdpError::NoChecksum),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    const V4: AddressPair = AddressPair::V4 { src: Ipv4Addr::LOCALHOST, dst: Ipv4Addr::LOCALHOST };
    const V6: AddressPair = AddressPair::V6 { src: Ipv6Addr::LOCALHOST, dst: Ipv6Addr::LOCALHOST };
    const REPR: UdpRepr = UdpRepr { src_port: 4791, dst_port: 53, checksum: UdpChecksum::Present };
    const UNCHECKED: UdpRepr = UdpRepr { checksum: UdpChecksum::Absent, ..REPR };

    fn datagram(repr: &UdpRepr, addresses: &AddressPair, payload: &[u8]) -> Vec<u8> {
        let mut datagram = Vec::new();
        repr.emit(addresses, payload, &mut datagram).unwrap();
        datagram
    }

    #[test]
    fn the_view_reads_every_field() {
        let datagram = datagram(&REPR, &V4, b"payload");
        let header = UdpHeader::new(&datagram).unwrap();
        assert_eq!((header.src_port(), header.dst_port(), header.length()), (4791, 53, 15));
        assert_eq!(header.checksum(), u16::from_be_bytes([datagram[6], datagram[7]]));
        assert_eq!(header.payload(), Some(&b"payload"[..]));
    }

    #[test]
    fn a_checksum_of_zero_is_sent_as_all_ones() {
        // A first word of payload that makes the sum of everything 0xFFFF.
        let zero = datagram(&REPR, &V4, &[0, 0]);
        let checksum = UdpHeader::new(&zero).unwrap().checksum();
        let datagram = datagram(&REPR, &V4, &checksum.to_be_bytes());
        assert_eq!(UdpHeader::new(&datagram).unwrap().checksum(), 0xFFFF);
        assert_eq!(UdpRepr::parse(&datagram, &V4), Ok((REPR, &checksum.to_be_bytes()[..])));
    }

    #[test]
    fn the_checksum_may_be_absent_over_ipv4_only() {
        let datagram = datagram(&UNCHECKED, &V4, b"payload");
        assert_eq!(UdpHeader::new(&datagram).unwrap().checksum(), 0);
        assert_eq!(UdpRepr::parse(&datagram, &V4), Ok((UNCHECKED, &b"payload"[..])));
        assert_eq!(UdpRepr::parse(&datagram, &V6), Err(UdpError::NoChecksum));
        assert_eq!(UNCHECKED.emit(&V6, b"", &mut Vec::new()), Err(UdpError::NoChecksum));
    }

    #[test]
    fn every_broken_rule_has_its_error() {
        let good = datagram(&REPR, &V6, b"payload");
        let changed = |at: usize, byte: u8| {
            let mut bad = good.clone();
            bad[at] = byte;
            bad
        };
        assert_eq!(UdpRepr::parse(&changed(5, 7), &V6), Err(UdpError::Length(7)));
        let cut = UdpError::Truncated { len: 15, expected: 16 };
        assert_eq!(UdpRepr::parse(&changed(5, 16), &V6), Err(cut));
        let cut = UdpError::Truncated { len: 7, expected: 8 };
        assert_eq!(UdpRepr::parse(&good[..7], &V6), Err(cut));
        assert_eq!(UdpRepr::parse(&changed(14, b'!'), &V6), Err(UdpError::Checksum));
        assert_eq!(REPR.emit(&V6, &[0; 65_528], &mut Vec::new()), Err(UdpError::TooLong(65_536)));
    }

    #[test]
    fn a_datagram_may_be_empty() {
        assert_eq!(UdpRepr::parse(&datagram(&REPR, &V6, b""), &V6), Ok((REPR, &b""[..])));
    }

    #[test]
    fn bytes_after_the_length_are_trimmed_and_not_checked() {
        let mut datagram = datagram(&REPR, &V4, b"payload");
        datagram.extend(b"padding");
        assert_eq!(UdpRepr::parse(&datagram, &V4), Ok((REPR, &b"payload"[..])));
    }

    #[test]
    fn a_rewritten_header_is_read_back() {
        let mut datagram = datagram(&REPR, &V4, b"payload");
        let mut header = UdpHeaderMut::new(&mut datagram).unwrap();
        header.set_length(12);
        header.set_checksum(0);
        assert_eq!(UdpRepr::parse(&datagram, &V4), Ok((UNCHECKED, &b"payl"[..])));
    }

    proptest! {
        #[test]
        fn what_is_emitted_parses_to_the_same(
            (src_port, dst_port, absent, over_ipv6) in any::<(u16, u16, bool, bool)>(),
            payload in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let checksum = if absent && !over_ipv6 { UdpChecksum::Absent } else { UdpChecksum::Present };
            let addresses = if over_ipv6 { V6 } else { V4 };
            let repr = UdpRepr { src_port, dst_port, checksum };
            let datagram = datagram(&repr, &addresses, &payload);
            prop_assert_eq!(UdpRepr::parse(&datagram, &addresses), Ok((repr, &payload[..])));
        }
    }
}
