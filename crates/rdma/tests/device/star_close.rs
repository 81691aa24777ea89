//! StaR when one side closes: requests on the connection still complete if they were executed, and fail after
//! a grace if not.

use crate::common::{ALL, BASE, Fate, Link, Pair};
use nichrome_rdma::*;
use nichrome_wire::star::{Element, Message, PacketType, Repr};

const SERVERS: [usize; 2] = [0, 1];

/// Nanoseconds from the Close to the failure of requests that were not executed.
const GRACE: u64 = 500_000_000;

fn type_of(bytes: &[u8]) -> PacketType {
    Repr::parse(bytes).unwrap().0.message.packet_type()
}

/// Destroys a queue pair as drivers do: its last answers leave thrice, then a Close.
fn destroy(pair: &mut Pair, end: usize, qp: QpHandle) {
    for _ in 0..3 {
        pair.ends[end].device.acknowledge_again(qp).unwrap();
        pair.transmit();
    }
    pair.ends[end].device.destroy_qp(qp).unwrap();
    pair.transmit();
}

/// Runs until an end has completions, and returns them with the time that passed.
fn next_completions(pair: &mut Pair, end: usize) -> (Vec<(u64, Status)>, u64) {
    let (start, mut done) = (pair.now, Vec::new());
    pair.run_until(|pair| {
        done = pair.ends[end].statuses();
        !done.is_empty()
    });
    (done, pair.now.nanos_since(start))
}

/// The last answers of `ibv_srq_pingpong`: the program that ends first leaves a SEND on one queue pair
/// unanswered, and its answer on another was lost.
#[test]
fn an_answer_repeated_on_one_connection_comes_before_the_failure_on_another() {
    let mut pair = Pair::new();
    let [surplus, needed] = [(); 2].map(|()| pair.connect_star(1, &Link { timeout: 14, ..Link::default() }));
    for [_, server] in [surplus, needed] {
        pair.ends[1].receive(server, 7, 0, 100);
    }
    let mut is_lost = false;
    pair.fates = Some(Box::new(move |to, bytes| match type_of(bytes) {
        PacketType::Ea if to == 0 && !is_lost => {
            is_lost = true;
            Fate::IsLost
        }
        _ => Fate::Arrives,
    }));
    pair.ends[0].post(needed[0], 1, Operation::Send, 0, 50);
    let (received, _) = next_completions(&mut pair, 1);
    assert_eq!(received, [(7, Status::Success)]);
    pair.ends[0].post(surplus[0], 2, Operation::Send, 0, 50);
    pair.transmit();
    destroy(&mut pair, 1, surplus[1]);
    destroy(&mut pair, 1, needed[1]);
    let (done, _) = next_completions(&mut pair, 0);
    assert_eq!(done, [(1, Status::Success)]);
    let (done, after) = next_completions(&mut pair, 0);
    assert_eq!(done, [(2, Status::RetryExceeded)]);
    assert!((GRACE - 1_000_000..GRACE + 1_000_000).contains(&after), "{after} ns");
}

#[test]
fn requests_that_the_card_has_executed_complete_after_the_close() {
    let mut pair = Pair::new();
    let [client, server] = pair.connect_star(1, &Link { timeout: 14, ..Link::default() });
    // A copy that could still arrive delays the completion.
    let mut rdps = 0;
    pair.fates = Some(Box::new(move |_, bytes| {
        rdps += u32::from(type_of(bytes) == PacketType::Rdp);
        if type_of(bytes) == PacketType::Rdp && rdps == 1 { Fate::IsLost } else { Fate::Arrives }
    }));
    let there = pair.ends[1].remote(0x1000);
    pair.ends[0].fill(0, &[3; 8]);
    pair.ends[0].post(client, 1, Operation::Write(there), 0, 8);
    pair.run_until(|pair| pair.ends[1].bytes(0x1000, 8) == [3; 8]);
    pair.run_for(15_000);
    assert_eq!(pair.ends[0].completions(), [], "a copy may arrive");
    destroy(&mut pair, 1, server);
    let (done, after) = next_completions(&mut pair, 0);
    assert_eq!(done, [(1, Status::Success)]);
    assert!(after < GRACE / 10, "{after} ns");
}

