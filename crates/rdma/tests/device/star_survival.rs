//! StaR under faults: each packet type lost, duplicated, late; either side gone or restarted.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{ALL, BASE, Fate, Link, Pair, address, changes, pattern};
use nichrome_rdma::*;
use nichrome_wire::star::{PacketType, Repr};

const SERVERS: [usize; 2] = [0, 1];
const IMMEDIATE: ImmediateData = ImmediateData([4, 3, 2, 1]);

fn type_of(bytes: &[u8]) -> PacketType {
    Repr::parse(bytes).unwrap().0.message.packet_type()
}

fn statuses(done: &[Completion]) -> Vec<(u64, Status)> {
    done.iter().map(|wc| (wc.wr_id, wc.status)).collect()
}

/// Sets the fate of the `nth` packet of a type. Returns the number of packets of that type so far.
fn strike(pair: &mut Pair, kind: PacketType, nth: u32, fate: Fate) -> Rc<Cell<u32>> {
    let seen = Rc::new(Cell::new(0));
    let count = Rc::clone(&seen);
    pair.fates = Some(Box::new(move |_, bytes| {
        if type_of(bytes) != kind {
            return Fate::Arrives;
        }
        count.set(count.get() + 1);
        if count.get() == nth + 1 { fate } else { Fate::Arrives }
    }));
    seen
}

/// Posts every verb in both directions and checks its effects.
fn exercise(pair: &mut Pair, qps: [QpHandle; 2]) {
    for (seed, (end, qp)) in pair.ends.iter_mut().zip(qps).enumerate() {
        end.fill(0, &pattern(8000, seed as u64));
        end.fill(0x4000, &7u64.to_ne_bytes());
        (0..3).for_each(|nth| end.receive(qp, nth, 0x20000 + nth as usize * 0x4000, 4000));
    }
    for end in 0..2 {
        let there = |at| pair.ends[1 - end].remote(at);
        let (write, read, add) = (there(0x8000), there(0), there(0x4000));
        let ends = &mut pair.ends;
        ends[end].post(qps[end], 1, Operation::Write(write), 0, 3000);
        ends[end].post(qps[end], 2, Operation::Send, 0, 3000);
        ends[end].post(qps[end], 3, Operation::Read(read), 0xC000, 3000);
        ends[end].post(qps[end], 4, Operation::SendWithImmediate(IMMEDIATE), 3000, 2000);
        ends[end].post(
            qps[end],
            5,
            Operation::WriteWithImmediate(Remote { address: write.address + 3000, ..write }, IMMEDIATE),
            3000,
            10,
        );
        ends[end].post(qps[end], 6, Operation::FetchAdd { remote: add, add: 5 }, 0x10000, 8);
    }
    pair.run();
    for end in 0..2 {
        let (done, theirs) = (pair.ends[end].completions(), pattern(8000, 1 - end as u64));
        let receives = |wc: &&Completion| {
            matches!(wc.operation, CompletedOperation::Receive | CompletedOperation::ReceiveWithWrite)
        };
        assert!(done.iter().all(|wc| wc.status == Status::Success), "{done:?}");
        let ids = |wcs: Vec<&Completion>| wcs.iter().map(|wc| wc.wr_id).collect::<Vec<_>>();
        assert_eq!(ids(done.iter().filter(receives).collect()), [0, 1, 2]);
        let sends: Vec<u64> = (1..=6).collect();
        assert_eq!(ids(done.iter().filter(|wc| !receives(wc)).collect()), sends);
        assert!(
            pair.ends[end].bytes(0x8000, 3010)[..] == [&theirs[..3000], &theirs[3000..3010]].concat()[..]
        );
        assert!(pair.ends[end].bytes(0xC000, 3000) == &theirs[..3000]);
        assert!(pair.ends[end].bytes(0x20000, 3000) == &theirs[..3000]);
        assert!(pair.ends[end].bytes(0x24000, 2000) == &theirs[3000..5000]);
        let word = |at| u64::from_ne_bytes(pair.ends[end].bytes(at, 8).try_into().unwrap());
        assert_eq!([word(0x4000), word(0x10000)], [12, 7]);
        assert_eq!(pair.ends[end].device.poll_timeout(), None);
    }
}

