//! Memory protection: packets without the right do not change memory. One test per rule.

use crate::common::{ALL, BASE, Link, MEMORY, Pair, datagram, pattern};
use nichrome_rdma::*;
use nichrome_wire::rdma::{
    Aeth, AtomicEth, Bth, BthFlags, Credit, IcrcChecker, Message, NakCode, Part, RcMessage, ReadResponse,
    Repr, Reth, SendEnd, Syndrome, UcMessage,
};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

const PSN: u32 = 100;

/// A pair whose end 1 is attacked by packets in the name of end 0.
struct Attack {
    pair: Pair,
    victim: QpHandle,
    repr: Repr,
    payload: Vec<u8>,
}

impl Attack {
    /// A WRITE that the victim executes.
    fn write() -> Self {
        let mut pair = Pair::new();
        let [_, victim] = pair.connect(QpType::Rc, &Link { psn: PSN, ..Link::default() });
        let there = pair.ends[1].remote(0);
        let payload = vec![0xAA; 16];
        let reth = Reth { va: there.address, rkey: there.rkey, len: 16 };
        let message = Message::Rc(RcMessage::Write(Part::Only(reth, None)));
        let dest_qp = pair.ends[1].device.qp_number(victim).unwrap();
        let bth = Bth { flags: BthFlags::ACK_REQUEST, pkey: PKey::default(), dest_qp, psn: Psn::new(PSN) };
        Self { pair, victim, repr: Repr { bth, message }, payload }
    }

    fn reth(&mut self, change: impl Fn(&mut Reth)) {
        if let Message::Rc(RcMessage::Write(Part::Only(reth, _))) = &mut self.repr.message {
            change(reth);
        }
    }

    /// Access to the first `len` bytes of the victim's memory.
    fn here(&self, len: u32) -> Reth {
        let Remote { address: va, rkey } = self.pair.ends[1].remote(0);
        Reth { va, rkey, len }
    }

    /// Replaces the WRITE by a request without payload.
    fn request(&mut self, message: RcMessage) {
        self.repr.message = Message::Rc(message);
        self.payload.clear();
    }

    /// The key of a new region of the victim.
    fn register(&mut self, domain: DomainHandle, access: Access) -> RKey {
        let device = &mut self.pair.ends[1].device;
        crate::common::register(device, domain, RegionConfig::new(BASE, 4096, access)).1.rkey
    }

    fn victim_state(&self) -> QpState {
        self.pair.ends[1].device.query_qp(self.victim).unwrap().state
    }

    fn bytes(&self) -> Vec<u8> {
        datagram(0, &self.repr, &self.payload)
    }

    fn untouched(&self) -> bool {
        self.pair.ends[1].device.memory().bytes().iter().all(|byte| *byte == 0)
    }

    /// Delivers the packet to the victim; returns its answer.
    fn fire(&mut self) -> Option<Syndrome> {
        let bytes = self.bytes();
        self.pair.inject(1, &bytes);
        self.answer()
    }

    fn answer(&mut self) -> Option<Syndrome> {
        let mut buffer = vec![0; 9000];
        let sent = self.pair.ends[1].device.poll_transmit(self.pair.now, 1, &mut buffer)?.datagrams()?;
        let (repr, _) = Repr::parse(&buffer[..sent.len]).unwrap();
        match repr.message {
            Message::Rc(RcMessage::Acknowledge(aeth)) => Some(aeth.syndrome),
            Message::Rc(RcMessage::ReadResponse(part)) => part.aeth().map(|aeth| aeth.syndrome),
            other => panic!("{other:?}"),
        }
    }

    fn refused(mut self, code: NakCode) {
        assert_eq!(self.fire(), Some(Syndrome::Nak(code)));
        assert!(self.untouched());
        assert_eq!(self.victim_state(), QpState::Err);
    }

    fn ignored(mut self) {
        assert_eq!(self.fire(), None);
        assert!(self.untouched());
        assert_eq!(self.victim_state(), QpState::Rts);
    }
}

#[test]
fn the_write_that_all_others_differ_from_is_taken() {
    let mut attack = Attack::write();
    assert_eq!(attack.fire(), Some(Syndrome::Ack(Credit::UNLIMITED)));
    assert_eq!(attack.pair.ends[1].bytes(0, 17), [&[0xAA; 16][..], &[0]].concat());
}

