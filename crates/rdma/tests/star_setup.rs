//! StaR's set-up: roles, the encoding of messages, and every error.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

use std::net::IpAddr;

use nichrome_rdma::star::*;
use nichrome_rdma::{Access, PathMtu, QpNumber, RKey};
use nichrome_wire::SeqNumber;
use nichrome_wire::star::{Epoch, GrantCode, Lease, Registration, Stamp};
use proptest::collection::vec;
use proptest::prelude::*;

fn offer(connection: u32, wish: Wish) -> Offer {
    Offer {
        wish,
        room: Room::Free,
        receives: Receives::Own,
        connection: QpNumber::new(connection).unwrap(),
        peer_connection: None,
        address: IpAddr::from([10, 0, 0, connection as u8]),
        path_mtu: PathMtu::B1024,
        access: Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        first_element: SeqNumber(connection * 1000),
        depth: QueueDepth { sends: 16, receives: 32 },
        timers: Timers { timeout: 14, retry_count: 7, rnr_retry: 7, min_rnr_timer: 12 },
    }
}

fn admission(regions: usize) -> Admission {
    let region = |nth: usize| Registration {
        key: RKey(nth as u32),
        address: nth as u64 * 4096,
        len: 4096,
        rights: Access::REMOTE_WRITE.star_bits(),
        code: GrantCode(nth as u64 + 7),
    };
    Admission {
        epoch: Epoch(77),
        clock: Stamp(1234),
        credentials: Some(Credentials {
            key: ConnectionKey::new([9; 16]),
            lease: (Lease(60), ConnectionKey::new([8; 16])),
        }),
        regions: (0..regions).map(region).collect(),
    }
}

/// Carries the output of `from` to `to`, in pieces of `piece` bytes.
fn carry(from: &mut Setup, to: &mut Setup, piece: usize) -> Result<Option<SetupEvent>, SetupError> {
    let mut event = None;
    for bytes in from.take_output().chunks(piece) {
        if let Some(new) = to.receive(bytes)? {
            assert!(event.replace(new).is_none());
        }
    }
    Ok(event)
}

/// Two sides of a set-up that have exchanged these offers, each with what `receive` returned.
fn met(left: Offer, right: Offer) -> [(Setup, Result<Option<SetupEvent>, SetupError>); 2] {
    let mut sides = [Setup::new(left), Setup::new(right)];
    let [first, second] = sides.each_mut().map(Setup::take_output);
    let [mut left, mut right] = sides;
    let received_left = left.receive(&second);
    let received_right = right.receive(&first);
    [(left, received_left), (right, received_right)]
}

#[test]
fn the_stateless_side_admits_and_the_other_accepts() {
    for piece in [1, 7, 10_000] {
        let (server, client) = (offer(1, Wish::Own), offer(2, Wish::Automatic));
        let (mut left, mut right) = (Setup::new(server), Setup::new(client));
        assert_eq!(carry(&mut right, &mut left, piece), Ok(Some(SetupEvent::Admit(client))));
        assert_eq!(carry(&mut left, &mut right, piece), Ok(None));
        left.admit(admission(100)).unwrap();
        let accept = SetupEvent::Accept(server, admission(100));
        assert_eq!(carry(&mut left, &mut right, piece), Ok(Some(accept)));
        assert_eq!((left.end(), right.end()), (Err(SetupError::Truncated), Err(SetupError::Truncated)));
        right.accept().unwrap();
        assert_eq!(carry(&mut right, &mut left, piece), Ok(Some(SetupEvent::Ready(client))));
        assert_eq!((left.end(), right.end()), (Ok(()), Ok(())));
    }
}

#[test]
fn with_room_on_both_sides_an_automatic_connection_is_roce() {
    let (one, two) = (offer(1, Wish::Automatic), offer(2, Wish::Automatic));
    let [left, right] = met(one, two);
    assert_eq!((left.1, right.1), (Ok(Some(SetupEvent::Roce(two))), Ok(Some(SetupEvent::Roce(one)))));
    assert_eq!((left.0.end(), right.0.end()), (Ok(()), Ok(())));
}

