//! A frame that omits its payload if that is the stream pattern, so that many frames in flight take little
//! memory.

use std::borrow::Cow;

use nichrome_wan::{Packet, ethernet};
use nichrome_wire::{Ecn, EthernetHeader, Ipv4Header, TcpHeader};

use super::pattern;

/// Ethernet, IPv4 and TCP without options.
const HEADERS: usize = EthernetHeader::LEN + Ipv4Header::LEN + TcpHeader::LEN;

/// Offset of IPv4's total length.
const TOTAL_LENGTH: usize = EthernetHeader::LEN + 2;

/// A frame. A segment of the pattern with [`HEADERS`] bytes of headers takes no allocation; any other frame
/// is stored whole.
#[derive(Clone, Debug)]
pub(crate) struct Compact(Content);

#[derive(Clone, Debug)]
enum Content {
    /// Headers, and the payload's offset into the pattern.
    Stream { headers: [u8; HEADERS], phase: u8, payload: u16 },
    /// All bytes.
    Bytes(Vec<u8>),
}

impl Compact {
    /// Returns the frame's bytes.
    pub(crate) fn expand(self) -> Vec<u8> {
        match self.0 {
            Content::Bytes(frame) => frame,
            Content::Stream { headers, phase, payload } => {
                let mut frame = vec![0; HEADERS + usize::from(payload)];
                let (head, body) = frame.split_at_mut(HEADERS);
                head.copy_from_slice(&headers);
                pattern::fill(u64::from(phase), body);
                frame
            }
        }
    }

    /// Returns the frame's length in bytes.
    pub(crate) fn len(&self) -> usize {
        match &self.0 {
            Content::Bytes(frame) => frame.len(),
            Content::Stream { payload, .. } => HEADERS + usize::from(*payload),
        }
    }

    /// Returns the frame, or only its headers if it omits its payload: enough to read addresses and ports.
    pub(crate) fn with_kept_payload(&self) -> Cow<'_, [u8]> {
        match &self.0 {
            Content::Bytes(frame) => Cow::Borrowed(frame),
            Content::Stream { headers, .. } => {
                let mut frame = headers.to_vec();
                let total = ((HEADERS - EthernetHeader::LEN) as u16).to_be_bytes();
                frame[TOTAL_LENGTH..TOTAL_LENGTH + 2].copy_from_slice(&total);
                Cow::Owned(frame)
            }
        }
    }

    /// Returns the stored bytes.
    fn kept(&self) -> &[u8] {
        match &self.0 {
            Content::Bytes(frame) => frame,
            Content::Stream { headers, .. } => headers,
        }
    }
}

impl From<Vec<u8>> for Compact {
    fn from(frame: Vec<u8>) -> Self {
        let stream = frame.split_first_chunk().and_then(|(headers, payload)| {
            // The first byte determines the phase; the payload must equal the pattern from there on.
            let phase = *payload.first().filter(|_| pattern::matches(u64::from(payload[0]), payload))?;
            Some(Content::Stream { headers: *headers, phase, payload: u16::try_from(payload.len()).ok()? })
        });
        Self(stream.unwrap_or(Content::Bytes(frame)))
    }
}

impl Packet for Compact {
    fn wire_len(&self) -> usize {
        self.len()
    }

    fn network_len(&self) -> usize {
        self.len() - (self.kept().len() - ethernet::network_len(self.kept()))
    }

    fn flip_bit(&mut self, bit: usize) {
        let mut frame = self.clone().expand();
        ethernet::flip_bit(&mut frame, bit);
        *self = frame.into();
    }

    fn duplicate(&self) -> Option<Self> {
        Some(self.clone())
    }

    fn ecn(&self) -> Ecn {
        ethernet::ecn(self.kept())
    }

    fn mark_ce(&mut self) {
        match &mut self.0 {
            Content::Bytes(frame) => ethernet::mark_ce(frame),
            Content::Stream { headers, .. } => ethernet::mark_ce(headers),
        }
    }
}

#[cfg(test)]
mod tests {
    use nichrome_wire::{RssKey, TcpFrame, Toeplitz};
    use proptest::prelude::*;

    use super::*;

    fn frame(payload: Vec<u8>) -> Vec<u8> {
        TcpFrame { payload, ..TcpFrame::default() }.build()
    }

    fn allocates(compact: &Compact) -> bool {
        matches!(compact.0, Content::Bytes(_))
    }

    proptest! {
        #[test]
        fn every_frame_comes_back_as_it_was(offset in 0..1u64 << 40, len in 0..9000usize, changed in 0..9100usize) {
            let mut payload = vec![0; len];
            pattern::fill(offset, &mut payload);
            let mut bytes = frame(payload);
            let compact = Compact::from(bytes.clone());
            prop_assert_eq!(allocates(&compact), len == 0);
            prop_assert_eq!(compact.len(), bytes.len());
            prop_assert_eq!(&compact.expand(), &bytes);
            if let Some(byte) = bytes.get_mut(changed) {
                *byte ^= 0x80;
            }
            prop_assert_eq!(Compact::from(bytes.clone()).expand(), bytes);
        }
    }

    #[test]
    fn addresses_and_ports_are_kept() {
        let toeplitz = Toeplitz::new(&RssKey::SYMMETRIC);
        for src_port in 40_000..40_010 {
            let mut payload = vec![0; 1460];
            pattern::fill(12, &mut payload);
            let whole = TcpFrame { src_port, payload, ..TcpFrame::default() }.build();
            let compact = Compact::from(whole.clone());
            assert_eq!(toeplitz.hash_frame(&compact.with_kept_payload()), toeplitz.hash_frame(&whole));
        }
    }

    #[test]
    fn frames_without_headers_and_of_other_streams_are_kept() {
        for bytes in [Vec::new(), vec![7; 20], frame(vec![9; 100]), frame(vec![255; 100])] {
            let compact = Compact::from(bytes.clone());
            assert!(allocates(&compact));
            assert_eq!(compact.expand(), bytes);
        }
    }

    #[test]
    fn the_path_changes_a_compact_frame_as_it_changes_the_whole() {
        let mut payload = vec![0; 1000];
        pattern::fill(77, &mut payload);
        let mut whole = frame(payload);
        whole[15] |= Ecn::Ect0 as u8;
        let mut compact = Compact::from(whole.clone());
        assert_eq!(compact.ecn(), ethernet::ecn(&whole));
        compact.mark_ce();
        ethernet::mark_ce(&mut whole);
        assert_eq!(compact.clone().expand(), whole);
        compact.flip_bit(8 * 500);
        ethernet::flip_bit(&mut whole, 8 * 500);
        assert_eq!(compact.expand(), whole);
    }
}