#[test]
fn a_wrong_key_is_refused() {
    for bit in 0..32 {
        let mut attack = Attack::write();
        attack.reth(|reth| reth.rkey.0 ^= 1 << bit);
        attack.refused(NakCode::RemoteAccess);
    }
}

#[test]
fn bytes_out_of_bounds_are_refused() {
    for (va, len) in
        [(BASE - 1, 16), (BASE + MEMORY as u64 - 15, 16), (0, 16), (u64::MAX - 15, 16), (u64::MAX, 16)]
    {
        let mut attack = Attack::write();
        attack.reth(|reth| (reth.va, reth.len) = (va, len));
        attack.refused(NakCode::RemoteAccess);
    }
}

#[test]
fn a_message_must_fit_as_a_whole_before_any_of_it_is_taken() {
    let mut attack = Attack::write();
    let reth = Reth { va: BASE + MEMORY as u64 - 2000, ..attack.here(3000) };
    attack.repr.message = Message::Rc(RcMessage::Write(Part::First(reth)));
    attack.payload = vec![1; 1024];
    attack.refused(NakCode::RemoteAccess);
}

#[test]
fn a_length_that_is_not_the_message_s_is_refused() {
    for len in [15, 17, 1040] {
        let mut attack = Attack::write();
        attack.reth(|reth| reth.len = len);
        attack.refused(NakCode::InvalidRequest);
    }
    let mut attack = Attack::write();
    attack.payload = vec![1; 1025];
    attack.reth(|reth| reth.len = 1025);
    attack.refused(NakCode::InvalidRequest);
}

#[test]
fn a_region_without_the_right_is_refused() {
    let rights = [
        (Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC, 0),
        (Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC, 1),
        (Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ, 2),
        (Access::NONE, 1),
    ];
    for (access, operation) in rights {
        let mut attack = Attack::write();
        let rkey = attack.register(attack.pair.ends[1].domain, access);
        match operation {
            0 => attack.reth(|reth| reth.rkey = rkey),
            1 => attack.request(RcMessage::ReadRequest(Reth { va: BASE, rkey, len: 16 })),
            _ => {
                attack.request(RcMessage::FetchAdd(AtomicEth { va: BASE, rkey, swap_or_add: 1, compare: 0 }));
            }
        }
        attack.refused(NakCode::RemoteAccess);
    }
}

#[test]
fn a_queue_pair_without_the_right_refuses() {
    for (access, operation) in [
        (Access::REMOTE_READ | Access::REMOTE_ATOMIC, 0),
        (Access::REMOTE_WRITE | Access::REMOTE_ATOMIC, 1),
        (Access::REMOTE_WRITE | Access::REMOTE_READ, 2),
    ] {
        let mut attack = Attack::write();
        let change = QpChange { access: Some(access), ..QpChange::default() };
        attack.pair.ends[1].device.modify_qp(attack.victim, &change).unwrap();
        let Reth { va, rkey, .. } = attack.here(16);
        match operation {
            0 => {}
            1 => attack.request(RcMessage::ReadRequest(attack.here(16))),
            _ => attack.request(RcMessage::CompareSwap(AtomicEth { va, rkey, swap_or_add: 1, compare: 0 })),
        }
        attack.refused(NakCode::InvalidRequest);
    }
}

#[test]
fn a_region_of_another_domain_is_refused() {
    let mut attack = Attack::write();
    let other = attack.pair.ends[1].device.create_domain().unwrap();
    let rkey = attack.register(other, ALL);
    attack.reth(|reth| reth.rkey = rkey);
    attack.refused(NakCode::RemoteAccess);
}

#[test]
fn an_atomic_that_is_not_aligned_is_refused() {
    let mut attack = Attack::write();
    let Reth { va, rkey, .. } = attack.here(8);
    attack.request(RcMessage::FetchAdd(AtomicEth { va: va + 4, rkey, swap_or_add: 1, compare: 0 }));
    attack.refused(NakCode::InvalidRequest);
}

#[test]
fn parts_of_messages_out_of_place_are_refused() {
    for message in [
        RcMessage::Write(Part::Middle),
        RcMessage::Write(Part::Last(None)),
        RcMessage::Send(Part::Middle),
        RcMessage::Send(Part::Last(SendEnd::Plain)),
    ] {
        let mut attack = Attack::write();
        attack.repr.message = Message::Rc(message);
        attack.payload = vec![1; 1024];
        attack.refused(NakCode::InvalidRequest);
    }
}

