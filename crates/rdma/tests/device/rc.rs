//! Reliable connections between two devices.

use crate::common::{ALL, BASE, Faults, Link, Pair, pattern};
use nichrome_rdma::*;

/// Sizes that fall on, before and behind the ends of packets.
const SIZES: [usize; 12] = [0, 1, 3, 4, 255, 1023, 1024, 1025, 2048, 4097, 65_536, 1 << 20];

fn every_operation(faults: Faults, mtu: PathMtu) {
    for (nth, len) in SIZES.into_iter().enumerate() {
        let mut pair = Pair::new().seeded(nth as u64, faults);
        let link = Link { mtu, ..Link::default() };
        let [a, b] = pair.connect(QpType::Rc, &link);
        let (there, data) = (pair.ends[1].remote(0), pattern(len, nth as u64));
        pair.ends[0].fill(0, &data);
        pair.ends[1].receive(b, 100, 1 << 20, len);
        pair.ends[1].receive(b, 101, 0, 0);
        let immediate = ImmediateData([1, 2, 3, 4]);
        pair.ends[0].post(a, 1, Operation::Write(there), 0, len);
        pair.ends[0].post(a, 2, Operation::SendWithImmediate(immediate), 0, len);
        pair.ends[0].post(a, 3, Operation::Read(there), 1 << 20, len);
        pair.ends[0].post(
            a,
            4,
            Operation::WriteWithImmediate(pair.ends[1].remote(2 << 20), immediate),
            0,
            len,
        );
        pair.run();
        let succeeded: Vec<_> = (1..=4).map(|id| (id, Status::Success)).collect();
        assert_eq!(pair.ends[0].statuses(), succeeded, "{len}");
        let received = pair.ends[1].completions();
        assert!(received.iter().zip(100..102).all(|(wc, id)| (wc.wr_id, wc.status) == (id, Status::Success)));
        assert_eq!(received.len(), 2);
        assert!(received.iter().all(|wc| wc.len as usize == len));
        assert!(received.iter().all(|wc| wc.notice == Some(Notice::Immediate(immediate))));
        assert_eq!(received[1].operation, CompletedOperation::ReceiveWithWrite);
        for at in [0, 1 << 20, 2 << 20] {
            assert!(pair.ends[1].bytes(at, len) == data, "{len} at {at}");
        }
        assert!(pair.ends[0].bytes(1 << 20, len) == data);
    }
}

#[test]
fn every_operation_of_every_size() {
    for mtu in PathMtu::ALL {
        every_operation(Faults::default(), mtu);
    }
}

#[test]
fn a_hold_of_sends_ends_with_the_peers_first_packet() {
    let mut pair = Pair::new();
    let [a, b] = pair.connect(QpType::Rc, &Link::default());
    pair.ends[1].device.hold_sends(b);
    pair.ends[0].receive(a, 100, 0, 8);
    pair.ends[1].post(b, 1, Operation::Send, 0, 8);
    pair.run();
    assert_eq!([0, 1].map(|end| pair.ends[end].statuses().len()), [0, 0]);
    let there = pair.ends[1].remote(0);
    pair.ends[0].post(a, 2, Operation::Write(there), 0, 8);
    pair.run();
    let succeeded = |id| (id, Status::Success);
    assert_eq!(pair.ends[0].statuses(), [succeeded(2), succeeded(100)]);
    assert_eq!(pair.ends[1].statuses(), [succeeded(1)]);
}

#[test]
fn every_operation_with_faults() {
    let faults = Faults { loss: 0.03, duplicate: 0.03, reorder: 0.05, corrupt: 0.02, mark: 0.1 };
    every_operation(faults, PathMtu::B1024);
}

