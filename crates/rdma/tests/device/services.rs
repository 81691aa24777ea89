//! Unreliable connections, datagrams, shared receive queues, events, and the control verbs' checks.

use std::collections::HashSet;

use crate::common::{ALL, BASE, End, Faults, Link, Pair, address, pattern};
use nichrome_rdma::*;

const IMMEDIATE: ImmediateData = ImmediateData([1, 2, 3, 4]);

#[test]
fn unreliable_connections_carry_whole_messages() {
    let mut pair = Pair::new();
    let [a, b] = pair.connect(QpType::Uc, &Link::default());
    let data = pattern(5000, 1);
    pair.ends[0].fill(0, &data);
    let there = pair.ends[1].remote(0);
    pair.ends[1].receive(b, 10, 10_000, 5000);
    pair.ends[1].receive(b, 11, 0, 0);
    pair.ends[0].post(a, 1, Operation::Send, 0, 5000);
    pair.ends[0].post(a, 2, Operation::WriteWithImmediate(there, IMMEDIATE), 0, 5000);
    pair.run();
    assert_eq!(pair.ends[0].completions().len(), 2);
    let received = pair.ends[1].completions();
    assert_eq!(received.iter().map(|wc| (wc.wr_id, wc.len)).collect::<Vec<_>>(), [(10, 5000), (11, 5000)]);
    assert!(pair.ends[1].bytes(0, 5000) == data && pair.ends[1].bytes(10_000, 5000) == data);
}

#[test]
fn the_send_queue_of_an_unreliable_connection_drains_within_a_message() {
    let mut pair = Pair::new();
    let [a, b] = pair.connect(QpType::Uc, &Link::default());
    [1, 2].iter().for_each(|wr_id| pair.ends[1].receive(b, *wr_id, 0, 5000));
    pair.ends[0].post(a, 1, Operation::Send, 0, 5000);
    pair.ends[0].post(a, 2, Operation::Send, 0, 100);
    let mut buffer = [0; 1200];
    let device = &mut pair.ends[0].device;
    assert!(device.poll_transmit(pair.now, 1, &mut buffer).is_some(), "the first packet of five");
    let drain = QpChange { drain_notice: Some(DrainNotice::Event), ..QpChange::to(QpState::Sqd) };
    device.modify_qp(a, &drain).unwrap();
    assert!(device.query_qp(a).unwrap().draining);
    pair.run();
    assert_eq!(pair.ends[0].statuses(), [(1, Status::Success)]);
    assert_eq!(pair.ends[0].events(), [Event::SendQueueDrained(a)]);
    assert!(!pair.ends[0].device.query_qp(a).unwrap().draining);
    pair.ends[0].device.modify_qp(a, &QpChange::to(QpState::Rts)).unwrap();
    pair.run();
    assert_eq!(pair.ends[0].statuses(), [(2, Status::Success)]);
}

/// Bytes of payload that each end has sent and received.
fn payload(pair: &Pair) -> [(u64, u64); 2] {
    pair.ends.each_ref().map(|end| {
        let counters = end.device.counters();
        (counters.bytes_sent, counters.bytes_received)
    })
}

#[test]
fn both_ends_count_the_payload_of_every_service() {
    let mut pair = Pair::new();
    let [a, b] = pair.connect(QpType::Ud, &Link::default());
    let number = pair.ends[1].device.qp_number(b).unwrap();
    let buffers = [pair.ends[0].sge(0, 1000)];
    let request = datagram_request(&mut pair.ends[0], &buffers, number, 0x1234);
    pair.ends[1].receive(b, 5, 0, 1040);
    pair.ends[0].device.post_send(a, &request).unwrap();
    pair.run();
    assert_eq!(payload(&pair), [(1000, 0), (0, 1000)]);
    for server in [None, Some(0), Some(1)] {
        let mut pair = Pair::new();
        let there = pair.ends[1].remote(0);
        let link = Link::default();
        let [a, _] = match server {
            None => pair.connect(QpType::Uc, &link),
            Some(server) => pair.connect_star(server, &link),
        };
        pair.ends[0].post(a, 1, Operation::Write(there), 0, 1000);
        pair.run();
        assert_eq!(payload(&pair), [(1000, 0), (0, 1000)], "{server:?}");
        if server.is_some() {
            pair.ends[0].post(a, 2, Operation::Read(there), 0, 1000);
            pair.ends[0].post(a, 3, Operation::FetchAdd { remote: there, add: 1 }, 0, 8);
            pair.run();
            assert_eq!(payload(&pair), [(1000, 1008), (1008, 1000)], "{server:?}");
        }
    }
}

