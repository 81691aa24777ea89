//! Forged and replayed packets to a card that requires authentication.

use nichrome_rdma::star::*;
use nichrome_rdma::{Datagram, Instant, QpNumber};
use nichrome_wire::rdma::UdpFlow;
use nichrome_wire::star::{Flags, Message, Reason, Repr, Span, Stamp};
use nichrome_wire::{AddressPair, TrafficClass};
use proptest::prelude::*;

use super::common::{BASE, CLIENT, CLOCK, DOMAIN, LIFETIME, Packet, SERVER, SHARED, Server, Tag, secret};

fn honest() -> Packet {
    Packet::rdp(SHARED, BASE + 8, b"honest").authenticated()
}

/// Checks that the card drops a forged packet.
fn is_dropped(packet: &Packet) {
    let mut server = Server::authenticating();
    let before = server.memory.bytes().to_vec();
    assert_eq!(server.respond(packet.flow, 0, &packet.built()), None);
    assert_eq!(server.memory.bytes(), before);
    assert_eq!(server.card.counters().dropped_tag, 1);
}

/// The honest packet with another message under its old tag.
fn with_the_old_tag(message: Message, payload: &[u8]) -> Packet {
    let original = honest();
    let datagram = original.built();
    let (_, _, authentication) = Repr::parse(&datagram).unwrap();
    let tag = authentication.unwrap().tag;
    let repr = Repr { message, ..original.repr };
    Packet { repr, payload: payload.to_vec(), tag: Tag::Fixed(tag), ..original }
}

#[test]
fn an_authenticated_packet_is_answered_with_a_tag() {
    let mut server = Server::authenticating();
    let answered = server.exchange(&honest().built()).unwrap();
    assert_eq!(answered.repr.message, Message::Ra(Ok(0)));
    assert_eq!(server.memory.bytes()[8..14], *b"honest");
    let (_, _, authentication) = Repr::parse(&answered.datagram).unwrap();
    let authentication = authentication.unwrap();
    let key = secret().connection_key(CLIENT.into(), honest().repr.connection, DOMAIN);
    assert!(key.is_right(&answered.answer.route.flow, &answered.datagram, &authentication));
    // The answer carries the server's time.
    assert_eq!((authentication.domain, answered.repr.stamp), (DOMAIN, Stamp(CLOCK)));
}

#[test]
fn a_forged_address_length_or_key_has_the_wrong_tag() {
    let span = Span { address: BASE + 8, key: SHARED };
    is_dropped(&with_the_old_tag(Message::Rdp(Span { address: BASE + 9, ..span }), b"honest"));
    is_dropped(&with_the_old_tag(Message::Rdp(Span { key: SHARED + 1, ..span }), b"honest"));
    is_dropped(&with_the_old_tag(Message::Rdp(span), b"honest and longer"));
    is_dropped(&with_the_old_tag(Message::Rdp(span), b"forged"));
    is_dropped(&with_the_old_tag(Message::Gd(span, 6), b""));
}

#[test]
fn a_connection_has_no_tag_for_another() {
    let other = QpNumber::new(18).unwrap();
    let forged = honest();
    is_dropped(&Packet { repr: Repr { connection: other, ..forged.repr }, ..forged });
    let addresses = AddressPair::V4 { src: [10, 0, 0, 3].into(), dst: SERVER };
    is_dropped(&Packet { flow: UdpFlow::to_star(addresses, 0xC123), ..honest() });
    is_dropped(&Packet { domain: DOMAIN + 1, ..honest() });
    is_dropped(&Packet { tag: Tag::Of(ConnectionKey::new([0; 16])), ..honest() });
}

/// Memory of one protection domain.
struct OfDomain(u32);

impl RegisteredMemory for OfDomain {
    fn resolve(&self, reach: &Reach) -> Result<u64, Reason> {
        if reach.domain == Some(self.0) { Ok(reach.span.address) } else { Err(Reason::Owner) }
    }
}

