//! Builds a datagram in place.

use crate::rdma::UdpFlow;

use super::check::PacketCheck;
use super::datagram::{Authentication, Repr};
use super::{AUTHENTICATION_LEN, CHECK_LEN};

/// A datagram under construction in the caller's buffer: headers are written, the caller fills in the
/// payload, and one of the two `finish` methods adds the trailer.
#[derive(Debug)]
pub struct PacketWriter<'b> {
    datagram: &'b mut [u8],
    header_len: usize,
    payload_len: usize,
}

impl<'b> PacketWriter<'b> {
    /// Writes the headers of a datagram with `payload_len` bytes of payload to the front of `buffer`. `None`
    /// if the buffer is shorter than [`Repr::datagram_len`], or the packet cannot have so much payload.
    /// Reserves room for an authentication if the flags have
    /// [`Flags::AUTHENTICATED`](super::Flags::AUTHENTICATED).
    #[inline]
    pub fn new(repr: &Repr, payload_len: usize, buffer: &'b mut [u8]) -> Option<Self> {
        let datagram = buffer.get_mut(..repr.datagram_len(payload_len))?;
        let mut header_len = 0;
        let possible = repr.write(payload_len, |bytes| {
            datagram[header_len..header_len + bytes.len()].copy_from_slice(bytes);
            header_len += bytes.len();
        });
        possible.then_some(Self { datagram, header_len, payload_len })
    }

    /// Returns the payload's bytes; all of them must be filled.
    #[inline]
    pub fn payload(&mut self) -> &mut [u8] {
        &mut self.datagram[self.header_len..][..self.payload_len]
    }

    /// Adds the check of `flow`; returns the datagram's length in bytes. The tag of a packet with
    /// [`Flags::AUTHENTICATED`](super::Flags::AUTHENTICATED) is 0: use [`Self::finish_authenticated`]
    /// instead.
    #[inline]
    pub fn finish(self, flow: &UdpFlow, check: PacketCheck) -> usize {
        let end = self.header_len + self.payload_len;
        let (covered, place) = self.datagram.split_at_mut(end);
        match place.len() {
            CHECK_LEN => place.copy_from_slice(&check.compute(flow, covered)),
            _ => place.fill(0),
        }
        self.datagram.len()
    }

    /// Adds the authentication of a packet whose flags have it; returns the datagram's length in bytes. `tag`
    /// hashes the addresses and the datagram up to the tag.
    #[inline]
    pub fn finish_authenticated(self, flow: &UdpFlow, tag: impl FnOnce(&[u8], &[u8]) -> u64) -> usize {
        let end = self.header_len + self.payload_len;
        if let Some(tag) = Authentication::covered(flow, self.datagram, tag)
            && let Some(place) = self.datagram[end..].first_chunk_mut::<AUTHENTICATION_LEN>()
        {
            *place = tag.to_be_bytes();
        }
        self.datagram.len()
    }
}