#[test]
fn an_unreliable_message_arrives_complete_or_not_at_all() {
    for seed in 0..50 {
        let faults = Faults { loss: 0.1, reorder: 0.05, duplicate: 0.05, ..Faults::default() };
        let mut pair = Pair::new().seeded(seed, faults);
        let [a, b] = pair.connect(QpType::Uc, &Link::default());
        for nth in 0..20usize {
            pair.ends[0].fill(nth * 4000, &pattern(4000, nth as u64));
            pair.ends[1].receive(b, nth as u64, 100_000 + nth * 4000, 4000);
        }
        for nth in 0..20usize {
            let immediate = ImmediateData((nth as u32).to_be_bytes());
            pair.ends[0].post(a, nth as u64, Operation::SendWithImmediate(immediate), nth * 4000, 4000);
            pair.step();
        }
        pair.run();
        assert_eq!(pair.ends[0].completions().len(), 20, "nobody waits for an answer");
        for (nth, wc) in pair.ends[1].completions().into_iter().enumerate() {
            assert_eq!((wc.wr_id, wc.status), (nth as u64, Status::Success), "receives are not used up");
            let Some(Notice::Immediate(ImmediateData(sent))) = wc.notice else { panic!() };
            let sent = u64::from(u32::from_be_bytes(sent));
            assert!(pair.ends[1].bytes(100_000 + nth * 4000, 4000) == pattern(4000, sent));
        }
    }
}

#[test]
fn each_unreliable_message_without_a_receive_counts_once() {
    let mut pair = Pair::new();
    let [a, b] = pair.connect(QpType::Uc, &Link::default());
    for nth in 1..=3 {
        pair.ends[0].post(a, nth, Operation::Send, 0, 100);
    }
    pair.run();
    assert_eq!(pair.ends[1].device.counters().dropped_unreliable, 3);
    pair.ends[1].receive(b, 5, 0, 100);
    pair.ends[0].post(a, 4, Operation::Send, 0, 100);
    pair.run();
    assert_eq!(pair.ends[1].statuses(), [(5, Status::Success)]);
    assert_eq!(pair.ends[1].device.counters().dropped_unreliable, 3);
}

fn datagram_request<'a>(end: &mut End, buffers: &'a [Sge], qp: QpNumber, qkey: u32) -> SendRequest<'a> {
    let to = end.device.create_address(end.domain, AddressVector::to(address(1))).unwrap();
    let recipient = Some(Recipient { address: to, qp, qkey: QKey(qkey) });
    SendRequest { recipient, ..SendRequest::new(1, Operation::SendWithImmediate(IMMEDIATE), buffers) }
}