#[test]
fn each_packet_of_each_type_may_be_lost_come_twice_or_late() {
    for server in SERVERS {
        for kind in PacketType::ALL {
            for fate in
                [Fate::IsLost, Fate::ArrivesTwice, Fate::ArrivesLate(35_000), Fate::ArrivesLate(2_000_000)]
            {
                let mut nth = 0;
                loop {
                    let mut pair = Pair::new();
                    let qps = pair.connect_star(server, &Link::default());
                    let seen = strike(&mut pair, kind, nth, fate);
                    exercise(&mut pair, qps);
                    assert!(seen.get() > 0, "{kind:?} is not among what was tested");
                    nth += 1;
                    if nth >= seen.get() {
                        break;
                    }
                }
            }
        }
    }
}

#[test]
fn the_first_three_of_each_type_may_be_lost_together() {
    for server in SERVERS {
        let mut pair = Pair::new();
        let qps = pair.connect_star(server, &Link::default());
        let mut left = [3; 9];
        pair.fates = Some(Box::new(move |_, bytes| {
            let left = &mut left[type_of(bytes) as usize];
            let lost = *left > 0;
            *left -= i32::from(lost);
            if lost { Fate::IsLost } else { Fate::Arrives }
        }));
        exercise(&mut pair, qps);
    }
}

#[test]
fn a_late_copy_comes_before_its_operation_completes() {
    // The first RDP arrives after its retransmission was answered.
    let mut pair = Pair::new();
    let [a, _] = pair.connect_star(1, &Link::default());
    strike(&mut pair, PacketType::Rdp, 0, Fate::ArrivesLate(5_000_000));
    let there = pair.ends[1].remote(0);
    pair.ends[0].fill(0, &[1; 8]);
    pair.ends[0].post(a, 1, Operation::Write(there), 0, 8);
    pair.run_until(|pair| pair.ends[1].bytes(0, 8) == [1; 8]);
    assert!(pair.now < Instant::from_nanos(4_000_000), "{}", pair.now);
    let mut done = Vec::new();
    pair.run_until(|pair| {
        done = pair.ends[0].completions();
        !done.is_empty()
    });
    assert!(pair.now > Instant::from_nanos(5_000_000), "{}", pair.now);
    // No packet changes the server's memory from now on.
    pair.ends[1].fill(0, &[2; 8]);
    pair.run();
    assert_eq!(pair.ends[1].bytes(0, 8), [2; 8]);
    assert_eq!(pair.ends[1].device.view::<star::CardCounters>().stored, 2);
}

#[test]
fn a_client_that_dies_ends_the_work_of_the_server_in_error_and_leaves_nothing() {
    for posted in [Operation::Send, Operation::Read(Remote { address: 0x1_0000, rkey: RKey(0) })] {
        let mut pair = Pair::new();
        let [a, _] = pair.connect_star(0, &Link { retry_count: 2, ..Link::default() });
        let operation = match posted {
            Operation::Read(remote) => Operation::Read(Remote { rkey: pair.ends[1].rkey, ..remote }),
            other => other,
        };
        pair.ends[0].receive(a, 9, 0x1000, 100);
        (1..=3).for_each(|nth| pair.ends[0].post(a, nth, operation, 0, 5000));
        // The client has received the requests.
        pair.run_for(25_000);
        pair.faults.loss = 1.0;
        pair.run();
        let done = statuses(&pair.ends[0].completions());
        let flushed = [(2, Status::Flushed), (3, Status::Flushed), (9, Status::Flushed)];
        assert_eq!(done, [&[(1, Status::RetryExceeded)], &flushed[..]].concat());
        assert_eq!(pair.ends[0].device.poll_timeout(), None);
        pair.ends[0].device.destroy_qp(a).unwrap();
        assert_eq!(pair.ends[0].device.stateless_connections(), 0);
    }
}

/// With a timeout of 0 (none).
#[test]
fn a_client_waits_for_a_registration_that_is_late() {
    let mut pair = Pair::new();
    let [a, _] = pair.connect_star(1, &Link { timeout: 0, ..Link::default() });
    strike(&mut pair, PacketType::Wqep, 0, Fate::ArrivesLate(5_000_000));
    let (_, region) = pair.ends[1].register(RegionConfig::new(BASE, 8, ALL));
    pair.ends[0].post(a, 1, Operation::Write(Remote { address: BASE, rkey: region.rkey }), 0, 8);
    pair.run();
    assert_eq!(statuses(&pair.ends[0].completions()), [(1, Status::Success)]);
}

