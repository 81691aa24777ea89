//! StaR between two devices: each verb in both directions.

use crate::common::{ALL, BASE, Faults, Link, Pair, pattern};
use nichrome_rdma::star::{CardAuthentication, ServerSecret};
use nichrome_rdma::*;
use nichrome_wire::star::Repr;

const SIZES: [usize; 9] = [0, 1, 7, 8, 1023, 1024, 1025, 5000, 1 << 20];

/// The end that is stateless. End 0 is the initiator.
const SERVERS: [usize; 2] = [0, 1];

const IMMEDIATE: ImmediateData = ImmediateData([1, 2, 3, 4]);

fn ok(done: &[Completion]) -> Vec<u64> {
    assert!(done.iter().all(|wc| wc.status == Status::Success), "{done:?}");
    done.iter().map(|wc| wc.wr_id).collect()
}

#[test]
fn writes_and_reads_of_any_size_in_both_directions() {
    for server in SERVERS {
        for len in SIZES {
            let mut pair = Pair::new();
            let [a, _] = pair.connect_star(server, &Link::default());
            let data = pattern(len, len as u64);
            pair.ends[0].fill(0, &data);
            let there = pair.ends[1].remote(1 << 20);
            pair.ends[0].post(a, 1, Operation::Write(there), 0, len);
            pair.run();
            assert_eq!(ok(&pair.ends[0].completions()), [1], "{server} {len}");
            assert!(pair.ends[1].bytes(1 << 20, len) == data);
            pair.ends[0].post(a, 2, Operation::Read(there), 2 << 20, len);
            pair.run();
            assert_eq!(ok(&pair.ends[0].completions()), [2], "{server} {len}");
            assert!(pair.ends[0].bytes(2 << 20, len) == data);
            assert_eq!(pair.ends[1].completions(), []);
        }
    }
}

#[test]
fn messages_of_any_size_in_both_directions() {
    for server in SERVERS {
        for len in SIZES {
            let mut pair = Pair::new();
            let [a, b] = pair.connect_star(server, &Link::default());
            let data = pattern(len, len as u64);
            pair.ends[0].fill(0, &data);
            pair.ends[1].receive(b, 7, 1 << 20, 1 << 20);
            pair.ends[0].post(a, 1, Operation::SendWithImmediate(IMMEDIATE), 0, len);
            pair.run();
            assert_eq!(ok(&pair.ends[0].completions()), [1], "{server} {len}");
            let done = pair.ends[1].completions();
            assert_eq!(ok(&done), [7]);
            assert_eq!((done[0].len as usize, done[0].notice), (len, Some(Notice::Immediate(IMMEDIATE))));
            assert_eq!(done[0].operation, CompletedOperation::Receive);
            assert!(pair.ends[1].bytes(1 << 20, len) == data);
        }
    }
}

#[test]
fn many_buffers_are_one_message() {
    for server in SERVERS {
        let mut pair = Pair::new();
        let [a, b] = pair.connect_star(server, &Link::default());
        let data = pattern(3000, 5);
        pair.ends[0].fill(0, &data);
        let pieces = [(0, 1), (1, 0), (1, 1500), (1501, 499), (2000, 1000)];
        let from: Vec<Sge> = pieces.iter().map(|(at, len)| pair.ends[0].sge(*at, *len)).collect();
        let to = [(0x9000, 1025), (0x8000, 3), (0x7000, 0), (0x6000, 4000)];
        let to: Vec<Sge> = to.iter().map(|(at, len)| pair.ends[1].sge(*at, *len)).collect();
        pair.ends[1].device.post_receive(b, &ReceiveRequest { wr_id: 7, buffers: &to }).unwrap();
        pair.ends[0].device.post_send(a, &SendRequest::new(1, Operation::Send, &from)).unwrap();
        pair.run();
        assert_eq!((ok(&pair.ends[0].completions()), ok(&pair.ends[1].completions())), (vec![1], vec![7]));
        let end = &pair.ends[1];
        let got = [end.bytes(0x9000, 1025), end.bytes(0x8000, 3), end.bytes(0x6000, 1972)].concat();
        assert!(got == data);
    }
}

