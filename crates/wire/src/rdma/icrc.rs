//! The invariant CRC (annex A17.3.3): CRC-32 over the fields that routers do not change.
//!
//! It covers eight bytes of ones where InfiniBand has its local route header, the IP and UDP headers, and the
//! packet up to the CRC itself. Fields that routers change count as ones: type of service, time to live and
//! checksum of IPv4; traffic class, flow label and hop limit of IPv6; the UDP checksum; the byte of BTH with
//! the congestion bits.
//!
//! IPv4's identification is covered, but neither side sees it on a UDP socket. A sender knows Linux's choice:
//! 0 with DF, and 0, 1, 2, … under UDP segmentation. A receiver solves for it: the CRC is linear, so a packet
//! is correct if some identification explains the difference between its CRC and the one computed for 0.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::bytes::put;
use crate::ip::{AddressPair, IpProtocol};
use crate::ipv4::Ipv4Header;
use crate::ipv6::Ipv6Header;
use crate::udp::UdpHeader;

use super::bth::BthHeader;
use super::crc_algebra::{multiply, x_to_the, x_to_the_minus};
use super::opcode::Opcode;
use super::{ICRC_LEN, ROCE_PORT};

/// The covered fields of the IP and UDP headers, without lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UdpFlow {
    /// The addresses.
    pub addresses: AddressPair,
    /// The source port.
    pub src_port: u16,
    /// The destination port.
    pub dst_port: u16,
}

impl UdpFlow {
    /// Creates a flow from `src_port` to RoCEv2's port.
    pub const fn to_roce(addresses: AddressPair, src_port: u16) -> Self {
        Self { addresses, src_port, dst_port: ROCE_PORT }
    }
}

/// The CRC-32 of eight bytes of ones.
const ONES_BEFORE: u32 = 0x2144_DF1C;

/// Maximum UDP payload over IPv4, in bytes.
pub(super) const MAX_DATAGRAM_LEN: usize = 0xFFFF - Ipv4Header::LEN - UdpHeader::LEN;

/// Maximum length of the headers before BTH, in bytes.
const MAX_PSEUDO_LEN: usize = Ipv6Header::LEN + UdpHeader::LEN;

/// The masked IP and UDP headers of a datagram.
struct PseudoHeader {
    bytes: [u8; MAX_PSEUDO_LEN + Opcode::MAX_HEADER_LEN],
    len: usize,
}

impl PseudoHeader {
    /// Builds the masked headers of a datagram of `datagram_len` bytes.
    #[inline]
    fn new(flow: &UdpFlow, ident: u16, datagram_len: usize) -> Self {
        let mut header = Self { bytes: [0xFF; _], len: 0 };
        let udp_len = (UdpHeader::LEN + datagram_len) as u16;
        match flow.addresses {
            AddressPair::V4 { src, dst } => header.push(ipv4(src, dst, ident, udp_len)),
            AddressPair::V6 { src, dst } => header.push(ipv6(src, dst, udp_len)),
        }
        header.push(flow.src_port.to_be_bytes());
        header.push(flow.dst_port.to_be_bytes());
        header.push(udp_len.to_be_bytes());
        header.push([0xFF; 2]);
        header
    }

    #[inline]
    fn push<const LEN: usize>(&mut self, field: [u8; LEN]) {
        self.bytes[self.len..self.len + LEN].copy_from_slice(&field);
        self.len += LEN;
    }

    /// Appends the packet's headers with the congestion bits masked.
    #[inline]
    fn push_headers(&mut self, headers: &[u8]) {
        let area = &mut self.bytes[self.len..self.len + headers.len()];
        area.copy_from_slice(headers);
        area[4] = 0xFF;
        self.len += headers.len();
    }
}

/// Builds a masked IPv4 header with DF.
#[inline]
fn ipv4(src: Ipv4Addr, dst: Ipv4Addr, ident: u16, udp_len: u16) -> [u8; Ipv4Header::LEN] {
    let mut header = [0xFF; Ipv4Header::LEN];
    header[0] = 0x45;
    put(&mut header, 2, (udp_len + Ipv4Header::LEN as u16).to_be_bytes());
    put(&mut header, 4, ident.to_be_bytes());
    put(&mut header, 6, [0x40, 0]);
    header[9] = IpProtocol::UDP.0;
    put(&mut header, 12, src.octets());
    put(&mut header, 16, dst.octets());
    header
}

