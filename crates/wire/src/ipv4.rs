//! IPv4 (RFC 791).

use std::net::Ipv4Addr;

use thiserror::Error;

use crate::bytes::{be16, be32, put};
use crate::checksum::{self, Sum};
use crate::header_options::HeaderOptions;
use crate::ip::{Ecn, Fragment, FragmentOffset, IpProtocol, TrafficClass};

/// An unchecked view of an IPv4 header and its payload.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4Header<'a> {
    fixed: &'a [u8; 20],
    rest: &'a [u8],
}

impl<'a> Ipv4Header<'a> {
    /// Bytes of a header without options.
    pub const LEN: usize = 20;

    /// A view of `packet`; `None` if it is shorter than a header without options.
    #[inline]
    pub fn new(packet: &'a [u8]) -> Option<Self> {
        let (fixed, rest) = packet.split_first_chunk()?;
        Some(Self { fixed, rest })
    }

    /// IP version; 4 in a valid header.
    #[inline]
    pub fn version(&self) -> u8 {
        self.fixed[0] >> 4
    }

    /// Header length in bytes, 0 to 60; at least 20 in a valid header.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.fixed[0] & 0x0F) * 4
    }

    /// Type of service.
    #[inline]
    pub fn tos(&self) -> TrafficClass {
        TrafficClass(self.fixed[1])
    }

    /// Differentiated services codepoint, 0 to 63.
    #[inline]
    pub fn dscp(&self) -> u8 {
        self.tos().dscp()
    }

    /// The ECN bits.
    #[inline]
    pub fn ecn(&self) -> Ecn {
        self.tos().ecn()
    }

    /// Length of header and payload, in bytes.
    #[inline]
    pub fn total_len(&self) -> u16 {
        be16(self.fixed, 2)
    }

    /// Identification.
    #[inline]
    pub fn ident(&self) -> u16 {
        be16(self.fixed, 4)
    }

    /// The reserved flag; clear in a valid header.
    #[inline]
    pub fn reserved_flag(&self) -> bool {
        self.fixed[6] & 0x80 != 0
    }

    /// The flag DF.
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        self.fixed[6] & 0x40 != 0
    }

    /// Returns the fragment position: MF flag and fragment offset.
    #[inline]
    pub fn fragment(&self) -> Fragment {
        let field = be16(self.fixed, 6);
        Fragment { offset: FragmentOffset::from_units(field & 0x1FFF), more_fragments: field & 0x2000 != 0 }
    }

    /// Returns true for a fragment.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        be16(self.fixed, 6) & 0x3FFF != 0
    }

    /// Time to live, in hops.
    #[inline]
    pub fn ttl(&self) -> u8 {
        self.fixed[8]
    }

    /// Returns the payload's protocol.
    #[inline]
    pub fn protocol(&self) -> IpProtocol {
        IpProtocol(self.fixed[9])
    }

    /// Header checksum.
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.fixed, 10)
    }

    /// The sender.
    #[inline]
    pub fn src(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(be32(self.fixed, 12))
    }

    /// The receiver.
    #[inline]
    pub fn dst(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(be32(self.fixed, 16))
    }

    /// Returns the options, 0 to 40 bytes; `None` if the header length is below 20 or beyond the bytes.
    #[inline]
    pub fn options(&self) -> Option<&'a [u8]> {
        self.rest.get(..self.header_len().checked_sub(Self::LEN)?)
    }

    /// Returns the payload without bytes behind the total length (Ethernet padding). `None` if header length,
    /// total length and the number of bytes are inconsistent.
    #[inline]
    pub fn payload(&self) -> Option<&'a [u8]> {
        let start = self.header_len().checked_sub(Self::LEN)?;
        let end = usize::from(self.total_len()).checked_sub(Self::LEN)?;
        self.rest.get(start..end)
    }

    /// Returns true if the header checksum is correct; false if the header is longer than the bytes.
    #[inline]
    pub fn has_valid_checksum(&self) -> bool {
        match self.options() {
            Some([]) => checksum::is_valid_ipv4(self.fixed),
            Some(options) => header_checksum(self.fixed, options) == 0,
            None => false,
        }
    }
}

/// Returns the checksum of a header. A sum over a constant 20 bytes costs a third of one over a variable
/// length, and options are rare.
#[inline]
fn header_checksum(fixed: &[u8; Ipv4Header::LEN], options: &[u8]) -> u16 {
    let sum = Sum::new().add_bytes(fixed);
    if options.is_empty() { sum.finish() } else { sum.add_bytes(options).finish() }
}

/// A mutable view of an IPv4 header, for the fields that engines rewrite.
#[derive(Debug)]
pub struct Ipv4HeaderMut<'a> {
    fixed: &'a mut [u8; 20],
    rest: &'a mut [u8],
}