#[test]
fn atomics_are_done_once_whatever_is_lost() {
    for seed in 0..20 {
        let faults = Faults { loss: 0.2, duplicate: 0.2, reorder: 0.2, ..Faults::default() };
        let mut pair = Pair::new().seeded(seed, faults);
        let [a, _] = pair.connect(QpType::Rc, &Link::default());
        let remote = pair.ends[1].remote(64);
        for n in 0..50u64 {
            pair.ends[0].post(a, n, Operation::FetchAdd { remote, add: 3 }, 8 * n as usize, 8);
        }
        let swap = Operation::CompareSwap { remote, compare: 150, swap: 7 };
        pair.ends[0].post(a, 50, swap, 400, 8);
        pair.ends[0].post(a, 51, swap, 408, 8);
        pair.run();
        assert_eq!(pair.ends[0].statuses(), (0..52).map(|id| (id, Status::Success)).collect::<Vec<_>>());
        let seen: Vec<u64> = pair.ends[0]
            .bytes(0, 416)
            .chunks(8)
            .map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap()))
            .collect();
        let expected = (0..50).map(|n| 3 * n).chain([150, 7]);
        assert_eq!(seen, expected.collect::<Vec<_>>());
        assert_eq!(pair.ends[1].bytes(64, 8), 7u64.to_ne_bytes());
    }
}

#[test]
fn inline_gather_and_scatter() {
    let mut pair = Pair::new();
    let [a, b] = pair.connect(QpType::Rc, &Link::default());
    let data = pattern(3200, 9);
    pair.ends[0].fill(0, &data);
    let gather: Vec<Sge> = (0..32).map(|n| pair.ends[0].sge((31 - n) * 100, 100)).collect();
    let scatter: Vec<Sge> = (0..32).map(|n| pair.ends[1].sge((31 - n) * 200, 150)).collect();
    pair.ends[1].device.post_receive(b, &ReceiveRequest { wr_id: 7, buffers: &scatter }).unwrap();
    pair.ends[0].device.post_send(a, &SendRequest::new(1, Operation::Send, &gather)).unwrap();
    let inline = SendRequest {
        payload: Payload::Inline(b"inline bytes"),
        ..SendRequest::new(2, Operation::Write(pair.ends[1].remote(1 << 20)), &[])
    };
    pair.ends[0].device.post_send(a, &inline).unwrap();
    let from = [pair.ends[0].sge(10, 5), pair.ends[0].sge(0, 300)];
    let inline_from = SendRequest {
        payload: Payload::InlineFrom(&from),
        ..SendRequest::new(3, Operation::Write(pair.ends[1].remote(2 << 20)), &[])
    };
    pair.ends[0].device.post_send(a, &inline_from).unwrap();
    pair.ends[0].fill(3200, &[0; 10]);
    pair.run();
    assert_eq!(pair.ends[0].completions().len(), 3);
    let gathered: Vec<u8> = (0..32).rev().flat_map(|n| data[n * 100..][..100].to_vec()).collect();
    let end = &pair.ends[1];
    let scattered: Vec<u8> = (0..32).rev().flat_map(|n| end.bytes(n * 200, 150).to_vec()).collect();
    assert_eq!(scattered[..3200], gathered);
    assert_eq!(end.bytes(1 << 20, 12), b"inline bytes");
    assert_eq!(*end.bytes(2 << 20, 305), [&data[10..15], &data[..300]].concat());
}

#[test]
fn only_signaled_requests_complete_visibly() {
    let mut pair = Pair::new();
    let [a, _] = pair.connect(QpType::Rc, &Link::default());
    let (there, buffers) = (pair.ends[1].remote(0), [pair.ends[0].sge(0, 8)]);
    for wr_id in 0..9 {
        let flags = if wr_id % 3 == 2 { SendFlags::SIGNALED } else { SendFlags::NONE };
        let request = SendRequest { flags, ..SendRequest::new(wr_id, Operation::Write(there), &buffers) };
        pair.ends[0].device.post_send(a, &request).unwrap();
    }
    pair.run();
    let done = pair.ends[0].completions();
    assert_eq!(done.iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), [2, 5, 8]);
}

#[test]
fn acknowledgements_of_a_batch_are_one() {
    let mut pair = Pair::new();
    pair.record = true;
    let [a, _] = pair.connect(QpType::Rc, &Link::default());
    let there = pair.ends[1].remote(0);
    (0..40).for_each(|wr_id| pair.ends[0].post(a, wr_id, Operation::Write(there), 0, 8));
    pair.run();
    assert_eq!(pair.ends[0].completions().len(), 40);
    assert_eq!(pair.sent.iter().filter(|(from, _)| *from == 1).count(), 1);
}

