//! IPv6 (RFC 8200). [`Ipv6Extensions`] parses the extension headers behind it.

use std::net::Ipv6Addr;

use thiserror::Error;

use crate::bytes::{array, be16, be32, put};
use crate::ip::{Ecn, IpProtocol, TrafficClass};
use crate::ipv6_extensions::{ExtensionError, Ipv6Extensions, UpperLayer};

/// A flow label: 20 bits (RFC 6437).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowLabel(u32);

impl FlowLabel {
    /// Creates a flow label; `None` above 0xFFFFF.
    #[inline]
    pub const fn new(value: u32) -> Option<Self> {
        if value <= 0xF_FFFF { Some(Self(value)) } else { None }
    }

    /// Returns the value, 0 to 0xFFFFF.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }
}

/// An unchecked view of an IPv6 header and its payload.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6Header<'a> {
    fixed: &'a [u8; 40],
    rest: &'a [u8],
}

impl<'a> Ipv6Header<'a> {
    /// Bytes of a header without extension headers.
    pub const LEN: usize = 40;

    /// The minimum link MTU (RFC 8200 section 5).
    pub const LEAST_MTU: u16 = 1280;

    /// A view of `packet`; `None` if it is shorter than a header.
    #[inline]
    pub fn new(packet: &'a [u8]) -> Option<Self> {
        let (fixed, rest) = packet.split_first_chunk()?;
        Some(Self { fixed, rest })
    }

    /// IP version; 6 in a valid header.
    #[inline]
    pub fn version(&self) -> u8 {
        self.fixed[0] >> 4
    }

    /// Traffic class.
    #[inline]
    pub fn traffic_class(&self) -> TrafficClass {
        TrafficClass((be16(self.fixed, 0) >> 4) as u8)
    }

    /// Differentiated services codepoint, 0 to 63.
    #[inline]
    pub fn dscp(&self) -> u8 {
        self.traffic_class().dscp()
    }

    /// The ECN bits.
    #[inline]
    pub fn ecn(&self) -> Ecn {
        self.traffic_class().ecn()
    }

    /// Flow label.
    #[inline]
    pub fn flow_label(&self) -> FlowLabel {
        FlowLabel(be32(self.fixed, 0) & 0xF_FFFF)
    }

    /// Returns the length behind this header, in bytes, including extension headers.
    #[inline]
    pub fn payload_len(&self) -> u16 {
        be16(self.fixed, 4)
    }

    /// Returns the protocol of the next header: an extension header or the upper layer.
    #[inline]
    pub fn next_header(&self) -> IpProtocol {
        IpProtocol(self.fixed[6])
    }

    /// Hop limit.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.fixed[7]
    }

    /// The sender.
    #[inline]
    pub fn src(&self) -> Ipv6Addr {
        Ipv6Addr::from(array::<16, _>(self.fixed, 8))
    }

    /// The receiver.
    #[inline]
    pub fn dst(&self) -> Ipv6Addr {
        Ipv6Addr::from(array::<16, _>(self.fixed, 24))
    }

    /// Returns extension headers and upper layer without bytes behind the payload length (Ethernet padding).
    /// `None` if the payload length exceeds the bytes.
    #[inline]
    pub fn payload(&self) -> Option<&'a [u8]> {
        self.rest.get(..usize::from(self.payload_len()))
    }

    /// Iterates over the extension headers; over none if the payload length exceeds the bytes.
    #[inline]
    pub fn extensions(&self) -> Ipv6Extensions<'a> {
        Ipv6Extensions::new(self.next_header(), self.payload().unwrap_or(&[]))
    }

    /// Finds the upper layer behind all extension headers. Its offset counts from the end of this header.
    #[inline]
    pub fn upper_layer(&self) -> Result<UpperLayer, ExtensionError> {
        UpperLayer::find(self.next_header(), self.payload().unwrap_or(&[]))
    }
}

/// A mutable view of an IPv6 header, for the fields that engines rewrite.
#[derive(Debug)]
pub struct Ipv6HeaderMut<'a> {
    fixed: &'a mut [u8; 40],
}

impl<'a> Ipv6HeaderMut<'a> {
    /// A mutable view of `packet`; `None` if it is shorter than a header.
    #[inline]
    pub fn new(packet: &'a mut [u8]) -> Option<Self> {
        Some(Self { fixed: packet.first_chunk_mut()? })
    }

