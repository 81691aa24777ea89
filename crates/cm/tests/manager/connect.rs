//! Connections between two managers.

use nichrome_cm::{CommandError, Config, ConnectionParameters, EventKind, IdName, IdState};
use nichrome_rdma::{Access, QpState, RnrTimer};
use nichrome_wire::cm::{Ece, Mad, PortSpace, RejectReason};
use nichrome_wire::rdma::{PathMtu, QpNumber};

use crate::common::*;

/// The messages that were sent, by name.
fn sent(network: &Network) -> Vec<String> {
    let name = |payload: &[u8]| format!("{:?}", Mad::parse(payload).unwrap().message.attribute());
    network.log.iter().map(|transmit| name(&transmit.payload)).collect()
}

#[test]
fn a_connection_has_the_events_of_the_kernel() {
    let mut network = Network::pair();
    let listener = network.listen(1, 9, PortSpace::Tcp, 7, 0);
    let client = network.resolved(0, 1, PortSpace::Tcp, at(1, 7));
    network.connect(0, client, 0x11).unwrap();
    network.pass(2 * MILLISECOND);
    let request = network.event(1);
    assert_eq!((request.kind, request.uid, request.status), (EventKind::ConnectRequest, 9, 0));
    let asked = of_connection(&request);
    assert_eq!((asked.qp, asked.private_data.len()), (QpNumber::new(0x11).unwrap(), 56));
    assert_eq!((&asked.private_data[..6], asked.retry_count, asked.rnr_retry), (&b"hello\0"[..], 6, 4));
    // The initiator's depth is the responder's resources, and its resources are the responder's depth.
    assert_eq!((asked.responder_resources, asked.initiator_depth), (5, 3));
    let server = IdName(request.id);
    let report = network.nodes[1].manager.query(server).unwrap();
    assert_eq!((report.source, report.state), (at(1, 7), IdState::Connect));
    assert_eq!(report.destination.unwrap().ip(), address(0));
    network.accept(1, server, 2, 0x22).unwrap();
    network.pass(2 * MILLISECOND);
    let response = network.event(0);
    assert_eq!((response.kind, response.uid, response.id), (EventKind::ConnectResponse, 1, client.0));
    assert_eq!(of_connection(&response).private_data.len(), 196);
    assert_eq!((response.ece.vendor, response.ece.options), (7, 9));
    assert!(of_connection(&response).private_data.starts_with(b"welcome\0"));
    assert_eq!(network.events(1), []);
    network.establish(0, client).unwrap();
    network.pass(2 * MILLISECOND);
    let established = network.event(1);
    assert_eq!((established.kind, established.uid), (EventKind::Established, 2));
    assert_eq!(network.events(0), []);
    network.disconnect(1, server).unwrap();
    network.pass(2 * MILLISECOND);
    assert_eq!(network.event(0).kind, EventKind::Disconnected);
    assert_eq!(network.event(1).kind, EventKind::Disconnected);
    network.disconnect(0, client).unwrap();
    network.pass(SECOND);
    assert_eq!(network.event(0).kind, EventKind::TimewaitExit);
    assert_eq!(network.event(1).kind, EventKind::TimewaitExit);
    assert_eq!(sent(&network), ["Req", "Rep", "Rtu", "Dreq", "Drep"]);
    assert_eq!(network.destroy(0, client), Ok(5));
    assert_eq!(network.destroy(1, server), Ok(3));
    assert_eq!(network.destroy(1, listener), Ok(1));
    assert_eq!(network.destroy(1, listener), Err(CommandError::NotFound));
    network.assert_nothing_leaks();
}