impl<'a> Ipv4HeaderMut<'a> {
    /// A mutable view of `packet`; `None` if it is shorter than a header without options.
    #[inline]
    pub fn new(packet: &'a mut [u8]) -> Option<Self> {
        let (fixed, rest) = packet.split_first_chunk_mut()?;
        Some(Self { fixed, rest })
    }

    /// Sets the length of header and payload, in bytes.
    #[inline]
    pub fn set_total_len(&mut self, total_len: u16) {
        put(self.fixed, 2, total_len.to_be_bytes());
    }

    /// Sets the identification.
    #[inline]
    pub fn set_ident(&mut self, ident: u16) {
        put(self.fixed, 4, ident.to_be_bytes());
    }

    /// Sets the header checksum.
    #[inline]
    pub fn set_checksum(&mut self, checksum: u16) {
        put(self.fixed, 10, checksum.to_be_bytes());
    }

    /// Computes and sets the header checksum.
    #[inline]
    pub fn fill_checksum(&mut self) {
        self.set_checksum(0);
        let header_len = usize::from(self.fixed[0] & 0x0F) * 4;
        let options = header_len.saturating_sub(Ipv4Header::LEN).min(self.rest.len());
        let checksum = header_checksum(self.fixed, &self.rest[..options]);
        self.set_checksum(checksum);
    }
}

/// An invalid IPv4 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Ipv4Error {
    /// The bytes end before the packet.
    #[error("the IPv4 packet is cut short: {len} bytes of {expected}")]
    Truncated {
        /// Bytes available.
        len: usize,
        /// Bytes required by the header.
        expected: usize,
    },
    /// The version is not 4.
    #[error("IP version {0} where 4 is expected")]
    Version(u8),
    /// The header length is below 20 bytes.
    #[error("an IPv4 header of {0} bytes is shorter than 20")]
    HeaderLength(usize),
    /// The total length does not cover the header.
    #[error("the IPv4 total length {0} is shorter than the header")]
    TotalLength(u16),
    /// The header checksum is wrong.
    #[error("the IPv4 header checksum is wrong")]
    Checksum,
    /// The reserved flag is set (RFC 791 section 3.1).
    #[error("the reserved IPv4 flag is set")]
    ReservedFlag,
    /// A fragment other than the last is not a multiple of 8 bytes, or one ends beyond 65,535.
    #[error("an IPv4 fragment at {} cannot carry {payload_len} bytes", .offset.bytes())]
    Fragment {
        /// The fragment's offset.
        offset: FragmentOffset,
        /// The fragment's payload length, in bytes.
        payload_len: usize,
    },
    /// Header and payload to write exceed 65,535 bytes.
    #[error("an IPv4 packet of {0} bytes is longer than 65535")]
    TooLong(usize),
}

/// A valid IPv4 header. Lengths and checksum derive from the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv4Repr {
    /// The sender.
    pub src: Ipv4Addr,
    /// The receiver.
    pub dst: Ipv4Addr,
    /// Protocol of the payload.
    pub protocol: IpProtocol,
    /// Time to live, in hops.
    pub ttl: u8,
    /// Type of service: DSCP and ECN.
    pub tos: TrafficClass,
    /// Identification.
    pub ident: u16,
    /// The flag DF.
    pub dont_fragment: bool,
    /// The fragment position.
    pub fragment: Fragment,
    /// The options.
    pub options: HeaderOptions,
}