#[test]
fn datagrams_bring_the_header_and_the_sender() {
    let mut pair = Pair::new();
    let [a, b] = pair.connect(QpType::Ud, &Link::default());
    let (number, from) =
        (pair.ends[1].device.qp_number(b).unwrap(), pair.ends[0].device.qp_number(a).unwrap());
    pair.ends[0].fill(0, &pattern(4096, 2));
    let buffers = [pair.ends[0].sge(0, 4096)];
    let request = datagram_request(&mut pair.ends[0], &buffers, number, 0x1234);
    pair.ends[1].receive(b, 5, 0, 4136);
    pair.ends[0].device.post_send(a, &request).unwrap();
    // A wrong key, the queue pair's own key, and no receive left.
    pair.ends[1].receive(b, 6, 5000, 4136);
    for qkey in [0x9999, 0x8000_0000, 0x1234] {
        let request = datagram_request(&mut pair.ends[0], &buffers, number, qkey);
        pair.ends[0].device.post_send(a, &request).unwrap();
    }
    pair.run();
    assert_eq!(pair.ends[0].completions().len(), 4);
    let received = pair.ends[1].completions();
    assert_eq!(received.iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), [5, 6]);
    assert_eq!((received[0].len, received[0].source), (4136, Some(from)));
    assert_eq!(received[0].notice, Some(Notice::Immediate(IMMEDIATE)));
    assert_eq!(pair.ends[1].bytes(20, 1), [0x45]);
    assert_eq!(pair.ends[1].bytes(32, 8), [10, 0, 0, 1, 10, 0, 0, 2]);
    assert!(pair.ends[1].bytes(40, 4096) == pattern(4096, 2));
    assert_eq!(pair.ends[1].device.counters().dropped_key, 1);
    assert_eq!(pair.ends[1].device.counters().dropped_unreliable, 1);
}

#[test]
fn a_datagram_too_long_for_its_receive_leaves_it_for_the_next() {
    let mut pair = Pair::new();
    let [a, b] = pair.connect(QpType::Ud, &Link::default());
    let number = pair.ends[1].device.qp_number(b).unwrap();
    pair.ends[1].receive(b, 5, 0, 140);
    for len in [101, 100] {
        let buffers = [pair.ends[0].sge(0, len)];
        let request = datagram_request(&mut pair.ends[0], &buffers, number, 0x1234);
        pair.ends[0].device.post_send(a, &request).unwrap();
    }
    pair.run();
    assert_eq!(pair.ends[1].completions().iter().map(|wc| wc.len).collect::<Vec<_>>(), [140]);
}

#[test]
fn a_datagram_without_a_route_stops_the_send_queue_only() {
    let mut pair = Pair::new();
    let [a, b] = pair.connect(QpType::Ud, &Link::default());
    let number = pair.ends[1].device.qp_number(b).unwrap();
    let buffers = [pair.ends[0].sge(0, 10)];
    let request = datagram_request(&mut pair.ends[0], &buffers, number, 0x1234);
    pair.ends[0].device.post_send(a, &request).unwrap();
    pair.ends[0].device.post_send(a, &SendRequest { wr_id: 2, ..request }).unwrap();
    pair.ends[0].device.destroy_address(request.recipient.unwrap().address).unwrap();
    pair.run();
    let ended: Vec<Status> = pair.ends[0].completions().iter().map(|wc| wc.status).collect();
    assert_eq!(ended, [Status::LocalQpOperation, Status::Flushed]);
    assert_eq!(pair.ends[0].device.query_qp(a).unwrap().state, QpState::Sqe);
    pair.ends[0].device.modify_qp(a, &QpChange::to(QpState::Rts)).unwrap();
    let request = datagram_request(&mut pair.ends[0], &buffers, number, 0x1234);
    pair.ends[1].receive(b, 5, 0, 140);
    pair.ends[0].device.post_send(a, &request).unwrap();
    pair.run();
    assert_eq!(pair.ends[1].completions().len(), 1);
}

