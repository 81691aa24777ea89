//! StaR between two devices: requests that fail in their turn, and requests that are refused when they are
//! posted.

use crate::common::{ALL, BASE, Fate, Link, MEMORY, Pair, register};
use nichrome_rdma::star::{CardAuthentication, ServerSecret};
use nichrome_rdma::*;
use nichrome_wire::star::{Message, Repr};

/// The end that is stateless. End 0 is the initiator.
const SERVERS: [usize; 2] = [0, 1];

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
            assert_eq!(pair.ends[0].statuses(), expected, "{server} {nth}");
            assert_eq!(pair.ends[1].statuses(), [(7, Status::Flushed)], "{server} {nth}");
            assert!(pair.ends[1].events().contains(&Event::QpAccessError(b)));
        }
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
        assert_eq!(pair.ends[0].statuses(), expected, "{server}");
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
        assert_eq!(pair.ends[0].statuses(), [(1, Status::RemoteInvalidRequest)], "{server}");
        let expected = [(7, Status::LocalLength), (8, Status::Flushed)];
        assert_eq!(pair.ends[1].statuses(), expected, "{server}");
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
        assert_eq!(pair.ends[0].statuses(), [(1, Status::RemoteOperation)], "{server}");
        assert_eq!(pair.ends[1].statuses(), [(7, Status::LocalProtection)], "{server}");
    }
}

/// The receive before it still takes its message.
#[test]
fn a_receive_in_memory_of_another_domain_ends_both_sides_in_its_turn() {
    for (server, is_authenticated) in [(0, false), (1, false), (1, true)] {
        let mut pair = Pair::with(|config| {
            let secret = ServerSecret::new([7; 16]);
            config.star.authentication = is_authenticated.then_some(CardAuthentication { secret });
        });
        let [a, b] = pair.connect_star(server, &Link { retry_count: 1, ..Link::default() });
        let other = pair.ends[1].device.create_domain().unwrap();
        let (_, foreign) = register(&mut pair.ends[1].device, other, RegionConfig::new(BASE, 200, ALL));
        pair.ends[0].fill(0, &[3; 100]);
        pair.ends[1].receive(b, 6, 0x1000, 100);
        let wrong = [Sge { lkey: foreign.lkey, ..pair.ends[1].sge(0, 100) }];
        pair.ends[1].device.post_receive(b, &ReceiveRequest { wr_id: 7, buffers: &wrong }).unwrap();
        (1..=2).for_each(|nth| pair.ends[0].post(a, nth, Operation::Send, 0, 100));
        pair.run();
        let what = format!("server {server}, authenticated: {is_authenticated}");
        let sends = [(1, Status::Success), (2, Status::RemoteOperation)];
        assert_eq!(pair.ends[0].statuses(), sends, "{what}");
        let receives = [(6, Status::Success), (7, Status::LocalProtection)];
        assert_eq!(pair.ends[1].statuses(), receives, "{what}");
        assert_eq!(pair.ends[1].bytes(0, 100), [0; 100], "{what}");
    }
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

/// Loses the RDPs to the server's first and second 8 bytes, `copies` of each.
fn lose(pair: &mut Pair, copies: [u32; 2]) {
    let mut left = copies;
    pair.fates = Some(Box::new(move |_, bytes| match Repr::parse(bytes).unwrap().0.message {
        Message::Rdp(span) => match left.get_mut((span.address - BASE) as usize / 8) {
            Some(left) if *left > 0 => {
                *left -= 1;
                Fate::IsLost
            }
            _ => Fate::Arrives,
        },
        _ => Fate::Arrives,
    }));
}

/// Posts six WRITEs of 8 bytes each to consecutive places of the server, the second with these keys.
fn post_writes(pair: &mut Pair, qp: QpHandle, lkey: LKey, rkey: RKey) {
    for nth in 0..6 {
        let (mut there, mut here) = (pair.ends[1].remote(nth * 8), pair.ends[0].sge(0, 8));
        if nth == 1 {
            (there.rkey, here.lkey) = (rkey, lkey);
        }
        let request = SendRequest::new(nth as u64, Operation::Write(there), std::slice::from_ref(&here));
        pair.ends[0].device.post_send(qp, &request).unwrap();
    }
    pair.transmit();
}

fn first_two(pair: &mut Pair) -> Vec<(u64, Status)> {
    let statuses = pair.ends[0].statuses();
    assert!(statuses.len() == 6 && statuses[2..].iter().all(|(_, status)| *status == Status::Flushed));
    statuses[..2].to_vec()
}

#[test]
fn a_lost_packet_whose_buffer_is_gone_fails_in_its_turn() {
    let mut pair = Pair::new();
    let [a, _] = pair.connect_star(1, &Link::default());
    let (buffer, RegionReport { lkey, .. }) = pair.ends[0].register(RegionConfig::new(BASE, 8, ALL));
    lose(&mut pair, [1, 1]);
    let rkey = pair.ends[1].rkey;
    post_writes(&mut pair, a, lkey, rkey);
    pair.ends[0].device.deregister(buffer).unwrap();
    pair.run();
    assert_eq!(first_two(&mut pair), [(0, Status::Success), (1, Status::LocalProtection)]);
}

/// The server deregisters the region, and does not answer the packet before.
#[test]
fn a_lost_packet_to_a_withdrawn_region_does_not_hold_up_those_before_it() {
    let mut pair = Pair::new();
    let [a, _] = pair.connect_star(1, &Link::default());
    let (region, RegionReport { rkey, .. }) = pair.ends[1].register(RegionConfig::new(BASE, 16, ALL));
    pair.run();
    lose(&mut pair, [u32::MAX, 1]);
    let lkey = pair.ends[0].lkey;
    post_writes(&mut pair, a, lkey, rkey);
    pair.ends[1].device.deregister(region).unwrap();
    pair.run();
    assert_eq!(first_two(&mut pair), [(0, Status::RetryExceeded), (1, Status::Flushed)]);
}

/// The server's program deregisters the buffer of its first SEND. All three have receives, which stay in
/// their order.
#[test]
fn receives_of_sends_that_fail_at_the_server_are_flushed_in_order() {
    let mut pair = Pair::new();
    let qps = pair.connect_star(1, &Link::default());
    let (region, RegionReport { lkey, .. }) = pair.ends[1].register(RegionConfig::new(BASE, 8, ALL));
    (1..=4).for_each(|nth| pair.ends[0].receive(qps[0], nth, 0, 8));
    for nth in 1..=3 {
        let mut here = pair.ends[1].sge(0, 8);
        if nth == 1 {
            here.lkey = lkey;
        }
        let request = SendRequest::new(nth, Operation::Send, std::slice::from_ref(&here));
        pair.ends[1].device.post_send(qps[1], &request).unwrap();
    }
    // The client requests the bytes.
    pair.run_for(15_000);
    pair.ends[1].device.deregister(region).unwrap();
    pair.run();
    let failed = [(1, Status::LocalProtection), (2, Status::Flushed), (3, Status::Flushed)];
    assert_eq!(pair.ends[1].statuses(), failed);
    assert_eq!(pair.ends[0].statuses(), []);
    pair.ends[0].device.modify_qp(qps[0], &QpChange::to(QpState::Err)).unwrap();
    assert_eq!(pair.ends[0].statuses(), [1, 2, 3, 4].map(|nth| (nth, Status::Flushed)));
}