/// Builds a masked IPv6 header.
#[inline]
fn ipv6(src: Ipv6Addr, dst: Ipv6Addr, udp_len: u16) -> [u8; Ipv6Header::LEN] {
    let mut header = [0xFF; Ipv6Header::LEN];
    header[0] = 0x6F;
    put(&mut header, 4, udp_len.to_be_bytes());
    header[6] = IpProtocol::UDP.0;
    put(&mut header, 8, src.octets());
    put(&mut header, 24, dst.octets());
    header
}

/// An incremental ICRC: headers first, then payload and padding in parts of any length.
#[derive(Clone, Debug)]
pub(super) struct Icrc(crc32fast::Hasher);

impl Icrc {
    /// Starts the CRC with the packet's `headers` (BTH and extensions, 12 to 40 bytes). The datagram has
    /// `datagram_len` bytes including its ICRC, at most [`MAX_DATAGRAM_LEN`]. Over IPv4, the identification
    /// is `ident` and DF is set.
    #[inline]
    pub(super) fn of_headers(flow: &UdpFlow, ident: u16, datagram_len: usize, headers: &[u8]) -> Self {
        let mut pseudo = PseudoHeader::new(flow, ident, datagram_len);
        pseudo.push_headers(headers);
        let mut hasher = crc32fast::Hasher::new_with_initial(ONES_BEFORE);
        hasher.update(&pseudo.bytes[..pseudo.len]);
        Self(hasher)
    }

    /// Adds `part`.
    #[inline]
    pub(super) fn update(&mut self, part: &[u8]) {
        self.0.update(part);
    }

    /// Returns the CRC in wire format.
    #[inline]
    pub(super) fn finish(self) -> [u8; ICRC_LEN] {
        self.0.finalize().to_le_bytes()
    }
}

/// The result of verifying an ICRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IcrcCheck {
    /// Correct; over IPv4, for identification 0.
    Valid,
    /// Correct for this identification.
    ValidForIdent(u16),
    /// Wrong, or the datagram is too short to have one.
    Wrong,
}

/// Verifies the ICRC of received datagrams, and converts it for other identifications than 0.
///
/// Caches the factors for the last length, since bulk transfers have equal lengths.
#[derive(Clone, Debug)]
pub struct IcrcChecker {
    datagram_len: usize,
    shift: u32,
    unshift: u32,
}

impl Default for IcrcChecker {
    fn default() -> Self {
        Self::for_len(0)
    }
}

impl IcrcChecker {
    /// Computes the factors for datagrams of `datagram_len` bytes.
    fn for_len(datagram_len: usize) -> Self {
        // Distance from the identification to the ICRC: the rest of the IP header with the identification,
        // the UDP header, and the datagram without ICRC. Unused if there is no ICRC.
        let after = Ipv4Header::LEN - 4 + UdpHeader::LEN + datagram_len.saturating_sub(ICRC_LEN);
        let bits = 8 * after as u32;
        Self { datagram_len, shift: x_to_the(bits), unshift: x_to_the_minus(bits) }
    }

    #[inline]
    fn prepare(&mut self, datagram_len: usize) {
        if self.datagram_len != datagram_len {
            *self = Self::for_len(datagram_len);
        }
    }

    /// Verifies the ICRC of `datagram`, a UDP payload of `flow`.
    #[inline]
    pub fn check(&mut self, flow: &UdpFlow, datagram: &[u8]) -> IcrcCheck {
        match (difference(flow, datagram), flow.addresses) {
            (Some(0), _) => IcrcCheck::Valid,
            (Some(difference), AddressPair::V4 { .. }) => self.explain(datagram.len(), difference),
            (Some(_), AddressPair::V6 { .. }) | (None, _) => IcrcCheck::Wrong,
        }
    }