#[test]
fn queue_pairs_share_receives_and_the_limit_event_is_raised_once() {
    let mut pair = Pair::new();
    let domain = pair.ends[1].domain;
    let attributes = SrqAttributes { wrs: 64, sges: 1, limit: 0 };
    let srq = pair.ends[1].device.create_srq(domain, attributes).unwrap();
    let mut qps = Vec::new();
    for _ in 0..4 {
        let a = pair.ends[0].device.create_qp(pair.ends[0].qp_config(QpType::Rc)).unwrap();
        let shared = QpConfig { srq: Some(srq), ..pair.ends[1].qp_config(QpType::Rc) };
        let b = pair.ends[1].device.create_qp(shared).unwrap();
        pair.bring_up(QpType::Rc, [a, b], &Link::default());
        qps.push((a, b));
    }
    let buffers = |end: &End, nth: usize| [end.sge(nth * 3000, 3000)];
    for nth in 0..8 {
        let buffers = buffers(&pair.ends[1], nth);
        let request = ReceiveRequest { wr_id: nth as u64, buffers: &buffers };
        pair.ends[1].device.post_srq_receive(srq, &request).unwrap();
    }
    pair.ends[1].device.modify_srq(srq, None, Some(3)).unwrap();
    for round in 0..2 {
        for (nth, (a, _)) in qps.iter().enumerate() {
            pair.ends[0].fill(nth * 3000, &pattern(3000, nth as u64));
            pair.ends[0].post(*a, round, Operation::Send, nth * 3000, 3000);
        }
    }
    pair.run();
    assert_eq!(pair.ends[0].completions().len(), 8);
    let received = pair.ends[1].completions();
    for wc in &received {
        let nth = qps.iter().position(|(_, b)| pair.ends[1].device.qp_number(*b) == Ok(wc.qp)).unwrap();
        assert!(pair.ends[1].bytes(wc.wr_id as usize * 3000, 3000) == pattern(3000, nth as u64));
    }
    let mut ids: Vec<u64> = received.iter().map(|wc| wc.wr_id).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..8).collect::<Vec<_>>());
    assert_eq!(pair.ends[1].events(), [Event::SrqLimit(srq)]);
    assert_eq!(pair.ends[1].device.query_srq(srq).unwrap().limit, 0);
    // A queue pair that enters the error state reports that it takes no more receives.
    pair.ends[1].device.modify_qp(qps[0].1, &QpChange::to(QpState::Err)).unwrap();
    assert_eq!(pair.ends[1].events(), [Event::LastReceiveReached(qps[0].1)]);
    assert_eq!(pair.ends[1].device.destroy_srq(srq), Err(ObjectError::InUse(ObjectKind::Srq)));
}

#[test]
fn solicited_messages_wake_the_receiver() {
    let mut pair = Pair::new();
    let [a, b] = pair.connect(QpType::Rc, &Link::default());
    let cq = pair.ends[1].cq;
    (0..4).for_each(|nth| pair.ends[1].receive(b, nth, 0, 100));
    pair.ends[1].device.req_notify_cq(cq, Notify::Solicited).unwrap();
    let buffers = [pair.ends[0].sge(0, 10)];
    let request = SendRequest::new(1, Operation::Send, &buffers);
    pair.ends[0].device.post_send(a, &request).unwrap();
    pair.run();
    assert_eq!(pair.ends[1].events(), []);
    let solicited = SendRequest { flags: SendFlags::SOLICITED, ..request };
    pair.ends[0].device.post_send(a, &solicited).unwrap();
    pair.run();
    assert_eq!(pair.ends[1].events(), [Event::Completion(cq)]);
}

#[test]
fn moderated_events_come_after_their_time() {
    let mut pair = Pair::new();
    let [a, _] = pair.connect(QpType::Rc, &Link::default());
    let (cq, there) = (pair.ends[0].cq, pair.ends[1].remote(0));
    pair.ends[0].device.moderate_cq(cq, Moderation { count: 10, period_us: 500 }).unwrap();
    pair.ends[0].device.req_notify_cq(cq, Notify::Any).unwrap();
    (0..3).for_each(|nth| pair.ends[0].post(a, nth, Operation::Write(there), 0, 8));
    pair.run_for(400_000);
    assert_eq!(pair.ends[0].events(), []);
    pair.run();
    assert_eq!(pair.ends[0].events(), [Event::Completion(cq)]);
}