#[test]
fn another_message_may_not_begin_within_one() {
    let mut attack = Attack::write();
    let whole = attack.repr;
    attack.repr.message = Message::Rc(RcMessage::Write(Part::First(attack.here(2000))));
    attack.payload = vec![0; 1024];
    assert_eq!(attack.fire(), Some(Syndrome::Ack(Credit::UNLIMITED)));
    attack.repr = Repr { bth: Bth { psn: Psn::new(PSN + 1), ..whole.bth }, ..whole };
    attack.payload = vec![0xAA; 16];
    attack.refused(NakCode::InvalidRequest);
}

#[test]
fn packets_ahead_get_one_nak_and_have_no_effect() {
    for ahead in [1, 2, 1000, 0x7F_FFFF] {
        let mut attack = Attack::write();
        attack.repr.bth.psn = Psn::new(PSN + ahead);
        assert_eq!(attack.fire(), Some(Syndrome::Nak(NakCode::PsnSequence)));
        assert_eq!(attack.fire(), None);
        assert!(attack.untouched());
    }
}

#[test]
fn a_packet_ahead_that_is_longer_than_the_path_mtu_is_not_kept() {
    let mut attack = Attack::write();
    let next = attack.payload.clone();
    attack.repr.bth.flags = BthFlags::ACK_REQUEST | BthFlags::SELECTIVE;
    attack.repr.bth.psn = Psn::new(PSN + 1);
    attack.payload = vec![0xAA; Link::default().mtu.bytes() + 4];
    assert_eq!(attack.fire(), Some(Syndrome::Nak(NakCode::PsnSequence)));
    attack.repr.bth.psn = Psn::new(PSN);
    attack.payload = next;
    assert_eq!(attack.fire(), Some(Syndrome::Ack(Credit::UNLIMITED)));
    assert_eq!(attack.victim_state(), QpState::Rts);
}

#[test]
fn packets_behind_are_acknowledged_and_do_nothing() {
    for behind in [1, 2, 1000, 0x7F_FFFF] {
        let mut attack = Attack::write();
        attack.repr.bth.psn = Psn::new(PSN.wrapping_sub(behind));
        assert_eq!(attack.fire(), Some(Syndrome::Ack(Credit::UNLIMITED)));
        assert!(attack.untouched());
    }
}

#[test]
fn an_old_read_or_atomic_that_was_never_requested_is_ignored() {
    let mut attack = Attack::write();
    let Reth { va, rkey, .. } = attack.here(16);
    attack.repr.bth.psn = Psn::new(PSN - 5);
    for message in [
        RcMessage::ReadRequest(attack.here(16)),
        RcMessage::FetchAdd(AtomicEth { va, rkey, swap_or_add: 1, compare: 0 }),
    ] {
        attack.request(message);
        assert_eq!(attack.fire(), None);
        assert!(attack.untouched());
    }
}

#[test]
fn a_repeated_read_shows_no_more_than_the_first() {
    let mut attack = Attack::write();
    let first = attack.here(16);
    attack.request(RcMessage::ReadRequest(first));
    assert!(attack.fire().is_some());
    for other in [
        Reth { va: first.va + 100, ..first },
        Reth { len: 17, ..first },
        Reth { rkey: RKey(first.rkey.0 ^ 1), ..first },
        Reth { va: first.va - 1, ..first },
    ] {
        attack.request(RcMessage::ReadRequest(other));
        assert_eq!(attack.fire(), None);
    }
    attack.request(RcMessage::ReadRequest(first));
    assert!(attack.fire().is_some());
}

#[test]
fn a_repeated_read_of_any_length_from_its_second_packet_on_shows_no_more_than_the_first() {
    let mut attack = Attack::write();
    let mtu = Link::default().mtu.bytes() as u32;
    let first = attack.here(mtu + 16);
    attack.request(RcMessage::ReadRequest(first));
    assert!(attack.fire().is_some());
    attack.answer();
    attack.repr.bth.psn = Psn::new(PSN + 1);
    for len in [17, u32::MAX - mtu, u32::MAX] {
        attack.request(RcMessage::ReadRequest(Reth { va: first.va + u64::from(mtu), len, ..first }));
        assert_eq!(attack.fire(), None, "{len}");
    }
    attack.request(RcMessage::ReadRequest(Reth { va: first.va + u64::from(mtu), len: 16, ..first }));
    assert!(attack.fire().is_some());
}

