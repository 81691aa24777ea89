//! Requests that the program has not fetched.

use std::ops::Range;

use nichrome_cm::{Bearer, Config, EventKind, IdName, Input, Output, StreamName, StreamParameters};
use nichrome_wire::cm::PortSpace;

use crate::common::*;

/// Sends a request of a node for each queue pair.
fn send_requests(network: &mut Network, node: usize, qps: Range<u32>) {
    for qp in qps {
        let client = network.resolved(node, 1, PortSpace::Tcp, at(1, 7));
        network.connect(node, client, qp).unwrap();
    }
    network.pass(2 * MILLISECOND);
}

/// Fetches the requests: their identifiers and queue pairs.
fn fetch(network: &mut Network) -> Vec<(IdName, u32)> {
    let events = network.events(1);
    events.iter().map(|event| (IdName(event.id), of_connection(event).qp.value())).collect()
}

#[test]
fn the_backlog_counts_requests_that_were_not_fetched() {
    let mut network = Network::pair();
    network.listen(1, 9, PortSpace::Tcp, 7, 2);
    for n in 0..4 {
        let client = network.resolved(0, 10 + n, PortSpace::Tcp, at(1, 7));
        network.connect(0, client, 0x11 + n as u32).unwrap();
    }
    network.pass(10 * MILLISECOND);
    assert_eq!(network.events(1).len(), 2);
    assert_eq!(network.nodes[1].manager.counters().backlog_dropped, 2);
    // The others retransmit their requests.
    network.pass(40 * MILLISECOND);
    assert_eq!(network.events(1).len(), 2);
}

#[test]
fn a_source_that_fills_the_backlog_keeps_no_other_out() {
    let mut network = Network::new(vec![config(0), config(1), config(2)]);
    network.listen(1, 9, PortSpace::Tcp, 7, 4);
    send_requests(&mut network, 0, 0x11..0x17);
    send_requests(&mut network, 2, 0x31..0x34);
    assert_eq!(network.nodes[1].manager.usage().half_open, 4);
    assert_eq!(network.nodes[1].manager.counters().backlog_dropped, 5);
    let requests = fetch(&mut network);
    // The newest of the first source gave way, until the second had as many.
    assert_eq!(requests.iter().map(|(_, qp)| *qp).collect::<Vec<_>>(), [0x11, 0x12, 0x31, 0x32]);
    network.accept(1, requests[2].0, 2, 0x41).unwrap();
    network.pass(2 * MILLISECOND);
    assert_eq!(network.event(2).kind, EventKind::ConnectResponse);
    // Requests that gave way leave no state: their retransmissions take the places that are free now.
    network.pass(40 * MILLISECOND);
    assert_eq!(network.events(0), []);
    assert_eq!(fetch(&mut network).len(), 4);
    for node in 0..3 {
        let (channel, now) = (network.nodes[node].channel, network.now);
        network.nodes[node].manager.destroy_channel(channel, now).unwrap();
    }
    network.assert_nothing_leaks();
}

#[test]
fn the_places_of_a_migrated_listener_are_shared() {
    let mut network = Network::new(vec![config(0), config(1), config(2)]);
    let listener = network.listen(1, 9, PortSpace::Tcp, 7, 2);
    send_requests(&mut network, 0, 0x11..0x13);
    let manager = &mut network.nodes[1].manager;
    network.nodes[1].channel = {
        let channel = manager.create_channel().unwrap();
        manager.migrate_id(listener, channel).unwrap();
        channel
    };
    send_requests(&mut network, 2, 0x31..0x32);
    assert_eq!(fetch(&mut network).iter().map(|(_, qp)| *qp).collect::<Vec<_>>(), [0x11, 0x31]);
}

#[test]
fn a_stream_that_gives_way_is_released() {
    let iwarp = |node| Config { bearer: Bearer::Iwarp, ..config(node) };
    let mut network = Network::new(vec![iwarp(0), iwarp(1)]);
    network.listen(1, 9, PortSpace::Tcp, 7, 2);
    for (stream, source) in [(70, 2), (71, 2), (72, 2), (73, 3)] {
        let parameters = StreamParameters { private_data: Vec::new(), ird: 1, ord: 1 };
        let (local, peer) = (at(1, 7), at(source, 40_000));
        network.input(1, Input::Incoming { stream, local, peer, parameters });
    }
    network.pass(0);
    let released = [72, 71].map(|stream| Output::Release(StreamName::Incoming(stream)));
    assert_eq!(network.nodes[1].requests[1..], released);
    assert_eq!((fetch(&mut network).len(), network.nodes[1].manager.usage().incoming), (2, 2));
}
