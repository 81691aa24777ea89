//! Linux cooked headers, which captures of the interface `any` have instead of a link-layer header.

use nichrome_wire::EthernetHeader;

/// Packet type of sent packets.
const OUTGOING: u8 = 4;

/// A Linux cooked header, v1 (16 bytes) or v2 (20 bytes), without the VLAN tags behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CookedHeader {
    len: usize,
    /// Interface index; 0 in v1, which has none.
    index: u32,
    packet_type: u8,
    hardware_type: [u8; 2],
    address_len: u8,
    /// The link address of the sender, and padding of any value.
    address: [u8; 8],
    ethertype: [u8; 2],
}

impl CookedHeader {
    /// Reads a header v1. `None` if it is cut.
    pub(super) fn v1(bytes: &[u8]) -> Option<Self> {
        let [_, packet_type, h0, h1, _, address_len, address @ .., p0, p1] = *bytes.first_chunk::<16>()?;
        let (hardware_type, ethertype) = ([h0, h1], [p0, p1]);
        Some(Self { len: 16, index: 0, packet_type, hardware_type, address_len, address, ethertype })
    }

    /// Reads a header v2. `None` if it is cut.
    pub(super) fn v2(bytes: &[u8]) -> Option<Self> {
        let [p0, p1, _, _, i0, i1, i2, i3, h0, h1, packet_type, address_len, address @ ..] =
            *bytes.first_chunk::<20>()?;
        let (hardware_type, ethertype) = ([h0, h1], [p0, p1]);
        let index = u32::from_be_bytes([i0, i1, i2, i3]);
        Some(Self { len: 20, index, packet_type, hardware_type, address_len, address, ethertype })
    }

    /// Returns the length of the header, in bytes.
    pub const fn header_len(&self) -> usize {
        self.len
    }

    /// Returns the EtherType of the payload: an IP packet, or VLAN tags as in Ethernet.
    pub(super) const fn ethertype(&self) -> [u8; 2] {
        self.ethertype
    }

    /// Returns a number that distinguishes the capturing interface and the direction.
    pub(super) fn channel(&self) -> u64 {
        u64::from(self.index) << 1 | u64::from(self.packet_type == OUTGOING)
    }

    /// Returns an Ethernet header for the payload, with the EtherType of this header. Its addresses encode
    /// packet type, hardware type and link address: two results have equal addresses if and only if these are
    /// equal.
    pub fn to_ethernet(&self) -> [u8; EthernetHeader::LEN] {
        let Self {
            packet_type, hardware_type: [h0, h1], address_len, ethertype: [p0, p1], mut address, ..
        } = *self;
        if let Some(padding) = address.get_mut(usize::from(address_len)..) {
            padding.fill(0);
        }
        let [a0, a1, a2, a3, a4, a5, a6, a7] = address;
        [packet_type, h0, h1, address_len, a0, a1, a2, a3, a4, a5, a6, a7, p0, p1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: [u8; 16] = [0, 4, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 77, 78, 8, 0];
    const V2: [u8; 20] = [8, 0, 0, 0, 0, 0, 1, 3, 0, 1, 4, 6, 1, 2, 3, 4, 5, 6, 87, 88];

    #[test]
    fn both_versions_have_the_same_ethernet_header() {
        let [v1, v2] = [CookedHeader::v1(&V1), CookedHeader::v2(&V2)].map(Option::unwrap);
        assert_eq!(v1.to_ethernet(), [4, 0, 1, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 0]);
        assert_eq!(v2.to_ethernet(), v1.to_ethernet());
        assert_eq!((v1.header_len(), v2.header_len()), (16, 20));
        assert_eq!((v1.channel(), v2.channel()), (1, 0x103 << 1 | 1));
    }

    #[test]
    fn every_field_but_the_padding_is_in_the_ethernet_header() {
        let whole = CookedHeader::v1(&V1).unwrap().to_ethernet();
        for at in 0..V1.len() {
            let mut other = V1;
            other[at] ^= 0x10;
            let is_equal = CookedHeader::v1(&other).unwrap().to_ethernet() == whole;
            // The high bytes of the packet type and of the address length are 0 in all captures.
            assert_eq!(is_equal, [0, 4, 12, 13].contains(&at), "{at}");
        }
    }

    #[test]
    fn an_address_longer_than_its_field_is_whole_there() {
        let mut long = V2;
        long[11] = 20;
        let ethernet = CookedHeader::v2(&long).unwrap().to_ethernet();
        assert_eq!(ethernet, [4, 0, 1, 20, 1, 2, 3, 4, 5, 6, 87, 88, 8, 0]);
    }

    #[test]
    fn a_cut_header_is_none() {
        assert!(CookedHeader::v1(&V1[..15]).is_none());
        assert!(CookedHeader::v2(&V2[..19]).is_none());
    }
}