#[test]
fn both_ends_give_their_queue_pairs_matching_attributes() {
    let mut network = Network::pair();
    network.listen(1, 9, PortSpace::Tcp, 7, 0);
    let (client, server) = network.connected(0x11);
    let attributes = |node: usize, id, state| network.nodes[node].manager.qp_attributes(id, state).unwrap();
    let init = attributes(0, client, QpState::Init);
    let reads = Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let flushes = Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT;
    assert_eq!(
        (init.access, init.port, init.pkey_index),
        (Some(Access::REMOTE_WRITE | reads | flushes), Some(1), Some(0))
    );
    let [rtr, peer_rtr] = [(0, client), (1, server)].map(|(node, id)| attributes(node, id, QpState::Rtr));
    let [rts, peer_rts] = [(0, client), (1, server)].map(|(node, id)| attributes(node, id, QpState::Rts));
    assert_eq!((rtr.destination.unwrap().value(), peer_rtr.destination.unwrap().value()), (0x12, 0x11));
    assert_eq!((rtr.rq_psn, peer_rtr.rq_psn), (peer_rts.sq_psn, rts.sq_psn));
    assert_ne!(rtr.rq_psn, peer_rtr.rq_psn);
    assert_eq!((rtr.path_mtu, peer_rtr.path_mtu), (Some(PathMtu::B1024), Some(PathMtu::B1024)));
    assert_eq!((rtr.path.unwrap().destination, peer_rtr.path.unwrap().destination), (address(1), address(0)));
    // The program of the server accepted with 3 resources and depth 5.
    assert_eq!((rtr.max_dest_rd_atomic, rts.max_rd_atomic), (Some(5), Some(3)));
    assert_eq!((peer_rtr.max_dest_rd_atomic, peer_rts.max_rd_atomic), (Some(3), Some(5)));
    assert_eq!((rts.retry_count, rts.rnr_retry, rts.timeout), (Some(6), Some(4), Some(10)));
    assert_eq!(peer_rts.timeout, Some(10));
}

/// A program that posts a receive late finds its peer still retransmitting the request.
#[test]
fn few_rnr_retries_are_far_apart() {
    for (retries, timer) in [(7, 12), (6, 26), (1, 26)] {
        let mut network = Network::pair();
        network.listen(1, 9, PortSpace::Tcp, 7, 0);
        let client = network.resolved(0, 1, PortSpace::Tcp, at(1, 7));
        let asked = ConnectionParameters { rnr_retry: retries, ..parameters(0x11, b"") };
        network.nodes[0].manager.connect(client, &asked, Ece::default(), network.now).unwrap();
        network.pass(2 * MILLISECOND);
        let server = IdName(network.event(1).id);
        let timer_of = |network: &Network, node: usize, id| {
            network.nodes[node].manager.qp_attributes(id, QpState::Rtr).unwrap().min_rnr_timer
        };
        assert_eq!(timer_of(&network, 1, server), RnrTimer::new(timer));
        network.accept(1, server, 2, 0x22).unwrap();
        network.pass(2 * MILLISECOND);
        assert_eq!(timer_of(&network, 0, client), RnrTimer::new(timer));
    }
}

/// librdmacm brings the queue pair to RTS before it accepts.
#[test]
fn a_request_has_its_attributes_before_it_is_accepted() {
    let mut network = Network::pair();
    network.listen(1, 9, PortSpace::Tcp, 7, 0);
    let (client, server) = network.requested(0x11);
    let rtr = network.nodes[1].manager.qp_attributes(server, QpState::Rtr).unwrap();
    network.accept(1, server, 2, 0x22).unwrap();
    network.pass(2 * MILLISECOND);
    let rts = network.nodes[0].manager.qp_attributes(client, QpState::Rts).unwrap();
    assert_eq!(rtr.rq_psn, rts.sq_psn);
}

#[test]
fn an_identifier_has_no_attributes_before_its_time() {
    let mut network = Network::pair();
    let id = network.create(0, 1, PortSpace::Tcp);
    assert_eq!(network.nodes[0].manager.qp_attributes(id, QpState::Init), Err(CommandError::State));
    network.destroy(0, id).unwrap();
    let id = network.resolved(0, 1, PortSpace::Tcp, at(1, 7));
    let init = network.nodes[0].manager.qp_attributes(id, QpState::Init).unwrap();
    assert_eq!((init.access, init.qkey), (Some(Access::NONE), None));
    network.connect(0, id, 0x11).unwrap();
    assert!(network.nodes[0].manager.qp_attributes(id, QpState::Init).is_ok());
    assert_eq!(network.nodes[0].manager.qp_attributes(id, QpState::Rtr), Err(CommandError::State));
}

/// Connects to node 1, whose program does `answer`; returns reason and private data of the rejection.
fn rejected(configs: Vec<Config>, answer: impl FnOnce(&mut Network)) -> (i32, Vec<u8>) {
    let mut network = Network::new(configs);
    let client = network.resolved(0, 1, PortSpace::Tcp, at(1, 7));
    network.connect(0, client, 0x11).unwrap();
    network.pass(2 * MILLISECOND);
    answer(&mut network);
    network.pass(2 * MILLISECOND);
    let event = network.event(0);
    assert_eq!(event.kind, EventKind::Rejected);
    network.destroy(0, client).unwrap();
    network.assert_nothing_leaks();
    (event.status, of_connection(&event).private_data.clone())
}

