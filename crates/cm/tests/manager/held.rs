//! Requests for a port at which a program may listen soon.

use nichrome_cm::{Config, EventKind, HoldLimits, IdName};
use nichrome_wire::Engine;
use nichrome_wire::cm::{PortSpace, RejectReason};

use crate::common::*;

/// The limits of these tests. Requests are retransmitted after 33.6 ms.
const HOLD: HoldLimits =
    HoldLimits { request_time: 100 * MILLISECOND, port_time: SECOND, max_requests: 3, max_ports: 2 };

/// A network whose node 1 has closed its listeners at these ports.
fn closed(ports: &[u16]) -> Network {
    let mut network = Network::new(vec![config(0), Config { hold: HOLD, ..config(1) }]);
    for port in ports {
        let listener = network.listen(1, 9, PortSpace::Tcp, *port, 0);
        network.destroy(1, listener).unwrap();
    }
    network
}

/// Requests a connection with a port of node 1.
fn request(network: &mut Network, qp: u32, port: u16) -> IdName {
    let client = network.resolved(0, u64::from(qp), PortSpace::Tcp, at(1, port));
    network.connect(0, client, qp).unwrap();
    network.pass(3 * MILLISECOND);
    client
}

/// Returns true if the peer refused the last request.
fn is_refused(network: &mut Network) -> bool {
    let events = network.events(0);
    let is_refusal =
        |kind, status| kind == EventKind::Rejected && status == i32::from(RejectReason::INVALID_SERVICE_ID.0);
    events.iter().any(|event| is_refusal(event.kind, event.status))
}

#[test]
fn a_request_waits_for_a_listener_that_comes_back() {
    let mut network = closed(&[7]);
    let client = request(&mut network, 0x11, 7);
    // It is retransmitted in between, and held once.
    network.pass(80 * MILLISECOND);
    assert_eq!((network.events(0), network.events(1)), (vec![], vec![]));
    let listener = network.listen(1, 9, PortSpace::Tcp, 7, 0);
    let requested = network.event(1);
    assert_eq!(requested.kind, EventKind::ConnectRequest);
    let server = IdName(requested.id);
    network.accept(1, server, 2, 0x22).unwrap();
    network.pass(3 * MILLISECOND);
    assert_eq!(network.event(0).kind, EventKind::ConnectResponse);
    network.establish(0, client).unwrap();
    network.pass(3 * MILLISECOND);
    assert_eq!(network.event(1).kind, EventKind::Established);
    for (node, id) in [(0, client), (1, server), (1, listener)] {
        network.destroy(node, id).unwrap();
    }
    network.assert_nothing_leaks();
}

#[test]
fn a_request_for_a_bound_port_waits_until_its_program_listens() {
    let mut network = closed(&[]);
    let listener = network.create(1, 9, PortSpace::Tcp);
    network.nodes[1].manager.bind(listener, at(1, 7)).unwrap();
    request(&mut network, 0x11, 7);
    assert!(!is_refused(&mut network));
    network.nodes[1].manager.listen(listener, 0).unwrap();
    assert_eq!(network.event(1).kind, EventKind::ConnectRequest);
}

#[test]
fn a_request_is_refused_if_the_listener_stays_away() {
    let mut network = closed(&[7]);
    let client = request(&mut network, 0x11, 7);
    network.pass(90 * MILLISECOND);
    assert!(!is_refused(&mut network));
    network.pass(10 * MILLISECOND);
    assert!(is_refused(&mut network));
    network.destroy(0, client).unwrap();
    network.assert_nothing_leaks();
}

#[test]
fn an_impatient_peer_is_refused_before_it_gives_up() {
    let mut network =
        Network::new(vec![Config { max_retries: 1, ..config(0) }, Config { hold: HOLD, ..config(1) }]);
    let listener = network.listen(1, 9, PortSpace::Tcp, 7, 0);
    network.destroy(1, listener).unwrap();
    request(&mut network, 0x11, 7);
    assert!(!is_refused(&mut network));
    network.pass(33 * MILLISECOND);
    assert!(is_refused(&mut network));
}

#[test]
fn ports_without_a_recent_listener_refuse_at_once() {
    let mut network = closed(&[7]);
    request(&mut network, 0x11, 8);
    assert!(is_refused(&mut network));
    network.pass(SECOND);
    request(&mut network, 0x12, 7);
    assert!(is_refused(&mut network));
}

#[test]
fn only_so_many_ports_are_remembered() {
    let mut network = closed(&[7, 8, 9, 9]);
    request(&mut network, 0x11, 7);
    assert!(is_refused(&mut network));
    for port in [8, 9] {
        request(&mut network, 0x20 + u32::from(port), port);
        assert!(!is_refused(&mut network));
    }
}

#[test]
fn only_so_many_requests_are_held() {
    let mut network = closed(&[7]);
    for qp in 0x11..0x14 {
        request(&mut network, qp, 7);
        assert!(!is_refused(&mut network));
    }
    request(&mut network, 0x14, 7);
    assert!(is_refused(&mut network));
    network.listen(1, 9, PortSpace::Tcp, 7, 0);
    assert_eq!(kinds(&network.events(1)), [EventKind::ConnectRequest; 3]);
}

#[test]
fn a_peer_with_many_requests_gives_way_to_others() {
    let mut network = Network::new(vec![config(0), Config { hold: HOLD, ..config(1) }, config(2)]);
    let listener = network.listen(1, 9, PortSpace::Tcp, 7, 0);
    network.destroy(1, listener).unwrap();
    for qp in 0x11..0x14 {
        request(&mut network, qp, 7);
    }
    assert!(!is_refused(&mut network));
    for (qp, gives_way) in [(0x21, true), (0x22, false)] {
        let client = network.resolved(2, u64::from(qp), PortSpace::Tcp, at(1, 7));
        network.connect(2, client, qp).unwrap();
        network.pass(3 * MILLISECOND);
        assert_eq!((is_refused(&mut network), network.events(2).is_empty()), (gives_way, gives_way));
    }
    network.listen(1, 9, PortSpace::Tcp, 7, 0);
    assert_eq!(kinds(&network.events(1)), [EventKind::ConnectRequest; 3]);
}

#[test]
fn a_request_for_a_datagram_service_waits_too() {
    let mut network = closed(&[]);
    let listener = network.listen(1, 9, PortSpace::Udp, 7, 0);
    network.destroy(1, listener).unwrap();
    let client = network.resolved(0, 1, PortSpace::Udp, at(1, 7));
    network.connect(0, client, 0x11).unwrap();
    network.pass(80 * MILLISECOND);
    network.listen(1, 9, PortSpace::Udp, 7, 0);
    assert_eq!(network.event(1).kind, EventKind::ConnectRequest);
    assert_eq!(network.events(0), []);
    assert!(network.nodes[1].manager.poll_timeout().is_none());
}