/// The longest period is longer than a turn of the timing wheel.
#[test]
fn a_moderation_period_is_not_cut_short() {
    for (earlier_us, period_us) in [(None, u16::MAX), (Some(500), 5000)] {
        let mut pair = Pair::new();
        let [a, _] = pair.connect(QpType::Rc, &Link::default());
        let (cq, there) = (pair.ends[0].cq, pair.ends[1].remote(0));
        let arm = |pair: &mut Pair, moderation| {
            pair.ends[0].device.moderate_cq(cq, moderation).unwrap();
            pair.ends[0].device.req_notify_cq(cq, Notify::Any).unwrap();
        };
        if let Some(period_us) = earlier_us {
            // The second completion raises the event before the end of the period.
            arm(&mut pair, Moderation { count: 2, period_us });
            (0..2).for_each(|nth| pair.ends[0].post(a, nth, Operation::Write(there), 0, 8));
            pair.run_for(100_000);
            assert_eq!(pair.ends[0].events(), [Event::Completion(cq)]);
        }
        arm(&mut pair, Moderation { count: 10, period_us });
        pair.ends[0].completions();
        pair.ends[0].post(a, 2, Operation::Write(there), 0, 8);
        let mut raised = Vec::new();
        pair.run_until(|pair| {
            raised.extend(pair.ends[0].events());
            !raised.is_empty()
        });
        assert_eq!(raised, [Event::Completion(cq)]);
        let waited = pair.now.nanos_since(pair.ends[0].completions()[0].at);
        let period = u64::from(period_us) * 1000;
        assert!((period..period + 20_000).contains(&waited), "{waited} ns of {period} ns");
        assert_eq!(pair.ends[0].device.poll_timeout(), None);
    }
}

#[test]
fn the_first_packet_establishes_the_connection() {
    let mut pair = Pair::new();
    // Another connection exists already.
    pair.connect(QpType::Rc, &Link::default());
    let [c, d] = pair.create(QpType::Rc);
    let [ours, theirs] = [(0, c), (1, d)].map(|(end, qp)| pair.ends[end].device.qp_number(qp).unwrap());
    crate::common::bring_up(&mut pair.ends[0].device, QpType::Rc, c, address(1), theirs, &Link::default());
    let [init, rtr, _] = crate::common::changes(QpType::Rc, address(0), ours, &Link::default());
    for change in [init, rtr] {
        pair.ends[1].device.modify_qp(d, &change).unwrap();
    }
    let there = pair.ends[1].remote(0);
    pair.ends[0].post(c, 1, Operation::Write(there), 0, 5000);
    pair.run();
    assert_eq!(pair.ends[1].events(), [Event::Established(d)]);
    assert_eq!(pair.ends[0].completions().len(), 1);
}

#[test]
fn attributes_are_checked_and_nothing_changes_on_error() {
    let mut pair = Pair::new();
    let [a, _] = pair.create(QpType::Rc);
    let device = &mut pair.ends[0].device;
    let link = Link { psn: 9, ..Link::default() };
    let [init, rtr, rts] = crate::common::changes(QpType::Rc, address(1), QpNumber::new(5).unwrap(), &link);
    let wrong = [
        (QpChange::to(QpState::Rts), "a Rc queue pair cannot go from Reset to Rts"),
        (QpChange { port: None, ..init }, "going from Reset to Init needs port"),
        (QpChange { qkey: Some(QKey(1)), ..init }, "going from Reset to Init cannot set queue key"),
        (QpChange { port: Some(2), ..init }, "there is no port 2, only port 1"),
        (QpChange { pkey_index: Some(1), ..init }, "the partition key index is 1, but can be at most 0"),
        (
            QpChange { current_state: Some(QpState::Init), ..init },
            "the queue pair is in state Reset, not Init",
        ),
    ];
    for (change, message) in wrong {
        assert_eq!(device.modify_qp(a, &change).unwrap_err().to_string(), message);
        assert_eq!(device.query_qp(a).unwrap().state, QpState::Reset);
    }
    device.modify_qp(a, &init).unwrap();
    let wrong = [
        QpChange { max_dest_rd_atomic: Some(129), ..rtr },
        QpChange { path: Some(AddressVector { source_index: 1, ..AddressVector::to(address(1)) }), ..rtr },
        QpChange { path: Some(AddressVector::to("fe80::1".parse().unwrap())), ..rtr },
        QpChange { timeout: Some(1), ..rtr },
    ];
    for change in wrong {
        assert!(device.modify_qp(a, &change).is_err(), "{change:?}");
    }
    device.modify_qp(a, &rtr).unwrap();
    let timeout = device.modify_qp(a, &QpChange { timeout: Some(32), ..rts }).unwrap_err();
    assert_eq!(timeout.to_string(), "the timeout is 32, but can be at most 31");
    device.modify_qp(a, &QpChange { timeout: Some(31), ..rts }).unwrap();
    let report = device.query_qp(a).unwrap();
    assert_eq!((report.state, report.sq_psn, report.timeout), (QpState::Rts, Psn::new(9), 31));
}