#[test]
fn a_receiver_without_receives_is_retried() {
    let mut pair = Pair::new();
    let [a, b] = pair.connect(QpType::Rc, &Link::default());
    pair.ends[0].fill(0, b"hello");
    pair.ends[0].post(a, 1, Operation::Send, 0, 5);
    pair.run_for(1_000_000);
    assert!(pair.ends[0].completions().is_empty());
    assert!(pair.ends[1].device.counters().rnr_naks_sent > 3);
    pair.ends[1].receive(b, 2, 100, 5);
    pair.run();
    assert_eq!(pair.ends[0].statuses(), [(1, Status::Success)]);
    assert_eq!(pair.ends[1].bytes(100, 5), b"hello");
}

#[test]
fn patience_with_a_receiver_ends() {
    let mut pair = Pair::new();
    let link = Link { rnr_retry: 2, ..Link::default() };
    let [a, _] = pair.connect(QpType::Rc, &link);
    pair.ends[0].post(a, 1, Operation::Send, 0, 5);
    pair.ends[0].post(a, 2, Operation::Send, 0, 5);
    pair.run();
    assert_eq!(pair.ends[0].statuses(), [(1, Status::RnrRetryExceeded), (2, Status::Flushed)]);
    let counters = pair.ends[1].device.counters();
    // An RNR NAK is not fatal.
    assert_eq!((counters.rnr_naks_sent, counters.refused), (3, 0));
}

#[test]
fn a_silent_peer_ends_everything_in_error() {
    let mut pair = Pair::new().seeded(1, Faults { loss: 1.0, ..Faults::default() });
    let [a, _] = pair.connect(QpType::Rc, &Link { retry_count: 3, ..Link::default() });
    let there = pair.ends[1].remote(0);
    pair.ends[0].post(a, 1, Operation::Write(there), 0, 5000);
    pair.ends[0].post(a, 2, Operation::Read(there), 0, 5000);
    pair.ends[0].receive(a, 3, 0, 100);
    pair.run();
    let ended = pair.ends[0].statuses();
    assert_eq!(ended, [(1, Status::RetryExceeded), (2, Status::Flushed), (3, Status::Flushed)]);
    assert_eq!(pair.ends[0].device.counters().timeouts, 4);
    // 4.096 µs · 2⁸, then twice that, then four times for the other repetitions.
    let waited = pair.now.as_nanos();
    assert!((11 * 1_048_576..12 * 1_048_576).contains(&waited), "{waited}");
    assert_eq!(pair.ends[0].device.query_qp(a).unwrap().state, QpState::Err);
    // Requests posted afterwards are flushed.
    pair.ends[0].post(a, 4, Operation::Write(there), 0, 1);
    pair.ends[0].receive(a, 5, 0, 1);
    assert_eq!(pair.ends[0].statuses(), [(4, Status::Flushed), (5, Status::Flushed)]);
}

#[test]
fn a_fence_waits_for_reads_and_a_read_does_not_see_later_writes() {
    let mut pair = Pair::new();
    let [a, _] = pair.connect(QpType::Rc, &Link::default());
    pair.ends[1].fill(0, b"before");
    pair.ends[0].fill(100, b"after!");
    let there = pair.ends[1].remote(0);
    pair.ends[0].post(a, 1, Operation::Read(there), 0, 6);
    let buffers = [pair.ends[0].sge(0, 6)];
    let fenced = SendRequest {
        flags: SendFlags::FENCE | SendFlags::SIGNALED,
        ..SendRequest::new(2, Operation::Write(pair.ends[1].remote(50)), &buffers)
    };
    pair.ends[0].device.post_send(a, &fenced).unwrap();
    pair.ends[0].post(a, 3, Operation::Write(there), 100, 6);
    pair.run();
    assert_eq!(pair.ends[0].completions().len(), 3);
    assert_eq!(pair.ends[1].bytes(50, 6), b"before", "the fenced write sends what was read");
    assert_eq!(pair.ends[1].bytes(0, 6), b"after!");
}