/// With a timeout of 0 (none).
#[test]
fn a_server_in_error_flushes_its_requests_although_the_client_is_gone() {
    let mut pair = Pair::new();
    let [a, _] = pair.connect_star(0, &Link { timeout: 0, ..Link::default() });
    pair.ends[0].receive(a, 9, 0x1000, 100);
    pair.run_for(1_000_000);
    pair.faults.loss = 1.0;
    pair.ends[0].device.modify_qp(a, &QpChange::to(QpState::Err)).unwrap();
    pair.run_for(10_000_000_000);
    assert_eq!(statuses(&pair.ends[0].completions()), [(9, Status::Flushed)]);
}

/// The client's lease has ended meanwhile, and it sends nothing to the card before it has another.
#[test]
fn a_server_that_is_gone_after_an_idle_time_fails_the_requests_of_an_authenticated_client() {
    const SERVER: usize = 1;
    let mut pair = Pair::with(|config| {
        let secret = star::ServerSecret::new([7; 16]);
        config.star.authentication = Some(star::CardAuthentication { secret });
    });
    let [a, _] = pair.connect_star(SERVER, &Link::default());
    let there = pair.ends[SERVER].remote(0);
    for (nth, is_gone, status) in
        [(1, false, Status::Success), (2, false, Status::Success), (3, true, Status::RetryExceeded)]
    {
        pair.run_for(120_000_000_000);
        pair.faults.loss = if is_gone { 1.0 } else { 0.0 };
        pair.ends[0].post(a, nth, Operation::Write(there), 0, 8);
        pair.run_for(60_000_000_000);
        assert_eq!(statuses(&pair.ends[0].completions()), [(nth, status)]);
    }
}

/// With a timeout of 0 (none).
#[test]
fn a_window_that_is_lost_is_found_by_probes() {
    for server in SERVERS {
        let mut pair = Pair::new();
        let [qp, _] = pair.connect_star(server, &Link { timeout: 0, ..Link::default() });
        let mut count = 0;
        pair.fates = Some(Box::new(move |_, bytes| {
            if !matches!(type_of(bytes), PacketType::Gd | PacketType::Rdp) {
                return Fate::Arrives;
            }
            count += 1;
            // The four that arrive reveal losses, which halves the window.
            if count > 65 || (9..=12).contains(&count) { Fate::Arrives } else { Fate::IsLost }
        }));
        let there = pair.ends[1].remote(0);
        pair.ends[0].post(qp, 1, Operation::Write(there), 0, 80 * 1024);
        let mut done = Vec::new();
        pair.run_until(|pair| {
            done = pair.ends[0].completions();
            !done.is_empty() || pair.now > Instant::from_nanos(30_000_000)
        });
        assert_eq!(statuses(&done), [(1, Status::Success)], "{server}");
    }
}

/// A server at end 0, and a client whose program only receives and stays in RTR, without retransmission
/// timers.
fn connect_receiver(pair: &mut Pair) -> [QpHandle; 2] {
    let qps = pair.create(QpType::Rc);
    let link = Link::default();
    for (end, count) in [(0, 3), (1, 2)] {
        let peer = pair.ends[1 - end].device.qp_number(qps[1 - end]).unwrap();
        for change in &changes(QpType::Rc, address(1 - end), peer, &link)[..count] {
            pair.ends[end].device.modify_qp(qps[end], change).unwrap();
        }
    }
    pair.put_on_star(0, qps, 7);
    qps
}

#[test]
fn a_client_whose_program_only_receives_retransmits_lost_packets() {
    // A whole window, or the CQEP.
    for (kind, lost) in [(PacketType::Gd, 40), (PacketType::Sdp, 40), (PacketType::Cqep, 1)] {
        let mut pair = Pair::new();
        let [server, _] = connect_receiver(&mut pair);
        let mut count = 0;
        pair.fates = Some(Box::new(move |_, bytes| {
            count += u32::from(type_of(bytes) == kind);
            if type_of(bytes) == kind && count <= lost { Fate::IsLost } else { Fate::Arrives }
        }));
        let there = pair.ends[1].remote(0);
        pair.ends[0].post(server, 1, Operation::Write(there), 0, 40 * 1024);
        let mut done = Vec::new();
        pair.run_until(|pair| {
            done = pair.ends[0].completions();
            !done.is_empty() || pair.now > Instant::from_nanos(1_000_000_000)
        });
        assert_eq!(statuses(&done), [(1, Status::Success)], "{kind:?}");
    }
}

#[test]
fn a_client_whose_program_only_receives_gives_up_a_silent_server() {
    let mut pair = Pair::new();
    let [server, _] = connect_receiver(&mut pair);
    let there = pair.ends[1].remote(0);
    pair.ends[0].post(server, 1, Operation::Write(there), 0, 5000);
    pair.run_for(15_000);
    pair.faults.loss = 1.0;
    pair.run_until(|pair| pair.now > Instant::from_nanos(10_000_000_000));
    assert_eq!(pair.ends[1].device.poll_timeout(), None);
}