    /// Sets the length behind this header, in bytes.
    #[inline]
    pub fn set_payload_len(&mut self, payload_len: u16) {
        put(self.fixed, 4, payload_len.to_be_bytes());
    }
}

/// An invalid IPv6 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Ipv6Error {
    /// The bytes end before the packet.
    #[error("the IPv6 packet is cut short: {len} bytes of {expected}")]
    Truncated {
        /// Bytes available.
        len: usize,
        /// Bytes required by the header.
        expected: usize,
    },
    /// The version is not 6.
    #[error("IP version {0} where 6 is expected")]
    Version(u8),
    /// The payload length is 0: a jumbogram (RFC 2675) or an empty packet.
    #[error("the IPv6 payload length is 0: a jumbogram or an empty packet")]
    PayloadLength,
    /// The payload to write exceeds 65,535 bytes.
    #[error("an IPv6 payload of {0} bytes is longer than 65535")]
    TooLong(usize),
}

/// A valid IPv6 header. Extension headers count as payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv6Repr {
    /// The sender.
    pub src: Ipv6Addr,
    /// The receiver.
    pub dst: Ipv6Addr,
    /// Protocol of the next header: an extension header or the upper layer.
    pub next_header: IpProtocol,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class: DSCP and ECN.
    pub traffic_class: TrafficClass,
    /// Flow label.
    pub flow_label: FlowLabel,
}