#[test]
fn reads_outstanding_are_limited() {
    for rd_atomic in [1, 2, 16] {
        let mut pair = Pair::new();
        pair.record = true;
        let [a, _] = pair.connect(QpType::Rc, &Link { rd_atomic, ..Link::default() });
        let there = pair.ends[1].remote(0);
        (0..20).for_each(|wr_id| pair.ends[0].post(a, wr_id, Operation::Read(there), 0, 8));
        pair.transmit();
        assert_eq!(pair.sent.len(), usize::from(rd_atomic));
        pair.run();
        assert_eq!(pair.ends[0].completions().len(), 20);
    }
}

#[test]
fn a_local_protection_error_lets_earlier_requests_complete() {
    let mut pair = Pair::new();
    let [a, _] = pair.connect(QpType::Rc, &Link::default());
    let there = pair.ends[1].remote(0);
    pair.ends[0].post(a, 1, Operation::Write(there), 0, 3000);
    let wrong = [Sge { lkey: LKey(0xDEAD), ..pair.ends[0].sge(0, 10) }];
    pair.ends[0].device.post_send(a, &SendRequest::new(2, Operation::Write(there), &wrong)).unwrap();
    pair.ends[0].post(a, 3, Operation::Write(there), 0, 10);
    pair.run();
    let ended = pair.ends[0].statuses();
    assert_eq!(ended, [(1, Status::Success), (2, Status::LocalProtection), (3, Status::Flushed)]);
}

#[test]
fn a_message_longer_than_the_receive_is_an_error_at_both_ends() {
    let mut pair = Pair::new();
    let [a, b] = pair.connect(QpType::Rc, &Link::default());
    pair.ends[1].receive(b, 9, 0, 1500);
    pair.ends[0].post(a, 1, Operation::Send, 0, 1501);
    pair.run();
    assert_eq!(pair.ends[0].statuses(), [(1, Status::RemoteInvalidRequest)]);
    assert_eq!(pair.ends[1].statuses(), [(9, Status::LocalLength)]);
    assert!(pair.ends[1].events().contains(&Event::QpRequestError(b)));
}

#[test]
fn a_receive_in_wrong_memory_is_an_error_at_both_ends() {
    let mut pair = Pair::new();
    let [a, b] = pair.connect(QpType::Rc, &Link::default());
    let wrong = [Sge { lkey: LKey(0xDEAD), ..pair.ends[1].sge(0, 10) }];
    pair.ends[1].device.post_receive(b, &ReceiveRequest { wr_id: 9, buffers: &wrong }).unwrap();
    pair.ends[0].post(a, 1, Operation::Send, 0, 5);
    pair.run();
    assert_eq!(pair.ends[0].statuses(), [(1, Status::RemoteOperation)]);
    assert_eq!(pair.ends[1].statuses(), [(9, Status::LocalProtection)]);
}

#[test]
fn a_deregistered_region_is_inaccessible_at_once() {
    for operation in [0, 1, 2] {
        let mut pair = Pair::new();
        let [a, _] = pair.connect(QpType::Rc, &Link::default());
        let there = pair.ends[1].remote(0);
        pair.ends[0].fill(0, &pattern(100_000, 5));
        let operation = [
            Operation::Write(there),
            Operation::Read(there),
            Operation::WriteWithImmediate(there, ImmediateData::default()),
        ][operation];
        pair.ends[0].post(a, 1, operation, 0, 100_000);
        pair.transmit();
        // The first packet was received, the others are in flight.
        let before = pair.ends[1].device.counters().received;
        while pair.ends[1].device.counters().received == before {
            pair.step();
        }
        let region = pair.ends[1].region;
        pair.ends[1].device.deregister(region).unwrap();
        let memory = pair.ends[1].device.memory().bytes().to_vec();
        pair.run();
        assert_eq!(pair.ends[0].statuses(), [(1, Status::RemoteAccess)], "{operation:?}");
        assert!(memory == pair.ends[1].device.memory().bytes());
    }
}