#[test]
fn requests_are_checked_when_they_are_posted() {
    let mut pair = Pair::new();
    let [a, _] = pair.connect(QpType::Rc, &Link { rd_atomic: 0, ..Link::default() });
    let [u, _] = pair.connect(QpType::Uc, &Link::default());
    let [d, _] = pair.connect(QpType::Ud, &Link::default());
    let there = pair.ends[1].remote(0);
    let one = [pair.ends[0].sge(0, 8)];
    let many = [pair.ends[0].sge(0, 8); 33];
    let inline = [0; 401];
    let device = &mut pair.ends[0].device;
    let write = SendRequest::new(1, Operation::Write(there), &one);
    let wrong = [
        (a, SendRequest::new(1, Operation::Read(there), &one), PostError::NoReads),
        (
            u,
            SendRequest::new(1, Operation::SendWithInvalidate(there.rkey), &one),
            PostError::Operation(QpType::Uc),
        ),
        (
            d,
            SendRequest::new(1, Operation::LocalInvalidate(there.rkey), &[]),
            PostError::Operation(QpType::Ud),
        ),
        (d, SendRequest::new(1, Operation::Send, &one), PostError::Recipient),
        (a, SendRequest::new(1, Operation::Write(there), &many), PostError::Buffers { count: 33, max: 32 }),
        (
            a,
            SendRequest { payload: Payload::Inline(&inline), ..write },
            PostError::Inline { len: 401, max: 400 },
        ),
        (a, SendRequest::new(1, Operation::LocalInvalidate(RKey(1)), &one), PostError::Payload),
    ];
    for (qp, request, error) in wrong {
        assert_eq!(device.post_send(qp, &request), Err(error), "{request:?}");
    }
    (0..128).for_each(|_| device.post_send(a, &write).unwrap());
    assert_eq!(device.post_send(a, &write), Err(PostError::Full(128)));
    let endless = [Sge { len: u32::MAX, ..one[0] }; 2];
    let receive = ReceiveRequest { wr_id: 1, buffers: &endless };
    assert_eq!(device.post_receive(a, &receive), Err(PostError::TooLong));
}

#[test]
fn memory_is_checked_when_it_is_registered() {
    let mut pair = Pair::new();
    let end = &mut pair.ends[0];
    let domain = end.domain;
    let needs_local = RegionConfig::new(BASE, 10, Access::REMOTE_WRITE);
    assert_eq!(end.device.register(domain, needs_local), Err(RegisterError::NeedsLocalWrite));
    let elsewhere = RegionConfig::new(BASE - 1, 10, ALL);
    assert!(matches!(end.device.register(domain, elsewhere), Err(RegisterError::NotMapped { .. })));
    let wraps = RegionConfig { io_address: u64::MAX, ..RegionConfig::new(BASE, 10, ALL) };
    assert!(matches!(end.device.register(domain, wraps), Err(RegisterError::Range { .. })));
    let in_use = Err(ObjectError::InUse(ObjectKind::Domain));
    assert_eq!(end.device.destroy_domain(domain), in_use);
    assert_eq!(end.device.deregister(end.region), Ok(()));
    assert_eq!(end.device.deregister(end.region), Err(ObjectError::Unknown(ObjectKind::Region)));
    assert_eq!(end.device.destroy_domain(domain), Ok(()));
}

