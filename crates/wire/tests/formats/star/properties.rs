//! Invariants for any packet, and for any bytes.

use nichrome_wire::star::{
    AUTHENTICATION_LEN, Authentication, Epoch, Flags, PacketCheck, PacketWriter, Repr, StarError, segments,
};
use proptest::collection::vec;
use proptest::prelude::*;

use super::generated::{Generated, flow, packet, sum};

proptest! {
    #[test]
    fn what_is_built_parses_to_the_same_and_its_check_is_right(packet in packet()) {
        let datagram = packet.built();
        let is_tagged = packet.repr.flags.contains(Flags::AUTHENTICATED);
        prop_assert!(is_tagged || PacketCheck::new(packet.epoch).is_valid(&packet.flow, &datagram));
        let (repr, payload, authentication) = Repr::parse(&datagram).unwrap();
        prop_assert_eq!(repr, packet.repr);
        prop_assert_eq!(payload, packet.payload);
        let expected = repr.flags.contains(Flags::AUTHENTICATED).then(|| Authentication {
            tag: Authentication::covered(&packet.flow, &datagram, sum).unwrap(),
        });
        prop_assert_eq!(authentication, expected);
    }

    #[test]
    fn packets_for_a_card_name_a_range_and_others_none(packet in packet()) {
        let mut message = packet.repr.message;
        let is_for_card = message.packet_type().is_for_card();
        prop_assert_eq!(message.span().is_some(), is_for_card);
        let mut span = message.span().copied();
        prop_assert_eq!(message.span_mut(), span.as_mut());
    }

    #[test]
    fn the_length_of_a_packet_for_a_card_is_that_of_its_type(packet in packet()) {
        let (kind, payload) = (packet.repr.message.packet_type(), packet.payload.len());
        // Other types have elements of several lengths.
        prop_assume!(kind.is_for_card());
        let is_tagged = packet.repr.flags.contains(Flags::AUTHENTICATED);
        let expected = if is_tagged { kind.authenticated_len(payload) } else { kind.datagram_len(payload) };
        prop_assert_eq!(packet.built().len(), expected);
    }

    #[test]
    fn a_flipped_bit_is_seen(packet in packet(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        prop_assume!(!packet.repr.flags.contains(Flags::AUTHENTICATED));
        let mut datagram = packet.built();
        let at = at.index(datagram.len());
        datagram[at] ^= 1 << bit;
        prop_assert!(!PacketCheck::new(packet.epoch).is_valid(&packet.flow, &datagram));
    }

    #[test]
    fn a_packet_of_another_start_or_between_others_is_seen(
        packet in packet(),
        bit in 0u32..32,
        other in flow(),
    ) {
        prop_assume!(!packet.repr.flags.contains(Flags::AUTHENTICATED));
        let datagram = packet.built();
        let restarted = PacketCheck::new(Epoch(packet.epoch.0 ^ 1 << bit));
        prop_assert!(!restarted.is_valid(&packet.flow, &datagram));
        prop_assume!(other.addresses != packet.flow.addresses);
        prop_assert!(!PacketCheck::new(packet.epoch).is_valid(&other, &datagram));
    }

    #[test]
    fn the_tag_covers_every_byte_before_it(packet in packet(), at in any::<prop::sample::Index>()) {
        prop_assume!(packet.repr.flags.contains(Flags::AUTHENTICATED));
        let datagram = packet.built();
        let tagged = datagram.len() - AUTHENTICATION_LEN;
        let mut changed = datagram.clone();
        changed[at.index(tagged)] ^= 1;
        let tag = |datagram: &[u8]| Authentication::covered(&packet.flow, datagram, sum);
        prop_assert_ne!(tag(&changed), tag(&datagram));
        changed.copy_from_slice(&datagram);
        changed[tagged..].fill(0);
        prop_assert_eq!(tag(&changed), tag(&datagram));
    }

    #[test]
    fn a_packet_cut_short_or_too_long_is_refused(
        packet in packet(),
        cut in any::<prop::sample::Index>(),
        more in 1usize..20,
    ) {
        let mut datagram = packet.built();
        let cut = &datagram[..cut.index(datagram.len())];
        let refusal = Repr::parse(cut).unwrap_err();
        let by_length = matches!(refusal, StarError::Length { .. } | StarError::Buffers { .. });
        prop_assert!(by_length, "{refusal}");
        datagram.resize(datagram.len() + more, 0);
        prop_assert!(Repr::parse(&datagram).is_err());
    }

    #[test]
    fn a_buffer_too_short_is_refused(packet in packet(), short in 1usize..40) {
        let Generated { repr, payload, .. } = packet;
        let mut buffer = vec![0; repr.datagram_len(payload.len()).saturating_sub(short)];
        prop_assert!(PacketWriter::new(&repr, payload.len(), &mut buffer).is_none());
    }

    #[test]
    fn any_bytes_parse_or_fail(bytes in vec(any::<u8>(), 0..120), flow in flow()) {
        parse_or_fail(&bytes);
        let _ = PacketCheck::new(Epoch(1)).is_valid(&flow, &bytes);
        let _ = Authentication::covered(&flow, &bytes, sum);
        let _ = segments(&bytes).count();
    }

    #[test]
    fn a_damaged_packet_parses_or_fails(
        packet in packet(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut datagram = packet.built();
        for (at, byte) in damage {
            let at = at.index(datagram.len());
            datagram[at] = byte;
        }
        parse_or_fail(&datagram);
    }
}

/// A parsed packet has the length of its header, and is the same when written again.
fn parse_or_fail(bytes: &[u8]) {
    let Ok((repr, payload, authentication)) = Repr::parse(bytes) else { return };
    assert_eq!(repr.datagram_len(payload.len()), bytes.len());
    assert_eq!(authentication.is_some(), repr.flags.contains(Flags::AUTHENTICATED));
    let mut built = vec![0xA5; bytes.len()];
    let mut writer = PacketWriter::new(&repr, payload.len(), &mut built).unwrap();
    writer.payload().copy_from_slice(payload);
    let check = PacketCheck::new(Epoch(0));
    let flow = nichrome_wire::AddressPair::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() };
    writer.finish(&nichrome_wire::rdma::UdpFlow::to_star(flow, 1), check);
    let (again, same, _) = Repr::parse(&built).unwrap();
    assert_eq!((again, same), (repr, payload));
}
