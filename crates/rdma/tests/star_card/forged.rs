//! Forged and replayed packets to a card that requires authentication.

use nichrome_rdma::star::*;
use nichrome_rdma::{Instant, QpNumber};
use nichrome_wire::AddressPair;
use nichrome_wire::rdma::UdpFlow;
use nichrome_wire::star::{Capability, Flags, GrantCode, Lease, Message, Reason, Repr, Rights, Span, Stamp};
use proptest::prelude::*;

use super::common::{
    BASE, CLOCK, LEASE, LIFETIME, NOW, PRIVATE, Packet, SERVER, SHARED, Server, Tag, connection, ends,
    secret, span,
};

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

/// The honest packet with another message and its old tag.
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
    let key = secret().lease_key(&ends(), LEASE);
    assert!(key.is_valid(GrantCode(0), &answered.answer.route.flow, &answered.datagram, &authentication));
    // The answer carries the server's time.
    assert_eq!(answered.repr.stamp, Stamp(CLOCK));
}

#[test]
fn a_forged_address_length_or_key_has_the_wrong_tag() {
    let span = span(SHARED, BASE + 8);
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
    let Tag::Of(key, code) = honest().tag else { panic!() };
    is_dropped(&Packet { tag: Tag::Of(ConnectionKey::new([0; 16]), code), ..honest() });
    is_dropped(&Packet { tag: Tag::Of(key, GrantCode(0)), ..honest() });
}

/// A client with the key of its lease and the codes of its grants forges other capabilities.
#[test]
fn a_client_reaches_only_what_it_was_granted() {
    let changes: [fn(&mut Capability); 8] = [
        |it| it.base -= 1,
        |it| it.base += 1,
        |it| it.len += 1,
        |it| it.len = u64::MAX,
        |it| it.rights = Rights::STORE,
        |it| it.rights = it.rights | Rights::ELEMENT,
        |it| it.server = connection(34),
        |it| it.lease = Lease(161),
    ];
    for change in changes {
        is_dropped(&honest().changed(change));
        // With the key of the named lease, and the code of the honest grant.
        let Tag::Of(_, code) = honest().tag else { panic!() };
        let mut named = honest().changed(change);
        let Message::Rdp(Span { capability, .. }) = named.repr.message else { panic!() };
        named.tag = Tag::Of(secret().lease_key(&ends(), capability.lease), code);
        if capability.lease == LEASE {
            is_dropped(&named);
        }
    }
    let Tag::Of(key, code) = honest().tag else { panic!() };
    let other = Packet {
        tag: Tag::Of(key, code),
        ..Packet::rdp(PRIVATE, BASE + 1000, b"x").flags(Flags::AUTHENTICATED)
    };
    is_dropped(&other);
}

#[test]
fn what_is_reached_lies_within_the_capability_and_the_region() {
    let mut server = Server::authenticating();
    let mut outcome = |packet: Packet| {
        let before = server.memory.bytes().to_vec();
        let message = server.exchange(&packet.authenticated().built()).unwrap().repr.message;
        let is_changed = server.memory.bytes() != before;
        (message, is_changed)
    };
    let part = |it: &mut Capability| (it.base, it.len) = (BASE + 8, 8);
    let store = |at, payload: &[u8]| Packet::rdp(SHARED, at, payload).changed(part);
    assert_eq!(outcome(store(BASE + 8, b"granted!")), (Message::Ra(Ok(0)), true));
    for (at, payload) in [(BASE + 7, &b"x"[..]), (BASE + 9, b"too long"), (BASE + 16, b"x"), (BASE, b"x")] {
        assert_eq!(outcome(store(at, payload)), (Message::Ra(Err(Reason::Bounds)), false));
    }
    let fetches = |it: &mut Capability| it.rights = Rights::FETCH;
    assert_eq!(
        outcome(Packet::rdp(SHARED, BASE, b"x").changed(fetches)),
        (Message::Ra(Err(Reason::Right)), false)
    );
    // A region that has become smaller, or belongs to another program now.
    let wide = |it: &mut Capability| it.len = 2000;
    assert_eq!(
        outcome(Packet::rdp(SHARED, BASE + 1000, b"x").changed(wide)),
        (Message::Ra(Err(Reason::Bounds)), false)
    );
}

