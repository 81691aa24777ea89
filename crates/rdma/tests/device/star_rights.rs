//! StaR: the accesses that a queue pair's rights and its server's registrations allow, and when they begin
//! and end.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{ALL, BASE, Fate, Link, Pair};
use nichrome_rdma::*;
use nichrome_wire::SeqNumber;
use nichrome_wire::star::{PacketType, Repr};

#[test]
fn a_queue_pair_gives_the_rights_that_it_was_given() {
    for server in [0, 1] {
        let mut pair = Pair::new();
        let [a, b] = pair.connect_star(server, &Link { access: Access::REMOTE_READ, ..Link::default() });
        let there = pair.ends[1].remote(0);
        pair.ends[0].post(a, 1, Operation::Read(there), 0, 10);
        pair.ends[0].post(a, 2, Operation::Write(there), 0, 10);
        pair.run();
        let expected = [(1, Status::Success), (2, Status::RemoteInvalidRequest)];
        assert_eq!(pair.ends[0].statuses(), expected);
        assert!(pair.ends[1].events().contains(&Event::QpRequestError(b)));
    }
}

#[test]
fn clients_learn_of_memory_that_is_registered_and_deregistered_later() {
    let mut pair = Pair::new();
    let [a, _] = pair.connect_star(1, &Link { retry_count: 1, ..Link::default() });
    let end = &mut pair.ends[1];
    let region = end.device.register(end.domain, RegionConfig::new(BASE, 100, ALL)).unwrap();
    let there = Remote { address: BASE, rkey: end.device.query_region(region).unwrap().rkey };
    // The client's program uses the key before the WQEP arrives.
    pair.ends[0].post(a, 1, Operation::Write(there), 0, 10);
    pair.run();
    assert_eq!(pair.ends[0].statuses(), [(1, Status::Success)]);
    pair.ends[1].device.deregister(region).unwrap();
    pair.run();
    let stored = pair.ends[1].device.view::<star::CardCounters>().stored;
    pair.ends[0].post(a, 2, Operation::Write(there), 0, 10);
    pair.run();
    assert_eq!(pair.ends[0].statuses(), [(2, Status::RemoteAccess)]);
    // The client's egress module has blocked the packet.
    assert_eq!(pair.ends[1].device.view::<star::CardCounters>().stored, stored);
    assert!(pair.ends[0].device.view::<star::EgressCounters>().blocked_memory > 0);
}

/// The server's program sees a WRITE in its memory and deregisters it when the client has retransmitted,
/// because the answers are late. Returns how the WRITE ends, and whether the card refused the copy.
fn write_whose_memory_is_deregistered(
    is_late: impl Fn(usize, u32) -> bool + 'static,
    late: u64,
    is_first: bool,
) -> (Status, bool) {
    let mut pair = Pair::new();
    let [a, _] = pair.connect_star(1, &Link::default());
    let there = pair.ends[1].remote(0);
    if !is_first {
        // The client learns the round trip and the server's clock, so that copies expire early.
        pair.ends[0].post(a, 1, Operation::Write(there), 0, 4);
        pair.run();
        assert_eq!(pair.ends[0].statuses(), [(1, Status::Success)]);
    }
    let requests = Rc::new(Cell::new(0));
    let (counted, mut to_client) = (Rc::clone(&requests), 0);
    pair.fates = Some(Box::new(move |to, bytes| {
        let is_request = Repr::parse(bytes).unwrap().0.message.packet_type() == PacketType::Rdp;
        counted.set(counted.get() + u32::from(is_request));
        to_client += u32::from(to == 0);
        if is_late(to, to_client) { Fate::ArrivesLate(late) } else { Fate::Arrives }
    }));
    pair.ends[0].post(a, 1, Operation::Write(there), 0, 4);
    pair.run_until(|pair| {
        pair.transmit();
        requests.get() == 2
    });
    let region = pair.ends[1].region;
    pair.ends[1].device.deregister(region).unwrap();
    pair.run();
    let [(1, status)] = pair.ends[0].statuses()[..] else { panic!("one completion") };
    (status, pair.ends[1].device.view::<star::CardCounters>().refused_memory > 0)
}

#[test]
fn a_write_completes_although_its_memory_is_deregistered_before_a_copy_arrives() {
    let mut refused = [false; 2];
    for late in (0..5_000_000).step_by(30_000) {
        let ends = [
            write_whose_memory_is_deregistered(|to, nth| to == 0 && nth == 1, late, true),
            write_whose_memory_is_deregistered(|to, _| to == 0, late, false),
        ];
        assert_eq!(ends.map(|(status, _)| status), [Status::Success; 2], "{late}");
        refused = [refused[0] || ends[0].1, refused[1] || ends[1].1];
    }
    assert_eq!(refused, [true; 2]);
}