#[test]
fn the_send_queue_drains() {
    let mut pair = Pair::new();
    let [a, _] = pair.connect(QpType::Rc, &Link::default());
    let there = pair.ends[1].remote(0);
    pair.ends[0].post(a, 1, Operation::Write(there), 0, 200_000);
    pair.transmit();
    pair.ends[0].post(a, 2, Operation::Write(there), 0, 8);
    let drain = QpChange { drain_notice: Some(DrainNotice::Event), ..QpChange::to(QpState::Sqd) };
    pair.ends[0].device.modify_qp(a, &drain).unwrap();
    assert!(pair.ends[0].device.query_qp(a).unwrap().draining);
    let resume = QpChange::to(QpState::Rts);
    assert_eq!(pair.ends[0].device.modify_qp(a, &resume), Err(ModifyError::Draining));
    pair.run();
    assert_eq!(pair.ends[0].statuses(), [(1, Status::Success)]);
    assert_eq!(pair.ends[0].events(), [Event::SendQueueDrained(a)]);
    assert!(!pair.ends[0].device.query_qp(a).unwrap().draining);
    pair.ends[0].device.modify_qp(a, &resume).unwrap();
    pair.run();
    assert_eq!(pair.ends[0].statuses(), [(2, Status::Success)]);
}

#[test]
fn a_reset_queue_pair_can_be_used_again() {
    let mut pair = Pair::new();
    let link = Link::default();
    let qps = pair.connect(QpType::Rc, &link);
    let there = pair.ends[1].remote(0);
    pair.ends[0].post(qps[0], 1, Operation::Write(there), 0, 100_000);
    pair.run_for(20_000);
    for (end, qp) in pair.ends.iter_mut().zip(qps) {
        end.device.modify_qp(qp, &QpChange::to(QpState::Reset)).unwrap();
    }
    pair.run();
    assert!(pair.ends[0].completions().is_empty());
    pair.bring_up(QpType::Rc, qps, &Link { psn: 77, ..link });
    pair.ends[0].fill(0, &pattern(5000, 3));
    pair.ends[0].post(qps[0], 2, Operation::Write(there), 0, 5000);
    pair.run();
    assert_eq!(pair.ends[0].statuses(), [(2, Status::Success)]);
    assert!(pair.ends[1].bytes(0, 5000) == pattern(5000, 3));
}

#[test]
fn a_full_completion_queue_stops_its_queue_pairs() {
    let mut pair = Pair::new();
    let cq = pair.ends[0].device.create_cq(2).unwrap();
    let config = QpConfig { send_cq: cq, ..pair.ends[0].qp_config(QpType::Rc) };
    let a = pair.ends[0].device.create_qp(config).unwrap();
    let b = pair.ends[1].device.create_qp(pair.ends[1].qp_config(QpType::Rc)).unwrap();
    pair.bring_up(QpType::Rc, [a, b], &Link::default());
    let there = pair.ends[1].remote(0);
    (0..5).for_each(|wr_id| pair.ends[0].post(a, wr_id, Operation::Write(there), 0, 8));
    pair.run();
    let events = pair.ends[0].events();
    assert_eq!(events, [Event::CqError(cq), Event::QpFatal(a)]);
    let kept: Vec<u64> = std::iter::from_fn(|| pair.ends[0].device.poll_cq(cq)).map(|wc| wc.wr_id).collect();
    assert_eq!(kept, [0, 1]);
}