/// Returns the keys of regions and windows of a device with this seed, and its queue pair numbers.
fn keys_and_numbers(seed: u128) -> (Vec<u32>, Vec<u32>) {
    let mut end = End::new(Config { seed, ..Config::new(vec![address(0)]) });
    let mut keys = vec![end.rkey.0];
    for nth in 0..200 {
        let kind = if nth % 2 == 0 { WindowKind::One } else { WindowKind::Two };
        let region = end.register(RegionConfig::new(BASE, 10, ALL)).1;
        keys.extend([region.rkey.0, end.window(kind).1.0]);
    }
    let numbers = (0..3).map(|_| {
        let qp = end.device.create_qp(end.qp_config(QpType::Rc)).unwrap();
        end.device.qp_number(qp).unwrap().value()
    });
    let numbers = numbers.collect();
    (keys, numbers)
}

#[test]
fn keys_and_numbers_follow_from_the_seed() {
    assert_eq!(keys_and_numbers(7), keys_and_numbers(7));
}

#[test]
fn keys_and_numbers_of_two_devices_share_no_pattern() {
    let [(one, first), (other, second)] = [1, 2].map(keys_and_numbers);
    assert!(one.iter().all(|key| !other.contains(key)));
    let steps = |keys: &[u32]| -> HashSet<u32> {
        keys.windows(2).flat_map(|pair| [pair[1].wrapping_sub(pair[0]), pair[1] ^ pair[0]]).collect()
    };
    let (one, other) = (steps(&one), steps(&other));
    // No step comes twice, neither within a device nor in both.
    assert_eq!((one.len(), other.len(), one.is_disjoint(&other)), (800, 800, true));
    assert!(first.iter().all(|number| !second.contains(number)));
}

fn device_with_keys(keys: usize) -> Result<Device<ByteMemory>, ConfigError> {
    let limits = Limits { keys, ..Limits::default() };
    Device::new(Config { limits, ..Config::new(vec![address(0)]) }, ByteMemory::new(BASE, 100))
}

#[test]
fn a_device_has_no_more_keys_than_leave_them_random() {
    assert!(device_with_keys(1 << 23).is_ok());
    let refused = device_with_keys((1 << 23) + 1).err().unwrap().to_string();
    assert_eq!(refused, "limits.keys is 8388609, but must be between 1 and 8388608");
}

#[test]
fn a_rate_that_would_not_recover_is_refused() {
    let defaults = Dcqcn::default();
    let refused = |dcqcn: Dcqcn| {
        let mut config = Config::new(vec![address(0)]);
        config.roce.congestion = Congestion::Dcqcn(dcqcn);
        let on_roce = Device::new(config.clone(), ByteMemory::new(BASE, 100)).err();
        config.star.congestion = std::mem::take(&mut config.roce.congestion);
        assert_eq!(Device::new(config, ByteMemory::new(BASE, 100)).err(), on_roce);
        on_roce.map(|error| error.to_string())
    };
    assert_eq!(refused(defaults), None);
    assert_eq!(refused(Dcqcn { line_rate: 1000, additive: 1, hyper: 1, ..defaults }), None);
    let cases = [
        (Dcqcn { additive: 0, hyper: 0, ..defaults }, "dcqcn.additive is 0, but must be at least 38146"),
        (Dcqcn { hyper: 38_145, ..defaults }, "dcqcn.hyper is 38145, but must be at least 38146"),
        (Dcqcn { min_rate: 0, ..defaults }, "dcqcn.min_rate is 0, but must be at least 1"),
        (Dcqcn { line_rate: 0, ..defaults }, "dcqcn.line_rate is 0, but must be at least 1"),
        (Dcqcn { gain: 1.5, ..defaults }, "dcqcn.gain is 1.5, but must be between 0 and 1"),
        (Dcqcn { gain: f64::NAN, ..defaults }, "dcqcn.gain is NaN, but must be between 0 and 1"),
        (Dcqcn { alpha_time: 0, ..defaults }, "dcqcn.alpha_time is 0, but must be at least 1"),
        (Dcqcn { increase_time: 999, ..defaults }, "dcqcn.increase_time is 999, but must be at least 1000"),
        (Dcqcn { increase_bytes: 0, ..defaults }, "dcqcn.increase_bytes is 0, but must be at least 1"),
    ];
    for (dcqcn, error) in cases {
        assert_eq!(refused(dcqcn).as_deref(), Some(error));
    }
}