#[test]
fn more_reads_than_allowed_are_refused() {
    let mut attack = Attack::write();
    attack.request(RcMessage::ReadRequest(attack.here(16)));
    for nth in 0..5 {
        attack.repr.bth.psn = Psn::new(PSN + nth);
        let bytes = attack.bytes();
        attack.pair.inject(1, &bytes);
    }
    for _ in 0..4 {
        assert_eq!(attack.answer(), Some(Syndrome::Ack(Credit::UNLIMITED)));
    }
    assert_eq!(attack.answer(), Some(Syndrome::Nak(NakCode::InvalidRequest)));
    assert_eq!(attack.answer(), None);
}

#[test]
fn a_read_that_is_repeated_while_its_answer_arrives_takes_no_place_of_a_new_one() {
    let mut attack = Attack::write();
    attack.request(RcMessage::ReadRequest(attack.here(16)));
    let read = |attack: &mut Attack, nth: u32| {
        attack.repr.bth.psn = Psn::new(PSN + nth);
        let bytes = attack.bytes();
        attack.pair.inject(1, &bytes);
    };
    for nth in 0..4 {
        read(&mut attack, nth);
        assert_eq!(attack.answer(), Some(Syndrome::Ack(Credit::UNLIMITED)));
    }
    // The oldest again, and the request that follows once it is answered.
    read(&mut attack, 0);
    read(&mut attack, 4);
    assert_eq!(attack.answer(), Some(Syndrome::Ack(Credit::UNLIMITED)));
}

/// Guesses of an attacker who knows a key of the process, above and below it.
const GUESSES: u32 = 1_000_000;

#[test]
fn a_million_guesses_near_a_known_key_reach_nothing() {
    let mut pair = Pair::new();
    // A UC connection, which refused packets do not end.
    let [_, victim] = pair.connect(QpType::Uc, &Link { psn: PSN, ..Link::default() });
    let end = &mut pair.ends[1];
    // Each of these keys serves the attacker as well as the known one.
    for _ in 0..64 {
        end.device.register(end.domain, RegionConfig::new(BASE, MEMORY as u64, ALL)).unwrap();
    }
    let key = end.rkey.0;
    let dest_qp = end.device.qp_number(victim).unwrap();
    let write = |psn: u32, rkey: u32| {
        let reth = Reth { va: BASE, rkey: RKey(rkey), len: 16 };
        let message = Message::Uc(UcMessage::Write(Part::Only(reth, None)));
        let bth = Bth { flags: BthFlags::NONE, pkey: PKey::default(), dest_qp, psn: Psn::new(psn) };
        datagram(0, &Repr { bth, message }, &[0xAA; 16])
    };
    for nth in 0..GUESSES {
        let by = nth / 2 + 1;
        let guess = if nth % 2 == 0 { key.wrapping_add(by) } else { key.wrapping_sub(by) };
        pair.inject(1, &write(PSN + nth, guess));
    }
    // Each was a request of the connection, and refused.
    assert!(pair.ends[1].device.counters().dropped_unreliable >= u64::from(GUESSES));
    assert!(pair.ends[1].device.memory().bytes().iter().all(|byte| *byte == 0));
    pair.inject(1, &write(PSN + GUESSES, key));
    assert_eq!(pair.ends[1].bytes(0, 17), [&[0xAA; 16][..], &[0]].concat());
}

#[test]
fn a_wrong_queue_pair_is_ignored() {
    let attack = Attack::write();
    let victim = attack.repr.bth.dest_qp.value();
    let first = attack.pair.ends[1].device.config().first_qp;
    for number in [0, 1, first - 1, victim - 1, victim + 1, victim + 2, 0xFF_FFFF] {
        let mut attack = Attack::write();
        attack.repr.bth.dest_qp = QpNumber::new(number).unwrap_or(QpNumber::MULTICAST);
        attack.ignored();
    }
}