#[test]
fn a_packet_reaches_memory_of_the_domain_that_its_key_is_for() {
    for (owner, outcome) in [(DOMAIN, Ok(0)), (DOMAIN + 1, Err(Reason::Owner))] {
        let Server { mut card, mut memory, now, .. } = Server::authenticating();
        let (bytes, mut buffer) = (honest().built(), [0; 100]);
        let datagram = Datagram { flow: honest().flow, traffic_class: TrafficClass(0), bytes: &bytes };
        let answer = card.respond(&datagram, now, &OfDomain(owner), &mut memory, &mut buffer).unwrap();
        let (repr, ..) = Repr::parse(&buffer[..answer.len]).unwrap();
        assert_eq!(repr.message, Message::Ra(outcome));
    }
}

#[test]
fn a_packet_without_a_tag_is_refused() {
    let mut server = Server::authenticating();
    let answered = server.exchange(&Packet::rdp(SHARED, BASE, b"plain").built()).unwrap();
    assert_eq!(answered.repr.message, Message::Ra(Err(Reason::Unauthenticated)));
    assert_eq!(server.memory.bytes()[0], 0);
    assert_eq!(server.card.counters().refused_unauthenticated, 1);
}

#[test]
fn a_card_without_authentication_drops_tagged_packets() {
    let mut server = Server::new(None);
    assert_eq!(server.exchange(&honest().built()), None);
    assert_eq!(server.card.counters().dropped_tag, 1);
}

#[test]
fn a_replayed_packet_is_refused_when_its_time_is_over() {
    let mut server = Server::authenticating();
    let replayed = honest().built();
    let lifetime = u64::from(LIFETIME) * 1000;
    for (after, outcome) in [(0, Ok(0)), (lifetime, Ok(0)), (lifetime + 1000, Err(Reason::Expired))] {
        server.now = Instant::from_nanos(super::common::NOW.as_nanos() + after);
        server.memory.bytes_mut()[8..14].fill(0xEE);
        let answered = server.exchange(&replayed).unwrap();
        assert_eq!(answered.repr.message, Message::Ra(outcome));
        let is_stored = server.memory.bytes()[8..14] == *b"honest";
        assert_eq!(is_stored, outcome.is_ok());
    }
    assert_eq!(server.card.counters().refused_expired, 1);
}

#[test]
fn a_packet_that_expires_too_far_in_the_future_is_refused_with_the_time() {
    const LONGEST: u32 = 1_000_000;
    let mut server = Server::authenticating();
    let mut packet = honest();
    for (stamp, outcome) in [(CLOCK + LONGEST, Ok(0)), (CLOCK + LONGEST + 1, Err(Reason::Expired))] {
        packet.repr.stamp = Stamp(stamp);
        let answered = server.exchange(&packet.built()).unwrap().repr;
        assert_eq!((answered.message, answered.stamp), (Message::Ra(outcome), Stamp(CLOCK)));
    }
}

#[test]
fn a_restarted_server_drops_packets_by_old_keys() {
    let authentication = CardAuthentication { secret: ServerSecret::new([1; 16]) };
    let mut restarted = Server::new(Some(authentication));
    assert_eq!(restarted.exchange(&honest().built()), None);
    assert_eq!(restarted.card.counters().dropped_tag, 1);
}

proptest! {
    /// Without the key, a changed packet has no effect, even with a valid integrity check.
    #[test]
    fn a_changed_packet_touches_no_memory(
        at in any::<prop::sample::Index>(),
        bits in 1u8..,
        fetches in any::<bool>(),
    ) {
        let packet = if fetches { Packet::gd(SHARED, BASE, 20).authenticated() } else { honest() };
        let mut bytes = packet.built();
        let covered = bytes.len() - 4;
        bytes[at.index(covered)] ^= bits;
        let check = nichrome_wire::star::PacketCheck::new(packet.epoch).compute(&packet.flow, &bytes[..covered]);
        bytes[covered..].copy_from_slice(&check);
        let mut server = Server::authenticating();
        let before = server.memory.bytes().to_vec();
        if let Some(answered) = server.exchange(&bytes) {
            let is_refusal = answered.repr.flags.contains(Flags::REFUSED);
            prop_assert!(is_refusal, "{answered:?}");
        }
        prop_assert_eq!(server.memory.bytes(), before);
    }

    #[test]
    fn any_bytes_are_answered_or_dropped(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let mut server = Server::new(None);
        prop_assert_eq!(server.exchange(&bytes), None);
    }
}