#[test]
fn windows_open_a_part_of_a_region_to_one_queue_pair() {
    let mut pair = Pair::new();
    let [a, b] = pair.connect(QpType::Rc, &Link::default());
    let [other, _] = pair.connect(QpType::Rc, &Link::default());
    let (window, key) = pair.ends[1].window(WindowKind::Two);
    let bind = Bind {
        window: key,
        key_byte: (key.0 as u8).wrapping_add(1),
        region: pair.ends[1].lkey,
        address: BASE + 100,
        len: 50,
        access: Access::REMOTE_WRITE,
    };
    let region = pair.ends[1].region;
    pair.ends[1].post_local(b, 1, Operation::BindWindow(bind));
    pair.run();
    assert_eq!(pair.ends[1].statuses(), [(1, Status::Success)]);
    let rkey = pair.ends[1].device.window_key(window).unwrap();
    assert_ne!(rkey, key);
    let in_use = Err(ObjectError::InUse(ObjectKind::Region));
    assert_eq!(pair.ends[1].device.deregister(region), in_use);

    pair.ends[0].fill(0, &[7; 100]);
    let remote = Remote { address: BASE + 120, rkey };
    pair.ends[0].post(a, 2, Operation::Write(remote), 0, 30);
    pair.run();
    assert_eq!(pair.ends[0].statuses(), [(2, Status::Success)]);
    assert_eq!(pair.ends[1].bytes(119, 32), [&[0][..], &[7; 30], &[0]].concat());
    // Another queue pair may not use it, nor may this one once the peer has taken it back.
    pair.ends[0].post(other, 3, Operation::Write(remote), 0, 1);
    pair.run();
    assert_eq!(pair.ends[0].statuses(), [(3, Status::RemoteAccess)]);
    pair.ends[1].receive(b, 4, 0, 0);
    pair.ends[0].post(a, 5, Operation::SendWithInvalidate(rkey), 0, 0);
    pair.run();
    let received = pair.ends[1].completions();
    assert_eq!(received.last().unwrap().notice, Some(Notice::Invalidated(rkey)));
    pair.ends[1].device.deregister(region).unwrap();
    pair.ends[0].completions();
    pair.ends[0].post(a, 6, Operation::Write(remote), 0, 1);
    pair.run();
    assert_eq!(pair.ends[0].statuses(), [(6, Status::RemoteAccess)]);
}

#[test]
fn a_bind_that_breaks_a_rule_fails() {
    let mut pair = Pair::new();
    let good = |pair: &mut Pair| {
        let (_, window) = pair.ends[0].window(WindowKind::Two);
        let (region, access) = (pair.ends[0].lkey, Access::REMOTE_READ);
        Bind { window, key_byte: 1, region, address: BASE, len: 10, access }
    };
    let mut unbindable = |access| pair.ends[0].register(RegionConfig::new(BASE, 100, access)).1.lkey;
    let (no_bind, read_only) = (unbindable(Access::LOCAL_WRITE), unbindable(Access::WINDOW_BIND));
    let changes: [&dyn Fn(Bind) -> Bind; 7] = [
        &|bind| Bind { len: 0, ..bind },
        &|bind| Bind { window: RKey(bind.window.0 ^ 1), ..bind },
        &|bind| Bind { region: LKey(bind.region.0 ^ 1), ..bind },
        &|bind| Bind { address: BASE - 1, ..bind },
        &|bind| Bind { len: u64::MAX, ..bind },
        &|bind| Bind { region: no_bind, ..bind },
        &|bind| Bind { region: read_only, access: Access::REMOTE_WRITE, ..bind },
    ];
    for change in changes {
        let [a, _] = pair.connect(QpType::Rc, &Link::default());
        let bind = change(good(&mut pair));
        pair.ends[0].post_local(a, 1, Operation::BindWindow(bind));
        pair.run();
        assert_eq!(pair.ends[0].statuses(), [(1, Status::WindowBind)], "{bind:?}");
    }
    let [a, _] = pair.connect(QpType::Rc, &Link::default());
    let bind = good(&mut pair);
    let again = Bind { window: RKey(bind.window.0 & !0xFF | 1), key_byte: 2, ..bind };
    pair.ends[0].post_local(a, 1, Operation::BindWindow(bind));
    pair.ends[0].post_local(a, 2, Operation::BindWindow(again));
    pair.run();
    let ended = pair.ends[0].statuses();
    assert_eq!(ended, [(1, Status::Success), (2, Status::WindowBind)], "a bound window is invalidated first");
}

