//! Ethernet II with up to two VLAN tags (IEEE 802.3, 802.1Q, 802.1ad).

use std::fmt;

use thiserror::Error;

use crate::bytes::{array, be16};
use crate::ethertype::EtherType;
use crate::vlan::{Tags, VlanTag};

/// An Ethernet address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// The broadcast address.
    pub const BROADCAST: Self = Self([0xFF; 6]);

    /// Returns true for multicast and broadcast addresses.
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// An unchecked view of an Ethernet header and its payload; does not parse VLAN tags.
#[derive(Clone, Copy, Debug)]
pub struct EthernetHeader<'a> {
    fixed: &'a [u8; 14],
    rest: &'a [u8],
}

impl<'a> EthernetHeader<'a> {
    /// Bytes of an untagged header.
    pub const LEN: usize = 14;

    /// A view of `frame`; `None` if it is shorter than a header.
    #[inline]
    pub fn new(frame: &'a [u8]) -> Option<Self> {
        let (fixed, rest) = frame.split_first_chunk()?;
        Some(Self { fixed, rest })
    }

    /// Returns the destination.
    #[inline]
    pub fn dst(&self) -> MacAddr {
        MacAddr(array(self.fixed, 0))
    }

    /// Returns the source.
    #[inline]
    pub fn src(&self) -> MacAddr {
        MacAddr(array(self.fixed, 6))
    }

    /// Returns the type field behind the addresses: in a tagged frame, the tag's.
    #[inline]
    pub fn ethertype(&self) -> EtherType {
        EtherType(be16(self.fixed, 12))
    }

    /// Returns the bytes behind the first 14.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.rest
    }
}

/// Reads the tags, the first of which `ethertype` announces, and the EtherType behind them.
///
/// Not inlined, and separate from the view: the view of an untagged frame then stays in registers, which
/// halves the time to parse a frame down to TCP.
#[inline(never)]
fn read_tags(mut ethertype: EtherType, mut rest: &[u8]) -> Option<(Tags, EtherType)> {
    let mut tags = Tags::NONE;
    while tags.continue_with(ethertype) {
        let (tag, after) = rest.split_first_chunk::<4>()?;
        tags.push(VlanTag { tpid: ethertype, tci: be16(tag, 0) });
        ethertype = EtherType(be16(tag, 2));
        rest = after;
    }
    Some((tags, ethertype))
}

/// A view of a frame's Ethernet header with its tags.
///
/// Reads at most two tags. [`LinkHeader::ethertype`] of a frame with three is the third tag's, so that the
/// payload is not taken for IP.
#[derive(Clone, Copy, Debug)]
pub struct LinkHeader<'a> {
    ethernet: EthernetHeader<'a>,
    tags: Tags,
    ethertype: EtherType,
    payload: &'a [u8],
}

impl<'a> LinkHeader<'a> {
    /// Parses `frame`; `None` if it ends within the header or a tag.
    #[inline]
    pub fn new(frame: &'a [u8]) -> Option<Self> {
        let ethernet = EthernetHeader::new(frame)?;
        let mut ethertype = ethernet.ethertype();
        let mut tags = Tags::NONE;
        if tags.continue_with(ethertype) {
            (tags, ethertype) = read_tags(ethertype, ethernet.payload())?;
        }
        let payload = ethernet.payload().get(4 * tags.len()..)?;
        Some(Self { ethernet, tags, ethertype, payload })
    }

    /// Returns the destination.
    #[inline]
    pub fn dst(&self) -> MacAddr {
        self.ethernet.dst()
    }

    /// Returns the source.
    #[inline]
    pub fn src(&self) -> MacAddr {
        self.ethernet.src()
    }

    /// Returns the tags.
    #[inline]
    pub fn tags(&self) -> Tags {
        self.tags
    }

    /// Returns the EtherType of the payload.
    #[inline]
    pub fn ethertype(&self) -> EtherType {
        self.ethertype
    }