#[test]
fn roles_follow_from_wishes_and_room() {
    use Agreement::{Roce, Star};
    use Wish::{Automatic, Own, Peers};
    let agreed = |ours, our_room, theirs, their_room| {
        let ours = Offer { room: our_room, ..offer(1, ours) };
        agree(&ours, &Offer { room: their_room, ..offer(2, theirs) })
    };
    let (free, full) = (Room::Free, Room::Full);
    let ours = Ok(Star { stateless: Side::Ours });
    assert_eq!(agreed(Own, free, Automatic, free), ours);
    assert_eq!(agreed(Own, full, Peers, free), ours);
    assert_eq!(agreed(Automatic, free, Peers, free), ours);
    assert_eq!(agreed(Automatic, full, Automatic, free), ours);
    assert_eq!(agreed(Automatic, free, Automatic, free), Ok(Roce));
    assert_eq!(agreed(Automatic, full, Automatic, full), Err(SetupError::NoRoom(Side::Theirs)));
    assert_eq!(agreed(Own, free, Automatic, full), Err(SetupError::NoRoom(Side::Theirs)));
    assert_eq!(agreed(Peers, full, Automatic, free), Err(SetupError::NoRoom(Side::Ours)));
    assert_eq!(agreed(Own, free, Own, free), Err(SetupError::BothStateless));
    assert_eq!(agreed(Peers, free, Peers, free), Err(SetupError::BothStateful));
}

#[test]
fn a_side_with_a_shared_receive_queue_may_be_stateless() {
    let shared = Offer { receives: Receives::Shared, ..offer(1, Wish::Own) };
    let other = offer(2, Wish::Automatic);
    assert_eq!(agree(&shared, &other), Ok(Agreement::Star { stateless: Side::Ours }));
    assert_eq!(agree(&other, &shared), Ok(Agreement::Star { stateless: Side::Theirs }));
    let stateful = Offer { wish: Wish::Peers, ..shared };
    assert_eq!(agree(&stateful, &other), Ok(Agreement::Star { stateless: Side::Theirs }));
}

#[test]
fn two_stateless_sides_both_fail() {
    let [left, right] = met(offer(1, Wish::Own), offer(2, Wish::Own));
    for (setup, received) in [left, right] {
        assert_eq!(received, Err(SetupError::BothStateless));
        assert_eq!(setup.end(), Err(SetupError::BothStateless));
    }
    let words = SetupError::BothStateless.to_string();
    assert_eq!(words, "both sides want to be stateless: one of them must keep the state");
}

#[test]
fn another_version_is_an_error_at_its_byte() {
    let mut setup = Setup::new(offer(1, Wish::Automatic));
    assert_eq!(setup.receive(b"StaR"), Ok(None));
    assert_eq!(setup.receive(&[1]), Err(SetupError::Version(1)));
    let words = SetupError::Version(1).to_string();
    assert_eq!(words, "the peer uses version 1 of StaR's set-up, this side version 2");
    assert_eq!(setup.receive(b""), Err(SetupError::Version(1)));
}

#[test]
fn garbage_is_an_error_at_its_first_byte() {
    for bytes in [&b"GET / HTTP/1.1"[..], b"S1", b"StaR\x02\x09\0\0\0\0\0\0", b"StaR\x02\x01\0\0\0\0\0\x01"] {
        let mut setup = Setup::new(offer(1, Wish::Automatic));
        assert_eq!(setup.receive(bytes), Err(SetupError::Garbage), "{bytes:?}");
    }
}

#[test]
fn a_memory_table_has_a_largest_size() {
    for (regions, received) in [(MAX_REGIONS, Ok(None)), (MAX_REGIONS + 1, Err(SetupError::Garbage))] {
        let mut header = b"StaR\x02\x02\0\0".to_vec();
        header.extend((52 + 32 * regions as u32).to_be_bytes());
        let mut setup = Setup::new(offer(1, Wish::Automatic));
        assert_eq!(setup.receive(&header), received, "{regions}");
    }
    let [(mut server, _), _] = met(offer(1, Wish::Own), offer(2, Wish::Automatic));
    let too_many = MAX_REGIONS + 1;
    assert_eq!(server.admit(admission(too_many)), Err(SetupError::TooManyRegions(too_many)));
    assert_eq!(server.admit(admission(MAX_REGIONS)), Ok(()));
}

#[test]
fn a_stream_that_ends_before_set_up_is_truncated() {
    let whole = Setup::new(offer(2, Wish::Automatic)).take_output();
    for len in 0..whole.len() {
        let mut setup = Setup::new(offer(1, Wish::Own));
        assert_eq!(setup.receive(&whole[..len]), Ok(None));
        assert_eq!(setup.end(), Err(SetupError::Truncated));
    }
}

#[test]
fn each_side_may_refuse_instead() {
    let [(mut server, _), (mut client, _)] = met(offer(1, Wish::Own), offer(2, Wish::Peers));
    server.refuse(Refusal::Connection);
    let refused = Err(SetupError::Refused(Refusal::Connection));
    assert_eq!(carry(&mut server, &mut client, 100), refused);
    assert_eq!(server.receive(b""), refused);

    let [(mut server, _), (mut client, _)] = met(offer(1, Wish::Own), offer(2, Wish::Peers));
    server.admit(admission(0)).unwrap();
    carry(&mut server, &mut client, 100).unwrap();
    client.refuse(Refusal::Resources);
    assert_eq!(carry(&mut client, &mut server, 100), Err(SetupError::Refused(Refusal::Resources)));
    assert_eq!(client.accept(), Err(SetupError::OutOfTurn));
}

