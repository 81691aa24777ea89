//! Forged, replayed and arbitrary messages.

use std::net::IpAddr;

use nichrome_cm::{Config, EventKind, IdName, Input};
use nichrome_wire::Engine;
use nichrome_wire::cm::{Mad, Message, PortSpace};
use proptest::prelude::*;

use crate::common::*;

/// The address of a machine that has none of the managers.
fn stranger() -> IpAddr {
    address(200)
}

fn forge(network: &mut Network, node: usize, source: IpAddr, payload: &[u8]) {
    let input = Input::Datagram { source, destination: address(node), payload: payload.to_vec() };
    network.input(node, input);
}

/// A pair with an established connection and one whose REP is not answered yet.
fn busy() -> (Network, [IdName; 4]) {
    let mut network = Network::pair();
    network.listen(1, 9, PortSpace::Tcp, 7, 0);
    let (client, server) = network.connected(0x11);
    let other = network.resolved(0, 3, PortSpace::Tcp, at(1, 7));
    network.connect(0, other, 0x33).unwrap();
    network.pass(2 * MILLISECOND);
    let other_server = IdName(network.event(1).id);
    network.accept(1, other_server, 4, 0x44).unwrap();
    network.pass(2 * MILLISECOND);
    assert_eq!(network.event(0).kind, EventKind::ConnectResponse);
    (network, [client, server, other, other_server])
}

/// Checks that both connections still work.
fn assert_unharmed(mut network: Network, [client, server, other, other_server]: [IdName; 4]) {
    assert_eq!((network.events(0), network.events(1)), (vec![], vec![]));
    network.establish(0, other).unwrap();
    network.pass(2 * MILLISECOND);
    assert_eq!(network.event(1).kind, EventKind::Established);
    for (one, peer) in [(client, server), (other, other_server)] {
        network.disconnect(0, one).unwrap();
        network.pass(3 * MILLISECOND);
        assert_eq!(network.event(0).kind, EventKind::Disconnected);
        let event = network.event(1);
        assert_eq!((event.kind, event.id), (EventKind::Disconnected, peer.0));
    }
}

#[test]
fn every_message_replayed_from_another_address_changes_nothing() {
    let (mut network, ids) = busy();
    for transmit in network.log.clone() {
        for node in 0..2 {
            forge(&mut network, node, stranger(), &transmit.payload);
        }
    }
    network.drain(&mut lost);
    network.pass(2 * MILLISECOND);
    assert_unharmed(network, ids);
}

#[test]
fn every_message_replayed_from_its_own_address_changes_nothing() {
    let (mut network, ids) = busy();
    for _ in 0..3 {
        for transmit in network.log.clone() {
            let node = usize::from(transmit.destination == address(1));
            forge(&mut network, node, transmit.source, &transmit.payload);
        }
        network.pass(2 * MILLISECOND);
    }
    assert_unharmed(network, ids);
}

#[test]
fn every_message_replayed_after_the_close_makes_no_connection() {
    let mut network = Network::pair();
    let listener = network.listen(1, 9, PortSpace::Tcp, 7, 0);
    let (client, server) = network.connected(0x11);
    network.disconnect(0, client).unwrap();
    network.pass(3 * MILLISECOND);
    let _ = [network.event(0), network.event(1)];
    network.destroy(0, client).unwrap();
    network.destroy(1, server).unwrap();
    let log = network.log.clone();
    // While both ends keep the connection, and once they have removed it.
    for wait in [0, 50 * MILLISECOND, 10 * SECOND] {
        network.pass(wait);
        for transmit in &log {
            let node = usize::from(transmit.destination == address(1));
            forge(&mut network, node, transmit.source, &transmit.payload);
        }
        network.pass(2 * MILLISECOND);
        // An old request is a new one to an end that has forgotten it. The other end refuses the answer.
        for request in network.events(1) {
            assert_eq!((request.kind, wait), (EventKind::ConnectRequest, 10 * SECOND));
            network.accept(1, IdName(request.id), 3, 0x12).unwrap();
            network.pass(5 * MILLISECOND);
            let refused = network.event(1);
            assert_eq!((refused.kind, refused.status), (EventKind::Rejected, 6));
            network.destroy(1, IdName(request.id)).unwrap();
        }
        assert_eq!(network.events(0), []);
    }
    network.destroy(1, listener).unwrap();
    network.assert_nothing_leaks();
}

