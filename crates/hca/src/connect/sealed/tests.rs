//! Encrypted handshakes without sockets.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use super::*;

const NOW: Instant = Instant::from_nanos(1);
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));

/// Sends `message`, and keeps the received bytes in `received`; matches a request once it has received 4
/// bytes.
struct Toy {
    phase: Phase,
    message: Vec<u8>,
    received: Vec<u8>,
    end: Option<&'static str>,
}

impl Handshake for Toy {
    type Context = Keys;

    fn inbound(_: IpAddr, _: Instant) -> Self {
        Self { phase: Phase::Opening, message: vec![], received: vec![], end: None }
    }

    fn outbound(request: Vec<u8>, _: &mut Keys, _: Instant) -> Option<(Route, Self)> {
        let route = Route { from: PEER, to: SocketAddr::new(PEER, 1) };
        Some((route, Self { phase: Phase::Running, message: request, ..Self::inbound(PEER, NOW) }))
    }

    fn receive(&mut self, _: &mut Keys, bytes: &[u8], _: Instant) {
        self.received.extend(bytes);
        if self.received.len() >= 4 && self.phase == Phase::Opening {
            self.phase = Phase::Running;
            self.message = b"answer".to_vec();
        }
    }

    fn resume(&mut self, _: &mut Keys, _: Instant) {}

    fn close(&mut self, _: &mut Keys, cause: Cause) {
        self.end = Some(match cause {
            Cause::Seal(SealError::PeerHasNoKey) => "no key there",
            Cause::Seal(SealError::PeerHasKey) => "no key here",
            Cause::Seal(SealError::WrongKey) => "wrong key",
            Cause::Seal(SealError::Unanswered) => "unanswered",
            _ => "other",
        });
        self.phase = Phase::Done;
    }

    fn take_output(&mut self) -> Vec<u8> {
        mem::take(&mut self.message)
    }

    fn phase(&self) -> Phase {
        self.phase
    }

    fn deadline(&self) -> Instant {
        NOW
    }
}

struct Keys(Option<PreSharedKey>);

impl Context for Keys {
    type Request = Vec<u8>;

    fn request(&mut self, _: Vec<u8>, _: Instant) -> QpNumber {
        QpNumber::default()
    }

    fn next_outbound(&mut self, _: impl Fn(IpAddr) -> bool) -> Option<Vec<u8>> {
        None
    }

    fn key(&self) -> Option<&PreSharedKey> {
        self.0.as_ref()
    }

    fn trusts(&self, _: &TcpStream) -> bool {
        true
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Instant) {}
}

/// Two ends, the caller first, and all bytes that each has received.
struct Ends {
    ends: [Sealed<Toy>; 2],
    keys: [Keys; 2],
    wire: [Vec<u8>; 2],
}

impl Ends {
    fn new(keys: [Option<&[u8]>; 2], message: &[u8]) -> Self {
        let mut keys = keys.map(|key| Keys(key.map(PreSharedKey::new)));
        let (_, caller) = Sealed::outbound(message.to_vec(), &mut keys[0], NOW).unwrap();
        Self { ends: [caller, Sealed::inbound(PEER, NOW)], keys, wire: Default::default() }
    }

    /// Carries all bytes, in pieces of `piece`, after `change` has been applied to those to each end.
    fn run(&mut self, piece: usize, change: &mut impl FnMut(usize, &mut Vec<u8>)) {
        loop {
            let outputs = self.ends.each_mut().map(Handshake::take_output);
            if outputs.iter().all(Vec::is_empty) {
                return;
            }
            for (from, mut bytes) in outputs.into_iter().enumerate() {
                let to = 1 - from;
                change(to, &mut bytes);
                self.wire[to].extend(&bytes);
                for piece in bytes.chunks(piece) {
                    if self.ends[to].phase() != Phase::Done {
                        self.ends[to].receive(&mut self.keys[to], piece, NOW);
                    }
                }
            }
        }
    }

    fn received(&self) -> [&[u8]; 2] {
        self.ends.each_ref().map(|end| &end.handshake.received[..])
    }

    fn ended(&self) -> [Option<&str>; 2] {
        self.ends.each_ref().map(|end| end.handshake.end)
    }
}

const ONE: Option<&[u8]> = Some(b"one");