#[test]
fn keys_are_invalidated_when_all_before_is_done() {
    let mut pair = Pair::new();
    let [a, _] = pair.connect(QpType::Rc, &Link::default());
    let config = RegionConfig::new(BASE, 10_000, ALL | Access::INVALIDATE);
    let domain = pair.ends[0].domain;
    let (region, keys) = pair.ends[0].register(config);
    let buffers = [Sge { address: BASE, len: 10_000, lkey: keys.lkey }];
    let there = pair.ends[1].remote(0);
    pair.ends[0].device.post_send(a, &SendRequest::new(1, Operation::Write(there), &buffers)).unwrap();
    pair.ends[0].post_local(a, 2, Operation::LocalInvalidate(keys.rkey));
    pair.ends[0].device.post_send(a, &SendRequest::new(3, Operation::Write(there), &buffers)).unwrap();
    pair.run();
    let ended = pair.ends[0].statuses();
    assert_eq!(ended, [(1, Status::Success), (2, Status::Success), (3, Status::LocalProtection)]);
    pair.ends[0].device.reregister(region, domain, config).unwrap();
    let renewed = pair.ends[0].device.query_region(region).unwrap();
    // Not only the low byte, which anyone with the old key could guess.
    assert_ne!(renewed.rkey.0 >> 8, keys.rkey.0 >> 8);
    let buffers = [Sge { lkey: renewed.lkey, ..buffers[0] }];
    pair.run();
    for (nth, sge) in [(0, buffers[0]), (1, Sge { lkey: keys.lkey, ..buffers[0] })] {
        let [a, _] = pair.connect(QpType::Rc, &Link::default());
        let request = SendRequest::new(nth, Operation::Write(there), std::slice::from_ref(&sge));
        pair.ends[0].device.post_send(a, &request).unwrap();
        pair.run();
    }
    assert_eq!(pair.ends[0].statuses(), [(0, Status::Success), (1, Status::LocalProtection)]);
}

#[test]
fn a_window_of_type_one_serves_its_domain_and_can_be_rebound() {
    let mut pair = Pair::new();
    let [a, b] = pair.connect(QpType::Rc, &Link::default());
    let [other, peer] = pair.connect(QpType::Rc, &Link::default());
    let (window, _) = pair.ends[1].window(WindowKind::One);
    let bind = |pair: &mut Pair, qp: QpHandle, address: u64, len: u64| {
        let key = pair.ends[1].device.window_key(window).unwrap();
        let (key_byte, region) = ((key.0 as u8).wrapping_add(1), pair.ends[1].lkey);
        let bind = Bind { window: key, key_byte, region, address, len, access: Access::REMOTE_WRITE };
        pair.ends[1].post_local(qp, 1, Operation::BindWindow(bind));
        pair.run();
        assert_eq!(pair.ends[1].statuses(), [(1, Status::Success)]);
        pair.ends[1].device.window_key(window).unwrap()
    };
    let first = bind(&mut pair, b, BASE, 10);
    let second = bind(&mut pair, b, BASE + 100, 10);
    pair.ends[0].post(other, 1, Operation::Write(Remote { address: BASE + 100, rkey: second }), 0, 10);
    pair.ends[0].post(a, 2, Operation::Write(Remote { address: BASE, rkey: first }), 0, 10);
    pair.run();
    assert_eq!(pair.ends[0].statuses(), [(1, Status::Success), (2, Status::RemoteAccess)]);
    bind(&mut pair, peer, 0, 0);
    let region = pair.ends[1].region;
    assert_eq!(pair.ends[1].device.deregister(region), Ok(()));
}

#[test]
fn zero_based_windows_count_from_zero() {
    let mut pair = Pair::new();
    let [a, b] = pair.connect(QpType::Rc, &Link::default());
    let (window, key) = pair.ends[1].window(WindowKind::Two);
    let (region, access) = (pair.ends[1].lkey, Access::REMOTE_WRITE | Access::ZERO_BASED);
    let bind = Bind { window: key, key_byte: 9, region, address: BASE + 100, len: 10, access };
    pair.ends[1].post_local(b, 1, Operation::BindWindow(bind));
    pair.run();
    let rkey = pair.ends[1].device.window_key(window).unwrap();
    pair.ends[0].fill(0, b"0123456789");
    pair.ends[0].post(a, 1, Operation::Write(Remote { address: 0, rkey }), 0, 10);
    pair.ends[0].post(a, 2, Operation::Write(Remote { address: 1, rkey }), 0, 10);
    pair.run();
    assert_eq!(pair.ends[0].statuses(), [(1, Status::Success), (2, Status::RemoteAccess)]);
    assert_eq!(pair.ends[1].bytes(99, 12), b"\x000123456789\0");
}

