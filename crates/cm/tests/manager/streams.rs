//! Connections that the driver sets up: iWARP's.

use nichrome_cm::{
    Bearer, Config, Errno, EventKind, IdName, Input, Output, StreamFailure, StreamName, StreamParameters,
};
use nichrome_rdma::{Access, QpState};
use nichrome_wire::cm::PortSpace;

use crate::common::*;

fn network(bearer: Bearer) -> Network {
    Network::new(vec![Config { bearer, ..config(0) }, Config { bearer, ..config(1) }])
}

fn stream_parameters(data: &[u8]) -> StreamParameters {
    StreamParameters { private_data: data.to_vec(), ird: 5, ord: 6 }
}

/// The requests to a node's driver since the last call.
fn requests(network: &mut Network, node: usize) -> Vec<Output> {
    network.pass(0);
    std::mem::take(&mut network.nodes[node].requests)
}

fn connecting(network: &mut Network) -> IdName {
    let client = network.resolved(0, 1, PortSpace::Tcp, at(1, 7));
    network.connect(0, client, 0x11).unwrap();
    let [Output::Connect { id, peer, qp, parameters, .. }] = &requests(network, 0)[..] else { panic!() };
    assert_eq!((*id, *peer, qp.value()), (client, at(1, 7), 0x11));
    assert_eq!((&parameters.private_data[..], parameters.ird, parameters.ord), (&b"hello"[..], 3, 5));
    client
}

/// The identifier of a request to the listener.
fn requested(network: &mut Network, stream: u64) -> IdName {
    let (local, peer, parameters) = (at(1, 7), at(0, 40_000), stream_parameters(b"hello"));
    network.input(1, Input::Incoming { stream, local, peer, parameters });
    let event = network.event(1);
    assert_eq!((event.kind, event.uid), (EventKind::ConnectRequest, 9));
    let parameters = of_connection(&event);
    assert_eq!((&parameters.private_data[..], parameters.initiator_depth), (&b"hello"[..], 5));
    assert_eq!(parameters.responder_resources, 6);
    IdName(event.id)
}

#[test]
fn both_ends_have_the_events_of_the_kernel() {
    let mut network = network(Bearer::Iwarp);
    let listener = network.listen(1, 9, PortSpace::Tcp, 7, 3);
    let listen = Output::Listen { id: listener, local: at(1, 7), backlog: 3 };
    assert_eq!(requests(&mut network, 1), [listen]);
    let client = connecting(&mut network);
    let server = requested(&mut network, 70);
    network.accept(1, server, 2, 0x22).unwrap();
    let stream = StreamName::Incoming(70);
    let [Output::Accept { stream: accepted, qp, .. }] = &requests(&mut network, 1)[..] else { panic!() };
    assert_eq!((*accepted, qp.value()), (stream, 0x22));
    network.input(1, Input::Accepted(stream, Ok(())));
    assert_eq!(network.event(1).kind, EventKind::Established);
    let result = Ok(stream_parameters(b"welcome"));
    network.input(0, Input::Replied { id: client, local: at(0, 40_000), result });
    let event = network.event(0);
    assert_eq!(
        (event.kind, &of_connection(&event).private_data[..]),
        (EventKind::Established, &b"welcome"[..])
    );
    network.disconnect(0, client).unwrap();
    assert_eq!(requests(&mut network, 0), [Output::Disconnect(StreamName::Outgoing(client))]);
    for _ in 0..2 {
        network.input(0, Input::Closed(StreamName::Outgoing(client)));
        network.input(1, Input::Closed(stream));
    }
    assert_eq!(
        (network.event(0).kind, network.event(1).kind),
        (EventKind::Disconnected, EventKind::Disconnected)
    );
    for (node, id) in [(0, client), (1, server), (1, listener)] {
        network.destroy(node, id).unwrap();
    }
    assert_eq!(requests(&mut network, 0), [Output::Release(StreamName::Outgoing(client))]);
    assert_eq!(requests(&mut network, 1), [Output::Release(stream), Output::StopListening(listener)]);
    network.assert_nothing_leaks();
}