#[test]
fn bytes_arrive_with_equal_keys_or_without_and_are_not_seen_on_the_way() {
    for piece in [1, 3, 1000] {
        for (key, is_seen) in [(None, true), (ONE, false)] {
            let mut ends = Ends::new([key; 2], b"secrets");
            ends.run(piece, &mut |_, _| {});
            assert_eq!((ends.received(), ends.ended()), ([&b"answer"[..], b"secrets"], [None; 2]));
            assert_eq!(ends.wire[1].windows(7).any(|bytes| bytes == b"secrets"), is_seen);
        }
    }
}

#[test]
fn long_messages_are_parted() {
    let long: Vec<u8> = (0..200_000).map(|at| (at / 3) as u8).collect();
    let mut ends = Ends::new([ONE; 2], b"secrets");
    ends.run(1000, &mut |_, _| {});
    ends.ends[0].handshake.message.clone_from(&long);
    ends.run(16 << 10, &mut |_, _| {});
    assert!(ends.received()[1][7..] == long[..]);
}

#[test]
fn other_keys_end_the_handshake_before_a_byte_is_heard() {
    let ended = |keys, close: bool| {
        let mut ends = Ends::new(keys, b"secrets");
        ends.run(1000, &mut |_, _| {});
        assert_eq!(ends.received(), [&b""[..]; 2]);
        if close {
            let Ends { ends: [caller, _], keys: [context, _], .. } = &mut ends;
            caller.close(context, Cause::Closed);
        }
        ends.ended().map(Option::unwrap_or_default).map(str::to_owned)
    };
    assert_eq!(ended([ONE, Some(b"two")], true), ["unanswered", "wrong key"]);
    assert_eq!(ended([ONE, None], true), ["unanswered", "no key here"]);
    assert_eq!(ended([None, ONE], false), ["", "no key there"]);
}

#[test]
fn a_changed_byte_anywhere_ends_the_handshake() {
    let mut whole = Ends::new([ONE; 2], b"secrets");
    whole.run(1000, &mut |_, _| {});
    for to in [0, 1] {
        for at in 0..whole.wire[to].len() {
            let (mut ends, mut seen) = (Ends::new([ONE; 2], b"secrets"), 0);
            ends.run(1000, &mut |end, bytes| {
                if end == to {
                    let place = at.checked_sub(seen).filter(|place| *place < bytes.len());
                    seen += bytes.len();
                    place.into_iter().for_each(|place| bytes[place] ^= 1);
                }
            });
            let is_whole = ends.received()[to] == whole.received()[to];
            assert!(!is_whole, "to {to}: {at}");
        }
    }
}

#[test]
fn a_recorded_caller_is_not_heard() {
    let mut whole = Ends::new([ONE; 2], b"secrets");
    whole.run(1000, &mut |_, _| {});
    let mut replayed = Sealed::<Toy>::inbound(PEER, NOW);
    replayed.receive(&mut whole.keys[1], &whole.wire[1], NOW);
    assert_eq!((replayed.handshake.received, replayed.handshake.end), (vec![], Some("wrong key")));
}

/// The first ciphertexts of an honest caller are an OFFER.
#[test]
fn little_is_kept_of_a_peer_that_is_not_known() {
    let mut keys = Keys(ONE.map(PreSharedKey::new));
    for declared in [49u16, u16::MAX] {
        let mut end = Sealed::<Toy>::inbound(PEER, NOW);
        end.receive(&mut keys, &MAGIC, NOW);
        end.receive(&mut keys, &declared.to_be_bytes(), NOW);
        assert_eq!(end.handshake.end, Some("wrong key"));
    }
    let mut ends = Ends::new([ONE; 2], b"1");
    ends.run(1000, &mut |_, _| {});
    ends.ends[0].handshake.message = vec![7; MAX_OPENING + 1];
    ends.run(1000, &mut |_, _| {});
    assert_eq!((ends.received()[1], ends.ended()[1]), (&b"1"[..], Some("wrong key")));
}

#[test]
fn keys_are_not_printed_and_io_errors_pass() {
    assert_eq!(format!("{:?}", PreSharedKey::new(b"one")), "PreSharedKey");
    let mut ends = Ends::new([ONE; 2], b"secrets");
    ends.ends[0].close(&mut ends.keys[0], Cause::Io(ErrorKind::BrokenPipe.into()));
    assert_eq!(ends.ended()[0], Some("other"));
}