#[test]
fn a_hundred_thousand_queue_pairs() {
    let mut pair = Pair::new();
    let link = Link { timeout: 14, ..Link::default() };
    let qps: Vec<[QpHandle; 2]> = (0..100_000).map(|_| pair.connect(QpType::Rc, &link)).collect();
    let there = pair.ends[1].remote(0);
    for nth in (0..100_000).step_by(1000) {
        pair.ends[0].post(qps[nth][0], nth as u64, Operation::Write(there), 0, 3000);
        pair.ends[0].post(qps[nth][0], nth as u64 + 1, Operation::Read(there), 0, 3000);
    }
    pair.run();
    let done = pair.ends[0].completions();
    assert_eq!(done.len(), 200);
    assert!(done.iter().all(|wc| wc.status == Status::Success));
    for [a, b] in qps {
        pair.ends[0].device.destroy_qp(a).unwrap();
        pair.ends[1].device.destroy_qp(b).unwrap();
    }
    assert_eq!((pair.ends[0].device.qps(), pair.ends[1].device.qps()), (0, 0));
}

/// libfabric polls after it has destroyed a queue pair, and would use freed objects: mlx5 and others remove
/// the completions.
#[test]
fn completions_of_a_destroyed_queue_pair_are_removed() {
    let mut pair = Pair::new();
    let qps = [pair.connect(QpType::Rc, &Link::default()), pair.connect(QpType::Rc, &Link::default())];
    for (nth, [a, b]) in qps.into_iter().enumerate() {
        pair.ends[1].receive(b, 10 + nth as u64, 0, 100);
        pair.ends[0].post_local(a, nth as u64, Operation::Send);
    }
    pair.run();
    for (end, left) in [(0, 1), (1, 11)] {
        pair.ends[end].device.destroy_qp(qps[0][end]).unwrap();
        assert_eq!(pair.ends[end].statuses(), [(left, Status::Success)]);
    }
}

/// A queue pair that enters the error state while a message arrives, or an answer is sent.
#[test]
fn error_flushes_the_receive_of_half_a_message_and_drops_answers() {
    for shared in [false, true] {
        let mut pair = Pair::new();
        let domain = pair.ends[1].domain;
        let attributes = SrqAttributes { wrs: 4, sges: 1, limit: 0 };
        let srq = pair.ends[1].device.create_srq(domain, attributes).unwrap();
        let a = pair.ends[0].device.create_qp(pair.ends[0].qp_config(QpType::Rc)).unwrap();
        let config = QpConfig { srq: shared.then_some(srq), ..pair.ends[1].qp_config(QpType::Rc) };
        let b = pair.ends[1].device.create_qp(config).unwrap();
        pair.bring_up(QpType::Rc, [a, b], &Link::default());
        let buffers = [pair.ends[1].sge(0, 5000)];
        let receive = ReceiveRequest { wr_id: 5, buffers: &buffers };
        if shared {
            pair.ends[1].device.post_srq_receive(srq, &receive).unwrap();
        } else {
            pair.ends[1].device.post_receive(b, &receive).unwrap();
        }
        let there = pair.ends[1].remote(0);
        pair.ends[0].post(a, 1, Operation::Read(there), 0, 5000);
        pair.ends[0].post(a, 2, Operation::Send, 0, 5000);
        let mut buffer = vec![0; 65_507];
        let mut packets = Vec::new();
        while let Some(Transmit::Datagrams(transmit)) =
            pair.ends[0].device.poll_transmit(pair.now, 1, &mut buffer)
        {
            packets.push(buffer[..transmit.len].to_vec());
        }
        packets[..3].iter().for_each(|bytes| pair.inject(1, bytes));
        pair.ends[1].device.modify_qp(b, &QpChange::to(QpState::Err)).unwrap();
        assert_eq!(pair.ends[1].statuses(), [(5, Status::Flushed)]);
        assert_eq!(pair.ends[1].device.poll_transmit(pair.now, 1, &mut buffer), None);
    }
}
