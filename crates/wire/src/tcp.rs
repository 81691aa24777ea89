//! TCP segments (RFC 9293 section 3.1).

use thiserror::Error;

use crate::SeqNumber;
use crate::bytes::{be16, be32, put};
use crate::header_options::HeaderOptions;
use crate::ip::{AddressPair, IpProtocol};
use crate::tcp_flags::TcpFlags;

/// An unchecked view of a TCP header and its payload.
#[derive(Clone, Copy, Debug)]
pub struct TcpHeader<'a> {
    fixed: &'a [u8; 20],
    rest: &'a [u8],
}

impl<'a> TcpHeader<'a> {
    /// Bytes of a header without options.
    pub const LEN: usize = 20;

    /// A view of `segment`; `None` if it is shorter than a header without options.
    #[inline]
    pub fn new(segment: &'a [u8]) -> Option<Self> {
        let (fixed, rest) = segment.split_first_chunk()?;
        Some(Self { fixed, rest })
    }

    /// The sender's port.
    #[inline]
    pub fn src_port(&self) -> u16 {
        be16(self.fixed, 0)
    }

    /// The receiver's port.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        be16(self.fixed, 2)
    }

    /// Returns the sequence number of the first payload byte, or of SYN.
    #[inline]
    pub fn seq(&self) -> SeqNumber {
        SeqNumber(be32(self.fixed, 4))
    }

    /// Returns the acknowledgment number: the next byte that the sender expects.
    #[inline]
    pub fn ack(&self) -> SeqNumber {
        SeqNumber(be32(self.fixed, 8))
    }

    /// Header length (the data offset) in bytes, 0 to 60; at least 20 in a valid header.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.fixed[12] >> 4) * 4
    }

    /// The three reserved bits; 0 in a header that follows RFC 9293.
    #[inline]
    pub fn reserved(&self) -> u8 {
        self.fixed[12] >> 1 & 0b111
    }

    /// The control bits.
    #[inline]
    pub fn flags(&self) -> TcpFlags {
        TcpFlags::from_bits_truncate(be16(self.fixed, 12))
    }

    /// The window, not scaled.
    #[inline]
    pub fn window(&self) -> u16 {
        be16(self.fixed, 14)
    }

    /// The checksum.
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.fixed, 16)
    }

    /// The urgent pointer.
    #[inline]
    pub fn urgent(&self) -> u16 {
        be16(self.fixed, 18)
    }

    /// Returns the options, 0 to 40 bytes; `None` if the header length is below 20 or beyond the bytes.
    #[inline]
    pub fn options(&self) -> Option<&'a [u8]> {
        self.split().map(|(options, _)| options)
    }

    /// Returns the payload; `None` if the header length is below 20 or beyond the bytes.
    #[inline]
    pub fn payload(&self) -> Option<&'a [u8]> {
        self.split().map(|(_, payload)| payload)
    }

    /// Returns options and payload; `None` if the header length is below 20 or beyond the bytes.
    #[inline]
    pub fn split(&self) -> Option<(&'a [u8], &'a [u8])> {
        self.rest.split_at_checked(self.header_len().checked_sub(Self::LEN)?)
    }
}

/// A mutable view of a TCP header, for the fields that engines rewrite.
#[derive(Debug)]
pub struct TcpHeaderMut<'a> {
    fixed: &'a mut [u8; 20],
}

impl<'a> TcpHeaderMut<'a> {
    /// A mutable view of `segment`; `None` if it is shorter than a header without options.
    #[inline]
    pub fn new(segment: &'a mut [u8]) -> Option<Self> {
        Some(Self { fixed: segment.first_chunk_mut()? })
    }

    /// Sets the sequence number.
    #[inline]
    pub fn set_seq(&mut self, seq: SeqNumber) {
        put(self.fixed, 4, seq.0.to_be_bytes());
    }

    /// Sets the acknowledgment number.
    #[inline]
    pub fn set_ack(&mut self, ack: SeqNumber) {
        put(self.fixed, 8, ack.0.to_be_bytes());
    }

    /// Sets all control bits; keeps data offset and reserved bits.
    #[inline]
    pub fn set_flags(&mut self, flags: TcpFlags) {
        let kept = be16(self.fixed, 12) & 0xFE00;
        put(self.fixed, 12, (kept | flags.bits()).to_be_bytes());
    }

    /// Sets the window, not scaled.
    #[inline]
    pub fn set_window(&mut self, window: u16) {
        put(self.fixed, 14, window.to_be_bytes());
    }

    /// Sets the checksum.
    #[inline]
    pub fn set_checksum(&mut self, checksum: u16) {
        put(self.fixed, 16, checksum.to_be_bytes());
    }
}

