//! The choice between RoCE and StaR for a device's connections, and the terms of their set-up.

use crate::common::{Fate, Link, Pair, address, bring_up, changes};
use nichrome_rdma::star::{
    Admit, CardAuthentication, Connect, MakeOffer, Room, ServerSecret, StarRole, Wish,
};
use nichrome_rdma::*;
use nichrome_wire::SeqNumber;
use nichrome_wire::star::{Message, Reason, Repr};

fn ok(done: &[Completion]) -> Vec<u64> {
    assert!(done.iter().all(|wc| wc.status == Status::Success), "{done:?}");
    done.iter().map(|wc| wc.wr_id).collect()
}

#[test]
fn a_device_has_connections_on_roce_and_on_star() {
    for server in [0, 1] {
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

/// It limits the packets of the client and the elements of the server's driver.
#[test]
fn a_connection_uses_the_smaller_path_mtu_of_its_ends() {
    for (server, small) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let mut pair = Pair::new();
        let qps = pair.create(QpType::Rc);
        for end in 0..2 {
            let peer = pair.ends[1 - end].device.qp_number(qps[1 - end]).unwrap();
            let mtu = if end == small { PathMtu::B256 } else { PathMtu::B1024 };
            let link = Link { mtu, ..Link::default() };
            bring_up(&mut pair.ends[end].device, QpType::Rc, qps[end], address(1 - end), peer, &link);
        }
        pair.put_on_star(server, qps, 5);
        pair.record = true;
        for (end, qp) in qps.into_iter().enumerate() {
            let there = pair.ends[1 - end].remote(0x1000);
            pair.ends[end].post(qp, 1, Operation::Write(there), 0, 1000);
            pair.ends[end].post(qp, 2, Operation::Read(there), 0x2000, 1000);
        }
        pair.run();
        for (end, qp) in pair.ends.iter_mut().zip(qps) {
            assert_eq!(ok(&end.completions()), [1, 2]);
            let report = end.device.query_qp(qp).unwrap();
            assert_eq!(report.path_mtu, PathMtu::B256, "server {server}, small {small}");
        }
        // Four packets of each operation.
        let stores = pair.ends[server].device.view::<star::CardCounters>().stored;
        assert_eq!(stores, 8, "server {server}, small {small}");
        let longest = pair.sent.iter().map(|(_, bytes)| bytes.len()).max().unwrap();
        assert!(longest < 400, "server {server}, small {small}: {longest}");
    }
}

/// When they are posted, the queue pair of the server is on hold with a path MTU of 1,024 bytes, for which no
/// element is too long.
#[test]
fn requests_posted_before_set_up_that_do_not_fit_an_element_fail_in_their_turn() {
    for is_receive in [false, true] {
        let mut pair = Pair::new();
        let [client, server] = pair.create(QpType::Rc);
        let [number, peer] =
            [(0, client), (1, server)].map(|(end, qp)| pair.ends[end].device.qp_number(qp).unwrap());
        let small = Link { mtu: PathMtu::B256, ..Link::default() };
        bring_up(&mut pair.ends[0].device, QpType::Rc, client, address(1), peer, &small);
        let [init, rtr, rts] = changes(QpType::Rc, address(0), number, &Link::default());
        let device = &mut pair.ends[1].device;
        device.modify_qp(server, &init).unwrap();
        device.hold_qp(server).unwrap();
        [rtr, rts].iter().for_each(|change| device.modify_qp(server, change).unwrap());
        let buffers = [pair.ends[1].sge(0, 10); 11];
        for (nth, count) in [(1, 10), (2, 11)] {
            let (wr_id, buffers) = (nth, &buffers[..count]);
            let device = &mut pair.ends[1].device;
            if is_receive {
                device.post_receive(server, &ReceiveRequest { wr_id, buffers }).unwrap();
            } else {
                device.post_send(server, &SendRequest::new(wr_id, Operation::Send, buffers)).unwrap();
            }
        }
        pair.put_on_star(1, [client, server], 5);
        for nth in 1..=2 {
            if is_receive {
                pair.ends[0].post(client, nth, Operation::Send, 0, 8);
            } else {
                pair.ends[0].receive(client, nth, 0, 110);
            }
        }
        pair.run();
        let expected = [(1, Status::Success), (2, Status::LocalQpOperation)];
        assert_eq!(pair.ends[1].statuses(), expected, "receives: {is_receive}");
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

/// The server's card keeps the leases of 256 closed connections; one more makes the leases of all connections
/// void.
#[test]
fn a_late_refusal_of_a_packet_under_the_previous_lease_leaves_the_next_one_valid() {
    let mut pair = Pair::with(|config| {
        let secret = ServerSecret::new([1; 16]);
        config.star.authentication = Some(CardAuthentication { secret });
    });
    let [client, _] = pair.connect_star(1, &Link::default());
    for _ in 0..=256 {
        let closed = pair.connect_star(1, &Link::default());
        for (end, qp) in pair.ends.iter_mut().zip(closed) {
            end.device.destroy_qp(qp).unwrap();
        }
    }
    pair.run_for(1_000_000);
    let mut refusals = 0;
    pair.fates = Some(Box::new(move |_, bytes| {
        let is_refusal = Repr::parse(bytes).unwrap().0.message == Message::Ra(Err(Reason::Lease));
        refusals += u32::from(is_refusal);
        // The next lease arrives one round trip of 20 µs after the first refusal.
        if is_refusal && refusals > 1 { Fate::ArrivesLate(100_000) } else { Fate::Arrives }
    }));
    let there = pair.ends[1].remote(0);
    (1..=3).for_each(|nth| pair.ends[0].post(client, nth, Operation::Write(there), 0, 3000));
    pair.run_for(10_000_000);
    assert!(pair.ends[1].device.view::<star::CardCounters>().refused_lease > 1);
    assert_eq!(ok(&pair.ends[0].completions()), [1, 2, 3]);
}