#[test]
fn nothing_is_refused_when_set_up_is_over() {
    let [(mut server, _), _] = met(offer(1, Wish::Automatic), offer(2, Wish::Automatic));
    server.refuse(Refusal::Shutdown);
    assert_eq!((server.take_output(), server.end()), (Vec::new(), Ok(())));
}

#[test]
fn messages_out_of_turn_are_refused() {
    // READY before the admission.
    let [(mut server, _), _] = met(offer(1, Wish::Own), offer(2, Wish::Peers));
    assert_eq!(server.receive(b"StaR\x02\x03\0\0\0\0\0\0"), Err(SetupError::OutOfTurn));
    assert_eq!(server.admit(admission(0)), Err(SetupError::OutOfTurn));
    // A second offer.
    let mut client = Setup::new(offer(2, Wish::Peers));
    let twice = Setup::new(offer(1, Wish::Own)).take_output().repeat(2);
    assert_eq!(client.receive(&twice), Err(SetupError::OutOfTurn));
}

fn any_offer() -> impl Strategy<Value = Offer> {
    let wish = prop_oneof![Just(Wish::Automatic), Just(Wish::Own), Just(Wish::Peers)];
    let room = prop_oneof![Just(Room::Free), Just(Room::Full)];
    let receives = prop_oneof![3 => Just(Receives::Own), 1 => Just(Receives::Shared)];
    let number = || (0u32..1 << 24).prop_map(|number| QpNumber::new(number).unwrap());
    let address = prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), Just(IpAddr::from([0xFD; 16]))];
    let timers =
        (0u8..32, 0u8..8, 0u8..8, 0u8..32).prop_map(|(timeout, retry_count, rnr_retry, min_rnr_timer)| {
            Timers { timeout, retry_count, rnr_retry, min_rnr_timer }
        });
    let more = (0usize..5, any::<(u32, u32, u32)>(), timers);
    (wish, room, receives, number(), proptest::option::of(number()), address, more).prop_map(
        |(wish, room, receives, connection, peer_connection, address, (mtu, numbers, timers))| Offer {
            wish,
            room,
            receives,
            connection,
            peer_connection,
            address,
            path_mtu: PathMtu::ALL[mtu],
            access: Access::LOCAL_WRITE | Access::REMOTE_READ,
            first_element: SeqNumber(numbers.0),
            depth: QueueDepth { sends: numbers.1, receives: numbers.2 },
            timers,
        },
    )
}

proptest! {
    #[test]
    fn both_sides_find_the_same(left in any_offer(), right in any_offer()) {
        let mirrored = |side| if side == Side::Ours { Side::Theirs } else { Side::Ours };
        let theirs = match agree(&right, &left) {
            Ok(Agreement::Star { stateless }) => Ok(Agreement::Star { stateless: mirrored(stateless) }),
            Err(SetupError::NoRoom(side)) => Err(SetupError::NoRoom(mirrored(side))),
            other => other,
        };
        // Without room on either side, each reports the peer's lack of room.
        let both_full = left.room == Room::Full && right.room == Room::Full;
        if !(both_full && left.wish == Wish::Automatic && right.wish == Wish::Automatic) {
            prop_assert_eq!(agree(&left, &right), theirs);
        }
    }

    #[test]
    fn what_is_offered_arrives(ours in any_offer()) {
        let peer = Offer { room: Room::Free, receives: Receives::Own, ..offer(9, Wish::Automatic) };
        let ours = Offer { wish: Wish::Peers, room: Room::Free, ..ours };
        let [_, (_, received)] = met(ours, peer);
        prop_assert_eq!(received, Ok(Some(SetupEvent::Admit(ours))));
    }

    #[test]
    fn any_bytes_are_taken_or_refused(pieces in vec(vec(any::<u8>(), 0..100), 0..4), honest in 0usize..60) {
        let mut setup = Setup::new(offer(1, Wish::Own));
        let whole = Setup::new(offer(2, Wish::Peers)).take_output();
        let _ = setup.receive(&whole[..honest.min(whole.len())]);
        for piece in pieces {
            let _ = setup.receive(&piece);
        }
    }

    #[test]
    fn damaged_messages_are_taken_or_refused(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        server_speaks in any::<bool>(),
    ) {
        let [(mut server, _), (mut client, _)] = met(offer(1, Wish::Own), offer(2, Wish::Peers));
        server.admit(admission(3)).unwrap();
        let mut bytes = if server_speaks {
            server.take_output()
        } else {
            Setup::new(offer(1, Wish::Own)).take_output()
        };
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = client.receive(&bytes);
        let _ = client.end();
    }
}