    /// Returns the length of the header with its tags: 14, 18 or 22 bytes.
    #[inline]
    pub fn header_len(&self) -> usize {
        EthernetHeader::LEN + 4 * self.tags.len()
    }

    /// Returns the bytes behind the header and its tags, including a short frame's padding.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// An invalid Ethernet II header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EthernetError {
    /// The frame ends within the header or a tag.
    #[error("the frame of {0} bytes ends within its Ethernet header")]
    Truncated(usize),
    /// The type field is an 802.3 length.
    #[error("the frame has an 802.3 length, {0}, and no EtherType")]
    Length(u16),
    /// The payload's EtherType announces a VLAN tag, and the tags before it allow another one there.
    #[error("EtherType {0} is a VLAN tag's, not a payload's")]
    TagAsPayload(EtherType),
}

/// A valid Ethernet II header with its tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EthernetRepr {
    /// The receiver.
    pub dst: MacAddr,
    /// The sender.
    pub src: MacAddr,
    tags: Tags,
    ethertype: EtherType,
}

impl EthernetRepr {
    /// Creates a header. Fails if `ethertype` is an 802.3 length, or announces another tag that is allowed
    /// there.
    pub fn new(dst: MacAddr, src: MacAddr, tags: Tags, ethertype: EtherType) -> Result<Self, EthernetError> {
        if ethertype.is_length() {
            return Err(EthernetError::Length(ethertype.0));
        }
        if tags.continue_with(ethertype) {
            return Err(EthernetError::TagAsPayload(ethertype));
        }
        Ok(Self { dst, src, tags, ethertype })
    }

    /// Parses the header of `frame`; returns it and the payload.
    pub fn parse(frame: &[u8]) -> Result<(Self, &[u8]), EthernetError> {
        let header = LinkHeader::new(frame).ok_or(EthernetError::Truncated(frame.len()))?;
        let repr = Self::new(header.dst(), header.src(), header.tags(), header.ethertype())?;
        Ok((repr, header.payload()))
    }

    /// Returns the tags.
    pub fn tags(&self) -> Tags {
        self.tags
    }

    /// Returns the EtherType of the payload.
    pub fn ethertype(&self) -> EtherType {
        self.ethertype
    }

    /// Appends the header to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        write_header(self.dst, self.src, self.tags.as_slice(), self.ethertype, out);
    }
}