/// An invalid TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TcpError {
    /// The segment ends within its header.
    #[error("the TCP header is cut short: {len} bytes of {expected}")]
    Truncated {
        /// Bytes available.
        len: usize,
        /// The header's length, in bytes.
        expected: usize,
    },
    /// The header length (the data offset) is below 20 bytes.
    #[error("a TCP header of {0} bytes is shorter than 20")]
    HeaderLength(usize),
    /// The checksum is wrong.
    #[error("the TCP checksum is wrong")]
    Checksum,
    /// The segment is longer than the 65,535 bytes that IP can carry.
    #[error("a TCP segment of {0} bytes is longer than 65535")]
    TooLong(usize),
}

/// A valid TCP header. The checksum derives from payload and addresses. Reserved bits are ignored when parsed
/// and sent as zero (RFC 9293 section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TcpRepr {
    /// The sender's port.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// Sequence number of the first byte of the payload, or of SYN.
    pub seq: SeqNumber,
    /// Acknowledgment number.
    pub ack: SeqNumber,
    /// The control bits.
    pub flags: TcpFlags,
    /// The window, not scaled.
    pub window: u16,
    /// The urgent pointer.
    pub urgent: u16,
    /// The options.
    pub options: HeaderOptions,
}

impl TcpRepr {
    /// Parses the header of `segment`, an IP payload between `addresses`; returns it and the TCP payload.
    pub fn parse<'a>(segment: &'a [u8], addresses: &AddressPair) -> Result<(Self, &'a [u8]), TcpError> {
        let len = segment.len();
        let header = TcpHeader::new(segment).ok_or(TcpError::Truncated { len, expected: TcpHeader::LEN })?;
        let header_len = header.header_len();
        if header_len < TcpHeader::LEN {
            return Err(TcpError::HeaderLength(header_len));
        }
        let truncated = TcpError::Truncated { len, expected: header_len };
        let (options, payload) = header.split().ok_or(truncated)?;
        let options = HeaderOptions::new(options).ok_or(truncated)?;
        let len = u16::try_from(len).map_err(|_| TcpError::TooLong(len))?;
        if addresses.pseudo_header(IpProtocol::TCP, len.into()).add_bytes(segment).finish() != 0 {
            return Err(TcpError::Checksum);
        }
        let repr = Self {
            src_port: header.src_port(),
            dst_port: header.dst_port(),
            seq: header.seq(),
            ack: header.ack(),
            flags: header.flags(),
            window: header.window(),
            urgent: header.urgent(),
            options,
        };
        Ok((repr, payload))
    }

    /// Header length with options, in bytes.
    pub fn header_len(&self) -> usize {
        TcpHeader::LEN + self.options.len()
    }

    /// Appends the segment, header and payload, between `addresses` to `out`.
    pub fn emit(&self, addresses: &AddressPair, payload: &[u8], out: &mut Vec<u8>) -> Result<(), TcpError> {
        let len = self.header_len() + payload.len();
        u16::try_from(len).map_err(|_| TcpError::TooLong(len))?;
        self.write(addresses, payload, out);
        Ok(())
    }

    /// Appends the segment without a length check.
    pub(crate) fn write(&self, addresses: &AddressPair, payload: &[u8], out: &mut Vec<u8>) {
        let mut fixed = [0; TcpHeader::LEN];
        put(&mut fixed, 0, self.src_port.to_be_bytes());
        put(&mut fixed, 2, self.dst_port.to_be_bytes());
        put(&mut fixed, 4, self.seq.0.to_be_bytes());
        put(&mut fixed, 8, self.ack.0.to_be_bytes());
        let data_offset = u16::from(self.options.header_words()) << 12;
        put(&mut fixed, 12, (data_offset | self.flags.bits()).to_be_bytes());
        put(&mut fixed, 14, self.window.to_be_bytes());
        put(&mut fixed, 18, self.urgent.to_be_bytes());
        let len = (self.header_len() + payload.len()) as u32;
        let pseudo_header = addresses.pseudo_header(IpProtocol::TCP, len);
        let sum = pseudo_header.add_bytes(&fixed).add_bytes(self.options.as_bytes()).add_bytes(payload);
        put(&mut fixed, 16, sum.finish().to_be_bytes());
        out.extend(fixed);
        out.extend(self.options.as_bytes());
        out.extend(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    const ADDRESSES: AddressPair =
        AddressPair::V4 { src: Ipv4Addr::new(10, 0, 0, 1), dst: Ipv4Addr::new(10, 0, 0, 2) };

    const REPR: TcpRepr = TcpRepr {
        src_port: 5201,
        dst_port: 48_000,
        seq: SeqNumber(0x0102_0304),
        ack: SeqNumber(0x0506_0708),
        flags: TcpFlags::ACK.union(TcpFlags::AE),
        window: 0x1122,
        urgent: 0x3344,
        options: HeaderOptions::NONE,
    };

    fn segment(repr: &TcpRepr, payload: &[u8]) -> Vec<u8> {
        let mut segment = Vec::new();
        repr.emit(&ADDRESSES, payload, &mut segment).unwrap();
        segment
    }

    #[test]
    fn the_view_reads_every_field() {
        let options = HeaderOptions::new(&[1, 1, 1, 0]).unwrap();
        let mut segment = segment(&TcpRepr { options, ..REPR }, b"payload");
        segment[12] |= 0b1010;
        let header = TcpHeader::new(&segment).unwrap();
        assert_eq!((header.src_port(), header.dst_port()), (REPR.src_port, REPR.dst_port));
        assert_eq!((header.seq(), header.ack()), (REPR.seq, REPR.ack));
        assert_eq!((header.header_len(), header.reserved(), header.flags()), (24, 0b101, REPR.flags));
        assert_eq!((header.window(), header.urgent()), (REPR.window, REPR.urgent));
        assert_eq!(header.checksum(), u16::from_be_bytes([segment[16], segment[17]]));
        assert_eq!(header.options(), Some(&[1, 1, 1, 0][..]));
        assert_eq!(header.payload(), Some(&b"payload"[..]));
    }

    #[test]
    fn the_checksum_covers_addresses_header_and_payload() {
        let good = segment(&REPR, b"payload");
        assert_eq!(TcpRepr::parse(&good, &ADDRESSES), Ok((REPR, &b"payload"[..])));
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert_ne!(TcpRepr::parse(&bad, &ADDRESSES), Ok((REPR, &b"payload"[..])));
        }
        let other = AddressPair::V4 { src: Ipv4Addr::new(10, 0, 0, 3), dst: Ipv4Addr::new(10, 0, 0, 2) };
        assert_eq!(TcpRepr::parse(&good, &other), Err(TcpError::Checksum));
    }

    #[test]
    fn every_broken_length_has_its_error() {
        let mut segment = segment(&REPR, b"");
        assert_eq!(
            TcpRepr::parse(&segment[..19], &ADDRESSES),
            Err(TcpError::Truncated { len: 19, expected: 20 })
        );
        segment[12] = 0x40;
        assert_eq!(TcpRepr::parse(&segment, &ADDRESSES), Err(TcpError::HeaderLength(16)));
        assert_eq!(TcpHeader::new(&segment).unwrap().split(), None);
        segment[12] = 0x60;
        assert_eq!(TcpRepr::parse(&segment, &ADDRESSES), Err(TcpError::Truncated { len: 20, expected: 24 }));
        assert_eq!(TcpHeader::new(&segment).unwrap().split(), None);
        let long = vec![0; 65_516];
        assert_eq!(REPR.emit(&ADDRESSES, &long, &mut segment), Err(TcpError::TooLong(65_536)));
    }

    #[test]
    fn a_rewritten_header_keeps_the_rest() {
        let mut segment = segment(&REPR, b"payload");
        segment[12] |= 0b1110;
        let mut header = TcpHeaderMut::new(&mut segment).unwrap();
        header.set_seq(SeqNumber(1));
        header.set_ack(SeqNumber(2));
        header.set_flags(TcpFlags::PSH | TcpFlags::ACK);
        header.set_window(3);
        header.set_checksum(4);
        let header = TcpHeader::new(&segment).unwrap();
        assert_eq!((header.seq(), header.ack()), (SeqNumber(1), SeqNumber(2)));
        assert_eq!((header.flags(), header.window()), (TcpFlags::PSH | TcpFlags::ACK, 3));
        assert_eq!((header.checksum(), header.urgent()), (4, REPR.urgent));
        assert_eq!((header.header_len(), header.reserved()), (20, 0b111));
    }

    fn any_addresses() -> impl Strategy<Value = AddressPair> {
        prop_oneof![
            any::<(Ipv4Addr, Ipv4Addr)>().prop_map(|(src, dst)| AddressPair::V4 { src, dst }),
            any::<(Ipv6Addr, Ipv6Addr)>().prop_map(|(src, dst)| AddressPair::V6 { src, dst }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_emitted_parses_to_the_same(
            addresses in any_addresses(),
            (src_port, dst_port, window, urgent) in any::<(u16, u16, u16, u16)>(),
            (seq, ack, flags) in any::<(u32, u32, u16)>(),
            options in proptest::collection::vec(any::<u8>(), 0..=40),
            payload in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let repr = TcpRepr {
                src_port,
                dst_port,
                seq: SeqNumber(seq),
                ack: SeqNumber(ack),
                flags: TcpFlags::from_bits_truncate(flags),
                window,
                urgent,
                options: HeaderOptions::new(&options).unwrap(),
            };
            let mut segment = Vec::new();
            repr.emit(&addresses, &payload, &mut segment).unwrap();
            prop_assert_eq!(TcpRepr::parse(&segment, &addresses), Ok((repr, &payload[..])));
        }
    }
}
