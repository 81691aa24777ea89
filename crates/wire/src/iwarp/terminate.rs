//! TERMINATE messages (RFC 5040 section 4.8).
//!
//! Linux siw on little-endian machines builds the message from bit fields and so sends both nibbles of the
//! first byte, and the bits of the third, in reverse order. [`Terminated::from_bytes`] reads both.

/// The error of a TERMINATE: layer, type and code of RFC 5040 section 4.8, RFC 5041 section 8, RFC 5044
/// section 8, RFC 6581 section 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TerminateCode {
    /// 0 RDMAP, 1 DDP, 2 LLP (MPA).
    pub layer: u8,
    /// The error type within the layer.
    pub kind: u8,
    /// The error code within the type.
    pub code: u8,
}

/// Names the codes of a layer's type.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $layer:literal, $kind:literal, $code:literal;)*) => {
        impl TerminateCode {
            $($(#[$doc])* pub const $name: Self = Self { layer: $layer, kind: $kind, code: $code };)*
        }
    };
}

codes! {
    /// RDMAP: a local catastrophic error.
    CATASTROPHIC = 0, 0, 0;
    /// RDMAP: invalid STag.
    STAG = 0, 1, 0;
    /// RDMAP: base or bounds violation.
    BOUNDS = 0, 1, 1;
    /// RDMAP: access rights violation.
    RIGHTS = 0, 1, 2;
    /// RDMAP: the STag is of another stream.
    STREAM = 0, 1, 3;
    /// RDMAP: the tagged offset wraps.
    WRAP = 0, 1, 4;
    /// RDMAP: the STag cannot be invalidated.
    INVALIDATE = 0, 1, 9;
    /// RDMAP: invalid version.
    RDMAP_VERSION = 0, 2, 5;
    /// RDMAP: unexpected opcode.
    OPCODE = 0, 2, 6;
    /// RDMAP: catastrophic error of the stream.
    STREAM_CATASTROPHIC = 0, 2, 7;
    /// RDMAP: unspecified error.
    UNSPECIFIED = 0, 2, 0xFF;
    /// DDP: a local catastrophic error.
    DDP_CATASTROPHIC = 1, 0, 0;
    /// DDP, tagged buffer: invalid STag.
    TAGGED_STAG = 1, 1, 0;
    /// DDP, tagged buffer: base or bounds violation.
    TAGGED_BOUNDS = 1, 1, 1;
    /// DDP, tagged buffer: the STag is of another stream.
    TAGGED_STREAM = 1, 1, 2;
    /// DDP, tagged buffer: the tagged offset wraps.
    TAGGED_WRAP = 1, 1, 3;
    /// DDP, tagged buffer: invalid version.
    TAGGED_VERSION = 1, 1, 4;
    /// DDP, untagged buffer: invalid queue number.
    QUEUE = 1, 2, 1;
    /// DDP, untagged buffer: no buffer for the message.
    NO_BUFFER = 1, 2, 2;
    /// DDP, untagged buffer: the message number is out of range.
    MESSAGE_NUMBER = 1, 2, 3;
    /// DDP, untagged buffer: invalid message offset.
    MESSAGE_OFFSET = 1, 2, 4;
    /// DDP, untagged buffer: the message is too long for the buffer.
    TOO_LONG = 1, 2, 5;
    /// DDP, untagged buffer: invalid version.
    UNTAGGED_VERSION = 1, 2, 6;
    /// MPA: the TCP connection was lost.
    STREAM_LOST = 2, 0, 1;
    /// MPA: wrong CRC.
    CRC = 2, 0, 2;
    /// MPA: marker and length do not agree.
    MARKER = 2, 0, 3;
    /// MPA: invalid Request or Reply frame.
    FRAME = 2, 0, 4;
    /// MPA: local catastrophic error.
    MPA_CATASTROPHIC = 2, 0, 5;
    /// MPA: not enough IRD.
    IRD = 2, 0, 6;
    /// MPA: no matching RTR.
    RTR = 2, 0, 7;
}

/// The order of nibbles and bits in the first four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NibbleOrder {
    /// The RFC's order.
    Standard,
    /// The order that siw on little-endian machines sends.
    Reversed,
}

