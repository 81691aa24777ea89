//! Refused requests behind READs, atomics, FLUSHes and ATOMIC WRITEs whose answers have not left: answers and
//! NAKs leave in PSN order (IBA 9.7.5.1, 9.9.2).

use crate::common::{BASE, Faults, Link, Pair, pattern};
use nichrome_rdma::*;

const LEN: usize = 5000;

/// Posts a valid request and a WRITE with a wrong key directly behind it; no packet has left.
fn post_both(pair: &mut Pair, qp: QpHandle, operation: Operation, len: usize) {
    let there = pair.ends[1].remote(0);
    let refused = Remote { rkey: RKey(there.rkey.0 ^ 0x5500), ..there };
    if matches!(operation, Operation::Flush { .. }) {
        pair.ends[0].post_local(qp, 1, operation);
    } else {
        pair.ends[0].post(qp, 1, operation, 0, len);
    }
    pair.ends[0].post(qp, 2, Operation::Write(refused), 0, 8);
}

/// Takes the datagrams that an end has to send.
fn outgoing(pair: &mut Pair, end: usize) -> Vec<Vec<u8>> {
    let (mut buffer, mut sent) = (vec![0; 65_507], Vec::new());
    while let Some(Transmit::Datagrams(transmit)) =
        pair.ends[end].device.poll_transmit(pair.now, 16, &mut buffer)
    {
        sent.extend(transmit.datagrams(&buffer).map(<[u8]>::to_vec));
    }
    sent
}

/// Returns a pair whose second end has received a READ and a refused WRITE behind it: the READ's data and the
/// NAK are queued there.
fn refused_behind_a_read() -> (Pair, QpHandle, QpHandle) {
    let mut pair = Pair::new();
    pair.ends[1].fill(0, &pattern(LEN, 3));
    let [a, b] = pair.connect(QpType::Rc, &Link::default());
    let there = pair.ends[1].remote(0);
    post_both(&mut pair, a, Operation::Read(there), LEN);
    outgoing(&mut pair, 0).iter().for_each(|bytes| pair.inject(1, bytes));
    assert_eq!(pair.ends[1].device.query_qp(b).unwrap().state, QpState::Err);
    (pair, a, b)
}

const READ_ANSWERED: [(u64, Status); 2] = [(1, Status::Success), (2, Status::RemoteAccess)];

#[test]
fn answers_of_earlier_requests_leave_before_the_nak() {
    let scope = Feth { placement: Placement::GLOBAL, selectivity: Selectivity::Range };
    let remote = Remote { address: BASE, ..Pair::new().ends[1].remote(0) };
    let operations = [
        (Operation::Read(remote), LEN),
        (Operation::Read(remote), 0),
        (Operation::FetchAdd { remote, add: 3 }, 8),
        (Operation::CompareSwap { remote, compare: 0, swap: 3 }, 8),
        (Operation::Flush { remote, len: 8, scope }, 0),
        (Operation::AtomicWrite(remote), 8),
    ];
    for (operation, len) in operations {
        let mut pair = Pair::new();
        pair.ends[1].fill(0, &pattern(LEN, 3));
        let [a, b] = pair.connect(QpType::Rc, &Link::default());
        post_both(&mut pair, a, operation, len);
        let before = pair.ends[1].bytes(0, LEN).to_vec();
        pair.run();
        assert_eq!(pair.ends[0].statuses(), READ_ANSWERED, "{operation:?}");
        assert_eq!(pair.ends[0].device.counters().retransmitted, 0, "{operation:?}");
        assert_eq!(pair.ends[1].device.query_qp(b).unwrap().state, QpState::Err);
        assert_eq!(pair.ends[1].events(), [Event::QpAccessError(b)]);
        if !matches!(operation, Operation::AtomicWrite(_) | Operation::Flush { .. }) {
            assert!(pair.ends[0].bytes(0, len) == &before[..len], "{operation:?}");
        }
    }
}