#[test]
fn keys_change_when_their_places_are_used_again() {
    let mut device = device_with_keys(2).unwrap();
    let domain = device.create_domain().unwrap();
    let mut seen = HashSet::new();
    for _ in 0..200 {
        let (region, keys) = crate::common::register(&mut device, domain, RegionConfig::new(BASE, 10, ALL));
        assert!(seen.insert(keys.rkey));
        device.deregister(region).unwrap();
    }
}

#[test]
fn a_region_can_have_addresses_of_its_own() {
    let mut pair = Pair::new();
    let [a, _] = pair.connect(QpType::Rc, &Link::default());
    let config = RegionConfig { io_address: 0, ..RegionConfig::new(BASE + 500, 100, ALL) };
    let rkey = pair.ends[1].register(config).1.rkey;
    pair.ends[0].fill(0, b"zero based");
    pair.ends[0].post(a, 1, Operation::Write(Remote { address: 90, rkey }), 0, 10);
    pair.run();
    assert_eq!(pair.ends[0].completions()[0].status, Status::Success);
    assert_eq!(pair.ends[1].bytes(590, 10), b"zero based");
}

#[test]
fn memory_paged_on_demand_is_checked_when_it_is_accessed() {
    let mut pair = Pair::new();
    let [a, _] = pair.connect(QpType::Rc, &Link::default());
    let end = &mut pair.ends[1];
    let everything = RegionConfig::new(0, u64::MAX, ALL);
    let none = Err(RegisterError::NotMapped { address: 0, len: u64::MAX });
    assert_eq!(end.device.register(end.domain, everything), none);
    let everything = RegionConfig { paging: Paging::OnDemand, ..everything };
    let region = end.device.register(end.domain, everything).unwrap();
    let rkey = end.device.query_region(region).unwrap().rkey;
    pair.ends[0].fill(0, &pattern(100, 1));
    pair.ends[0].post(a, 1, Operation::Write(Remote { address: BASE + 200, rkey }), 0, 100);
    pair.ends[0].post(a, 2, Operation::Write(Remote { address: BASE - 1, rkey }), 0, 100);
    pair.run();
    let statuses: Vec<_> = pair.ends[0].completions().iter().map(|wc| wc.status).collect();
    assert_eq!(statuses, [Status::Success, Status::RemoteOperation]);
    assert!(pair.ends[1].bytes(200, 100) == pattern(100, 1));
}

#[test]
fn requests_posted_together_are_posted_all_or_none() {
    let mut pair = Pair::new();
    let [a, _] = pair.connect(QpType::Rc, &Link::default());
    let there = pair.ends[1].remote(0);
    let (buffers, end) = ([pair.ends[0].sge(0, 8)], &mut pair.ends[0]);
    let good = SendRequest::new(1, Operation::Write(there), &buffers);
    let atomic = Operation::FetchAdd { remote: there, add: 1 };
    let wrong = SendRequest { payload: Payload::Inline(&[0; 8]), ..SendRequest::new(2, atomic, &[]) };
    let device = &mut end.device;
    assert_eq!(device.post_sends(a, [good, good, wrong].into_iter()), Err(PostError::Payload));
    let room = device.query_qp(a).unwrap().config.capacity.send_wrs;
    assert_eq!(device.post_sends(a, vec![good; room + 1].into_iter()), Err(PostError::Full(room)));
    assert_eq!(device.counters().operations, Operations::default());
    assert_eq!(device.post_sends(a, vec![good; room].into_iter()), Ok(()));
    assert_eq!(device.counters().operations, Operations { writes: room as u64, ..Operations::default() });
    pair.run();
    assert_eq!(pair.ends[0].completions().len(), room);
}
