//! TCP segmentation.

use nichrome_wire::checksum::Sum;
use nichrome_wire::{ChecksumState, IpProtocol, SeqNumber, TcpError, TcpFlags, TcpHeader, TcpHeaderMut};

use crate::ip::{IpFields, IpPacket};
use crate::place::Place;

/// Offset of the checksum in a TCP header, in bytes.
pub(crate) const CHECKSUM_AT: u16 = 16;

/// The per-segment fields, and the constant part of the checksum.
#[derive(Clone, Debug)]
pub(crate) struct TcpFields {
    network: usize,
    transport: usize,
    ip: IpFields,
    /// Sequence number of the next segment.
    seq: SeqNumber,
    /// Flags of the original segment.
    flags: TcpFlags,
    /// Checksum sum of the common fields: pseudo-header without length, TCP header without sequence number,
    /// flags and checksum.
    shared: Sum,
    /// Checksum sum of the pseudo-header without length.
    pseudo_header: Sum,
    /// Flags that only the first segment has.
    first_only: TcpFlags,
    /// True if the checksum field gets the pseudo-header's sum only.
    leaves_checksum: bool,
}

impl TcpFields {
    /// Makes all packets have the first one's IPv4 identification.
    pub(crate) fn fix_identification(&mut self) {
        self.ip.fix_identification();
    }

    /// Makes all packets have the original's CWR.
    pub(crate) fn repeat_cwr(&mut self) {
        self.first_only = TcpFlags::NONE;
    }

    /// Leaves the checksums of all packets partial; returns their state.
    pub(crate) fn leave_checksum(&mut self) -> ChecksumState {
        self.leaves_checksum = true;
        ChecksumState::Partial { start: self.transport as u16, offset: CHECKSUM_AT }
    }

    /// Returns true if the checksum needs the sum of the payload.
    #[inline]
    pub(crate) fn needs_sum(&self) -> bool {
        !self.leaves_checksum
    }

    /// Reads the fields of the segment in `packet`. Also returns its header length.
    pub(crate) fn read(frame: &[u8], packet: &IpPacket<'_>) -> Result<(Self, usize), TcpError> {
        let segment = packet.payload;
        let truncated = |expected| TcpError::Truncated { len: segment.len(), expected };
        let header = TcpHeader::new(segment).ok_or(truncated(TcpHeader::LEN))?;
        let header_len = header.header_len();
        if header_len < TcpHeader::LEN {
            return Err(TcpError::HeaderLength(header_len));
        }
        let options = header.options().ok_or(truncated(header_len))?;
        let data_offset = (header_len as u32) << 10 | u32::from(header.reserved()) << 9;
        let pseudo_header = packet.addresses.pseudo_header(IpProtocol::TCP, 0);
        let shared = pseudo_header
            .add_u32(u32::from(header.src_port()))
            .add_u32(u32::from(header.dst_port()))
            .add_u32(header.ack().0)
            .add_u32(data_offset)
            .add_u32(u32::from(header.window()))
            .add_u32(u32::from(header.urgent()))
            .add_bytes(options);
        let fields = Self {
            network: packet.network,
            transport: packet.transport,
            ip: IpFields::read(frame, packet),
            seq: header.seq(),
            flags: header.flags(),
            shared,
            pseudo_header,
            // Each further CWR would stop the receiver's ECN echo again (RFC 3168 section 6.1.2).
            first_only: TcpFlags::CWR,
            leaves_checksum: false,
        };
        Ok((fields, header_len))
    }

    /// Writes the fields of the segment `packet`, which begins with the original headers of `header_len`
    /// bytes. `payload` is the checksum sum of its payload.
    #[inline]
    pub(crate) fn write(&mut self, packet: &mut [u8], header_len: usize, payload: Sum, place: Place) {
        let payload_len = (packet.len() - header_len) as u32;
        let segment_len = (packet.len() - self.transport) as u32;
        self.ip.write(&mut packet[self.network..]);
        let Some(mut header) = TcpHeaderMut::new(&mut packet[self.transport..]) else { return };
        let flags = flags_at(self.flags, self.first_only, place);
        let checksum = if self.leaves_checksum {
            self.pseudo_header.add_u32(segment_len).fold()
        } else {
            let sum = self.shared.add_u32(u32::from(payload.fold()));
            sum.add_u32(segment_len).add_u32(self.seq.0).add_u32(u32::from(flags.bits())).finish()
        };
        header.set_seq(self.seq);
        header.set_flags(flags);
        header.set_checksum(checksum);
        self.seq += payload_len;
    }
}

/// Returns the flags of the segment at `place`: FIN and PSH on the last only, `first_only` on the first only.
#[inline]
fn flags_at(all: TcpFlags, first_only: TcpFlags, place: Place) -> TcpFlags {
    let mut left_out = TcpFlags::NONE;
    if !place.is_first {
        left_out = left_out | first_only;
    }
    if !place.is_last {
        left_out = left_out | TcpFlags::FIN | TcpFlags::PSH;
    }
    all.difference(left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fin_psh_and_mostly_cwr_are_on_one_segment_only() {
        let [fin, psh, cwr, ack] = [TcpFlags::FIN, TcpFlags::PSH, TcpFlags::CWR, TcpFlags::ACK];
        let all = fin | psh | cwr | ack;
        for (is_first, is_last, want) in
            [(true, true, all), (true, false, cwr | ack), (false, false, ack), (false, true, fin | psh | ack)]
        {
            let place = Place { is_first, is_last };
            assert_eq!(flags_at(all, cwr, place), want);
            assert_eq!(flags_at(all, TcpFlags::NONE, place), want | cwr);
        }
    }
}