#[test]
fn disconnects_and_rejections_with_guessed_identifiers_change_nothing() {
    let (mut network, ids) = busy();
    let (client, server) = (ids[0], ids[1]);
    network.disconnect(0, client).unwrap();
    network.drain(&mut lost);
    let payload = network.log.last().unwrap().payload;
    let Message::Dreq(dreq) = Mad::parse(&payload).unwrap().message else { panic!() };
    // Each differs from the real message, which was lost, in one field.
    for at in [24, 28, 32] {
        for bit in 0..8 {
            let mut forged = payload;
            forged[at + 1] ^= 1 << bit;
            forge(&mut network, 1, address(0), &forged);
        }
    }
    network.drain(&mut lost);
    assert_eq!(network.events(1), []);
    forge(&mut network, 1, address(0), &payload);
    let event = network.event(1);
    assert_eq!((event.kind, event.id), (EventKind::Disconnected, server.0));
    assert_ne!(dreq.ids.local, dreq.ids.remote);
}

/// A network in which a connection waits for the event `step`. The message that causes the event is the last
/// in the log, and was lost. Also returns the node that should receive it.
fn about_to(step: EventKind) -> (Network, usize) {
    let mut network = Network::pair();
    let (space, port) = match step {
        EventKind::Unreachable => (PortSpace::Udp, 8),
        _ => (PortSpace::Tcp, 7),
    };
    network.listen(1, 9, space, port, 0);
    let client = network.resolved(0, 1, space, at(1, port));
    network.connect(0, client, 0x11).unwrap();
    network.pass(2 * MILLISECOND);
    let (server, now) = (IdName(network.event(1).id), network.now);
    let manager = &mut network.nodes[1].manager;
    if let EventKind::Rejected | EventKind::Unreachable = step {
        manager.reject(server, nichrome_wire::cm::RejectReason::CONSUMER, b"", now).unwrap();
        network.drain(&mut lost);
        return (network, 0);
    }
    network.accept(1, server, 2, 0x22).unwrap();
    if step == EventKind::ConnectResponse {
        network.drain(&mut lost);
        return (network, 0);
    }
    network.pass(2 * MILLISECOND);
    network.event(0);
    network.establish(0, client).unwrap();
    if step == EventKind::Established {
        network.drain(&mut lost);
        return (network, 1);
    }
    network.pass(2 * MILLISECOND);
    network.event(1);
    network.disconnect(0, client).unwrap();
    network.drain(&mut lost);
    (network, 1)
}

#[test]
fn the_message_that_is_waited_for_counts_from_its_sender_only() {
    use EventKind::{ConnectResponse, Disconnected, Established, Rejected, Unreachable};
    for step in [ConnectResponse, Established, Rejected, Disconnected, Unreachable] {
        let (mut network, receiver) = about_to(step);
        let payload = network.log.last().unwrap().payload;
        let usage = network.nodes[receiver].manager.usage();
        for source in [stranger(), address(receiver)] {
            forge(&mut network, receiver, source, &payload);
        }
        // Another of the receiver's addresses.
        let destination = stranger();
        let input = Input::Datagram { source: address(1 - receiver), destination, payload: payload.to_vec() };
        network.nodes[receiver].manager.receive(input, network.now);
        while network.nodes[receiver].manager.poll().is_some() {}
        assert_eq!(
            (network.events(receiver), network.nodes[receiver].manager.usage()),
            (vec![], usage),
            "{step:?}"
        );
        forge(&mut network, receiver, address(1 - receiver), &payload);
        assert_eq!(network.event(receiver).kind, step);
    }
}