/// Appends an Ethernet header with any tags to `out`.
pub(crate) fn write_header(
    dst: MacAddr,
    src: MacAddr,
    tags: &[VlanTag],
    ethertype: EtherType,
    out: &mut Vec<u8>,
) {
    out.extend(dst.0);
    out.extend(src.0);
    for tag in tags {
        out.extend(tag.tpid.0.to_be_bytes());
        out.extend(tag.tci.to_be_bytes());
    }
    out.extend(ethertype.0.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DST: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0B]);
    const SRC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0A]);

    fn frame(tags: &[VlanTag], ethertype: EtherType) -> Vec<u8> {
        let mut frame = Vec::new();
        write_header(DST, SRC, tags, ethertype, &mut frame);
        frame.extend(b"payload");
        frame
    }

    fn tag(tpid: EtherType, vid: u16) -> VlanTag {
        VlanTag { tpid, tci: 0x6000 | vid }
    }

    #[test]
    fn an_untagged_frame_has_fourteen_bytes_of_header() {
        let frame = frame(&[], EtherType::IPV4);
        let header = LinkHeader::new(&frame).unwrap();
        assert_eq!((header.dst(), header.src(), header.ethertype()), (DST, SRC, EtherType::IPV4));
        assert_eq!((header.tags(), header.header_len(), header.payload()), (Tags::NONE, 14, &b"payload"[..]));
    }

    #[test]
    fn one_tag_of_either_kind_is_read() {
        for tpid in [EtherType::VLAN, EtherType::QINQ] {
            let frame = frame(&[tag(tpid, 5)], EtherType::IPV6);
            let header = LinkHeader::new(&frame).unwrap();
            assert_eq!(header.tags().as_slice(), [tag(tpid, 5)]);
            assert_eq!((header.ethertype(), header.header_len()), (EtherType::IPV6, 18));
        }
    }

    #[test]
    fn two_tags_are_read_where_the_inner_is_802_1q() {
        for outer in [EtherType::VLAN, EtherType::QINQ] {
            let tags = [tag(outer, 5), tag(EtherType::VLAN, 6)];
            let frame = frame(&tags, EtherType::IPV4);
            let header = LinkHeader::new(&frame).unwrap();
            assert_eq!(header.tags().as_slice(), tags);
            assert_eq!((header.ethertype(), header.header_len()), (EtherType::IPV4, 22));
            assert_eq!(header.payload(), b"payload");
        }
    }

    #[test]
    fn a_third_tag_is_not_taken_for_ip() {
        let frame = frame(&[tag(EtherType::VLAN, 5); 3], EtherType::IPV4);
        let header = LinkHeader::new(&frame).unwrap();
        assert_eq!((header.ethertype(), header.header_len()), (EtherType::VLAN, 22));
    }

    #[test]
    fn a_provider_tag_within_a_tag_is_not_taken_for_ip() {
        let frame = frame(&[tag(EtherType::QINQ, 5); 2], EtherType::IPV4);
        let header = LinkHeader::new(&frame).unwrap();
        assert_eq!((header.ethertype(), header.header_len()), (EtherType::QINQ, 18));
    }

    #[test]
    fn a_frame_that_ends_within_its_header_is_none() {
        let frame = frame(&[tag(EtherType::QINQ, 5), tag(EtherType::VLAN, 6)], EtherType::IPV4);
        for len in 0..22 {
            assert!(LinkHeader::new(&frame[..len]).is_none());
            assert_eq!(EthernetRepr::parse(&frame[..len]), Err(EthernetError::Truncated(len)));
        }
        assert!(LinkHeader::new(&frame[..22]).is_some());
    }

    #[test]
    fn a_length_is_not_a_type() {
        assert!(EtherType(0x05FF).is_length() && !EtherType(0x0600).is_length());
        assert_eq!(EthernetRepr::parse(&frame(&[], EtherType(46))), Err(EthernetError::Length(46)));
    }

    #[test]
    fn a_tag_does_not_stand_for_a_payload() {
        let refused = EthernetRepr::new(DST, SRC, Tags::NONE, EtherType::QINQ);
        assert_eq!(refused, Err(EthernetError::TagAsPayload(EtherType::QINQ)));
    }

    #[test]
    fn addresses_display_in_hexadecimal() {
        assert_eq!(DST.to_string(), "02:00:00:00:00:0b");
        assert!(MacAddr::BROADCAST.is_multicast() && !DST.is_multicast());
        assert_eq!(EtherType::IPV4.to_string(), "0x0800");
    }

    proptest! {
        #[test]
        fn what_is_emitted_parses_to_the_same(
            dst: [u8; 6],
            src: [u8; 6],
            qinq: bool,
            tcis in proptest::collection::vec(any::<u16>(), 0..=2),
            ethertype: u16,
        ) {
            let outer = if qinq { EtherType::QINQ } else { EtherType::VLAN };
            let tpids = [outer, EtherType::VLAN];
            let tags: Vec<_> = tcis.iter().zip(tpids).map(|(&tci, tpid)| VlanTag { tpid, tci }).collect();
            let tags = Tags::from_slice(&tags).unwrap();
            if let Ok(repr) = EthernetRepr::new(MacAddr(dst), MacAddr(src), tags, EtherType(ethertype)) {
                let mut frame = Vec::new();
                repr.emit(&mut frame);
                frame.push(7);
                prop_assert_eq!(EthernetRepr::parse(&frame), Ok((repr, &[7][..])));
            }
        }
    }
}