#[test]
fn another_partition_is_ignored() {
    let mut attack = Attack::write();
    attack.repr.bth.pkey = PKey(0x8001);
    attack.ignored();
}

#[test]
fn another_service_is_ignored() {
    let mut attack = Attack::write();
    attack.repr.message = Message::Uc(UcMessage::Write(Part::Only(attack.here(16), None)));
    attack.ignored();
}

#[test]
fn another_sender_is_ignored() {
    let mut attack = Attack::write();
    let addresses = nichrome_wire::AddressPair::V4 { src: [10, 0, 0, 9].into(), dst: [10, 0, 0, 2].into() };
    let flow = nichrome_wire::rdma::UdpFlow::to_roce(addresses, 4791);
    let bytes = &crate::common::datagram_of_flow(&flow, &attack.repr, &attack.payload);
    let datagram = Datagram { flow, traffic_class: nichrome_wire::TrafficClass(0), bytes };
    attack.pair.ends[1].device.receive(&datagram, attack.pair.now);
    assert_eq!(attack.answer(), None);
    assert!(attack.untouched());
}

#[test]
fn any_wrong_bit_is_ignored() {
    let attack = Attack::write();
    let bytes = attack.bytes();
    let mut attack = attack;
    for bit in 0..bytes.len() * 8 {
        // The ICRC does not cover these bits: routers change them.
        if (32..40).contains(&bit) {
            continue;
        }
        let mut wrong = bytes.clone();
        wrong[bit / 8] ^= 0x80 >> (bit % 8);
        attack.pair.inject(1, &wrong);
        assert_eq!(attack.answer(), None, "bit {bit}");
    }
    for len in 0..bytes.len() {
        attack.pair.inject(1, &bytes[..len]);
        assert_eq!(attack.answer(), None, "{len} bytes");
    }
    assert!(attack.untouched());
}

#[test]
fn queue_pairs_that_are_not_ready_take_nothing() {
    for state in [QpState::Reset, QpState::Err] {
        let mut attack = Attack::write();
        attack.pair.ends[1].device.modify_qp(attack.victim, &QpChange::to(state)).unwrap();
        assert_eq!(attack.fire(), None);
        assert!(attack.untouched());
    }
}

#[test]
fn answers_to_nothing_change_nothing() {
    let mut attack = Attack::write();
    attack.payload = vec![0xAA; 16];
    let aeth = Aeth { syndrome: Syndrome::Ack(Credit::UNLIMITED), msn: Msn::new(1) };
    let (victim, there) = (attack.victim, attack.pair.ends[0].remote(0));
    // With nothing outstanding, and with a WRITE outstanding at another number.
    for outstanding in [0, 1] {
        if outstanding == 1 {
            attack.pair.ends[1].post(victim, 1, Operation::Write(there), 0, 8);
            attack.pair.transmit();
        }
        for psn in [PSN - 1, PSN + 1, PSN + 500] {
            for message in [
                RcMessage::ReadResponse(ReadResponse::Only(aeth)),
                RcMessage::AtomicAcknowledge(aeth, 0xAAAA),
                RcMessage::Acknowledge(aeth),
                RcMessage::Acknowledge(Aeth { syndrome: Syndrome::Nak(NakCode::RemoteAccess), ..aeth }),
            ] {
                attack.repr = Repr {
                    bth: Bth { psn: Psn::new(psn), ..attack.repr.bth },
                    message: Message::Rc(message),
                };
                if !matches!(message, RcMessage::ReadResponse(_)) {
                    attack.payload.clear();
                }
                assert_eq!(attack.fire(), None);
            }
            attack.payload = vec![0xAA; 16];
        }
    }
    assert!(attack.untouched());
    assert!(attack.pair.ends[1].completions().is_empty());
}

#[test]
fn data_that_was_not_requested_fails_the_request() {
    let mut attack = Attack::write();
    let (victim, there) = (attack.victim, attack.pair.ends[0].remote(0));
    attack.pair.ends[1].post(victim, 1, Operation::Write(there), 0, 8);
    attack.pair.transmit();
    let aeth = Aeth { syndrome: Syndrome::Ack(Credit::UNLIMITED), msn: Msn::new(1) };
    attack.repr.message = Message::Rc(RcMessage::ReadResponse(ReadResponse::Only(aeth)));
    assert_eq!(attack.fire(), None);
    assert!(attack.untouched());
    let done = attack.pair.ends[1].completions();
    assert_eq!(done.first().map(|wc| wc.status), Some(Status::BadResponse));
}

