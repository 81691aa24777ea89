//! The operations of [`crate::Packet`] on an Ethernet frame, for implementations with their own buffers.

use nichrome_wire::checksum;
use nichrome_wire::{Ecn, EtherType, Ipv4Header, Ipv6Header, LinkHeader};

/// Returns the bytes behind the Ethernet header and its VLAN tags.
pub fn network_len(frame: &[u8]) -> usize {
    LinkHeader::new(frame).map_or(0, |link| link.payload().len())
}

/// Returns the minimum link MTU of the frame's protocol: 1,280 for IPv6 (RFC 8200 section 5), else 0. Packets
/// of up to this length pass with any MTU.
pub fn least_mtu(frame: &[u8]) -> usize {
    match LinkHeader::new(frame) {
        Some(link) if link.ethertype() == EtherType::IPV6 => usize::from(Ipv6Header::LEAST_MTU),
        _ => 0,
    }
}

/// Flips a bit, counted from the start of the frame. Does nothing beyond the end.
pub fn flip_bit(frame: &mut [u8], bit: usize) {
    if let Some(byte) = frame.get_mut(bit / 8) {
        *byte ^= 0x80 >> (bit % 8);
    }
}

/// Returns the ECN bits of the IP header; [`Ecn::NotEct`] for other protocols.
pub fn ecn(frame: &[u8]) -> Ecn {
    match ip_header(frame) {
        Some(IpHeader::V4 { at }) => Ipv4Header::new(&frame[at..]).map_or(Ecn::NotEct, |ip| ip.ecn()),
        Some(IpHeader::V6 { at }) => Ipv6Header::new(&frame[at..]).map_or(Ecn::NotEct, |ip| ip.ecn()),
        None => Ecn::NotEct,
    }
}

/// Sets CE in the IP header and updates the IPv4 header checksum (RFC 1624).
pub fn mark_ce(frame: &mut [u8]) {
    match ip_header(frame) {
        Some(IpHeader::V4 { at }) => mark_ipv4(&mut frame[at..]),
        // The traffic class spans the first two bytes; the ECN bits are in the second (RFC 8200 section 3).
        Some(IpHeader::V6 { at }) => frame[at + 1] |= (Ecn::Ce as u8) << 4,
        None => {}
    }
}

fn mark_ipv4(packet: &mut [u8]) {
    if let Some([version, tos, _, _, _, _, _, _, _, _, high, low, ..]) = packet.first_chunk_mut::<20>() {
        let before = u16::from_be_bytes([*version, *tos]);
        *tos |= Ecn::Ce as u8;
        let after = u16::from_be_bytes([*version, *tos]);
        let updated = checksum::update(u16::from_be_bytes([*high, *low]), before, after);
        [*high, *low] = updated.to_be_bytes();
    }
}

/// Offset of a complete IP header.
enum IpHeader {
    V4 { at: usize },
    V6 { at: usize },
}