fn two() -> Vec<Config> {
    vec![config(0), config(1)]
}

#[test]
fn a_port_without_a_listener_is_reason_8() {
    assert_eq!(rejected(two(), |_| {}).0, i32::from(RejectReason::INVALID_SERVICE_ID.0));
}

#[test]
fn the_program_rejects_by_reason_28_or_35_with_its_data() {
    for reason in [RejectReason::CONSUMER, RejectReason::VENDOR_OPTION] {
        let mut network = Network::pair();
        let listener = network.listen(1, 9, PortSpace::Tcp, 7, 0);
        let (client, server) = network.requested(0x11);
        let now = network.now;
        network.nodes[1].manager.reject(server, reason, b"no", now).unwrap();
        network.pass(2 * MILLISECOND);
        let event = network.event(0);
        assert_eq!((event.kind, event.status), (EventKind::Rejected, i32::from(reason.0)));
        assert_eq!(of_connection(&event).private_data.len(), 148);
        assert!(of_connection(&event).private_data.starts_with(b"no\0"));
        assert_eq!(network.accept(1, server, 2, 0x22), Err(CommandError::State));
        for (node, id) in [(0, client), (1, server), (1, listener)] {
            network.destroy(node, id).unwrap();
        }
        network.assert_nothing_leaks();
    }
}

#[test]
fn a_listener_of_another_kind_is_reason_9() {
    let mut network = Network::pair();
    let channel = network.nodes[1].channel;
    let kind = nichrome_rdma::QpType::Uc;
    let id = network.nodes[1].manager.create_id(channel, 9, PortSpace::Ib, kind).unwrap();
    network.nodes[1].manager.bind(id, at(1, 7)).unwrap();
    network.nodes[1].manager.listen(id, 0).unwrap();
    let channel = network.nodes[0].channel;
    let kind = nichrome_rdma::QpType::Rc;
    let client = network.nodes[0].manager.create_id(channel, 1, PortSpace::Ib, kind).unwrap();
    let now = network.now;
    network.nodes[0].manager.resolve_address(client, None, at(1, 7), 1000, now).unwrap();
    network.pass(MILLISECOND);
    let now = network.now;
    network.nodes[0].manager.resolve_route(client, 1000, now).unwrap();
    network.pass(MILLISECOND);
    network.connect(0, client, 0x11).unwrap();
    network.pass(4 * MILLISECOND);
    let events = network.events(0);
    assert_eq!(events.last().unwrap().status, i32::from(RejectReason::INVALID_TRANSPORT.0));
}

#[test]
fn a_path_mtu_beyond_the_adapters_is_reason_26() {
    let small = Config { max_path_mtu: PathMtu::B512, ..config(1) };
    assert_eq!(rejected(vec![config(0), small], |_| {}).0, i32::from(RejectReason::INVALID_MTU.0));
}

#[test]
fn destroying_a_request_or_its_listener_is_reason_28() {
    let mut network = Network::pair();
    let listener = network.listen(1, 9, PortSpace::Tcp, 7, 0);
    for is_fetched in [true, false] {
        let client = network.resolved(0, 1, PortSpace::Tcp, at(1, 7));
        network.connect(0, client, 0x11).unwrap();
        network.pass(2 * MILLISECOND);
        let destroyed = if is_fetched { IdName(network.event(1).id) } else { listener };
        network.destroy(1, destroyed).unwrap();
        network.pass(2 * MILLISECOND);
        let event = network.event(0);
        assert_eq!((event.kind, event.status), (EventKind::Rejected, 28));
        network.destroy(0, client).unwrap();
    }
    network.assert_nothing_leaks();
}

#[test]
fn a_queue_pair_that_is_connected_already_is_reason_10_and_ends_the_old_connection() {
    let mut network = Network::pair();
    let listener = network.listen(1, 9, PortSpace::Tcp, 7, 0);
    let (old, old_server) = network.connected(0x11);
    let client = network.resolved(0, 5, PortSpace::Tcp, at(1, 7));
    network.connect(0, client, 0x11).unwrap();
    network.pass(20 * MILLISECOND);
    let events = network.events(0);
    assert_eq!(kinds(&events), [EventKind::Rejected, EventKind::Disconnected]);
    assert_eq!((events[0].status, events[0].uid, events[1].uid), (10, 5, 1));
    assert_eq!(network.event(1).kind, EventKind::Disconnected);
    for (node, id) in [(0, old), (1, old_server), (0, client), (1, listener)] {
        network.destroy(node, id).unwrap();
    }
    network.assert_nothing_leaks();
}

