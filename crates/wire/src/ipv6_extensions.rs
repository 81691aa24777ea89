//! IPv6 extension headers (RFC 8200 section 4, RFC 4302).

use thiserror::Error;

use crate::bytes::{be16, be32};
use crate::ip::{Fragment, FragmentOffset, IpProtocol};

/// A malformed chain of extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ExtensionError {
    /// The packet ends within an extension header.
    #[error("the packet ends within the IPv6 extension header of type {}", .0.0)]
    Truncated(IpProtocol),
    /// Hop-by-hop options elsewhere than right after the IPv6 header (RFC 8200 section 4.1).
    #[error("IPv6 hop-by-hop options do not follow right after the IPv6 header")]
    HopByHopNotFirst,
    /// An authentication header shorter than its fixed part of 12 bytes (RFC 4302 section 2).
    #[error("an IPv6 authentication header of 8 bytes is shorter than 12")]
    AuthenticationHeaderLength,
}

/// An extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Extension<'a> {
    /// The type: [`IpProtocol::HOP_BY_HOP`], `ROUTING`, `FRAGMENT`, `DESTINATION_OPTIONS` or `AH`.
    pub protocol: IpProtocol,
    /// The whole header, at least 8 bytes; the first is the next header field.
    pub bytes: &'a [u8],
}

impl Ipv6Extension<'_> {
    /// Returns true for destination options with a home address (RFC 6275 section 6.3): transport checksums
    /// cover it in place of the source address.
    pub fn has_home_address(&self) -> bool {
        const PAD_1: u8 = 0;
        const HOME_ADDRESS: u8 = 0xC9;
        let mut options = if self.protocol == IpProtocol::DESTINATION_OPTIONS { self.bytes } else { &[] };
        options = options.get(2..).unwrap_or_default();
        loop {
            let length = match options {
                [HOME_ADDRESS, ..] => return true,
                [PAD_1, ..] => 1,
                [_, length, ..] => 2 + usize::from(*length),
                _ => return false,
            };
            options = options.get(length..).unwrap_or_default();
        }
    }
}

/// A fragment header (RFC 8200 section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv6Fragment {
    /// The fragment position.
    pub fragment: Fragment,
    /// Identification, common to all fragments of a packet.
    pub ident: u32,
}

impl Ipv6Fragment {
    /// Returns true for a fragment header on a whole packet (RFC 6946).
    #[inline]
    pub const fn is_atomic(&self) -> bool {
        self.fragment.is_whole()
    }

    #[inline]
    fn read(header: &[u8; 8]) -> Self {
        let field = be16(header, 2);
        let offset = FragmentOffset::from_units(field >> 3);
        Self { fragment: Fragment { offset, more_fragments: field & 1 == 1 }, ident: be32(header, 4) }
    }
}

/// Iterates over the extension headers of a packet. A malformed one yields an error and ends the iteration.
///
/// Ends at the upper layer, at ESP (encrypted from there on), at "no next header", and behind the fragment
/// header of any fragment but the first, which has no further header.
#[derive(Clone, Debug)]
pub struct Ipv6Extensions<'a> {
    payload: &'a [u8],
    offset: usize,
    next: IpProtocol,
    fragment: Option<Ipv6Fragment>,
    ended: bool,
}

impl<'a> Ipv6Extensions<'a> {
    /// Iterates over `payload`, the bytes behind the IPv6 header, whose next header field is `first`.
    #[inline]
    pub fn new(first: IpProtocol, payload: &'a [u8]) -> Self {
        Self { payload, offset: 0, next: first, fragment: None, ended: false }
    }

