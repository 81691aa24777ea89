//! Builds a datagram in place.

use super::ICRC_LEN;
use super::datagram::Repr;
use super::icrc::{Icrc, MAX_DATAGRAM_LEN, UdpFlow};

/// A datagram under construction in the caller's buffer: headers are written, the caller fills in the
/// payload, and [`finish`](Self::finish) adds padding and ICRC in one pass.
#[derive(Debug)]
pub struct DatagramWriter<'b> {
    datagram: &'b mut [u8],
    header_len: usize,
    payload_len: usize,
    icrc: Icrc,
}

impl<'b> DatagramWriter<'b> {
    /// Writes the headers of a datagram with `payload_len` bytes of payload to the front of `buffer`. `None`
    /// if the buffer is shorter than [`Repr::datagram_len`], or the datagram would exceed the maximum length.
    /// Over IPv4, the ICRC is for identification `ident` with DF.
    #[inline]
    pub fn new(
        repr: &Repr,
        payload_len: usize,
        flow: &UdpFlow,
        ident: u16,
        buffer: &'b mut [u8],
    ) -> Option<Self> {
        let padding = payload_len.next_multiple_of(4) - payload_len;
        let headers = repr.header_bytes(padding as u8);
        let headers = headers.as_slice();
        let len = headers.len() + payload_len + padding + ICRC_LEN;
        let datagram = buffer.get_mut(..len).filter(|datagram| datagram.len() <= MAX_DATAGRAM_LEN)?;
        datagram[..headers.len()].copy_from_slice(headers);
        let icrc = Icrc::of_headers(flow, ident, datagram.len(), headers);
        Some(Self { datagram, header_len: headers.len(), payload_len, icrc })
    }

    /// Returns the payload's bytes; all of them must be filled.
    #[inline]
    pub fn payload(&mut self) -> &mut [u8] {
        &mut self.datagram[self.header_len..][..self.payload_len]
    }

    /// Adds padding and ICRC; returns the datagram's length in bytes.
    #[inline]
    pub fn finish(self) -> usize {
        let Self { datagram, header_len, payload_len, mut icrc } = self;
        let len = datagram.len();
        let (covered, crc) = datagram.split_at_mut(len - ICRC_LEN);
        covered[header_len + payload_len..].fill(0);
        icrc.update(&covered[header_len..]);
        crc.copy_from_slice(&icrc.finish());
        len
    }
}