impl Ipv4Repr {
    /// Parses the header of `packet`; returns it and the payload without bytes behind the total length.
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), Ipv4Error> {
        let len = packet.len();
        let truncated = |expected| Ipv4Error::Truncated { len, expected };
        let header = Ipv4Header::new(packet).ok_or(truncated(Ipv4Header::LEN))?;
        let (header_len, total_len) = (header.header_len(), header.total_len());
        if header.version() != 4 {
            return Err(Ipv4Error::Version(header.version()));
        }
        if header_len < Ipv4Header::LEN {
            return Err(Ipv4Error::HeaderLength(header_len));
        }
        if usize::from(total_len) < header_len {
            return Err(Ipv4Error::TotalLength(total_len));
        }
        let payload = header.payload().ok_or(truncated(usize::from(total_len)))?;
        let options = header.options().and_then(HeaderOptions::new).ok_or(truncated(header_len))?;
        if !header.has_valid_checksum() {
            return Err(Ipv4Error::Checksum);
        }
        if header.reserved_flag() {
            return Err(Ipv4Error::ReservedFlag);
        }
        let repr = Self {
            src: header.src(),
            dst: header.dst(),
            protocol: header.protocol(),
            ttl: header.ttl(),
            tos: header.tos(),
            ident: header.ident(),
            dont_fragment: header.dont_fragment(),
            fragment: header.fragment(),
            options,
        };
        repr.check_fragment(payload.len())?;
        Ok((repr, payload))
    }

    /// Header length with options, in bytes.
    pub fn header_len(&self) -> usize {
        Ipv4Header::LEN + self.options.len()
    }

    /// Appends the header of a packet with `payload_len` bytes of payload to `out`.
    pub fn emit(&self, payload_len: usize, out: &mut Vec<u8>) -> Result<(), Ipv4Error> {
        let total_len = self.header_len().saturating_add(payload_len);
        let total_len = u16::try_from(total_len).map_err(|_| Ipv4Error::TooLong(total_len))?;
        self.check_fragment(payload_len)?;
        self.write(total_len, out);
        Ok(())
    }

    /// Appends the header with an arbitrary total length.
    pub(crate) fn write(&self, total_len: u16, out: &mut Vec<u8>) {
        let mut fixed = [0; Ipv4Header::LEN];
        let flags = u16::from(self.dont_fragment) << 14 | u16::from(self.fragment.more_fragments) << 13;
        fixed[0] = 4 << 4 | self.options.header_words();
        fixed[1] = self.tos.0;
        put(&mut fixed, 2, total_len.to_be_bytes());
        put(&mut fixed, 4, self.ident.to_be_bytes());
        put(&mut fixed, 6, (flags | self.fragment.offset.units()).to_be_bytes());
        fixed[8] = self.ttl;
        fixed[9] = self.protocol.0;
        put(&mut fixed, 12, self.src.octets());
        put(&mut fixed, 16, self.dst.octets());
        let checksum = header_checksum(&fixed, self.options.as_bytes());
        put(&mut fixed, 10, checksum.to_be_bytes());
        out.extend(fixed);
        out.extend(self.options.as_bytes());
    }

    fn check_fragment(&self, payload_len: usize) -> Result<(), Ipv4Error> {
        if self.fragment.may_carry(payload_len) {
            Ok(())
        } else {
            Err(Ipv4Error::Fragment { offset: self.fragment.offset, payload_len })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REPR: Ipv4Repr = Ipv4Repr {
        src: Ipv4Addr::new(192, 168, 0, 1),
        dst: Ipv4Addr::new(192, 168, 0, 199),
        protocol: IpProtocol::UDP,
        ttl: 64,
        tos: TrafficClass(0),
        ident: 0,
        dont_fragment: true,
        fragment: Fragment { offset: FragmentOffset::START, more_fragments: false },
        options: HeaderOptions::NONE,
    };

    fn packet(repr: &Ipv4Repr, payload: &[u8]) -> Vec<u8> {
        let mut packet = Vec::new();
        repr.emit(payload.len(), &mut packet).unwrap();
        packet.extend(payload);
        packet
    }

    /// A packet with `change` applied and the checksum right again.
    fn changed(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut packet = packet(&REPR, b"payload");
        change(&mut packet);
        Ipv4HeaderMut::new(&mut packet).unwrap().fill_checksum();
        packet
    }

    #[test]
    fn a_known_header_is_emitted() {
        let header = packet(&REPR, &[0; 95]);
        // The example of the Wikipedia article on the IPv4 header checksum: B861.
        assert_eq!(header[..20], *b"\x45\0\0\x73\0\0\x40\0\x40\x11\xb8\x61\xc0\xa8\0\x01\xc0\xa8\0\xc7");
    }

    #[test]
    fn the_view_reads_every_field() {
        let fragment = Fragment { offset: FragmentOffset::from_units(0x1234), more_fragments: true };
        let options = HeaderOptions::new(&[7, 4, 4, 0]).unwrap();
        let tos = TrafficClass(0xB9);
        let repr = Ipv4Repr { tos, ident: 0xABCD, ttl: 3, fragment, options, ..REPR };
        let packet = packet(&repr, b"12345678");
        let header = Ipv4Header::new(&packet).unwrap();
        assert_eq!((header.version(), header.header_len(), header.total_len()), (4, 24, 32));
        assert_eq!((header.tos(), header.dscp(), header.ecn()), (tos, 46, Ecn::Ect1));
        assert_eq!((header.ident(), header.ttl(), header.protocol()), (0xABCD, 3, IpProtocol::UDP));
        assert_eq!((header.fragment(), header.is_fragment(), header.dont_fragment()), (fragment, true, true));
        assert_eq!((header.src(), header.dst()), (REPR.src, REPR.dst));
        assert_eq!(header.options(), Some(&[7, 4, 4, 0][..]));
        assert_eq!(header.payload(), Some(&b"12345678"[..]));
        assert!(header.has_valid_checksum() && !header.reserved_flag());
        assert_eq!(header.checksum(), u16::from_be_bytes([packet[10], packet[11]]));
    }

    #[test]
    fn dont_fragment_alone_is_no_fragment() {
        let packet = packet(&REPR, b"");
        assert!(!Ipv4Header::new(&packet).unwrap().is_fragment());
    }

    #[test]
    fn padding_after_the_total_length_is_trimmed() {
        let mut packet = packet(&REPR, b"payload");
        packet.extend([0; 19]);
        assert_eq!(Ipv4Repr::parse(&packet), Ok((REPR, &b"payload"[..])));
    }

    #[test]
    fn every_broken_rule_has_its_error() {
        let cases = [
            (changed(|p| p[0] = 0x65), Ipv4Error::Version(6)),
            (changed(|p| p[0] = 0x44), Ipv4Error::HeaderLength(16)),
            (changed(|p| p[3] = 19), Ipv4Error::TotalLength(19)),
            (changed(|p| p[3] = 28), Ipv4Error::Truncated { len: 27, expected: 28 }),
            (changed(|p| p[6] |= 0x80), Ipv4Error::ReservedFlag),
            (
                changed(|p| p[6] |= 0x20),
                Ipv4Error::Fragment { offset: FragmentOffset::START, payload_len: 7 },
            ),
        ];
        for (packet, error) in cases {
            assert_eq!(Ipv4Repr::parse(&packet), Err(error));
        }
        assert_eq!(Ipv4Repr::parse(&[0x45; 19]), Err(Ipv4Error::Truncated { len: 19, expected: 20 }));
    }

    #[test]
    fn a_flipped_bit_breaks_the_checksum() {
        let mut packet = packet(&REPR, b"payload");
        packet[15] ^= 4;
        assert_eq!(Ipv4Repr::parse(&packet), Err(Ipv4Error::Checksum));
    }

    #[test]
    fn a_header_longer_than_the_bytes_has_no_options_and_no_payload() {
        let mut bytes = [0; 30];
        bytes[0] = 0x4F;
        bytes[3] = 30;
        let header = Ipv4Header::new(&bytes).unwrap();
        assert_eq!((header.options(), header.payload()), (None, None));
        assert!(!header.has_valid_checksum());
        Ipv4HeaderMut::new(&mut bytes).unwrap().fill_checksum();
    }

    #[test]
    fn what_does_not_fit_is_not_emitted() {
        let mut out = Vec::new();
        assert_eq!(REPR.emit(65_515, &mut out), Ok(()));
        assert_eq!(REPR.emit(65_516, &mut out), Err(Ipv4Error::TooLong(65_536)));
        assert_eq!(out.len(), 20);
    }

    #[test]
    fn a_rewritten_header_is_valid() {
        let options = HeaderOptions::new(&[7, 4, 4, 0]).unwrap();
        let repr = Ipv4Repr { options, ..REPR };
        let mut packet = packet(&repr, b"payload");
        let mut header = Ipv4HeaderMut::new(&mut packet).unwrap();
        header.set_total_len(28);
        header.set_ident(0x1234);
        header.fill_checksum();
        let want = Ipv4Repr { ident: 0x1234, ..repr };
        assert_eq!(Ipv4Repr::parse(&packet), Ok((want, &b"payl"[..])));
    }

    prop_compose! {
        fn any_repr()(
            addresses in any::<(Ipv4Addr, Ipv4Addr)>(),
            (protocol, ttl, tos) in any::<(u8, u8, u8)>(),
            (ident, units) in any::<(u16, u16)>(),
            (dont_fragment, more_fragments) in any::<(bool, bool)>(),
            options in proptest::collection::vec(any::<u8>(), 0..=40),
        ) -> Ipv4Repr {
            Ipv4Repr {
                src: addresses.0,
                dst: addresses.1,
                protocol: IpProtocol(protocol),
                ttl,
                tos: TrafficClass(tos),
                ident,
                dont_fragment,
                fragment: Fragment { offset: FragmentOffset::from_units(units), more_fragments },
                options: HeaderOptions::new(&options).unwrap(),
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_emitted_parses_to_the_same(
            repr in any_repr(),
            payload in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let mut packet = Vec::new();
            if repr.emit(payload.len(), &mut packet).is_ok() {
                packet.extend(&payload);
                prop_assert_eq!(Ipv4Repr::parse(&packet), Ok((repr, &payload[..])));
            } else {
                prop_assert!(!repr.fragment.is_whole());
            }
        }
    }
}
