//! A whole RoCEv2 datagram with typed headers and payload.

use thiserror::Error;

use super::ICRC_LEN;
use super::bth::{Bth, BthHeader};
use super::message::{HeaderBytes, Message};
use super::opcode::Opcode;

/// An invalid RoCEv2 datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RdmaError {
    /// The bytes end before headers and ICRC.
    #[error("the RoCE packet is cut short: {len} bytes of {expected}")]
    Truncated {
        /// Bytes available.
        len: usize,
        /// Bytes required for headers, padding and ICRC.
        expected: usize,
    },
    /// Unknown opcode.
    #[error("unknown opcode {0:#04x}")]
    Opcode(u8),
    /// The version of the header is not 0.
    #[error("version {0} of the base transport header where 0 is expected")]
    Version(u8),
    /// Reserved syndrome of an acknowledgement, or reserved field of a FLUSH.
    #[error("a reserved value in an extension header")]
    Reserved,
    /// Payload with an opcode that has none.
    #[error("{len} bytes of payload where {opcode:?} carries none")]
    Payload {
        /// The opcode.
        opcode: Opcode,
        /// Length of the payload with padding, in bytes.
        len: usize,
    },
    /// Payload and padding are no multiple of 4 bytes.
    #[error("payload and padding of {0} bytes are no multiple of 4")]
    Padding(usize),
}

/// The headers of a packet. Opcode and padding derive from message and payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr {
    /// The base transport header.
    pub bth: Bth,
    /// The opcode's meaning and the extension headers.
    pub message: Message,
}

impl Repr {
    /// Parses the headers of `datagram`, a UDP payload. Returns them and the payload without padding and
    /// ICRC, which is not verified: see [`IcrcChecker`](super::IcrcChecker).
    pub fn parse(datagram: &[u8]) -> Result<(Self, &[u8]), RdmaError> {
        let truncated = |expected| RdmaError::Truncated { len: datagram.len(), expected };
        let header = BthHeader::new(datagram).ok_or(truncated(BthHeader::LEN + ICRC_LEN))?;
        let opcode = header.opcode().ok_or(RdmaError::Opcode(header.opcode_byte()))?;
        if header.version() != 0 {
            return Err(RdmaError::Version(header.version()));
        }
        let around = opcode.header_len() + header.pad() + ICRC_LEN;
        let payload_len = datagram.len().checked_sub(around).ok_or(truncated(around))?;
        let padded = payload_len + header.pad();
        if padded > 0 && !opcode.carries_payload() {
            return Err(RdmaError::Payload { opcode, len: padded });
        }
        if !padded.is_multiple_of(4) {
            return Err(RdmaError::Padding(padded));
        }
        let extensions = &datagram[BthHeader::LEN..opcode.header_len()];
        let message = Message::read(opcode, extensions).ok_or(RdmaError::Reserved)?;
        let payload = &datagram[opcode.header_len()..][..payload_len];
        Ok((Self { bth: Bth::of(&header), message }, payload))
    }

    /// Returns the length of a datagram with `payload_len` bytes of payload: headers, payload, padding and
    /// ICRC.
    #[inline]
    pub fn datagram_len(&self, payload_len: usize) -> usize {
        self.message.opcode().header_len() + payload_len.next_multiple_of(4) + ICRC_LEN
    }

    /// Encodes the headers of a packet with `pad` bytes of padding, 0 to 3.
    #[inline]
    pub(super) fn header_bytes(&self, pad: u8) -> HeaderBytes {
        let mut headers = HeaderBytes::new();
        headers.put(self.bth.to_bytes(self.message.opcode(), pad));
        self.message.write(&mut headers);
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdma::{Aeth, Credit, Msn, QpNumber, RcMessage, Syndrome};

    fn acknowledge() -> Vec<u8> {
        let aeth = Aeth { syndrome: Syndrome::Ack(Credit::UNLIMITED), msn: Msn::new(3) };
        let bth = Bth { dest_qp: QpNumber::GENERAL_SERVICES, ..Bth::default() };
        let repr = Repr { bth, message: Message::Rc(RcMessage::Acknowledge(aeth)) };
        let mut datagram = repr.header_bytes(0).as_slice().to_vec();
        datagram.extend([0; ICRC_LEN]);
        datagram
    }

    #[test]
    fn every_broken_rule_has_its_error() {
        let good = acknowledge();
        assert!(Repr::parse(&good).is_ok());
        let changed = |at: usize, byte: u8| {
            let mut bad = good.clone();
            bad[at] = byte;
            Repr::parse(&bad).unwrap_err()
        };
        assert_eq!(changed(0, 0x15), RdmaError::Opcode(0x15));
        assert_eq!(changed(1, 0x01), RdmaError::Version(1));
        assert_eq!(changed(12, 0x40), RdmaError::Reserved);
        assert_eq!(changed(1, 0x30), RdmaError::Truncated { len: 20, expected: 23 });
        assert_eq!(Repr::parse(&good[..11]), Err(RdmaError::Truncated { len: 11, expected: 16 }));
        let opcode = Opcode::new(0x11).unwrap();
        let longer = [&good[..], &[0; 4]].concat();
        assert_eq!(Repr::parse(&longer), Err(RdmaError::Payload { opcode, len: 4 }));
        let mut send = longer;
        send[0] = 0x04;
        send.pop();
        assert_eq!(Repr::parse(&send), Err(RdmaError::Padding(7)));
    }
}