#[test]
fn destroying_the_initiator_is_reason_4_for_the_listener() {
    let mut network = Network::pair();
    network.listen(1, 9, PortSpace::Tcp, 7, 0);
    let (client, server) = network.requested(0x11);
    network.destroy(0, client).unwrap();
    network.accept(1, server, 2, 0x22).unwrap();
    network.pass(10 * MILLISECOND);
    let event = network.event(1);
    assert_eq!((event.kind, event.status), (EventKind::Rejected, i32::from(RejectReason::TIMEOUT.0)));
}

#[test]
fn a_reply_for_an_unknown_connection_is_reason_6() {
    let mut network = Network::pair();
    network.listen(1, 9, PortSpace::Tcp, 7, 0);
    let (client, server) = network.requested(0x11);
    // The REJ of the destroyed initiator is lost.
    network.destroy(0, client).unwrap();
    network.drain(&mut lost);
    network.accept(1, server, 2, 0x22).unwrap();
    network.pass(10 * MILLISECOND);
    let event = network.event(1);
    assert_eq!((event.kind, event.status), (EventKind::Rejected, i32::from(RejectReason::INVALID_COMM_ID.0)));
}

#[test]
fn a_reply_that_is_not_taken_is_rejected_at_the_listener() {
    let mut network = Network::pair();
    network.listen(1, 9, PortSpace::Tcp, 7, 0);
    let (client, server) = network.requested(0x11);
    network.accept(1, server, 2, 0x22).unwrap();
    network.pass(2 * MILLISECOND);
    assert_eq!(network.event(0).kind, EventKind::ConnectResponse);
    network.destroy(0, client).unwrap();
    network.pass(2 * MILLISECOND);
    let event = network.event(1);
    assert_eq!((event.kind, event.status), (EventKind::Rejected, 28));
}

#[test]
fn a_silent_peer_is_unreachable_after_the_retransmissions() {
    let mut network = Network::pair();
    let client = network.resolved(0, 1, PortSpace::Tcp, at(77, 7));
    network.connect(0, client, 0x11).unwrap();
    network.pass(SECOND);
    let event = network.event(0);
    assert_eq!((event.kind, event.status), (EventKind::Unreachable, -110));
    assert_eq!(sent(&network), ["Req", "Req", "Req", "Req", "Req", "Req", "Rej"]);
    network.destroy(0, client).unwrap();
    network.assert_nothing_leaks();
}

#[test]
fn an_mra_makes_the_initiator_wait_for_a_slow_program() {
    let mut network = Network::pair();
    network.listen(1, 9, PortSpace::Tcp, 7, 0);
    let client = network.resolved(0, 1, PortSpace::Tcp, at(1, 7));
    network.connect(0, client, 0x11).unwrap();
    // Without MRAs, of 134 ms each, the initiator would give up after 200 ms.
    network.pass(600 * MILLISECOND);
    assert_eq!(network.events(0), []);
    assert!(sent(&network).contains(&"Mra".to_owned()));
    let server = IdName(network.event(1).id);
    network.accept(1, server, 2, 0x22).unwrap();
    network.pass(2 * MILLISECOND);
    assert_eq!(network.event(0).kind, EventKind::ConnectResponse);
    // The initiator's program is slow, too.
    network.pass(600 * MILLISECOND);
    assert_eq!(network.events(1), []);
    network.establish(0, client).unwrap();
    network.pass(2 * MILLISECOND);
    assert_eq!(network.event(1).kind, EventKind::Established);
}

#[test]
fn a_lost_rtu_is_sent_again_or_replaced_by_the_first_packet() {
    for by_packet in [false, true] {
        let mut network = Network::pair();
        network.listen(1, 9, PortSpace::Tcp, 7, 0);
        let (client, server) = network.requested(0x11);
        network.accept(1, server, 2, 0x22).unwrap();
        network.pass(2 * MILLISECOND);
        network.event(0);
        network.establish(0, client).unwrap();
        network.drain(&mut lost);
        network.pass(2 * MILLISECOND);
        assert_eq!(network.events(1), []);
        if by_packet {
            network.nodes[1].manager.communication_established(server).unwrap();
        } else {
            network.pass(50 * MILLISECOND);
        }
        assert_eq!(network.event(1).kind, EventKind::Established);
        assert_eq!(network.nodes[1].manager.communication_established(server), Ok(()));
        network.pass(SECOND);
        assert_eq!((network.events(0), network.events(1)), (vec![], vec![]));
    }
}

