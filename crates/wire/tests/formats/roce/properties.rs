//! Invariants for any packet, and for any bytes.

use nichrome_wire::AddressPair;
use nichrome_wire::rdma::{DatagramWriter, IcrcCheck, IcrcChecker, Opcode, RdmaError, Repr};
use proptest::collection::vec;
use proptest::prelude::*;

use super::generated::{Generated, flow, packet};

pub(crate) fn built(packet: &Generated) -> Vec<u8> {
    built_for(packet, 0)
}

fn built_for(packet: &Generated, ident: u16) -> Vec<u8> {
    let Generated { repr, payload, flow } = packet;
    let mut buffer = vec![0xA5; repr.datagram_len(payload.len())];
    let mut writer = DatagramWriter::new(repr, payload.len(), flow, ident, &mut buffer).unwrap();
    writer.payload().copy_from_slice(payload);
    assert_eq!(writer.finish(), buffer.len());
    buffer
}

/// Known opcodes.
fn opcode() -> impl Strategy<Value = u8> {
    let known = (0..=u8::MAX).filter(|opcode| Opcode::new(*opcode).is_some());
    prop::sample::select(known.collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn what_is_built_parses_to_the_same_and_its_icrc_is_right(packet in packet()) {
        let datagram = built(&packet);
        prop_assert_eq!(IcrcChecker::default().check(&packet.flow, &datagram), IcrcCheck::Valid);
        let (repr, payload) = Repr::parse(&datagram).unwrap();
        prop_assert_eq!(repr, packet.repr);
        prop_assert_eq!(payload, packet.payload);
    }

    #[test]
    fn over_ipv4_an_identification_is_found_and_can_be_changed(packet in packet(), ident in 1u16..) {
        let mut datagram = built_for(&packet, ident);
        let mut checker = IcrcChecker::default();
        let over_ipv4 = matches!(packet.flow.addresses, AddressPair::V4 { .. });
        let right = if over_ipv4 { IcrcCheck::ValidForIdent(ident) } else { IcrcCheck::Valid };
        prop_assert_eq!(checker.check(&packet.flow, &datagram), right);
        checker.change_ident(&mut datagram, ident);
        let changed = if over_ipv4 { IcrcCheck::Valid } else { IcrcCheck::Wrong };
        prop_assert_eq!(checker.check(&packet.flow, &datagram), changed);
        prop_assert_eq!(datagram == built(&packet), over_ipv4);
    }

    #[test]
    fn a_checker_gives_the_same_answers_whatever_it_checked_before(
        packets in vec((packet(), any::<u16>()), 1..8),
    ) {
        let mut one = IcrcChecker::default();
        for (packet, ident) in packets {
            let datagram = built_for(&packet, ident);
            let fresh = IcrcChecker::default().check(&packet.flow, &datagram);
            prop_assert_eq!(one.check(&packet.flow, &datagram), fresh);
        }
    }

    // Over IPv4, one error in 65,536 passes as the CRC for some identification; a flipped bit never passes
    // for 0.
    #[test]
    fn a_flipped_bit_is_seen(packet in packet(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut datagram = built(&packet);
        let at = at.index(datagram.len());
        datagram[at] ^= 1 << bit;
        let is_masked = at == 4;
        let is_right = IcrcChecker::default().check(&packet.flow, &datagram) == IcrcCheck::Valid;
        prop_assert_eq!(is_right, is_masked);
    }

    #[test]
    fn a_packet_cut_short_is_refused(packet in packet(), cut in any::<prop::sample::Index>()) {
        let datagram = built(&packet);
        let cut = &datagram[..cut.index(datagram.len())];
        // What is left may be a packet with less payload, whose ICRC is wrong.
        if let Err(error) = Repr::parse(cut) {
            prop_assert!(matches!(error, RdmaError::Truncated { .. } | RdmaError::Padding(_)), "{error}");
        }
        prop_assert_ne!(IcrcChecker::default().check(&packet.flow, cut), IcrcCheck::Valid);
    }

    #[test]
    fn a_buffer_too_short_is_refused(packet in packet(), short in 1usize..40) {
        let Generated { repr, payload, flow } = packet;
        let mut buffer = vec![0; repr.datagram_len(payload.len()).saturating_sub(short)];
        prop_assert!(DatagramWriter::new(&repr, payload.len(), &flow, 0, &mut buffer).is_none());
    }

    #[test]
    fn any_packet_that_parses_is_built_and_parses_to_the_same(
        opcode in opcode(), mut bytes in vec(any::<u8>(), 16..80), flow in flow(),
    ) {
        // Make opcode, version and length right, which those of random bytes seldom are.
        bytes[0] = opcode;
        bytes[1] &= 0xF0;
        bytes.truncate(bytes.len() / 4 * 4);
        if let Ok((repr, payload)) = Repr::parse(&bytes) {
            prop_assert_eq!(repr.datagram_len(payload.len()), bytes.len());
            let built = built(&Generated { repr, payload: payload.to_vec(), flow });
            prop_assert_eq!(Repr::parse(&built), Ok((repr, payload)));
        }
    }

    #[test]
    fn any_bytes_parse_or_fail(bytes in vec(any::<u8>(), 0..80), flow in flow()) {
        if let Ok((repr, payload)) = Repr::parse(&bytes) {
            prop_assert_eq!(repr.datagram_len(payload.len()), bytes.len());
        }
        let _ = IcrcChecker::default().check(&flow, &bytes);
    }
}
