//! StaR between two devices: each verb in both directions, and errors.

use crate::common::{ALL, BASE, Fate, Faults, Link, MEMORY, Pair, pattern};
use nichrome_rdma::star::{
    Admit, CardAuthentication, Connect, MakeOffer, Room, ServerSecret, StarRole, Wish,
};
use nichrome_rdma::*;
use nichrome_wire::SeqNumber;
use nichrome_wire::star::{PacketType, Repr};

const SIZES: [usize; 9] = [0, 1, 7, 8, 1023, 1024, 1025, 5000, 1 << 20];

/// The end that is stateless. End 0 is the initiator.
const SERVERS: [usize; 2] = [0, 1];

const IMMEDIATE: ImmediateData = ImmediateData([1, 2, 3, 4]);

fn ok(done: &[Completion]) -> Vec<u64> {
    assert!(done.iter().all(|wc| wc.status == Status::Success), "{done:?}");
    done.iter().map(|wc| wc.wr_id).collect()
}

fn statuses(done: &[Completion]) -> Vec<(u64, Status)> {
    done.iter().map(|wc| (wc.wr_id, wc.status)).collect()
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
        assert_eq!(statuses(&pair.ends[0].completions()), [(2, Status::RemoteAccess)]);
    }
}

#[test]
fn memory_is_out_of_reach_by_a_wrong_key_or_beyond_its_bounds() {
    for server in SERVERS {
        for (nth, wrong) in [0, 1, 2].into_iter().enumerate() {
            let mut pair = Pair::new();
            let [a, b] = pair.connect_star(server, &Link { retry_count: 1, ..Link::default() });
            let right = pair.ends[1].remote(0);
            let remote = match wrong {
                0 => Remote { rkey: RKey(right.rkey.0 ^ 1), ..right },
                1 => Remote { address: BASE + MEMORY as u64 - 5, ..right },
                _ => Remote { address: BASE - 1, ..right },
            };
            pair.ends[1].receive(b, 7, 0, 100);
            pair.ends[0].post(a, 1, Operation::Write(right), 0, 10);
            pair.ends[0].post(a, 2, Operation::Write(remote), 0, 10);
            pair.ends[0].post(a, 3, Operation::Write(right), 0, 10);
            pair.run();
            let expected = [(1, Status::Success), (2, Status::RemoteAccess), (3, Status::Flushed)];
            assert_eq!(statuses(&pair.ends[0].completions()), expected, "{server} {nth}");
            assert_eq!(statuses(&pair.ends[1].completions()), [(7, Status::Flushed)], "{server} {nth}");
            assert!(pair.ends[1].events().contains(&Event::QpAccessError(b)));
        }
    }
}

#[test]
fn a_queue_pair_gives_the_rights_that_it_was_given() {
    for server in SERVERS {
        let mut pair = Pair::new();
        let [a, b] = pair.connect_star(server, &Link { access: Access::REMOTE_READ, ..Link::default() });
        let there = pair.ends[1].remote(0);
        pair.ends[0].post(a, 1, Operation::Read(there), 0, 10);
        pair.ends[0].post(a, 2, Operation::Write(there), 0, 10);
        pair.run();
        let expected = [(1, Status::Success), (2, Status::RemoteInvalidRequest)];
        assert_eq!(statuses(&pair.ends[0].completions()), expected);
        assert!(pair.ends[1].events().contains(&Event::QpRequestError(b)));
    }
}

#[test]
fn a_local_buffer_that_is_none_fails_in_its_turn() {
    for server in SERVERS {
        let mut pair = Pair::new();
        let [a, _] = pair.connect_star(server, &Link::default());
        let there = pair.ends[1].remote(0);
        pair.ends[0].post(a, 1, Operation::Write(there), 0, 5000);
        let wrong = [Sge { lkey: LKey(pair.ends[0].lkey.0 ^ 1), ..pair.ends[0].sge(0, 10) }];
        pair.ends[0].device.post_send(a, &SendRequest::new(2, Operation::Write(there), &wrong)).unwrap();
        pair.ends[0].post(a, 3, Operation::Write(there), 0, 10);
        pair.run();
        let expected = [(1, Status::Success), (2, Status::LocalProtection), (3, Status::Flushed)];
        assert_eq!(statuses(&pair.ends[0].completions()), expected, "{server}");
    }
}