/// A TERMINATE message: the error, and the headers of the segment that caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminated<'a> {
    /// The error.
    pub error: TerminateCode,
    /// The headers of the segment that caused it, as received: the length of the segment (2 B) if known, then
    /// DDP's and RDMAP's headers.
    pub context: &'a [u8],
    /// The order in which the peer sent nibbles and bits.
    pub order: NibbleOrder,
}

/// The segment that caused a TERMINATE.
#[derive(Clone, Copy, Debug)]
pub struct TerminateCause<'a> {
    /// Bytes of the segment.
    pub segment_len: u16,
    /// The header of DDP.
    pub ddp: &'a [u8],
    /// The header of a READ request; empty for other messages.
    pub rdmap: &'a [u8],
}

/// Bytes of the control field.
const CONTROL_LEN: usize = 4;

/// Flags of the control field: the length of the DDP segment, the DDP header, the RDMAP header follow.
const HAS_LENGTH: u8 = 0x80;
const HAS_DDP: u8 = 0x40;
const HAS_RDMAP: u8 = 0x20;

impl<'a> Terminated<'a> {
    /// Reads the payload of a TERMINATE; `None` if it is too short. Recognizes the order by the flags. If
    /// they are clear or ambiguous, takes the order in which an RFC defines the error; the standard's if both
    /// or neither do.
    pub fn from_bytes(payload: &'a [u8]) -> Option<Self> {
        let (control, context) = payload.split_first_chunk::<CONTROL_LEN>()?;
        let [first, code, ..] = *control;
        let standard = TerminateCode { layer: first >> 4, kind: first & 0x0F, code };
        let reversed = TerminateCode { layer: first & 0x0F, kind: first >> 4, code };
        // The flags are at the high end of their byte in the standard order, at the low end in the reversed
        // one.
        let (high, low) = (control[2] & (HAS_LENGTH | HAS_DDP | HAS_RDMAP), control[2] & 0x07);
        let is_reversed = match (high, low) {
            (0, 1..) => true,
            (1.., 0) => false,
            _ => !standard.is_defined() && reversed.is_defined(),
        };
        let (error, order) =
            if is_reversed { (reversed, NibbleOrder::Reversed) } else { (standard, NibbleOrder::Standard) };
        Some(Self { error, context, order })
    }

    /// Appends the payload of a TERMINATE to `output`, with the headers of the segment that caused it, if any
    /// did.
    pub fn write(error: TerminateCode, cause: Option<&TerminateCause<'_>>, output: &mut Vec<u8>) {
        let flags = match cause {
            None => 0,
            Some(cause) if cause.rdmap.is_empty() => HAS_LENGTH | HAS_DDP,
            Some(_) => HAS_LENGTH | HAS_DDP | HAS_RDMAP,
        };
        output.extend([error.layer << 4 | error.kind, error.code, flags, 0]);
        if let Some(TerminateCause { segment_len, ddp, rdmap }) = cause {
            output.extend(segment_len.to_be_bytes());
            output.extend(*ddp);
            output.extend(*rdmap);
        }
    }
}