#[test]
fn requests_in_flight_at_the_close_complete_with_their_answer() {
    let mut pair = Pair::new();
    let [client, server] = pair.connect_star(1, &Link { timeout: 14, ..Link::default() });
    // The Close overtakes the answers.
    pair.fates = Some(Box::new(|_, bytes| match type_of(bytes) {
        PacketType::Sdp | PacketType::Ra => Fate::ArrivesLate(1_000_000),
        _ => Fate::Arrives,
    }));
    let there = pair.ends[1].remote(0x1000);
    pair.ends[1].fill(0x1000, &[3; 3000]);
    pair.ends[0].post(client, 1, Operation::Read(there), 0, 3000);
    pair.ends[0].post(client, 2, Operation::Write(pair.ends[1].remote(0x8000)), 0x8000, 10);
    pair.run_for(15_000);
    destroy(&mut pair, 1, server);
    // Waits for a receive.
    pair.ends[0].post(client, 3, Operation::Send, 0, 10);
    pair.run_for(5_000_000);
    assert_eq!(pair.ends[0].statuses(), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(pair.ends[0].bytes(0, 3000), [3; 3000]);
    let (done, _) = next_completions(&mut pair, 0);
    assert_eq!(done, [(3, Status::RetryExceeded)]);
}

/// The client's program moves its queue pair to ERROR, which ends the connection by a CQEP.
#[test]
fn requests_of_either_side_fail_after_the_grace() {
    for server in SERVERS {
        let mut pair = Pair::new();
        let qps = pair.connect_star(server, &Link { timeout: 14, ..Link::default() });
        pair.ends[0].receive(qps[0], 9, 0, 10);
        // The SENDs wait for receives.
        (1..=2).for_each(|nth| pair.ends[0].post(qps[0], nth, Operation::Send, 0, 10));
        pair.run_for(100_000);
        pair.ends[1].device.modify_qp(qps[1], &QpChange::to(QpState::Err)).unwrap();
        let (done, after) = next_completions(&mut pair, 0);
        let flushed = [(2, Status::Flushed), (9, Status::Flushed)];
        assert_eq!(done, [&[(1, Status::RetryExceeded)], &flushed[..]].concat(), "{server}");
        assert!((GRACE..GRACE + 1_000_000).contains(&after), "{server}: {after} ns");
        assert_eq!(pair.ends[0].device.poll_timeout(), None);
    }
}

#[test]
fn a_request_that_is_posted_later_has_the_grace_too() {
    for server in SERVERS {
        let mut pair = Pair::new();
        let qps = pair.connect_star(server, &Link { timeout: 14, ..Link::default() });
        pair.ends[1].device.modify_qp(qps[1], &QpChange::to(QpState::Err)).unwrap();
        pair.run();
        assert_eq!(pair.ends[0].device.poll_timeout(), None);
        pair.ends[0].post(qps[0], 1, Operation::Write(Remote { address: BASE, rkey: RKey(0) }), 0, 10);
        let (done, after) = next_completions(&mut pair, 0);
        assert_eq!(done, [(1, Status::RetryExceeded)], "{server}");
        assert!((GRACE..GRACE + 1_000_000).contains(&after), "{server}: {after} ns");
    }
}

/// A SEND that has filled a receive which its program got back in error must not complete.
#[test]
fn a_send_into_a_receive_that_was_flushed_fails() {
    let mut pair = Pair::new();
    let [client, server] = pair.connect_star(1, &Link { timeout: 14, ..Link::default() });
    pair.ends[1].receive(server, 7, 0x1000, 100);
    pair.fates = Some(Box::new(|_, bytes| match type_of(bytes) {
        PacketType::Cqep => Fate::ArrivesLate(100_000),
        _ => Fate::Arrives,
    }));
    pair.ends[0].fill(0, &[3; 50]);
    pair.ends[0].post(client, 1, Operation::Send, 0, 50);
    pair.run_until(|pair| pair.ends[1].bytes(0x1000, 50) == [3; 50]);
    pair.run_for(15_000);
    pair.ends[1].device.modify_qp(server, &QpChange::to(QpState::Err)).unwrap();
    let (received, _) = next_completions(&mut pair, 1);
    assert_eq!(received, [(7, Status::Flushed)]);
    let (done, _) = next_completions(&mut pair, 0);
    assert_eq!(done, [(1, Status::RetryExceeded)]);
}

/// The card refuses a packet of a closed connection; the request fails as if there had been no answer.
#[test]
fn a_refusal_after_the_close_is_no_answer() {
    let mut pair = Pair::new();
    let [client, server] = pair.connect_star(1, &Link { timeout: 14, ..Link::default() });
    // A server without connections answers nothing.
    pair.connect_star(1, &Link::default());
    let (region, report) = pair.ends[1].register(RegionConfig::new(BASE, 100, ALL));
    pair.run();
    pair.fates = Some(Box::new(|_, bytes| match type_of(bytes) {
        PacketType::Rdp => Fate::ArrivesLate(100_000),
        _ => Fate::Arrives,
    }));
    pair.ends[0].post(client, 1, Operation::Write(Remote { address: BASE, rkey: report.rkey }), 0, 10);
    pair.transmit();
    destroy(&mut pair, 1, server);
    pair.ends[1].device.deregister(region).unwrap();
    let (done, after) = next_completions(&mut pair, 0);
    assert_eq!(done, [(1, Status::RetryExceeded)]);
    assert!((GRACE..GRACE + 1_000_000).contains(&after), "{after} ns");
    assert!(pair.ends[1].device.view::<star::CardCounters>().refused_memory > 0);
}

/// The client sends the EA of its last connection's Close, so that the server flushes without waiting for its
/// retries.
#[test]
fn a_close_is_acknowledged() {
    let mut pair = Pair::new();
    let [_, server] = pair.connect_star(1, &Link { timeout: 14, ..Link::default() });
    pair.ends[1].receive(server, 7, 0, 10);
    pair.run();
    pair.ends[1].device.modify_qp(server, &QpChange::to(QpState::Err)).unwrap();
    let (done, after) = next_completions(&mut pair, 1);
    assert_eq!(done, [(7, Status::Flushed)]);
    assert!(after < 100_000, "{after} ns");
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
            let done = pair.ends[end].statuses();
            assert_eq!(done.len(), 2, "{server} {end} {done:?}");
            assert!(done.iter().all(|(_, status)| *status != Status::Success));
            pair.ends[end].receive(qps[end], 9, 0, 100);
            assert_eq!(pair.ends[end].statuses(), [(9, Status::Flushed)]);
            // The peer's next request fails.
            pair.ends[1 - end].post(qps[1 - end], 2, Operation::Send, 0, 10);
            pair.run();
            let done = pair.ends[1 - end].statuses();
            assert!(done.iter().any(|(id, status)| *id == 2 && *status != Status::Success), "{done:?}");
        }
    }
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
    assert_eq!(pair.ends[0].statuses(), [(1, Status::RetryExceeded)]);
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