#[test]
fn a_request_without_addresses_is_not_supported() {
    let mut network = Network::pair();
    network.listen(1, 9, PortSpace::Tcp, 7, 0);
    let client = network.resolved(0, 1, PortSpace::Tcp, at(1, 7));
    network.connect(0, client, 0x11).unwrap();
    network.drain(&mut lost);
    let mut payload = network.log[0].payload;
    payload[24 + 140..].fill(0);
    forge(&mut network, 1, address(0), &payload);
    network.pass(2 * MILLISECOND);
    let event = network.event(0);
    assert_eq!((event.kind, event.status), (EventKind::Rejected, 5));
}

#[test]
fn requests_from_one_source_leave_room_for_others() {
    let small = Config { max_half_open_per_source: 10, max_half_open: 15, ..config(1) };
    let mut network = Network::new(vec![config(0), small, config(2)]);
    network.listen(1, 9, PortSpace::Tcp, 7, 0);
    for (node, qp) in [(0, 100), (2, 200)] {
        for n in 0..20 {
            let client = network.resolved(node, 1000 + n, PortSpace::Tcp, at(1, 7));
            network.connect(node, client, qp + n as u32).unwrap();
        }
        network.pass(10 * MILLISECOND);
    }
    let requests = network.events(1);
    assert_eq!(requests.len(), 15);
    let of_second = requests.iter().filter(|request| of_connection(request).qp.value() >= 200).count();
    assert_eq!((of_second, network.nodes[1].manager.usage().half_open), (5, 15));
    assert!(network.nodes[1].manager.counters().half_open_dropped >= 25);
}

#[test]
fn a_request_from_another_address_than_it_says_is_refused() {
    let mut network = Network::pair();
    network.listen(1, 9, PortSpace::Tcp, 7, 0);
    let client = network.resolved(0, 1, PortSpace::Tcp, at(1, 7));
    network.connect(0, client, 0x11).unwrap();
    network.drain(&mut lost);
    let payload = network.log[0].payload;
    forge(&mut network, 1, stranger(), &payload);
    network.drain(&mut lost);
    let answer = network.log.last().unwrap();
    let Message::Rej(rej) = Mad::parse(&answer.payload).unwrap().message else { panic!() };
    assert_eq!((rej.reason.0, answer.destination), (12, stranger()));
    assert_eq!((network.events(1), network.nodes[1].manager.usage().half_open), (vec![], 0));
}

#[test]
fn no_answer_is_larger_than_its_cause() {
    let (mut network, _) = busy();
    let before = network.log.len();
    let mut forged = 0;
    for transmit in network.log.clone() {
        forge(&mut network, 1, stranger(), &transmit.payload);
        forged += 1;
    }
    network.drain(&mut lost);
    assert!(network.log.len() - before <= forged);
}

proptest! {
    /// Arbitrary messages with identifiers that exist or not, from addresses of peers or of strangers.
    #[test]
    fn arbitrary_messages_leave_nothing_behind(
        messages in proptest::collection::vec((any::<prop::sample::Index>(), any::<[u8; 6]>(), any::<bool>(), 0u8..2), 0..60),
    ) {
        let (mut network, _) = busy();
        let log = network.log.clone();
        for (which, [at, value, kind, more, ..], is_stranger, node) in messages {
            let mut payload = log[which.index(log.len())].payload;
            payload[usize::from(at)] = value;
            if more & 3 == 0 {
                payload[17] = 0x10 + kind % 12;
            }
            let source = if is_stranger { stranger() } else { address(1 - usize::from(node)) };
            forge(&mut network, node.into(), source, &payload);
            network.pass(u64::from(more) * MILLISECOND);
        }
        let now = network.now;
        for node in &mut network.nodes {
            node.manager.destroy_channel(node.channel, now).unwrap();
        }
        network.assert_nothing_leaks();
    }
}