    fn read(&mut self) -> Result<Ipv6Extension<'a>, ExtensionError> {
        let protocol = self.next;
        if protocol == IpProtocol::HOP_BY_HOP && self.offset != 0 {
            return Err(ExtensionError::HopByHopNotFirst);
        }
        let truncated = ExtensionError::Truncated(protocol);
        let rest = self.payload.get(self.offset..).unwrap_or(&[]);
        let start = rest.first_chunk::<8>().ok_or(truncated)?;
        let length = match protocol {
            IpProtocol::FRAGMENT => 8,
            // In units of 4 bytes, minus 2 (RFC 4302 section 2.2); the fixed part has 12 bytes.
            IpProtocol::AH if start[1] == 0 => return Err(ExtensionError::AuthenticationHeaderLength),
            IpProtocol::AH => (usize::from(start[1]) + 2) * 4,
            _ => (usize::from(start[1]) + 1) * 8,
        };
        let bytes = rest.get(..length).ok_or(truncated)?;
        if protocol == IpProtocol::FRAGMENT {
            let met = Ipv6Fragment::read(start);
            self.ended = !met.fragment.is_first();
            self.fragment = Some(met);
        }
        self.offset += length;
        self.next = IpProtocol(start[0]);
        Ok(Ipv6Extension { protocol, bytes })
    }
}

impl<'a> Iterator for Ipv6Extensions<'a> {
    type Item = Result<Ipv6Extension<'a>, ExtensionError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended || !is_extension(self.next) {
            return None;
        }
        let header = self.read();
        self.ended |= header.is_err();
        Some(header)
    }
}

/// Returns true for extension headers that can be skipped.
#[inline]
const fn is_extension(protocol: IpProtocol) -> bool {
    matches!(
        protocol,
        IpProtocol::HOP_BY_HOP
            | IpProtocol::ROUTING
            | IpProtocol::FRAGMENT
            | IpProtocol::AH
            | IpProtocol::DESTINATION_OPTIONS
    )
}

/// The upper layer behind the extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpperLayer {
    /// The protocol. In a fragment after the first, the fragment header's next header field: the type of the
    /// first header in the first fragment.
    pub protocol: IpProtocol,
    /// Offset from the end of the IPv6 header, in bytes.
    pub offset: usize,
    /// The fragment header, if any.
    pub fragment: Option<Ipv6Fragment>,
}

impl UpperLayer {
    /// Finds the upper layer in `payload`, the bytes behind the IPv6 header, whose next header field is
    /// `first`.
    #[inline]
    pub fn find(first: IpProtocol, payload: &[u8]) -> Result<Self, ExtensionError> {
        if is_extension(first) {
            Self::walk(first, payload)
        } else {
            Ok(Self { protocol: first, offset: 0, fragment: None })
        }
    }