#[test]
fn a_disconnected_peer_that_is_gone_is_reported_after_the_retransmissions() {
    let mut network = Network::pair();
    network.listen(1, 9, PortSpace::Tcp, 7, 0);
    let (client, _) = network.connected(0x11);
    network.disconnect(0, client).unwrap();
    let end = network.now.plus_nanos(SECOND);
    while network.step(end, &mut lost) {}
    let events = network.events(0);
    assert_eq!(kinds(&events), [EventKind::Disconnected, EventKind::TimewaitExit]);
    assert_eq!(events[0].status, -110);
}

#[test]
fn a_dreq_for_nothing_is_answered() {
    let mut network = Network::pair();
    network.listen(1, 9, PortSpace::Tcp, 7, 0);
    let (client, server) = network.connected(0x11);
    network.destroy(1, server).unwrap();
    network.drain(&mut lost);
    network.nodes[1].manager = Network::pair().nodes.remove(1).manager;
    network.disconnect(0, client).unwrap();
    network.pass(5 * MILLISECOND);
    assert_eq!(network.event(0).kind, EventKind::Disconnected);
}

#[test]
fn a_machine_connects_to_itself() {
    let mut network = Network::pair();
    let listener = network.listen(0, 9, PortSpace::Tcp, 7, 0);
    let mut ends = vec![listener];
    for n in 0..3 {
        let client = network.resolved(0, 10 + n, PortSpace::Tcp, at(0, 7));
        network.connect(0, client, 0x11 + n as u32).unwrap();
        network.pass(2 * MILLISECOND);
        let server = IdName(network.event(0).id);
        network.accept(0, server, 20 + n, 0x21 + n as u32).unwrap();
        network.pass(2 * MILLISECOND);
        assert_eq!(network.event(0).kind, EventKind::ConnectResponse);
        network.establish(0, client).unwrap();
        network.pass(2 * MILLISECOND);
        assert_eq!(network.event(0).uid, 20 + n);
        ends.extend([client, server]);
    }
    network.disconnect(0, ends[1]).unwrap();
    network.pass(3 * MILLISECOND);
    let events = network.events(0);
    assert_eq!(kinds(&events), [EventKind::Disconnected; 2]);
    for id in ends {
        network.destroy(0, id).unwrap();
    }
    network.assert_nothing_leaks();
}

/// libfabric binds to localhost to find out whether there is a device.
#[test]
fn a_loopback_address_that_the_adapter_does_not_have_stands_for_all() {
    let mut network = Network::pair();
    let id = network.create(1, 9, PortSpace::Tcp);
    let manager = &mut network.nodes[1].manager;
    assert_eq!(manager.bind(id, "192.0.2.1:7".parse().unwrap()), Err(CommandError::NoDevice));
    manager.bind(id, "127.0.0.1:7".parse().unwrap()).unwrap();
    assert!(manager.query(id).unwrap().source.ip().is_unspecified());
    manager.listen(id, 0).unwrap();
    network.connected(0x11);
}

#[test]
fn requests_that_were_not_fetched_migrate_with_their_listener() {
    let mut network = Network::pair();
    let listener = network.listen(1, 9, PortSpace::Tcp, 7, 5);
    let client = network.resolved(0, 1, PortSpace::Tcp, at(1, 7));
    network.connect(0, client, 0x100).unwrap();
    network.pass(2 * MILLISECOND);
    let (now, node) = (network.now, &mut network.nodes[1]);
    let (before, after) = (node.channel, node.manager.create_channel().unwrap());
    node.manager.migrate_id(listener, after).unwrap();
    node.manager.destroy_channel(before, now).unwrap();
    node.channel = after;
    let request = IdName(network.event(1).id);
    assert_eq!(network.nodes[1].manager.check_channel(after, request), Ok(()));
    network.accept(1, request, 2, 0x101).unwrap();
    network.pass(2 * MILLISECOND);
    assert_eq!(network.event(0).kind, EventKind::ConnectResponse);
}