#[test]
fn an_ended_lease_is_refused_and_a_closed_connection_has_none() {
    let mut server = Server::authenticating();
    let lease = server.card.lease(connection(33), NOW);
    assert_eq!(lease, LEASE);
    let outcome = |server: &mut Server, packet: &Packet| {
        let mut packet = packet.clone();
        packet.repr.stamp = Stamp((server.now.as_nanos() / 1000) as u32 + 5);
        server.exchange(&packet.authenticated().built()).unwrap().repr.message
    };
    for (seconds, expected) in [(0, Ok(0)), (59, Ok(0)), (60, Err(Reason::Lease)), (4295, Err(Reason::Lease))]
    {
        server.now = Instant::from_nanos(NOW.as_nanos() + seconds * 1_000_000_000);
        assert_eq!(outcome(&mut server, &honest()), Message::Ra(expected), "{seconds}");
    }
    server.now = NOW;
    server.card.revoke(connection(33), lease, NOW);
    assert_eq!(outcome(&mut server, &honest()), Message::Ra(Err(Reason::Lease)));
    let other = honest().changed(|capability| capability.server = connection(34));
    assert_eq!(outcome(&mut server, &other), Message::Ra(Ok(0)));
    let again = server.card.lease(connection(33), NOW);
    assert_eq!(
        outcome(&mut server, &honest().changed(|capability| capability.lease = again)),
        Message::Ra(Ok(0))
    );
}

/// Microseconds wrap after 71 minutes: the lease has ended by then.
#[test]
fn a_packet_of_an_hour_ago_is_refused_when_the_clock_shows_its_time_again() {
    let mut server = Server::authenticating();
    let replayed = honest().built();
    server.now = Instant::from_nanos(NOW.as_nanos() + (1 << 32) * 1000);
    assert_eq!(server.exchange(&replayed).unwrap().repr.message, Message::Ra(Err(Reason::Lease)));
}

/// A refusal gives no reason to unauthenticated senders, and is no longer than their packet.
#[test]
fn an_unverified_source_gets_one_refusal_and_no_more_bytes_than_it_sent() {
    let packets = [
        Packet::rdp(SHARED ^ 1, BASE, b""),
        Packet::rdp(SHARED, BASE + 1001, b""),
        Packet::rdp(PRIVATE, BASE + 1000, b""),
        Packet::gd(SHARED ^ 1, BASE, 1024),
        Packet::gd(PRIVATE, BASE + 1000, 1000),
        Packet::gd(SHARED, BASE, 1001),
        Packet::gd(SHARED, BASE, 1025),
    ];
    for (mut server, is_open) in [(Server::authenticating(), false), (Server::new(None), true)] {
        for packet in &packets {
            let sent = packet.built();
            let answered = server.exchange(&sent).unwrap();
            let reason = match answered.repr.message {
                Message::Ra(Err(reason)) | Message::Sdp(Err(reason)) => reason,
                message => panic!("{message:?}"),
            };
            assert_eq!((reason, answered.datagram.len() <= sent.len()), (Reason::Denied, true));
        }
        let fetched = server.exchange(&Packet::gd(SHARED, BASE, 1000).built()).unwrap();
        assert_eq!(fetched.payload.len(), if is_open { 1000 } else { 0 });
    }
}

#[test]
fn a_packet_without_a_tag_is_refused() {
    let mut server = Server::authenticating();
    let answered = server.exchange(&Packet::rdp(SHARED, BASE, b"plain").built()).unwrap();
    assert_eq!(answered.repr.message, Message::Ra(Err(Reason::Denied)));
    assert_eq!(server.memory.bytes()[0], 0);
    let counters = server.card.counters();
    assert_eq!((counters.refused_unauthenticated, counters.refused_memory), (1, 0));
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
        server.now = Instant::from_nanos(NOW.as_nanos() + after);
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
        let place = at.index(bytes.len());
        bytes[place] ^= bits;
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
