//! Datagram services by SIDR, and multicast groups.

use nichrome_cm::{
    CommandError, DatagramParameters, Errno, Event, EventKind, IdName, Input, Output, Parameters, Reception,
};
use nichrome_rdma::QpState;
use nichrome_wire::cm::{PortSpace, RejectReason};
use nichrome_wire::rdma::{QKey, QpNumber};

use crate::common::*;

fn of_datagram(event: &Event) -> &DatagramParameters {
    match &event.parameters {
        Parameters::Datagram(parameters) => parameters,
        Parameters::Connection(_) | Parameters::Argument(_) => panic!("{event:?}"),
    }
}

/// A client of node 0 that asks for the service at port 8 of node 1.
fn asking(network: &mut Network) -> IdName {
    let client = network.resolved(0, 1, PortSpace::Udp, at(1, 8));
    network.connect(0, client, 0).unwrap();
    client
}

#[test]
fn a_service_gives_its_queue_pair() {
    let mut network = Network::pair();
    let listener = network.listen(1, 9, PortSpace::Udp, 8, 0);
    let client = asking(&mut network);
    network.pass(2 * MILLISECOND);
    let request = network.event(1);
    assert_eq!((request.kind, request.uid), (EventKind::ConnectRequest, 9));
    assert_eq!(of_datagram(&request).private_data.len(), 180);
    let server = IdName(request.id);
    network.accept(1, server, 2, 0x22).unwrap();
    network.pass(2 * MILLISECOND);
    let event = network.event(0);
    assert_eq!((event.kind, event.status), (EventKind::Established, 0));
    let parameters = of_datagram(&event);
    assert_eq!((parameters.qp, parameters.qkey), (QpNumber::new(0x22).unwrap(), QKey(0x0123_4567)));
    assert_eq!(parameters.path.unwrap().destination, address(1));
    assert!(parameters.private_data.starts_with(b"welcome\0"));
    let init = network.nodes[0].manager.qp_attributes(client, QpState::Init).unwrap();
    assert_eq!((init.qkey, init.access), (Some(QKey(0x0123_4567)), None));
    for (node, id) in [(0, client), (1, server), (1, listener)] {
        network.destroy(node, id).unwrap();
    }
    network.assert_nothing_leaks();
}

#[test]
fn a_lost_answer_is_retransmitted_and_the_program_asked_once() {
    let mut network = Network::pair();
    network.listen(1, 9, PortSpace::Udp, 8, 0);
    asking(&mut network);
    network.pass(2 * MILLISECOND);
    let server = IdName(network.event(1).id);
    network.accept(1, server, 2, 0x22).unwrap();
    network.drain(&mut lost);
    // Also after the program has destroyed the identifier.
    network.destroy(1, server).unwrap();
    network.pass(50 * MILLISECOND);
    assert_eq!(network.event(0).kind, EventKind::Established);
    assert_eq!(network.events(1), []);
}

#[test]
fn a_missing_or_refusing_service_is_unreachable() {
    for (is_there, status) in [(false, 1), (true, 2)] {
        let mut network = Network::pair();
        if is_there {
            network.listen(1, 9, PortSpace::Udp, 8, 0);
        }
        asking(&mut network);
        network.pass(2 * MILLISECOND);
        if is_there {
            let (server, now) = (IdName(network.event(1).id), network.now);
            network.nodes[1].manager.reject(server, RejectReason::CONSUMER, b"no", now).unwrap();
        }
        network.pass(2 * MILLISECOND);
        let event = network.event(0);
        assert_eq!((event.kind, event.status), (EventKind::Unreachable, status));
        assert_eq!(of_datagram(&event).private_data.starts_with(b"no"), is_there);
    }
}

#[test]
fn a_service_that_does_not_answer_is_unreachable() {
    let mut network = Network::pair();
    let listener = network.listen(1, 9, PortSpace::Udp, 8, 0);
    let client = asking(&mut network);
    network.pass(SECOND);
    let event = network.event(0);
    assert_eq!((event.kind, event.status), (EventKind::Unreachable, Errno::ETIMEDOUT.status()));
    network.destroy(0, client).unwrap();
    network.destroy(1, listener).unwrap();
    network.assert_nothing_leaks();
}

#[test]
fn a_group_is_joined_and_left_with_the_identifier() {
    let mut network = Network::pair();
    let id = network.create(0, 1, PortSpace::Udp);
    let group = "239.1.2.3".parse().unwrap();
    let join = |network: &mut Network| network.nodes[0].manager.join_multicast(id, 7, group, Reception::Full);
    assert_eq!(join(&mut network), Err(CommandError::State));
    network.nodes[0].manager.bind(id, at(0, 0)).unwrap();
    let not_a_group = network.nodes[0].manager.join_multicast(id, 7, address(1), Reception::Full);
    assert_eq!(not_a_group, Err(CommandError::Argument));
    let [first, second] = [join(&mut network).unwrap(), join(&mut network).unwrap()];
    network.pass(0);
    let request =
        Output::JoinGroup { membership: first, source: address(0), group, reception: Reception::Full };
    assert_eq!(network.nodes[0].requests[0], request);
    network.input(0, Input::GroupJoined(first, Ok(())));
    network.input(0, Input::GroupJoined(first, Ok(())));
    network.input(0, Input::GroupJoined(second, Err(Errno::ENODEV)));
    let events = network.events(0);
    assert_eq!(kinds(&events), [EventKind::MulticastJoin, EventKind::MulticastError]);
    assert_eq!((events[0].uid, events[0].id, events[1].status), (7, first.0, -19));
    let parameters = of_datagram(&events[0]);
    assert_eq!((parameters.qp, parameters.qkey), (QpNumber::MULTICAST, QKey(0x0123_4567)));
    assert_eq!(parameters.path.unwrap().destination, group);
    assert_eq!(network.nodes[0].manager.leave_multicast(first), Ok(1));
    assert_eq!(network.destroy(0, id), Ok(2));
    network.pass(0);
    assert_eq!(network.nodes[0].requests[2..], [Output::LeaveGroup(first), Output::LeaveGroup(second)]);
    network.assert_nothing_leaks();
}

#[test]
fn events_of_a_membership_that_is_left_are_gone() {
    let mut network = Network::pair();
    let id = network.create(0, 1, PortSpace::Udp);
    network.nodes[0].manager.bind(id, at(0, 0)).unwrap();
    let group = "239.1.2.3".parse().unwrap();
    let membership = network.nodes[0].manager.join_multicast(id, 7, group, Reception::SendOnly).unwrap();
    network.input(0, Input::GroupJoined(membership, Ok(())));
    assert_eq!(network.nodes[0].manager.leave_multicast(membership), Ok(0));
    assert_eq!(network.events(0), []);
    assert_eq!(network.destroy(0, id), Ok(0));
}