impl Ipv6Repr {
    /// Parses the header of `packet`; returns it and the payload without bytes behind the payload length.
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), Ipv6Error> {
        let len = packet.len();
        let truncated = |expected| Ipv6Error::Truncated { len, expected };
        let header = Ipv6Header::new(packet).ok_or(truncated(Ipv6Header::LEN))?;
        if header.version() != 6 {
            return Err(Ipv6Error::Version(header.version()));
        }
        let payload_len = usize::from(header.payload_len());
        if payload_len == 0 {
            return Err(Ipv6Error::PayloadLength);
        }
        let payload = header.payload().ok_or(truncated(Ipv6Header::LEN + payload_len))?;
        let repr = Self {
            src: header.src(),
            dst: header.dst(),
            next_header: header.next_header(),
            hop_limit: header.hop_limit(),
            traffic_class: header.traffic_class(),
            flow_label: header.flow_label(),
        };
        Ok((repr, payload))
    }

    /// Appends the header of a packet with `payload_len` bytes of extension headers and payload to `out`.
    pub fn emit(&self, payload_len: usize, out: &mut Vec<u8>) -> Result<(), Ipv6Error> {
        match u16::try_from(payload_len) {
            Ok(0) => Err(Ipv6Error::PayloadLength),
            Ok(payload_len) => {
                self.write(payload_len, out);
                Ok(())
            }
            Err(_) => Err(Ipv6Error::TooLong(payload_len)),
        }
    }

    /// Appends the header with an arbitrary payload length.
    pub(crate) fn write(&self, payload_len: u16, out: &mut Vec<u8>) {
        let first_word = 6 << 28 | u32::from(self.traffic_class.0) << 20 | self.flow_label.0;
        out.extend(first_word.to_be_bytes());
        out.extend(payload_len.to_be_bytes());
        out.extend([self.next_header.0, self.hop_limit]);
        out.extend(self.src.octets());
        out.extend(self.dst.octets());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REPR: Ipv6Repr = Ipv6Repr {
        src: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2),
        dst: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1),
        next_header: IpProtocol::TCP,
        hop_limit: 63,
        traffic_class: TrafficClass(0xB9),
        flow_label: FlowLabel(0xABCDE),
    };

    fn packet(repr: &Ipv6Repr, payload: &[u8]) -> Vec<u8> {
        let mut packet = Vec::new();
        repr.emit(payload.len(), &mut packet).unwrap();
        packet.extend(payload);
        packet
    }

    #[test]
    fn the_view_reads_every_field() {
        let packet = packet(&REPR, b"payload");
        assert_eq!(packet[..8], [0x6B, 0x9A, 0xBC, 0xDE, 0, 7, 6, 63]);
        let header = Ipv6Header::new(&packet).unwrap();
        assert_eq!((header.version(), header.payload_len(), header.hop_limit()), (6, 7, 63));
        assert_eq!(
            (header.traffic_class(), header.dscp(), header.ecn()),
            (TrafficClass(0xB9), 46, Ecn::Ect1)
        );
        assert_eq!((header.flow_label(), header.next_header()), (FlowLabel(0xABCDE), IpProtocol::TCP));
        assert_eq!((header.src(), header.dst()), (REPR.src, REPR.dst));
        assert_eq!(header.payload(), Some(&b"payload"[..]));
    }

    #[test]
    fn padding_after_the_payload_length_is_trimmed() {
        let mut packet = packet(&REPR, b"payload");
        packet.extend([0; 19]);
        assert_eq!(Ipv6Repr::parse(&packet), Ok((REPR, &b"payload"[..])));
    }

    #[test]
    fn every_broken_rule_has_its_error() {
        let packet = packet(&REPR, b"payload");
        let changed = |at: usize, byte: u8| {
            let mut packet = packet.clone();
            packet[at] = byte;
            packet
        };
        assert_eq!(Ipv6Repr::parse(&changed(0, 0x45)), Err(Ipv6Error::Version(4)));
        assert_eq!(Ipv6Repr::parse(&changed(5, 0)), Err(Ipv6Error::PayloadLength));
        let cut = Ipv6Error::Truncated { len: 47, expected: 48 };
        assert_eq!(Ipv6Repr::parse(&changed(5, 8)), Err(cut));
        let cut = Ipv6Error::Truncated { len: 39, expected: 40 };
        assert_eq!(Ipv6Repr::parse(&packet[..39]), Err(cut));
    }

    #[test]
    fn what_does_not_fit_is_not_emitted() {
        let mut out = Vec::new();
        assert_eq!(REPR.emit(0, &mut out), Err(Ipv6Error::PayloadLength));
        assert_eq!(REPR.emit(65_536, &mut out), Err(Ipv6Error::TooLong(65_536)));
        assert!(out.is_empty());
        assert_eq!(FlowLabel::new(0x10_0000), None);
        assert_eq!(FlowLabel::new(0xF_FFFF).map(FlowLabel::value), Some(0xF_FFFF));
    }

    #[test]
    fn a_rewritten_header_is_valid() {
        let mut packet = packet(&REPR, b"payload");
        Ipv6HeaderMut::new(&mut packet).unwrap().set_payload_len(4);
        assert_eq!(Ipv6Repr::parse(&packet), Ok((REPR, &b"payl"[..])));
    }

    #[test]
    fn extensions_are_not_looked_for_beyond_the_payload_length() {
        let repr = Ipv6Repr { next_header: IpProtocol::DESTINATION_OPTIONS, ..REPR };
        let mut packet = packet(&repr, &[6, 0, 1, 4, 0, 0, 0, 0]);
        let upper = Ipv6Header::new(&packet).unwrap().upper_layer().unwrap();
        assert_eq!((upper.protocol, upper.offset), (IpProtocol::TCP, 8));
        assert_eq!(Ipv6Header::new(&packet).unwrap().extensions().count(), 1);
        Ipv6HeaderMut::new(&mut packet).unwrap().set_payload_len(7);
        let upper = Ipv6Header::new(&packet).unwrap().upper_layer();
        assert_eq!(upper, Err(ExtensionError::Truncated(IpProtocol::DESTINATION_OPTIONS)));
    }

    proptest! {
        #[test]
        fn what_is_emitted_parses_to_the_same(
            addresses: (Ipv6Addr, Ipv6Addr),
            (next_header, hop_limit, traffic_class) in any::<(u8, u8, u8)>(),
            flow_label in 0u32..=0xF_FFFF,
            payload in proptest::collection::vec(any::<u8>(), 1..100),
        ) {
            let repr = Ipv6Repr {
                src: addresses.0,
                dst: addresses.1,
                next_header: IpProtocol(next_header),
                hop_limit,
                traffic_class: TrafficClass(traffic_class),
                flow_label: FlowLabel::new(flow_label).unwrap(),
            };
            let packet = packet(&repr, &payload);
            prop_assert_eq!(Ipv6Repr::parse(&packet), Ok((repr, &payload[..])));
        }
    }
}