#[test]
fn rights_that_the_servers_queue_pair_gives_later_are_granted_and_taken_back() {
    let link = Link { access: Access::REMOTE_READ, ..Link::default() };
    let mut pair = Pair::new();
    let qps = pair.connect_star(1, &link);
    let there = pair.ends[1].remote(0x1000);
    pair.ends[0].fill(0, b"granted");
    let change = |pair: &mut Pair, access| {
        let change = QpChange { access: Some(access), ..QpChange::to(QpState::Rts) };
        pair.ends[1].device.modify_qp(qps[1], &change).unwrap();
        pair.run();
    };
    change(&mut pair, Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
    pair.ends[0].post(qps[0], 1, Operation::Write(there), 0, 7);
    pair.ends[0].post(qps[0], 2, Operation::FetchAdd { remote: pair.ends[1].remote(0x2000), add: 4 }, 64, 8);
    pair.run();
    assert_eq!(pair.ends[0].statuses(), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!((pair.ends[1].bytes(0x1000, 7), pair.ends[1].bytes(0x2000, 1)), (&b"granted"[..], &[4][..]));
    change(&mut pair, Access::REMOTE_READ);
    pair.ends[0].post(qps[0], 3, Operation::Read(there), 128, 7);
    pair.ends[0].post(qps[0], 4, Operation::Write(there), 200, 7);
    pair.run();
    assert_eq!(pair.ends[0].statuses(), [(3, Status::Success), (4, Status::RemoteInvalidRequest)]);
    assert_eq!(
        (pair.ends[0].bytes(128, 7), pair.ends[1].bytes(0x1000, 7)),
        (&b"granted"[..], &b"granted"[..])
    );
}

/// The memory of the WRITE is deregistered before its retransmission.
#[test]
fn a_retransmission_that_the_egress_module_blocks_delays_nothing_else() {
    let mut pair = Pair::new();
    let link = Link { timeout: 20, psn: 100, ..Link::default() };
    let [client, server] = pair.connect_star(1, &link);
    let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let (region, report) = pair.ends[1].register(RegionConfig::new(BASE + 0x8000, 64, all));
    pair.run();
    let gone = Remote { address: BASE + 0x8000, rkey: report.rkey };
    pair.fates = Some(Box::new(|to, _| if to == 1 { Fate::IsLost } else { Fate::Arrives }));
    pair.ends[0].post(client, 1, Operation::Write(gone), 0, 64);
    pair.transmit();
    pair.fates = None;
    pair.ends[1].device.deregister(region).unwrap();
    pair.run_for(50_000_000);
    assert!(pair.ends[0].device.view::<star::EgressCounters>().blocked_memory > 0);
    // The client's WRITE, and the server's, which the client fetches.
    pair.ends[0].fill(0, &[7; 64]);
    pair.ends[1].fill(64, &[9; 64]);
    let (there, here) = (pair.ends[1].remote(0x4000), pair.ends[0].remote(0x4000));
    pair.ends[0].post(client, 2, Operation::Write(there), 0, 64);
    pair.ends[1].post(server, 3, Operation::Write(here), 64, 64);
    pair.run_for(100_000);
    assert_eq!(
        (pair.ends[1].bytes(0x4000, 64), pair.ends[0].bytes(0x4000, 64)),
        (&[7; 64][..], &[9; 64][..])
    );
    assert_eq!(pair.ends[1].statuses(), [(3, Status::Success)]);
    assert_eq!(pair.ends[0].statuses(), [], "completions are in order");
    pair.run();
    assert_eq!(pair.ends[0].statuses(), [(1, Status::RemoteAccess), (2, Status::Flushed)]);
}

/// The registration of a WRITE's memory is late; then its packets are lost, until the memory is deregistered.
#[test]
fn an_operation_that_was_blocked_long_ago_waits_as_long_as_another_when_it_is_blocked_again() {
    const GONE: u64 = BASE + 0x8000;
    let mut pair = Pair::new();
    let link = Link { timeout: 10, ..Link::default() };
    let [client, _] = pair.connect_star(1, &link);
    let blocked = |pair: &Pair| pair.ends[0].device.view::<star::EgressCounters>().blocked_memory;
    let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let (region, report) = pair.ends[1].register(RegionConfig::new(GONE, 64, all));
    pair.fates = Some(Box::new(|to, _| if to == 0 { Fate::ArrivesLate(1_000_000) } else { Fate::Arrives }));
    pair.ends[0].post(client, 1, Operation::Write(Remote { address: GONE, rkey: report.rkey }), 0, 64);
    pair.run_for(500_000);
    assert!(blocked(&pair) > 0, "the registration has not arrived");
    pair.fates = Some(Box::new(|to, bytes| {
        let span = Repr::parse(bytes).unwrap().0.message.span().copied();
        let is_lost = to == 1 && span.is_some_and(|span| span.address == GONE);
        if is_lost { Fate::IsLost } else { Fate::Arrives }
    }));
    let there = pair.ends[1].remote(0x4000);
    let others = |pair: &mut Pair, count| {
        for _ in 0..count {
            pair.ends[0].post(client, 2, Operation::Write(there), 0, 64);
            pair.run_for(5_000_000);
        }
    };
    // Other WRITEs are answered, so that the client does not give up the server. An operation may be blocked
    // for 34 ms.
    others(&mut pair, 10);
    let before = blocked(&pair);
    pair.ends[1].device.deregister(region).unwrap();
    others(&mut pair, 4);
    assert!(blocked(&pair) > before);
    assert_eq!(pair.ends[0].statuses(), []);
    others(&mut pair, 10);
    assert_eq!(pair.ends[0].statuses()[0], (1, Status::RemoteAccess));
}

/// A WRITE is in flight when its memory is reregistered.
#[test]
fn memory_that_moves_to_another_domain_is_out_of_reach_of_the_clients_of_the_old_one() {
    for is_authenticated in [false, true] {
        let mut pair = Pair::with(|config| {
            let secret = star::ServerSecret::new([7; 16]);
            config.star.authentication = is_authenticated.then_some(star::CardAuthentication { secret });
        });
        let [client, _] = pair.connect_star(1, &Link { retry_count: 1, ..Link::default() });
        let config = RegionConfig::new(BASE + 0x8000, 64, ALL);
        let (region, keys) = pair.ends[1].register(config);
        pair.run();
        pair.ends[0].fill(0, &[7; 64]);
        let there = Remote { address: BASE + 0x8000, rkey: keys.rkey };
        pair.ends[0].post(client, 1, Operation::Write(there), 0, 64);
        pair.transmit();
        let device = &mut pair.ends[1].device;
        let other = device.create_domain().unwrap();
        device.reregister(region, other, config).unwrap();
        assert_ne!(device.query_region(region).unwrap().rkey, keys.rkey);
        pair.run();
        assert_eq!(pair.ends[0].statuses(), [(1, Status::RemoteAccess)], "{is_authenticated}");
        assert_eq!(pair.ends[1].bytes(0x8000, 64), [0; 64], "{is_authenticated}");
    }
}

#[test]
fn rights_that_change_between_offer_and_connection_are_those_of_the_connection() {
    let mut pair = Pair::new();
    let qps = pair.connect(QpType::Rc, &Link { access: Access::REMOTE_READ, ..Link::default() });
    let offer = |pair: &Pair, end: usize, wish| {
        let question = star::MakeOffer { wish, first_element: SeqNumber(1) };
        pair.ends[end].device.ask(qps[end], question).unwrap()
    };
    let (ours, theirs) = (offer(&pair, 1, star::Wish::Own), offer(&pair, 0, star::Wish::Automatic));
    let change = QpChange { access: Some(Access::REMOTE_WRITE), ..QpChange::to(QpState::Rts) };
    let server = &mut pair.ends[1].device;
    server.modify_qp(qps[1], &change).unwrap();
    let admission = server.ask(qps[1], star::Admit(&theirs)).unwrap();
    let stateless = star::Connect { ours: &ours, theirs: &theirs, role: &star::StarRole::Stateless };
    server.connect(qps[1], &stateless).unwrap();
    let role = star::StarRole::Stateful(admission);
    let stateful = star::Connect { ours: &theirs, theirs: &ours, role: &role };
    pair.ends[0].device.connect(qps[0], &stateful).unwrap();
    pair.run();
    let there = pair.ends[1].remote(0);
    pair.ends[0].post(qps[0], 1, Operation::Write(there), 0, 10);
    pair.ends[0].post(qps[0], 2, Operation::Read(there), 0, 10);
    pair.run();
    assert_eq!(pair.ends[0].statuses(), [(1, Status::Success), (2, Status::RemoteInvalidRequest)]);
}