#[test]
fn data_of_another_length_or_place_than_requested_fails_the_request() {
    let aeth = Aeth { syndrome: Syndrome::Ack(Credit::UNLIMITED), msn: Msn::new(1) };
    let asked = 2000;
    let answers = [
        (ReadResponse::First(aeth), 1020),
        (ReadResponse::First(aeth), 0),
        (ReadResponse::Only(aeth), 1024),
        (ReadResponse::Only(aeth), 976),
        (ReadResponse::Last(aeth), 1024),
    ];
    for (part, len) in answers {
        let mut attack = Attack::write();
        let (victim, there) = (attack.victim, attack.pair.ends[0].remote(0));
        attack.pair.ends[1].post(victim, 1, Operation::Read(there), 0, asked);
        attack.pair.transmit();
        attack.payload = vec![0xAA; len];
        attack.repr.message = Message::Rc(RcMessage::ReadResponse(part));
        assert_eq!(attack.fire(), None);
        assert!(attack.untouched(), "{part:?} of {len} bytes");
        let done = attack.pair.ends[1].completions();
        assert_eq!(done.first().map(|wc| wc.status), Some(Status::BadResponse));
    }
}

/// Datagrams of garbage.
const GARBAGE: u64 = 2_000_000;

#[test]
fn garbage_does_nothing() {
    let mut random = Pcg64::seed_from_u64(3);
    let mut pair = Pair::new();
    let qps = [QpType::Rc, QpType::Uc, QpType::Ud].map(|kind| pair.connect(kind, &Link::default())[1]);
    pair.ends[1].fill(0, &pattern(MEMORY, 4));
    let numbers = qps.map(|qp| pair.ends[1].device.qp_number(qp).unwrap().value());
    let numbers = [numbers[0], numbers[1], numbers[2], numbers[2] + 1];
    let template = Attack::write().bytes();
    for nth in 0..GARBAGE {
        let mut bytes = if nth % 2 == 0 { template.clone() } else { vec![0; random.random_range(0..120)] };
        if nth % 2 == 0 {
            bytes[0] = random.random();
            bytes[5..8].copy_from_slice(&numbers[random.random_range(0..4)].to_be_bytes()[1..]);
            (0..4).for_each(|_| {
                let at = random.random_range(0..bytes.len());
                bytes[at] = random.random();
            });
        } else {
            random.fill(&mut bytes[..]);
        }
        pair.inject(1, &bytes);
    }
    assert!(pair.ends[1].device.memory().bytes() == pattern(MEMORY, 4));
    assert!(pair.ends[1].completions().is_empty() && pair.ends[1].events().is_empty());
    assert_eq!(pair.ends[1].device.poll_transmit(pair.now, 1, &mut [0; 9000]), None);
    for qp in qps {
        assert_eq!(pair.ends[1].device.query_qp(qp).unwrap().state, QpState::Rts);
    }
    let counters = pair.ends[1].device.counters();
    let dropped =
        counters.dropped_malformed + counters.dropped_unknown + counters.dropped_key + counters.dropped_icrc;
    assert_eq!((counters.received, dropped), (GARBAGE, GARBAGE));
}

/// An ICRC that is right for another identification is accepted only if the driver does not see
/// identifications.
#[test]
fn where_identifications_are_seen_an_icrc_is_right_or_wrong() {
    for sees_identifications in [false, true] {
        let mut pair = Pair::with(|config| config.roce.sees_identifications = sees_identifications);
        let [a, _] = pair.connect(QpType::Rc, &Link::default());
        let there = pair.ends[1].remote(0);
        pair.ends[0].post(a, 1, Operation::Write(there), 0, 100);
        let mut buffer = vec![0; 8192];
        let transmit =
            pair.ends[0].device.poll_transmit(pair.now, 1, &mut buffer).unwrap().datagrams().unwrap();
        IcrcChecker::default().change_ident(&mut buffer[..transmit.len], 7);
        pair.inject(1, &buffer[..transmit.len]);
        assert_eq!(pair.ends[1].device.counters().dropped_icrc, u64::from(sees_identifications));
    }
}
