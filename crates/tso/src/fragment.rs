//! IPv4 fragmentation of a UDP datagram.

use std::num::NonZeroU16;

use nichrome_wire::checksum::Sum;
use nichrome_wire::{AddressPair, IpProtocol, Ipv4HeaderMut, UdpHeader, UdpHeaderMut, transmitted_checksum};

use crate::error::SegmentError;
use crate::ip::{IpPacket, sum_without};
use crate::place::Place;
use crate::udp;

/// Offset of flags and fragment offset in an IPv4 header, in bytes.
const FRAGMENT_AT: usize = 6;

/// The MF flag in the word at [`FRAGMENT_AT`].
const MORE_FRAGMENTS: u16 = 0x2000;

/// The per-fragment fields, and the constant part of the header checksum.
#[derive(Clone, Debug)]
pub(crate) struct FragmentFields {
    network: usize,
    /// Checksum sum of the IPv4 header without total length, flags, fragment offset and checksum.
    shared: Sum,
    /// Offset of the next fragment, in units of 8 bytes.
    units: u16,
    /// UDP checksum of the whole datagram, in the first fragment.
    checksum: u16,
}

impl FragmentFields {
    /// Reads the fields of `packet` and sums the datagram. Also returns the payload length of all fragments
    /// but the last: `size` rounded down to a multiple of 8.
    pub(crate) fn read(
        frame: &[u8],
        packet: &IpPacket<'_>,
        size: NonZeroU16,
    ) -> Result<(Self, usize), SegmentError> {
        if let AddressPair::V6 { .. } = packet.addresses {
            return Err(SegmentError::Ipv6Fragmentation);
        }
        udp::check_header(packet)?;
        let payload_size = usize::from(size.get()) & !7;
        if payload_size == 0 {
            return Err(SegmentError::FragmentSize(size));
        }
        let datagram = packet.payload;
        let (before, after) = (usize::from(udp::CHECKSUM_AT), UdpHeader::LEN);
        let sum = packet
            .addresses
            .pseudo_header(IpProtocol::UDP, datagram.len() as u32)
            .add_bytes(&datagram[..before])
            .add_bytes(&datagram[after..]);
        let fields = Self {
            network: packet.network,
            shared: sum_without(&frame[packet.network..packet.transport], &[2, FRAGMENT_AT, 10]),
            units: 0,
            checksum: transmitted_checksum(sum.finish()),
        };
        Ok((fields, payload_size))
    }

    /// Writes the fields of the fragment `packet`, which begins with the original headers of `header_len`
    /// bytes.
    pub(crate) fn write(&mut self, packet: &mut [u8], header_len: usize, place: Place) {
        let total_len = packet.len() - self.network;
        let field = if place.is_last { self.units } else { self.units | MORE_FRAGMENTS };
        let sum = self.shared.add_u32(total_len as u32).add_u32(u32::from(field));
        self.units += ((packet.len() - header_len) / 8) as u16;
        if place.is_first
            && let Some(mut header) = UdpHeaderMut::new(&mut packet[header_len..])
        {
            header.set_checksum(self.checksum);
        }
        let ip = &mut packet[self.network..];
        ip[FRAGMENT_AT..][..2].copy_from_slice(&field.to_be_bytes());
        let Some(mut header) = Ipv4HeaderMut::new(ip) else { return };
        header.set_total_len(total_len as u16);
        header.set_checksum(sum.finish());
    }
}
