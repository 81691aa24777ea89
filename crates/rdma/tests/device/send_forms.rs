//! Requests that hardware accepts and completes in error: posting them succeeds, no packet of them is sent,
//! and they complete in order.

use crate::common::{Link, Pair, address, pattern};
use nichrome_rdma::*;

/// Posts a SEND, the request and another SEND; returns the statuses of the completions, the number of
/// datagrams that the first end sent, and the final state of its queue pair.
fn outcome(
    kind: QpType,
    operation: impl Fn(&Pair) -> Operation,
    buffers: impl Fn(&Pair) -> Vec<Sge>,
) -> (Vec<(u64, Status)>, usize, QpState) {
    let mut pair = Pair::new();
    let [a, b] = pair.connect(kind, &Link::default());
    pair.record = true;
    (0..3).for_each(|nth| pair.ends[1].receive(b, nth, 10_000, 10_000));
    let number = pair.ends[1].device.qp_number(b).unwrap();
    let (operation, buffers) = (operation(&pair), buffers(&pair));
    let end = &mut pair.ends[0];
    let recipient = (kind == QpType::Ud).then(|| {
        let address = end.device.create_address(end.domain, AddressVector::to(address(1))).unwrap();
        Recipient { address, qp: number, qkey: QKey(0x1234) }
    });
    let good = [end.sge(0, 100)];
    let send = SendRequest { recipient, ..SendRequest::new(1, Operation::Send, &good) };
    let wrong = SendRequest { recipient, ..SendRequest::new(2, operation, &buffers) };
    for request in [send, wrong, SendRequest { wr_id: 3, ..send }] {
        end.device.post_send(a, &request).unwrap();
    }
    pair.run();
    let statuses = pair.ends[0].completions().iter().map(|wc| (wc.wr_id, wc.status)).collect();
    let sent = pair.sent.iter().filter(|(end, _)| *end == 0).count();
    (statuses, sent, pair.ends[0].device.query_qp(a).unwrap().state)
}

/// The SEND before succeeds, the request fails, the SEND after is flushed.
fn fails_alone(status: Status, state: QpState) -> (Vec<(u64, Status)>, usize, QpState) {
    (vec![(1, Status::Success), (2, status), (3, Status::Flushed)], 1, state)
}

#[test]
fn a_datagram_longer_than_the_mtu_completes_with_a_length_error() {
    let outcome = outcome(QpType::Ud, |_| Operation::Send, |pair| vec![pair.ends[0].sge(0, 4097)]);
    assert_eq!(outcome, fails_alone(Status::LocalLength, QpState::Sqe));
}

#[test]
fn datagrams_read_write_and_change_nothing_remotely() {
    let operations: [fn(Remote) -> Operation; 6] = [
        Operation::Read,
        Operation::Write,
        |remote| Operation::WriteWithImmediate(remote, ImmediateData([0; 4])),
        |remote| Operation::FetchAdd { remote, add: 1 },
        Operation::AtomicWrite,
        |remote| Operation::CompareSwap { remote, compare: 1, swap: 2 },
    ];
    for operation in operations {
        let outcome = outcome(
            QpType::Ud,
            |pair| operation(pair.ends[1].remote(0)),
            |pair| vec![pair.ends[0].sge(0, 8)],
        );
        assert_eq!(outcome, fails_alone(Status::LocalQpOperation, QpState::Sqe));
    }
}

#[test]
fn unreliable_connections_do_not_read() {
    let operations: [fn(Remote) -> Operation; 2] = [Operation::Read, Operation::AtomicWrite];
    for operation in operations {
        let outcome = outcome(
            QpType::Uc,
            |pair| operation(pair.ends[1].remote(0)),
            |pair| vec![pair.ends[0].sge(0, 8)],
        );
        assert_eq!(outcome, fails_alone(Status::LocalQpOperation, QpState::Sqe));
    }
}

#[test]
fn atomics_of_another_length_than_8_complete_with_a_length_error() {
    let add = |pair: &Pair| Operation::FetchAdd { remote: pair.ends[1].remote(0), add: 1 };
    let swap = |pair: &Pair| Operation::CompareSwap { remote: pair.ends[1].remote(0), compare: 0, swap: 1 };
    let write = |pair: &Pair| Operation::AtomicWrite(pair.ends[1].remote(0));
    for len in [0, 7, 9] {
        let buffers = |pair: &Pair| vec![pair.ends[0].sge(0, len)];
        let expected = fails_alone(Status::LocalLength, QpState::Err);
        assert_eq!(outcome(QpType::Rc, add, buffers), expected);
        assert_eq!(outcome(QpType::Rc, swap, buffers), expected);
        assert_eq!(outcome(QpType::Rc, write, buffers), expected);
    }
}

#[test]
fn atomics_out_of_alignment_are_refused_by_the_responder() {
    let add = |pair: &Pair| {
        let remote = pair.ends[1].remote(0);
        Operation::FetchAdd { remote: Remote { address: remote.address + 1, ..remote }, add: 1 }
    };
    let (statuses, ..) = outcome(QpType::Rc, add, |pair| vec![pair.ends[0].sge(0, 8)]);
    assert_eq!(statuses[1], (2, Status::RemoteInvalidRequest));
}

#[test]
fn messages_longer_than_any_complete_with_a_length_error() {
    for third in [0, u32::MAX] {
        let buffers = |pair: &Pair| {
            let one = pair.ends[0].sge(0, 8);
            vec![one, Sge { len: 1 << 30, ..one }, Sge { len: third, ..one }]
        };
        let write = |pair: &Pair| Operation::Write(pair.ends[1].remote(0));
        assert_eq!(
            outcome(QpType::Rc, write, buffers),
            fails_alone(Status::LocalLength, QpState::Err),
            "{third} bytes more"
        );
    }
}

#[test]
fn a_message_too_long_for_star_completes_with_a_length_error_at_either_side() {
    for server in 0..2 {
        let mut pair = Pair::new();
        let [a, _] = pair.connect_star(server, &Link::default());
        let (there, one) = (pair.ends[1].remote(0), pair.ends[0].sge(0, 8));
        let huge = [one, Sge { len: 1 << 30, ..one }];
        pair.ends[0].device.post_send(a, &SendRequest::new(1, Operation::Write(there), &[one])).unwrap();
        pair.ends[0].device.post_send(a, &SendRequest::new(2, Operation::Write(there), &huge)).unwrap();
        pair.run();
        let statuses: Vec<_> = pair.ends[0].completions().iter().map(|wc| (wc.wr_id, wc.status)).collect();
        assert_eq!(statuses, [(1, Status::Success), (2, Status::LocalLength)], "server {server}");
    }
}

#[test]
fn a_request_posted_to_fail_while_the_queue_drains_waits_until_it_runs_again() {
    let mut pair = Pair::new();
    let [a, _] = pair.connect(QpType::Rc, &Link::default());
    let (there, short) = (pair.ends[1].remote(0), [pair.ends[0].sge(0, 7)]);
    pair.ends[0].fill(0, &pattern(8, 1));
    pair.ends[0].device.modify_qp(a, &QpChange::to(QpState::Sqd)).unwrap();
    let add = Operation::FetchAdd { remote: there, add: 1 };
    pair.ends[0].device.post_send(a, &SendRequest::new(1, add, &short)).unwrap();
    pair.run();
    assert_eq!(pair.ends[0].completions(), []);
    pair.ends[0].device.modify_qp(a, &QpChange::to(QpState::Rts)).unwrap();
    pair.run();
    assert_eq!(pair.ends[0].completions()[0].status, Status::LocalLength);
}