#[test]
fn inline_bytes_come_with_the_request() {
    for server in SERVERS {
        let mut pair = Pair::new();
        let [a, b] = pair.connect_star(server, &Link::default());
        let there = pair.ends[1].remote(0x3000);
        pair.ends[1].receive(b, 7, 0x1000, 1000);
        for operation in [Operation::Write(there), Operation::Send] {
            let payload = Payload::Inline(&[9; 300]);
            let request = SendRequest { payload, ..SendRequest::new(1, operation, &[]) };
            pair.ends[0].device.post_send(a, &request).unwrap();
        }
        pair.run();
        assert_eq!((ok(&pair.ends[0].completions()), ok(&pair.ends[1].completions())), (vec![1, 1], vec![7]));
        assert_eq!(
            (pair.ends[1].bytes(0x1000, 301), pair.ends[1].bytes(0x3000, 300)[299]),
            (&[&[9; 300][..], &[0]].concat()[..], 9)
        );
    }
}

#[test]
fn requests_that_ask_for_no_completion_make_none_and_give_their_places_back() {
    for server in SERVERS {
        let mut pair = Pair::new();
        let [a, _] = pair.connect_star(server, &Link::default());
        let there = pair.ends[1].remote(0);
        for round in 0..10 {
            for nth in 0..128 {
                let buffers = [pair.ends[0].sge(0, 8)];
                let request = SendRequest {
                    flags: SendFlags::NONE,
                    ..SendRequest::new(nth, Operation::Write(there), &buffers)
                };
                pair.ends[0]
                    .device
                    .post_send(a, &request)
                    .unwrap_or_else(|error| panic!("{round} {nth}: {error}"));
            }
            pair.run();
        }
        assert_eq!(pair.ends[0].completions(), []);
    }
}

#[test]
fn a_solicited_message_wakes_its_receiver() {
    for server in SERVERS {
        for flags in [SendFlags::NONE, SendFlags::SOLICITED] {
            let mut pair = Pair::new();
            let [a, b] = pair.connect_star(server, &Link::default());
            pair.ends[1].receive(b, 7, 0, 100);
            let cq = pair.ends[1].cq;
            pair.ends[1].device.req_notify_cq(cq, Notify::Solicited).unwrap();
            let buffers = [pair.ends[0].sge(0, 10)];
            let request = SendRequest { flags, ..SendRequest::new(1, Operation::Send, &buffers) };
            pair.ends[0].device.post_send(a, &request).unwrap();
            pair.run();
            let is_notified = pair.ends[1].events().contains(&Event::Completion(cq));
            assert_eq!(is_notified, flags == SendFlags::SOLICITED);
        }
    }
}

#[test]
fn a_message_may_invalidate_a_key_of_its_receiver() {
    for server in SERVERS {
        let mut pair = Pair::new();
        let [a, b] = pair.connect_star(server, &Link::default());
        let end = &mut pair.ends[1];
        let access = ALL | Access::INVALIDATE;
        let region = end.device.register(end.domain, RegionConfig::new(BASE, 100, access)).unwrap();
        let key = end.device.query_region(region).unwrap().rkey;
        end.receive(b, 7, 0, 100);
        pair.ends[0].post(a, 1, Operation::SendWithInvalidate(key), 0, 10);
        pair.run();
        assert_eq!(ok(&pair.ends[0].completions()), [1]);
        assert_eq!(pair.ends[1].completions()[0].notice, Some(Notice::Invalidated(key)));
        let there = Remote { address: BASE, rkey: key };
        pair.ends[0].post(a, 2, Operation::Write(there), 0, 10);
        pair.run();
        assert_eq!(pair.ends[0].statuses(), [(2, Status::RemoteAccess)]);
    }
}

#[test]
fn a_message_waits_for_a_receive_as_long_as_its_retries_allow() {
    for server in SERVERS {
        let mut pair = Pair::new();
        let [a, b] = pair.connect_star(server, &Link::default());
        pair.ends[0].post(a, 1, Operation::Send, 0, 10);
        pair.run_for(50_000_000);
        assert_eq!(pair.ends[0].completions(), []);
        pair.ends[1].receive(b, 7, 0, 100);
        pair.run();
        assert_eq!(ok(&pair.ends[0].completions()), [1], "{server}");
        let mut pair = Pair::new();
        let [a, _] = pair.connect_star(server, &Link { rnr_retry: 1, ..Link::default() });
        pair.ends[0].post(a, 1, Operation::Send, 0, 10);
        pair.run();
        assert_eq!(pair.ends[0].statuses(), [(1, Status::RnrRetryExceeded)], "{server}");
    }
}