/// The first SEND completes while the Close is on its way; the second was never announced, since its buffer
/// is in no region.
#[test]
fn a_completion_after_the_close_was_sent_flushes_nothing_before_the_client_has_it() {
    let mut pair = Pair::new();
    let [client, server] = pair.connect_star(1, &Link { timeout: 14, ..Link::default() });
    pair.ends[1].receive(server, 7, 0x1000, 100);
    pair.run();
    pair.fates = Some(Box::new(|_, bytes| match Repr::parse(bytes).unwrap().0.message {
        Message::Wqep(Element::Close(_)) => Fate::ArrivesLate(1_000_000),
        _ => Fate::Arrives,
    }));
    pair.ends[0].receive(client, 8, 0x2000, 100);
    pair.ends[1].post(server, 1, Operation::Send, 0, 50);
    let wrong = [Sge { lkey: LKey(pair.ends[1].lkey.0 ^ 1), ..pair.ends[1].sge(0, 50) }];
    pair.ends[1].device.post_send(server, &SendRequest::new(2, Operation::Send, &wrong)).unwrap();
    pair.transmit();
    pair.ends[1].device.modify_qp(server, &QpChange::to(QpState::Err)).unwrap();
    pair.run_for(500_000);
    assert_eq!(pair.ends[1].statuses(), [(1, Status::Success)], "the client may be storing");
    pair.run();
    assert_eq!(pair.ends[1].statuses(), [(2, Status::Flushed), (7, Status::Flushed)]);
}