/// Each probe waits twice as long as the one before, and a client has a timer for each of three kinds of
/// packets.
#[test]
fn probes_to_a_peer_that_is_gone_are_few_and_end() {
    for server in [0, 1] {
        let mut pair = Pair::new();
        let [a, _] = pair.connect_star(server, &Link { timeout: 14, ..Link::default() });
        pair.faults.loss = 1.0;
        let there = pair.ends[1].remote(0);
        (1..=20).for_each(|nth| pair.ends[0].post(a, nth, Operation::Write(there), 0, 5000));
        pair.run_until(|pair| pair.now > Instant::from_nanos(60_000_000_000));
        for end in &pair.ends {
            let Counters { probes, timeouts, .. } = *end.device.counters();
            assert!(probes <= 3 * 14 && timeouts <= 3 * 8, "{probes} probes, {timeouts} timeouts");
            assert_eq!(end.device.poll_timeout(), None);
        }
        assert!(pair.ends[0].device.counters().probes > 0);
    }
}

#[test]
fn a_server_that_dies_ends_the_work_of_the_client_in_error() {
    let mut pair = Pair::new();
    let [_, b] = pair.connect_star(0, &Link { retry_count: 2, ..Link::default() });
    let there = pair.ends[0].remote(0);
    pair.ends[1].receive(b, 9, 0x1000, 100);
    (1..=2).for_each(|nth| pair.ends[1].post(b, nth, Operation::Write(there), 0, 5000));
    pair.faults.loss = 1.0;
    pair.run();
    let done = statuses(&pair.ends[1].completions());
    assert_eq!(done, [(1, Status::RetryExceeded), (2, Status::Flushed), (9, Status::Flushed)]);
}

#[test]
fn a_send_waits_for_a_receive_as_long_as_the_server_lives() {
    const SECOND: u64 = 1_000_000_000;
    for dies in [false, true] {
        let mut pair = Pair::new();
        let [a, b] = pair.connect_star(0, &Link { retry_count: 2, timeout: 14, ..Link::default() });
        pair.ends[1].post(b, 1, Operation::Send, 0, 100);
        pair.run_for(10 * SECOND);
        assert_eq!(pair.ends[1].statuses(), []);
        // A liveness check and its answer in each timeout.
        let Counters { sent, .. } = *pair.ends[1].device.counters();
        assert!((100..200).contains(&sent), "{sent} packets in ten seconds");
        let expected = if dies {
            pair.faults.loss = 1.0;
            Status::RetryExceeded
        } else {
            pair.ends[0].receive(a, 9, 0x1000, 100);
            Status::Success
        };
        pair.run();
        assert_eq!(pair.ends[1].statuses(), [(1, expected)]);
    }
}

#[test]
fn a_send_without_a_timeout_waits_for_ever() {
    let mut pair = Pair::new();
    let [_, b] = pair.connect_star(0, &Link { timeout: 0, ..Link::default() });
    pair.ends[1].post(b, 1, Operation::Send, 0, 100);
    pair.run();
    assert_eq!((pair.ends[1].statuses(), pair.ends[1].device.counters().sent), (vec![], 0));
}

/// Packets of a first connection arrive after the queue pairs of both sides were reset and connected again
/// under the same numbers.
#[test]
fn packets_of_before_a_new_start_are_refused() {
    for server in SERVERS {
        let mut pair = Pair::new();
        pair.record = true;
        let qps = pair.connect_star(server, &Link::default());
        exercise(&mut pair, qps);
        let old = std::mem::take(&mut pair.sent);
        for (end, qp) in pair.ends.iter_mut().zip(qps) {
            end.device.modify_qp(qp, &QpChange::to(QpState::Reset)).unwrap();
        }
        pair.run();
        pair.bring_up_star(server, qps, &Link { psn: 0x1234, ..Link::default() });
        for (end, qp) in pair.ends.iter_mut().zip(qps) {
            end.receive(qp, 77, 0, 100);
        }
        pair.run();
        let before: Vec<Vec<u8>> = pair.ends.iter().map(|end| end.bytes(0, 0x40000).to_vec()).collect();
        // The card cannot tell connections apart: old RDPs and GDs still do what the memory keys allow.
        for (from, bytes) in old.iter().filter(|(_, bytes)| !type_of(bytes).is_for_card()) {
            pair.inject_star(1 - from, bytes);
            pair.run();
        }
        for (end, before) in pair.ends.iter_mut().zip(&before) {
            assert_eq!(end.completions(), []);
            assert!(end.bytes(0, 0x40000) == *before);
        }
        // The new connection still works.
        pair.ends[0].post(qps[0], 1, Operation::Send, 0x100, 50);
        pair.run();
        assert_eq!(pair.ends[1].completions()[0].wr_id, 77);
    }
}

