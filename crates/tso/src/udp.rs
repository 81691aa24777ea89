//! UDP segmentation.

use nichrome_wire::checksum::Sum;
use nichrome_wire::{IpProtocol, UdpError, UdpHeader, UdpHeaderMut, transmitted_checksum};

use crate::error::SegmentError;
use crate::ip::{IpFields, IpPacket};

/// Offset of the checksum in a UDP header, in bytes.
pub(crate) const CHECKSUM_AT: u16 = 6;

/// The per-datagram fields, and the constant part of the checksum.
#[derive(Clone, Debug)]
pub(crate) struct UdpFields {
    network: usize,
    transport: usize,
    ip: IpFields,
    /// Checksum sum of the common fields: pseudo-header and UDP header, both without length.
    shared: Sum,
}

impl UdpFields {
    /// Makes all packets have the first one's IPv4 identification.
    pub(crate) fn fix_identification(&mut self) {
        self.ip.fix_identification();
    }

    /// Reads the fields of the datagram in `packet`.
    pub(crate) fn read(frame: &[u8], packet: &IpPacket<'_>) -> Result<Self, SegmentError> {
        let header = check_header(packet)?;
        Ok(Self {
            network: packet.network,
            transport: packet.transport,
            ip: IpFields::read(frame, packet),
            shared: packet
                .addresses
                .pseudo_header(IpProtocol::UDP, 0)
                .add_u32(u32::from(header.src_port()))
                .add_u32(u32::from(header.dst_port())),
        })
    }

    /// Writes the fields of the datagram `packet`, which begins with the original headers. `payload` is the
    /// checksum sum of its payload.
    #[inline]
    pub(crate) fn write(&mut self, packet: &mut [u8], payload: Sum) {
        let length = packet.len() - self.transport;
        self.ip.write(&mut packet[self.network..]);
        let Some(mut header) = UdpHeaderMut::new(&mut packet[self.transport..]) else { return };
        // The length counts twice: in the header and in the pseudo-header.
        let sum = self.shared.add_u32(u32::from(payload.fold())).add_u32(2 * length as u32);
        header.set_length(length as u16);
        header.set_checksum(transmitted_checksum(sum.finish()));
    }
}

/// Returns the UDP header of `packet`; its length must equal the IP payload length.
pub(crate) fn check_header<'a>(packet: &IpPacket<'a>) -> Result<UdpHeader<'a>, SegmentError> {
    let carried = packet.payload.len();
    let truncated = UdpError::Truncated { len: carried, expected: UdpHeader::LEN };
    let header = UdpHeader::new(packet.payload).ok_or(truncated)?;
    let length = header.length();
    if usize::from(length) != carried {
        return Err(SegmentError::UdpLength { length, carried });
    }
    Ok(header)
}