fn ip_header(frame: &[u8]) -> Option<IpHeader> {
    let link = LinkHeader::new(frame)?;
    let (at, packet) = (link.header_len(), link.payload());
    match link.ethertype() {
        EtherType::IPV4 => {
            let ip = Ipv4Header::new(packet).filter(|ip| ip.version() == 4)?;
            ip.options().map(|_| IpHeader::V4 { at })
        }
        EtherType::IPV6 => {
            Ipv6Header::new(packet).filter(|ip| ip.version() == 6).map(|_| IpHeader::V6 { at })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use etherparse::{NetSlice, SlicedPacket};
    use nichrome_wire::{IpProtocol, Network, TcpFrame, TrafficClass, VlanTag};
    use proptest::prelude::*;

    use super::*;

    fn tags(count: usize) -> Vec<VlanTag> {
        vec![VlanTag { tpid: EtherType::VLAN, tci: 7 }; count]
    }

    fn over_ipv6(class: TrafficClass) -> Network {
        let mut network = Network::ipv6([1; 16].into(), [2; 16].into());
        if let Network::Ipv6 { class: field, .. } = &mut network {
            *field = class;
        }
        network
    }

    #[test]
    fn flipping_a_bit_twice_changes_nothing() {
        let mut frame = vec![0; 4];
        flip_bit(&mut frame, 9);
        assert_eq!(frame, [0, 0x40, 0, 0]);
        flip_bit(&mut frame, 9);
        flip_bit(&mut frame, 32);
        assert_eq!(frame, [0; 4]);
    }

    #[test]
    fn frames_other_than_ip_are_unchanged() {
        let mut arp = TcpFrame::default().build();
        arp[12..14].copy_from_slice(&EtherType::ARP.0.to_be_bytes());
        let mut wrong_version = TcpFrame::default().build();
        wrong_version[14] = 0x65;
        let short = TcpFrame::default().build()[..33].to_vec();
        for frame in [arp, wrong_version, short, vec![], vec![0xFF; 13]] {
            let mut marked = frame.clone();
            mark_ce(&mut marked);
            assert_eq!((ecn(&frame), marked), (Ecn::NotEct, frame));
        }
    }

    proptest! {
        /// etherparse reads the marked packet: a valid header, equal in all fields but the ECN bits.
        #[test]
        fn a_mark_sets_ce_and_keeps_the_ipv4_checksum_right(
            tos: u8,
            ident: u16,
            ttl: u8,
            options in 0..=10usize,
            tagged in 0..=2usize,
        ) {
            let network = Network::Ipv4 {
                src: [10, 0, 0, 1].into(),
                dst: [10, 0, 0, 2].into(),
                ident,
                dont_fragment: true,
                ttl,
                tos: TrafficClass(tos),
                options: vec![1; options * 4],
            };
            let mut frame = TcpFrame { network, tags: tags(tagged), ..TcpFrame::default() }.build();
            prop_assert_eq!(ecn(&frame), TrafficClass(tos).ecn());
            mark_ce(&mut frame);
            prop_assert_eq!(ecn(&frame), Ecn::Ce);
            prop_assert_eq!(network_len(&frame), frame.len() - 14 - 4 * tagged);
            let sliced = SlicedPacket::from_ethernet(&frame).unwrap();
            let Some(NetSlice::Ipv4(ip)) = sliced.net else { panic!("not IPv4") };
            let header = ip.header().to_header();
            prop_assert_eq!(header.header_checksum, header.calc_header_checksum());
            prop_assert_eq!((header.dscp.value(), header.ecn.value()), (tos >> 2, 3));
            prop_assert_eq!((header.identification, header.time_to_live), (ident, ttl));
        }

        #[test]
        fn a_mark_sets_ce_in_ipv6_and_nothing_else(class: u8, tagged in 0..=2usize) {
            let build = |class| {
                let network = over_ipv6(TrafficClass(class));
                TcpFrame { network, tags: tags(tagged), ..TcpFrame::default() }.build()
            };
            let mut frame = build(class);
            prop_assert_eq!(ecn(&frame), TrafficClass(class).ecn());
            mark_ce(&mut frame);
            prop_assert_eq!(&frame, &build(class | 3));
            let sliced = SlicedPacket::from_ethernet(&frame).unwrap();
            let Some(NetSlice::Ipv6(ip)) = sliced.net else { panic!("not IPv6") };
            prop_assert_eq!(ip.header().traffic_class(), class | 3);
            prop_assert_eq!(ip.header().next_header().0, IpProtocol::TCP.0);
        }

        #[test]
        fn any_bytes_are_taken(mut frame in proptest::collection::vec(any::<u8>(), 0..80), bit: usize) {
            let _ = (ecn(&frame), network_len(&frame), least_mtu(&frame));
            mark_ce(&mut frame);
            flip_bit(&mut frame, bit);
        }
    }

    #[test]
    fn bits_are_counted_from_the_most_significant_of_each_byte() {
        for bit in 0..24 {
            let mut frame = [0; 3];
            flip_bit(&mut frame, bit);
            assert_eq!(u32::from_be_bytes([frame[0], frame[1], frame[2], 0]), 0x8000_0000 >> bit, "{bit}");
        }
        let mut frame = [0; 3];
        flip_bit(&mut frame, 24);
        assert_eq!(frame, [0; 3]);
    }
}