    fn walk(first: IpProtocol, payload: &[u8]) -> Result<Self, ExtensionError> {
        let mut extensions = Ipv6Extensions::new(first, payload);
        for header in &mut extensions {
            header?;
        }
        let Ipv6Extensions { next: protocol, offset, fragment, .. } = extensions;
        Ok(Self { protocol, offset, fragment })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOP_BY_HOP: [u8; 8] = [0, 0, 1, 4, 0, 0, 0, 0];

    /// `headers`, each of (type, bytes), linked by their first bytes to end in `upper`.
    fn chain(headers: &[(IpProtocol, &[u8])], upper: IpProtocol) -> (IpProtocol, Vec<u8>) {
        let mut bytes = Vec::new();
        for (place, (_, header)) in headers.iter().enumerate() {
            bytes.push(headers.get(place + 1).map_or(upper, |next| next.0).0);
            bytes.extend(&header[1..]);
        }
        (headers.first().map_or(upper, |first| first.0), bytes)
    }

    fn fragment_header(units: u16, more: u16) -> [u8; 8] {
        let [high, low] = (units << 3 | more).to_be_bytes();
        [0, 0, high, low, 0xAA, 0xBB, 0xCC, 0xDD]
    }

    fn found(headers: &[(IpProtocol, &[u8])], upper: IpProtocol) -> Result<UpperLayer, ExtensionError> {
        let (first, bytes) = chain(headers, upper);
        UpperLayer::find(first, &bytes)
    }

    #[test]
    fn without_extensions_the_upper_layer_is_at_once() {
        let want = UpperLayer { protocol: IpProtocol::TCP, offset: 0, fragment: None };
        assert_eq!(found(&[], IpProtocol::TCP), Ok(want));
    }

    /// RFC 8200 section 4.5: the second byte of a fragment header is reserved and ignored, not a length.
    #[test]
    fn a_fragment_header_has_eight_bytes_whatever_its_reserved_byte_is() {
        let mut header = fragment_header(0, 1);
        header[1] = 0xFF;
        let upper = found(&[(IpProtocol::FRAGMENT, &header)], IpProtocol::TCP).unwrap();
        assert_eq!((upper.protocol, upper.offset), (IpProtocol::TCP, 8));
    }

    #[test]
    fn every_kind_is_walked_over_with_its_own_length() {
        let mut routing = [0; 24];
        routing[1] = 2;
        let mut ah = [0; 24];
        ah[1] = 4;
        let atomic = fragment_header(0, 0);
        let headers: [(_, &[u8]); 5] = [
            (IpProtocol::HOP_BY_HOP, &HOP_BY_HOP),
            (IpProtocol::ROUTING, &routing),
            (IpProtocol::FRAGMENT, &atomic),
            (IpProtocol::AH, &ah),
            (IpProtocol::DESTINATION_OPTIONS, &HOP_BY_HOP),
        ];
        let upper = found(&headers, IpProtocol::TCP).unwrap();
        assert_eq!((upper.protocol, upper.offset), (IpProtocol::TCP, 8 + 24 + 8 + 24 + 8));
        let fragment = upper.fragment.unwrap();
        assert!(fragment.is_atomic() && fragment.ident == 0xAABB_CCDD);

        let (first, bytes) = chain(&headers, IpProtocol::TCP);
        let walked: Vec<_> = Ipv6Extensions::new(first, &bytes).map(Result::unwrap).collect();
        assert_eq!(
            walked.iter().map(|header| header.protocol).collect::<Vec<_>>(),
            headers.map(|(kind, _)| kind)
        );
        assert_eq!(walked.iter().map(|header| header.bytes.len()).collect::<Vec<_>>(), [8, 24, 8, 24, 8]);
    }

    #[test]
    fn offset_and_flag_of_a_fragment_are_a_big_endian_word() {
        // A first fragment from the wire; etherparse 0.19 reads it as the second (its issue 150).
        let header = [0x3A, 0, 0, 1, 0x59, 0xAD, 0x9B, 0x98];
        let upper = UpperLayer::find(IpProtocol::FRAGMENT, &header).unwrap();
        let fragment = Fragment { offset: FragmentOffset::START, more_fragments: true };
        assert_eq!(upper.fragment, Some(Ipv6Fragment { fragment, ident: 0x59AD_9B98 }));
        assert_eq!((upper.protocol, upper.offset), (IpProtocol::ICMPV6, 8));
    }

    #[test]
    fn the_first_fragment_has_the_upper_layer() {
        let first = fragment_header(0, 1);
        let upper = found(&[(IpProtocol::FRAGMENT, &first)], IpProtocol::TCP).unwrap();
        let fragment = upper.fragment.unwrap();
        assert!(fragment.fragment.is_first() && fragment.fragment.more_fragments && !fragment.is_atomic());
        assert_eq!((upper.protocol, upper.offset), (IpProtocol::TCP, 8));
    }

    #[test]
    fn the_walk_ends_at_a_later_fragment() {
        let later = fragment_header(185, 0);
        // Data follows, although the next header field names options: those are in the first fragment.
        let headers: [(_, &[u8]); 2] =
            [(IpProtocol::FRAGMENT, &later), (IpProtocol::DESTINATION_OPTIONS, &HOP_BY_HOP)];
        let upper = found(&headers, IpProtocol::TCP).unwrap();
        assert_eq!((upper.protocol, upper.offset), (IpProtocol::DESTINATION_OPTIONS, 8));
        assert_eq!(upper.fragment.unwrap().fragment.offset.bytes(), 1480);
    }

    #[test]
    fn a_home_address_is_found_among_destination_options() {
        let home = [&[0xC9, 16][..], &[0xFD; 16]].concat();
        let header = |protocol, options: &[&[u8]]| {
            let bytes = [&[6, 0][..], &options.concat()].concat();
            Ipv6Extension { protocol, bytes: &bytes }.has_home_address()
        };
        let destination = |options: &[&[u8]]| header(IpProtocol::DESTINATION_OPTIONS, options);
        assert!(
            destination(&[&[1, 2, 0, 0], &home]) && destination(&[&[0; 4], &home]) && destination(&[&home])
        );
        // In the data of another option, behind the end, or in other headers.
        let within = [&[0x1E, 18][..], &home].concat();
        let others: [&[u8]; 5] = [&[], &within, &[1, 2, 0, 0], &[0x1E], &[0x1E, 0xC9]];
        for options in others {
            assert!(!destination(&[options]), "{options:?}");
        }
        assert!(!header(IpProtocol::HOP_BY_HOP, &[&home]) && !header(IpProtocol::ROUTING, &[&home]));
    }

    #[test]
    fn esp_and_no_next_header_end_the_walk() {
        for end in [IpProtocol::ESP, IpProtocol::NO_NEXT_HEADER] {
            let upper = found(&[(IpProtocol::HOP_BY_HOP, &HOP_BY_HOP)], end).unwrap();
            assert_eq!((upper.protocol, upper.offset), (end, 8));
        }
    }

    #[test]
    fn hop_by_hop_options_stand_first_or_nowhere() {
        let options: (_, &[u8]) = (IpProtocol::HOP_BY_HOP, &HOP_BY_HOP);
        assert_eq!(found(&[options, options], IpProtocol::TCP), Err(ExtensionError::HopByHopNotFirst));
    }

    #[test]
    fn an_authentication_header_has_its_fixed_part() {
        let too_short = Err(ExtensionError::AuthenticationHeaderLength);
        assert_eq!(found(&[(IpProtocol::AH, &[0; 8])], IpProtocol::TCP), too_short);
        let ah: (_, &[u8]) = (IpProtocol::AH, &[0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(found(&[ah], IpProtocol::TCP).unwrap().offset, 12);
    }

    #[test]
    fn a_header_beyond_the_bytes_is_an_error_once() {
        let error = ExtensionError::Truncated(IpProtocol::ROUTING);
        let routing = [6, 1, 0, 0, 0, 0, 0, 0];
        assert_eq!(UpperLayer::find(IpProtocol::ROUTING, &routing), Err(error));
        assert_eq!(UpperLayer::find(IpProtocol::ROUTING, &routing[..7]), Err(error));
        let mut walk = Ipv6Extensions::new(IpProtocol::ROUTING, &routing);
        assert_eq!((walk.next(), walk.next()), (Some(Err(error)), None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_walked_within_their_bounds(
            first in proptest::sample::select(vec![0u8, 43, 44, 51, 60]),
            mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
            links in proptest::collection::vec((0usize..20, proptest::sample::select(vec![43u8, 44, 51, 60])), 0..8),
        ) {
            // Random bytes rarely chain: plant next headers with small lengths at multiples of 8.
            for (place, kind) in links {
                if let Some([next, length]) = bytes.get_mut(place * 8..place * 8 + 2) {
                    (*next, *length) = (kind, *length % 4);
                }
            }
            if let Ok(upper) = UpperLayer::find(IpProtocol(first), &bytes) {
                let walked: usize =
                    Ipv6Extensions::new(IpProtocol(first), &bytes).map(|header| header.unwrap().bytes.len()).sum();
                prop_assert!(upper.offset == walked && walked <= bytes.len());
            }
        }
    }
}