#[test]
fn answers_of_several_requests_leave_before_the_nak() {
    let mut pair = Pair::new();
    let [a, _] = pair.connect(QpType::Rc, &Link::default());
    let there = pair.ends[1].remote(0);
    pair.ends[0].post(a, 10, Operation::Read(there), 100, LEN);
    pair.ends[0].post(a, 11, Operation::Write(there), 0, 100);
    pair.ends[0].post(a, 12, Operation::FetchAdd { remote: there, add: 1 }, 0, 8);
    post_both(&mut pair, a, Operation::Read(there), LEN);
    pair.run();
    let ended = pair.ends[0].statuses();
    let succeeded = [10, 11, 12, 1].map(|wr_id| (wr_id, Status::Success));
    assert_eq!(ended, [&succeeded[..], &[(2, Status::RemoteAccess)]].concat());
    assert_eq!(pair.ends[0].device.counters().retransmitted, 0);
}

#[test]
fn answers_that_congestion_control_paces_leave_before_the_nak() {
    let dcqcn = Dcqcn { line_rate: 10_000_000_000, ..Dcqcn::default() };
    let mut pair = Pair::with(|config| config.roce.congestion = Congestion::Dcqcn(dcqcn));
    pair = pair.seeded(5, Faults { mark: 0.5, ..Faults::default() });
    let [a, _] = pair.connect(QpType::Rc, &Link { timeout: 14, ..Link::default() });
    let there = pair.ends[1].remote(0);
    for wr_id in 10..30 {
        pair.ends[0].post(a, wr_id, Operation::Read(there), 0, 20_000);
        pair.run_for(20_000);
    }
    post_both(&mut pair, a, Operation::Read(there), 20_000);
    pair.run();
    assert!(pair.ends[1].device.counters().congestion_notifications_received > 0);
    let ended = pair.ends[0].statuses();
    assert_eq!(ended[ended.len() - 2..], READ_ANSWERED);
    assert_eq!(pair.ends[0].device.counters().retransmitted, 0);
}

#[test]
fn a_nak_takes_the_place_of_answers_whose_region_was_deregistered() {
    let (mut pair, _, b) = refused_behind_a_read();
    let region = pair.ends[1].region;
    pair.ends[1].device.deregister(region).unwrap();
    pair.run();
    assert_eq!(pair.ends[0].statuses(), [(1, Status::RemoteAccess), (2, Status::Flushed)]);
    assert_eq!(pair.ends[0].bytes(0, LEN), [0; LEN]);
    assert_eq!(pair.ends[1].events(), [Event::QpAccessError(b)]);
}

#[test]
fn a_queue_pair_in_error_keeps_its_answers_when_the_program_moves_it_there_again() {
    let (mut pair, _, b) = refused_behind_a_read();
    pair.ends[1].device.modify_qp(b, &QpChange::to(QpState::Err)).unwrap();
    pair.run();
    assert_eq!(pair.ends[0].statuses(), READ_ANSWERED);
    assert!(pair.ends[0].bytes(0, LEN) == pattern(LEN, 3));
}

#[test]
fn a_queue_pair_that_is_reset_or_destroyed_sends_none_of_its_answers() {
    for is_reset in [false, true] {
        let (mut pair, _, b) = refused_behind_a_read();
        let end = &mut pair.ends[1];
        if is_reset {
            end.device.modify_qp(b, &QpChange::to(QpState::Reset)).unwrap();
        } else {
            end.device.destroy_qp(b).unwrap();
            end.device.deregister(end.region).unwrap();
            end.device.destroy_domain(end.domain).unwrap();
        }
        assert!(outgoing(&mut pair, 1).is_empty());
        assert_eq!(pair.ends[1].device.poll_timeout(), None);
    }
}

#[test]
fn a_queue_pair_whose_own_request_fails_drops_its_answers() {
    let mut pair = Pair::new();
    let [a, b] = pair.connect(QpType::Rc, &Link::default());
    let (here, there) = (pair.ends[0].remote(0), pair.ends[1].remote(0));
    pair.ends[0].post(a, 1, Operation::Read(there), 0, LEN);
    let read = outgoing(&mut pair, 0);
    let refused = Remote { rkey: RKey(here.rkey.0 ^ 0x5500), ..here };
    pair.ends[1].post(b, 2, Operation::Write(refused), 0, 8);
    outgoing(&mut pair, 1).iter().for_each(|bytes| pair.inject(0, bytes));
    let nak = outgoing(&mut pair, 0);
    read.iter().chain(&nak).for_each(|bytes| pair.inject(1, bytes));
    assert_eq!(pair.ends[1].statuses(), [(2, Status::RemoteAccess)]);
    assert!(outgoing(&mut pair, 1).is_empty());
}