/// The stateless side restarts with another epoch.
#[test]
fn packets_for_a_server_of_before_a_new_start_are_refused() {
    let old = {
        let mut pair = Pair::new();
        pair.record = true;
        let qps = pair.connect_star(0, &Link::default());
        exercise(&mut pair, qps);
        pair.sent
    };
    let mut pair = Pair::with(|config| config.star.epoch = nichrome_wire::star::Epoch(9));
    pair.connect_star(0, &Link::default());
    let before = pair.ends[0].bytes(0, 0x40000).to_vec();
    for (_, bytes) in old.iter().filter(|(from, _)| *from == 1) {
        pair.inject_star(0, bytes);
    }
    pair.run();
    assert!(pair.ends[0].bytes(0, 0x40000) == before);
    let counters = pair.ends[0].device.view::<star::CardCounters>();
    assert_eq!((counters.stored, counters.fetched), (0, 0));
    assert!(counters.dropped_check > 10);
}

#[test]
fn a_send_completes_when_its_receiver_knows() {
    // The CQEP is lost once; the client's program ends with its own CQE.
    let mut pair = Pair::new();
    let [a, b] = pair.connect_star(1, &Link::default());
    strike(&mut pair, PacketType::Cqep, 0, Fate::IsLost);
    pair.ends[1].receive(b, 7, 0, 100);
    pair.ends[0].post(a, 1, Operation::Send, 0, 50);
    pair.run_until(|pair| !pair.ends[0].completions().is_empty());
    pair.ends[0].device.destroy_qp(a).unwrap();
    assert_eq!(pair.ends[1].completions()[0].wr_id, 7);
}

#[test]
fn writes_to_the_same_memory_keep_their_order_whatever_is_lost() {
    for server in SERVERS {
        for kind in PacketType::ALL {
            let mut nth = 0;
            loop {
                let mut pair = Pair::new();
                let [a, _] = pair.connect_star(server, &Link { mtu: PathMtu::B256, ..Link::default() });
                let seen = strike(&mut pair, kind, nth, Fate::IsLost);
                pair.ends[0].fill(0, &[1; 600]);
                pair.ends[0].fill(1000, &[2; 600]);
                // Each half of the first WRITE is cut into packets separately.
                let halves = [pair.ends[0].sge(0, 130), pair.ends[0].sge(130, 130)];
                let there = pair.ends[1].remote(0);
                pair.ends[0]
                    .device
                    .post_send(a, &SendRequest::new(1, Operation::Write(there), &halves))
                    .unwrap();
                let inner = Remote { address: there.address + 140, ..there };
                pair.ends[0].post(a, 2, Operation::Write(inner), 1000, 100);
                pair.ends[0].post(a, 3, Operation::Write(there), 1000, 20);
                pair.run();
                assert_eq!(pair.ends[0].completions().len(), 3);
                let expected = [vec![2; 20], vec![1; 120], vec![2; 100], vec![1; 20]].concat();
                assert!(pair.ends[1].bytes(0, 260) == expected, "{server} {kind:?} {nth}");
                nth += 1;
                if nth >= seen.get() {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_lost_cqep_is_retransmitted_before_the_client_is_destroyed() {
    let mut pair = Pair::new();
    let [server, client] = pair.connect_star(0, &Link { timeout: 10, ..Link::default() });
    pair.ends[1].receive(client, 7, 0, 100);
    pair.ends[0].post(server, 1, Operation::Send, 0, 100);
    let mut received = Vec::new();
    pair.run_until(|pair| {
        received.extend(pair.ends[1].completions());
        !received.is_empty()
    });
    pair.faults.loss = 1.0;
    pair.transmit();
    pair.faults.loss = 0.0;
    pair.ends[1].device.acknowledge_again(client).unwrap();
    pair.transmit();
    pair.ends[1].device.destroy_qp(client).unwrap();
    pair.run_for(100_000);
    assert_eq!(pair.ends[0].completions()[0].status, Status::Success);
}