impl TerminateCode {
    /// Returns true if an RFC defines the error.
    pub const fn is_defined(self) -> bool {
        match (self.layer, self.kind) {
            (0, 0) => self.code == 0,
            (0, 1) => matches!(self.code, 0..=4 | 7..=9 | 0xFF),
            (0, 2) => matches!(self.code, 5..=8 | 0xFF),
            (1, 0) => self.code == 0,
            (1, 1) => self.code <= 4,
            (1, 2) => matches!(self.code, 1..=6),
            (2, 0) => matches!(self.code, 1..=7),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_orders_are_read() {
        let cause = TerminateCause { segment_len: 30, ddp: &[1; 14], rdmap: &[] };
        let mut bytes = Vec::new();
        Terminated::write(TerminateCode::TAGGED_BOUNDS, Some(&cause), &mut bytes);
        assert_eq!(bytes[..6], [0x11, 1, 0xC0, 0, 0, 30]);
        let read = Terminated::from_bytes(&bytes).unwrap();
        assert_eq!((read.error, read.order), (TerminateCode::TAGGED_BOUNDS, NibbleOrder::Standard));
        assert_eq!(read.context, &bytes[4..]);
        // siw, a SEND without a receive: layer 1, type 2, code 2.
        let read = Terminated::from_bytes(&[0x21, 2, 0x03, 0, 0, 30]).unwrap();
        assert_eq!((read.error, read.order), (TerminateCode::NO_BUFFER, NibbleOrder::Reversed));
        let read = Terminated::from_bytes(&[0x12, 2, 0xC0, 0, 0, 30]).unwrap();
        assert_eq!((read.error, read.order), (TerminateCode::NO_BUFFER, NibbleOrder::Standard));
        assert_eq!(Terminated::from_bytes(&[0x12, 2, 0xC0]), None);
    }

    #[test]
    fn the_flags_tell_the_order_of_bits_where_both_orders_are_errors() {
        // Layer 1, type 2 or layer 2, type 1; and both orders of layer 1, type 1 are the same error.
        let high = [0x80, 0x40, 0x20, 0xC0].map(|flags| (flags, NibbleOrder::Standard));
        let low = [0x01, 0x02, 0x04, 0x03].map(|flags| (flags, NibbleOrder::Reversed));
        for (flags, order) in high.into_iter().chain(low) {
            for first in [0x12, 0x21, 0x11, 0x77] {
                let payload = [first, 2, flags, 0];
                let read = Terminated::from_bytes(&payload).unwrap();
                let (high, low) = (first >> 4, first & 0x0F);
                let (layer, kind) = if order == NibbleOrder::Standard { (high, low) } else { (low, high) };
                assert_eq!((read.order, read.error), (order, TerminateCode { layer, kind, code: 2 }));
            }
        }
    }

    #[test]
    fn without_flags_the_order_that_an_rfc_defines_is_read() {
        for flags in [0, 0xC3] {
            let read = |first| {
                let payload = [first, 2, flags, 0];
                Terminated::from_bytes(&payload).map(|read| (read.order, read.error.layer)).unwrap()
            };
            assert_eq!((read(0x12), read(0x21)), ((NibbleOrder::Standard, 1), (NibbleOrder::Reversed, 1)));
            assert_eq!((read(0x77), read(0x20)), ((NibbleOrder::Standard, 7), (NibbleOrder::Standard, 2)));
        }
    }

    #[test]
    fn the_headers_that_follow_are_flagged() {
        let written = |rdmap| {
            let mut bytes = Vec::new();
            let cause = TerminateCause { segment_len: 46, ddp: &[1; 18], rdmap };
            Terminated::write(TerminateCode::NO_BUFFER, Some(&cause), &mut bytes);
            (bytes[2], bytes.len())
        };
        assert_eq!((written(&[]), written(&[2; 28])), ((0xC0, 24), (0xE0, 52)));
    }

    /// RFC 5040 section 4.8, RFC 5041 section 8.2 and RFC 5044 section 8.
    #[test]
    fn the_errors_of_the_rfcs_are_defined_and_no_others() {
        let defined: Vec<(u8, u8, Vec<u8>)> = vec![
            (0, 0, vec![0]),
            (0, 1, [0, 1, 2, 3, 4, 7, 8, 9, 0xFF].into()),
            (0, 2, [5, 6, 7, 8, 0xFF].into()),
            (1, 0, vec![0]),
            (1, 1, (0..=4).collect()),
            (1, 2, (1..=6).collect()),
            (2, 0, (1..=7).collect()),
        ];
        for (layer, kind, code) in (0..=3)
            .flat_map(|layer| (0..=3).map(move |kind| (layer, kind)))
            .flat_map(|(layer, kind)| (0..=255).map(move |code| (layer, kind, code)))
        {
            let expected =
                defined.iter().any(|(l, k, codes)| (*l, *k) == (layer, kind) && codes.contains(&code));
            assert_eq!(TerminateCode { layer, kind, code }.is_defined(), expected, "{layer} {kind} {code}");
        }
    }
}