#[test]
fn a_send_queue_drains_and_goes_on() {
    for server in SERVERS {
        let mut pair = Pair::new();
        let [a, _] = pair.connect_star(server, &Link::default());
        let there = pair.ends[1].remote(0);
        pair.ends[0].post(a, 1, Operation::Write(there), 0, 20_000);
        pair.run_for(45_000);
        let drain = QpChange { drain_notice: Some(DrainNotice::Event), ..QpChange::to(QpState::Sqd) };
        pair.ends[0].device.modify_qp(a, &drain).unwrap();
        pair.ends[0].post(a, 2, Operation::Write(there), 0, 10);
        pair.run();
        assert_eq!(ok(&pair.ends[0].completions()), [1]);
        assert!(pair.ends[0].events().contains(&Event::SendQueueDrained(a)));
        pair.ends[0].device.modify_qp(a, &QpChange::to(QpState::Rts)).unwrap();
        pair.run();
        assert_eq!(ok(&pair.ends[0].completions()), [2]);
    }
}

#[test]
fn receives_of_a_client_may_be_shared() {
    let mut pair = Pair::new();
    let srq = pair.ends[1]
        .device
        .create_srq(pair.ends[1].domain, SrqAttributes { wrs: 8, sges: 1, limit: 0 })
        .unwrap();
    let qps = [None, Some(srq)].map(Some).into_iter().flatten().zip(0..2).map(|(srq, end)| {
        let config = QpConfig { srq, ..pair.ends[end].qp_config(QpType::Rc) };
        pair.ends[end].device.create_qp(config).unwrap()
    });
    let qps: Vec<QpHandle> = qps.collect();
    let qps = [qps[0], qps[1]];
    pair.bring_up_star(0, qps, &Link::default());
    pair.ends[0].fill(0, &[3; 100]);
    (1..=2).for_each(|nth| pair.ends[0].post(qps[0], nth, Operation::Send, 0, 100));
    pair.run_for(1_000_000);
    for nth in 0..2 {
        let buffers = [pair.ends[1].sge(0x1000, 200)];
        let request = ReceiveRequest { wr_id: 7 + nth, buffers: &buffers };
        pair.ends[1].device.post_srq_receive(srq, &request).unwrap();
    }
    pair.run();
    assert_eq!((ok(&pair.ends[0].completions()), ok(&pair.ends[1].completions())), (vec![1, 2], vec![7, 8]));
    assert_eq!(pair.ends[1].bytes(0x1000, 100), [3; 100]);
}

#[test]
fn with_authentication_all_verbs_work() {
    for server in SERVERS {
        let mut pair = Pair::with(|config| {
            let secret = ServerSecret::new([config.seed as u8; 16]);
            config.star.authentication = Some(CardAuthentication { secret });
        })
        .seeded(3, Faults { loss: 0.05, ..Faults::default() });
        pair.record = true;
        let [a, b] = pair.connect_star(server, &Link::default());
        let data = pattern(20_000, 1);
        pair.ends[0].fill(0, &data);
        pair.ends[1].receive(b, 7, 0x8000, 20_000);
        let there = pair.ends[1].remote(0x10000);
        pair.ends[0].post(a, 1, Operation::Write(there), 0, 20_000);
        pair.ends[0].post(a, 2, Operation::Send, 0, 20_000);
        pair.ends[0].post(a, 3, Operation::Read(there), 0x20000, 20_000);
        pair.run();
        assert_eq!(
            (ok(&pair.ends[0].completions()), ok(&pair.ends[1].completions())),
            (vec![1, 2, 3], vec![7])
        );
        assert!(pair.ends[0].bytes(0x20000, 20_000) == data);
        assert!(pair.sent.iter().all(|(_, bytes)| Repr::parse(bytes).unwrap().2.is_some()));
        pair.run_for(10_000_000_000);
        pair.ends[0].post(a, 4, Operation::Write(there), 0, 10);
        pair.run();
        assert_eq!(ok(&pair.ends[0].completions()), [4]);
    }
}
