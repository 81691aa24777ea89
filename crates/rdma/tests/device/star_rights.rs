//! StaR: the accesses that a queue pair's rights and its server's registrations allow, and when they begin and end.

use crate::common::{ALL, BASE, Link, Pair};
use nichrome_rdma::*;

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