#[test]
fn a_message_longer_than_its_receive_ends_both_sides() {
    for server in SERVERS {
        let mut pair = Pair::new();
        let [a, b] = pair.connect_star(server, &Link::default());
        pair.ends[1].receive(b, 7, 0, 100);
        pair.ends[1].receive(b, 8, 0, 100);
        pair.ends[0].post(a, 1, Operation::Send, 0, 101);
        pair.run();
        assert_eq!(statuses(&pair.ends[0].completions()), [(1, Status::RemoteInvalidRequest)], "{server}");
        let expected = [(7, Status::LocalLength), (8, Status::Flushed)];
        assert_eq!(statuses(&pair.ends[1].completions()), expected, "{server}");
    }
}

#[test]
fn a_receive_in_wrong_memory_ends_both_sides() {
    for server in SERVERS {
        let mut pair = Pair::new();
        let [a, b] = pair.connect_star(server, &Link { retry_count: 1, ..Link::default() });
        let wrong = [Sge { lkey: LKey(pair.ends[1].lkey.0 ^ 1), ..pair.ends[1].sge(0, 100) }];
        pair.ends[1].device.post_receive(b, &ReceiveRequest { wr_id: 7, buffers: &wrong }).unwrap();
        pair.ends[0].post(a, 1, Operation::Send, 0, 100);
        pair.run();
        assert_eq!(statuses(&pair.ends[0].completions()), [(1, Status::RemoteOperation)], "{server}");
        assert_eq!(statuses(&pair.ends[1].completions()), [(7, Status::LocalProtection)], "{server}");
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
        assert_eq!(statuses(&pair.ends[0].completions()), [(1, Status::RnrRetryExceeded)], "{server}");
    }
}