#[test]
fn failures_have_the_events_of_the_kernel() {
    let refused = StreamFailure::Refused(Errno::ECONNREFUSED);
    let cases = [
        (StreamFailure::Rejected(b"no".to_vec()), EventKind::Rejected, Errno::ECONNREFUSED),
        (refused, EventKind::Rejected, Errno::ECONNREFUSED),
        (StreamFailure::TimedOut, EventKind::Unreachable, Errno::ETIMEDOUT),
        (StreamFailure::Other(Errno::ENOMEM), EventKind::ConnectError, Errno::ENOMEM),
    ];
    for (failure, kind, error) in cases {
        let mut network = network(Bearer::Iwarp);
        let client = connecting(&mut network);
        network.input(0, Input::Replied { id: client, local: at(0, 1), result: Err(failure) });
        let event = network.event(0);
        assert_eq!((event.kind, event.status), (kind, error.status()));
    }
}

#[test]
fn a_request_is_rejected_or_ends_with_its_listener() {
    let mut network = network(Bearer::Iwarp);
    let listener = network.listen(1, 9, PortSpace::Tcp, 7, 0);
    let server = requested(&mut network, 70);
    requests(&mut network, 1);
    let now = network.now;
    network.nodes[1].manager.reject(server, nichrome_wire::cm::RejectReason::CONSUMER, b"no", now).unwrap();
    let rejection = Output::Reject { stream: StreamName::Incoming(70), private_data: b"no".to_vec() };
    assert_eq!(requests(&mut network, 1), [rejection]);
    let (local, peer, parameters) = (at(1, 7), at(0, 40_000), stream_parameters(b""));
    network.input(1, Input::Incoming { stream: 71, local, peer, parameters: parameters.clone() });
    network.destroy(1, listener).unwrap();
    network.destroy(1, server).unwrap();
    let ended = [Output::StopListening(listener), Output::Release(StreamName::Incoming(71))];
    assert_eq!(requests(&mut network, 1)[..2], ended);
    network.input(1, Input::Incoming { stream: 72, local, peer, parameters });
    assert_eq!(requests(&mut network, 1), [Output::Release(StreamName::Incoming(72))]);
    network.assert_nothing_leaks();
}

#[test]
fn a_listener_of_ipv6_only_gets_no_request_to_an_ipv4_address() {
    for family_only in [false, true] {
        let mut network = network(Bearer::Iwarp);
        let listener = network.create(1, 9, PortSpace::Tcp);
        let manager = &mut network.nodes[1].manager;
        manager.bind(listener, "[::]:7".parse().unwrap()).unwrap();
        manager.set_family_only(listener, family_only).unwrap();
        manager.listen(listener, 3).unwrap();
        requests(&mut network, 1);
        let (local, peer, parameters) = (at(1, 7), at(0, 40_000), stream_parameters(b""));
        network.input(1, Input::Incoming { stream: 70, local, peer, parameters });
        let events: Vec<EventKind> = network.events(1).iter().map(|event| event.kind).collect();
        if family_only {
            assert_eq!(events, []);
            assert_eq!(requests(&mut network, 1), [Output::Release(StreamName::Incoming(70))]);
        } else {
            assert_eq!(events, [EventKind::ConnectRequest]);
        }
    }
}

#[test]
fn a_request_that_arrived_before_its_listener_was_destroyed_goes_to_the_other_at_the_port() {
    let mut network = network(Bearer::Iwarp);
    let ids = ["[::]:7", "10.0.0.2:7"].map(|address| {
        let id = network.create(1, 9, PortSpace::Tcp);
        let manager = &mut network.nodes[1].manager;
        manager.set_family_only(id, true).unwrap();
        manager.bind(id, address.parse().unwrap()).unwrap();
        manager.listen(id, 3).unwrap();
        id
    });
    network.destroy(1, ids[0]).unwrap();
    requested(&mut network, 70);
}

#[test]
fn queue_pairs_have_the_attributes_of_iwarp() {
    let mut network = network(Bearer::Iwarp);
    let client = connecting(&mut network);
    let attributes = |state| network.nodes[0].manager.qp_attributes(client, state).unwrap();
    let rights = Access::REMOTE_WRITE | Access::REMOTE_READ;
    for state in [QpState::Init, QpState::Rtr] {
        let change = attributes(state);
        assert_eq!(
            (change.access, change.port, change.path, change.pkey_index),
            (Some(rights), Some(1), None, None)
        );
    }
    let rts = attributes(QpState::Rts);
    assert_eq!((rts.state, rts.access, rts.port), (None, None, Some(1)));
}