    /// Returns whether some identification explains `difference`: multiplied back to the identification's
    /// position, it must fit two bytes, the first on the wire in the low bits.
    fn explain(&mut self, datagram_len: usize, difference: u32) -> IcrcCheck {
        self.prepare(datagram_len);
        match u16::try_from(multiply(difference, self.unshift)) {
            Ok(ident) => IcrcCheck::ValidForIdent(ident.swap_bytes()),
            Err(_) => IcrcCheck::Wrong,
        }
    }

    /// Converts the ICRC at the end of an IPv4 `datagram` from identification 0 to `ident`, or back.
    pub fn change_ident(&mut self, datagram: &mut [u8], ident: u16) {
        self.prepare(datagram.len());
        if let Some(icrc) = datagram.last_chunk_mut::<ICRC_LEN>() {
            let difference = multiply(u32::from(ident.swap_bytes()), self.shift);
            *icrc = (u32::from_le_bytes(*icrc) ^ difference).to_le_bytes();
        }
    }
}

/// Returns the difference between a datagram's ICRC and the computed one; `None` if it is too short.
#[inline]
fn difference(flow: &UdpFlow, datagram: &[u8]) -> Option<u32> {
    if datagram.len() > MAX_DATAGRAM_LEN {
        return None;
    }
    let (covered, icrc) = datagram.split_last_chunk::<ICRC_LEN>()?;
    let (headers, rest) = covered.split_at_checked(BthHeader::LEN)?;
    let mut computed = Icrc::of_headers(flow, 0, datagram.len(), headers);
    computed.update(rest);
    Some(u32::from_le_bytes(computed.finish()) ^ u32::from_le_bytes(*icrc))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The CRC of Ethernet, bit by bit.
    fn crc32(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(u32::MAX, |crc, byte| {
            (0..8)
                .fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0xEDB8_8320 } else { 0 })
        })
    }

    fn flow_v6() -> UdpFlow {
        let [src, dst] = [1, 2].map(|host| Ipv6Addr::new(0xFD00, 1, 2, 3, 4, 5, 6, host));
        UdpFlow::to_roce(AddressPair::V6 { src, dst }, 0xC123)
    }

    /// Annex A17.3.3: over the packet with ones in place of traffic class, flow label, hop limit, UDP
    /// checksum and the byte of BTH with the congestion bits.
    #[test]
    fn over_ipv6_the_crc_is_that_of_the_packet_with_its_changing_fields_masked() {
        let flow = flow_v6();
        let AddressPair::V6 { src, dst } = flow.addresses else { panic!() };
        let bth = [0x04, 0x40, 0xFF, 0xFF, 0x40, 0, 0, 0x11, 0x80, 0xAB, 0xCD, 0xEF];
        let payload = b"sixteen bytes...";
        let datagram_len = bth.len() + payload.len() + ICRC_LEN;
        let udp_len = (8 + datagram_len) as u16;
        let mut packet = vec![0xFF; 8];
        packet.extend([0x6F, 0xFF, 0xFF, 0xFF]);
        packet.extend(udp_len.to_be_bytes());
        packet.extend([17, 0xFF]);
        packet.extend(src.octets());
        packet.extend(dst.octets());
        packet.extend([0xC1, 0x23, 0x12, 0xB7]);
        packet.extend(udp_len.to_be_bytes());
        packet.extend([0xFF; 2]);
        packet.extend(bth);
        packet[8 + 40 + 8 + 4] = 0xFF;
        packet.extend(payload);
        let expected = crc32(&packet).to_le_bytes();
        let datagram = [&bth[..], payload, &expected].concat();
        assert_eq!(IcrcChecker::default().check(&flow, &datagram), IcrcCheck::Valid);
    }

    #[test]
    fn a_datagram_that_no_ipv4_packet_holds_is_wrong() {
        for (len, is_checked) in [(65_507, true), (65_508, false), (65_509, false)] {
            let mut icrc = Icrc::of_headers(&flow_v6(), 0, len, &[0; BthHeader::LEN]);
            let mut datagram = vec![0; len - ICRC_LEN];
            icrc.update(&datagram[BthHeader::LEN..]);
            datagram.extend(icrc.finish());
            let check = IcrcChecker::default().check(&flow_v6(), &datagram);
            assert_eq!(check == IcrcCheck::Valid, is_checked, "{len}");
        }
    }
}