#[test]
fn error_flushes_and_closes_the_connection() {
    for server in SERVERS {
        for end in 0..2 {
            let mut pair = Pair::new();
            let qps = pair.connect_star(server, &Link::default());
            pair.ends[end].receive(qps[end], 7, 0, 100);
            // Waits for a receive that is never posted.
            pair.ends[end].post(qps[end], 1, Operation::Send, 0, 10);
            pair.ends[1 - end].receive(qps[1 - end], 8, 0, 5);
            pair.run_for(1_000);
            pair.ends[end].device.modify_qp(qps[end], &QpChange::to(QpState::Err)).unwrap();
            pair.run();
            let done = statuses(&pair.ends[end].completions());
            assert_eq!(done.len(), 2, "{server} {end} {done:?}");
            assert!(done.iter().all(|(_, status)| *status != Status::Success));
            pair.ends[end].receive(qps[end], 9, 0, 100);
            assert_eq!(statuses(&pair.ends[end].completions()), [(9, Status::Flushed)]);
            // The peer's next request fails.
            pair.ends[1 - end].post(qps[1 - end], 2, Operation::Send, 0, 10);
            pair.run();
            let done = statuses(&pair.ends[1 - end].completions());
            assert!(done.iter().any(|(id, status)| *id == 2 && *status != Status::Success), "{done:?}");
        }
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
fn clients_learn_of_memory_that_is_registered_and_deregistered_later() {
    let mut pair = Pair::new();
    let [a, _] = pair.connect_star(1, &Link { retry_count: 1, ..Link::default() });
    let end = &mut pair.ends[1];
    let region = end.device.register(end.domain, RegionConfig::new(BASE, 100, ALL)).unwrap();
    let there = Remote { address: BASE, rkey: end.device.query_region(region).unwrap().rkey };
    // The client's program uses the key before the WQEP arrives.
    pair.ends[0].post(a, 1, Operation::Write(there), 0, 10);
    pair.run();
    assert_eq!(ok(&pair.ends[0].completions()), [1]);
    pair.ends[1].device.deregister(region).unwrap();
    pair.run();
    let stored = pair.ends[1].device.view::<star::CardCounters>().stored;
    pair.ends[0].post(a, 2, Operation::Write(there), 0, 10);
    pair.run();
    assert_eq!(statuses(&pair.ends[0].completions()), [(2, Status::RemoteAccess)]);
    // The client's egress module has blocked the packet.
    assert_eq!(pair.ends[1].device.view::<star::CardCounters>().stored, stored);
    assert!(pair.ends[0].device.view::<star::EgressCounters>().blocked_memory > 0);
}

#[test]
fn a_device_has_connections_on_roce_and_on_star() {
    for server in SERVERS {
        let mut pair = Pair::new();
        pair.record = true;
        let star = pair.connect_star(server, &Link::default());
        let roce = pair.connect(QpType::Rc, &Link::default());
        let there = pair.ends[1].remote(0x100);
        pair.ends[0].post(star[0], 1, Operation::Write(there), 0, 5000);
        pair.ends[0].post(roce[0], 2, Operation::Write(there), 0, 5000);
        pair.run();
        let mut done = ok(&pair.ends[0].completions());
        done.sort_unstable();
        assert_eq!(done, [1, 2]);
    }
}

#[test]
fn beyond_the_budget_new_connections_are_stateless() {
    let mut pair = Pair::with(|config| {
        if config.seed == 0 {
            config.star.connection_budget = Some(2);
        }
    });
    let mut transports = Vec::new();
    let mut existing = None;
    for _ in 0..4 {
        let qps = pair.create(QpType::Rc);
        pair.bring_up(QpType::Rc, qps, &Link::default());
        let offer = |end: usize| {
            pair.ends[end]
                .device
                .ask(qps[end], MakeOffer { wish: Wish::Automatic, first_element: SeqNumber(1) })
                .unwrap()
        };
        let agreed = star::agree(&offer(0), &offer(1)).unwrap();
        transports.push(agreed != star::Agreement::Roce);
        if agreed != star::Agreement::Roce {
            pair.put_on_star(0, qps, 5);
        }
        existing = Some(qps[0]);
    }
    assert_eq!(transports, [false, false, true, true]);
    let again = MakeOffer { wish: Wish::Automatic, first_element: SeqNumber(1) };
    assert_eq!(pair.ends[0].device.ask(existing.unwrap(), again).unwrap().room, Room::Free);
    assert_eq!(pair.ends[0].device.stateless_connections(), 2);
}

#[test]
fn queue_pairs_that_star_cannot_take_are_refused() {
    let mut pair = Pair::new();
    let qps = pair.connect(QpType::Rc, &Link::default());
    let ours =
        pair.ends[0].device.ask(qps[0], MakeOffer { wish: Wish::Own, first_element: SeqNumber(1) }).unwrap();
    let ud = pair.connect(QpType::Ud, &Link::default());
    let device = &mut pair.ends[0].device;
    let refused = device.ask(ud[0], MakeOffer { wish: Wish::Own, first_element: SeqNumber(1) });
    assert_eq!(refused, Err(ConnectError::Service(QpType::Ud)));
    device.connect(qps[0], &Connect { ours: &ours, theirs: &ours, role: &StarRole::Stateless }).unwrap();
    let twice = device.connect(qps[0], &Connect { ours: &ours, theirs: &ours, role: &StarRole::Stateless });
    assert_eq!(twice, Err(ConnectError::State(QpState::Rts)));
}

#[test]
fn operations_that_have_no_packets_are_refused_when_posted() {
    let mut pair = Pair::new();
    let qps = pair.connect_star(1, &Link::default());
    for (end, qp) in pair.ends.iter_mut().zip(qps) {
        let request = SendRequest::new(1, Operation::LocalInvalidate(RKey(1)), &[]);
        assert_eq!(end.device.post_send(qp, &request), Err(PostError::Transport));
    }
}

#[test]
fn a_request_of_the_stateless_side_fits_one_packet() {
    let mut pair = Pair::new();
    let [a, b] = pair.connect_star(0, &Link { mtu: PathMtu::B256, ..Link::default() });
    let post = |pair: &mut Pair, end: usize, qp, payload| {
        let request = SendRequest { payload, ..SendRequest::new(1, Operation::Send, &[]) };
        pair.ends[end].device.post_send(qp, &request)
    };
    let too_long = Err(PostError::Inline { len: 261, max: 260 });
    assert_eq!(post(&mut pair, 0, a, Payload::Inline(&[0; 261])), too_long);
    assert_eq!(post(&mut pair, 0, a, Payload::Inline(&[0; 260])), Ok(()));
    assert_eq!(post(&mut pair, 1, b, Payload::Inline(&[0; 261])), Ok(()));
    let buffers = [pair.ends[0].sge(0, 1); 11];
    let too_many = Err(PostError::Buffers { count: 11, max: 10 });
    assert_eq!(post(&mut pair, 0, a, Payload::Buffers(&buffers)), too_many);
    let receive = |buffers| ReceiveRequest { wr_id: 1, buffers };
    assert_eq!(pair.ends[0].device.post_receive(a, &receive(&buffers)), too_many);
    assert_eq!(pair.ends[0].device.post_receive(a, &receive(&buffers[..10])), Ok(()));
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

#[test]
fn a_client_with_a_wrong_clock_learns_the_time() {
    let mut pair = Pair::with(|config| {
        let secret = ServerSecret::new([1; 16]);
        config.star.authentication = Some(CardAuthentication { secret });
    });
    let qps = pair.connect(QpType::Rc, &Link::default());
    let [ours, theirs] = [0, 1].map(|end| {
        pair.ends[end]
            .device
            .ask(qps[end], MakeOffer { wish: Wish::Automatic, first_element: SeqNumber(1) })
            .unwrap()
    });
    let mut admission = pair.ends[1].device.ask(qps[1], Admit(&ours)).unwrap();
    admission.clock.0 = 55_555_555;
    pair.ends[1]
        .device
        .connect(qps[1], &Connect { ours: &theirs, theirs: &ours, role: &StarRole::Stateless })
        .unwrap();
    pair.ends[0]
        .device
        .connect(qps[0], &Connect { ours: &ours, theirs: &theirs, role: &StarRole::Stateful(admission) })
        .unwrap();
    let there = pair.ends[1].remote(0);
    pair.ends[0].post(qps[0], 1, Operation::Write(there), 0, 5000);
    pair.ends[0].post(qps[0], 2, Operation::Read(there), 0, 5000);
    pair.run();
    assert_eq!(ok(&pair.ends[0].completions()), [1, 2]);
    assert!(pair.ends[1].device.view::<star::CardCounters>().refused_expired > 0);
}

#[test]
fn a_server_that_is_destroyed_sends_a_close() {
    let mut pair = Pair::new();
    pair.record = true;
    let [a, b] = pair.connect_star(1, &Link::default());
    pair.ends[1].receive(b, 7, 0, 100);
    pair.run();
    pair.ends[1].device.destroy_qp(b).unwrap();
    pair.run();
    let stored = pair.ends[1].device.view::<star::CardCounters>().stored;
    pair.ends[0].post(a, 1, Operation::Send, 0, 10);
    pair.run();
    assert_eq!(statuses(&pair.ends[0].completions()), [(1, Status::RetryExceeded)]);
    assert_eq!(
        pair.ends[1].device.view::<star::CardCounters>().stored,
        stored,
        "nothing reached a receive that is gone"
    );
    let rdps = pair
        .sent
        .iter()
        .filter(|(_, bytes)| Repr::parse(bytes).unwrap().0.message.packet_type() == PacketType::Rdp);
    assert_eq!(rdps.count(), 0);
}

/// A counter of the stateless side, to which its client and its own program add. Each answer of the card is lost once, and each
/// AOP arrives twice.
#[test]
fn atomics_of_both_sides_take_effect_once_and_in_order() {
    for server in [0, 1] {
        let mut pair = Pair::new();
        let qps = pair.connect_star(server, &Link::default());
        let mut lost = std::collections::HashSet::new();
        pair.fates = Some(Box::new(move |_, bytes| match bytes[0] & 0xF {
            7 if lost.insert(bytes[8..12].to_vec()) && lost.len() % 2 == 1 => Fate::IsLost,
            8 => Fate::ArrivesTwice,
            _ => Fate::Arrives,
        }));
        let remote = pair.ends[1].remote(64);
        for nth in 0..20 {
            let operation = match nth % 2 {
                0 => Operation::FetchAdd { remote, add: 3 },
                _ => Operation::CompareSwap { remote, compare: 3 * (nth / 2 + 1), swap: 3 * (nth / 2 + 1) },
            };
            pair.ends[0].post(qps[0], nth, operation, 8 * nth as usize, 8);
        }
        pair.run();
        let statuses = pair.ends[0].statuses();
        assert_eq!(
            statuses,
            (0..20).map(|nth| (nth, Status::Success)).collect::<Vec<_>>(),
            "server {server}"
        );
        assert_eq!(pair.ends[1].bytes(64, 8), 30u64.to_ne_bytes());
        for nth in 0..20usize {
            let found = 3 * (nth as u64).div_ceil(2);
            assert_eq!(pair.ends[0].bytes(8 * nth, 8), found.to_ne_bytes(), "server {server}, {nth}");
        }
    }
}

#[test]
fn an_atomic_of_the_client_waits_for_writes_before_it_and_writes_behind_it_wait() {
    let mut pair = Pair::new().seeded(5, Faults { loss: 0.2, ..Faults::default() });
    let qps = pair.connect_star(1, &Link::default());
    let remote = pair.ends[1].remote(0);
    for round in 0..30u64 {
        pair.ends[0].fill(0, &(100 * round).to_ne_bytes());
        pair.ends[0].fill(8, &u64::MAX.to_ne_bytes());
        pair.ends[0].post(qps[0], 1, Operation::Write(remote), 0, 8);
        pair.ends[0].post(qps[0], 2, Operation::FetchAdd { remote, add: 1 }, 16, 8);
        pair.ends[0].post(qps[0], 3, Operation::Write(remote), 8, 8);
        pair.run();
        assert_eq!(pair.ends[0].completions().len(), 3);
        assert_eq!(pair.ends[0].bytes(16, 8), (100 * round).to_ne_bytes());
        assert_eq!(pair.ends[1].bytes(0, 8), u64::MAX.to_ne_bytes());
    }
}

#[test]
fn an_atomic_needs_the_right_and_an_aligned_address() {
    let without = Link { access: Access::REMOTE_WRITE | Access::REMOTE_READ, ..Link::default() };
    for (link, at) in [(without, 0), (Link::default(), 4)] {
        let mut pair = Pair::new();
        let qps = pair.connect_star(1, &link);
        let remote = pair.ends[1].remote(at);
        pair.ends[0].post(qps[0], 1, Operation::FetchAdd { remote, add: 1 }, 0, 8);
        pair.run();
        assert_eq!(pair.ends[0].statuses(), [(1, Status::RemoteInvalidRequest)]);
        assert_eq!(pair.ends[1].bytes(0, 16), [0; 16]);
    }
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
