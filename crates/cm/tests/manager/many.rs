//! Many connections, and the limits.

use std::time::Duration;

use nichrome_cm::{CommandError, Config, EventKind, IdName, Input, Output};
use nichrome_rdma::QpType;
use nichrome_wire::cm::PortSpace;
use nichrome_wire::{Engine, Instant};
use rustix::time::{ClockId, clock_gettime};

use crate::common::*;

#[test]
fn ten_thousand_connections_are_made_and_ended() {
    const CONNECTIONS: u32 = 10_000;
    let mut network = Network::pair();
    let listener = network.listen(1, 1, PortSpace::Tcp, 7, 0);
    let mut ends = Vec::new();
    for n in 0..CONNECTIONS {
        ends.push(network.connected(0x100 + 2 * n));
    }
    let usage = network.nodes[1].manager.usage();
    assert_eq!((usage.identifiers, usage.connections, usage.half_open), (10_001, 10_000, 0));
    for (client, _) in &ends {
        network.disconnect(0, *client).unwrap();
    }
    network.pass(SECOND);
    for node in 0..2 {
        let events = kinds(&network.events(node));
        let count = |kind| events.iter().filter(|seen| **seen == kind).count();
        assert_eq!((count(EventKind::Disconnected), count(EventKind::TimewaitExit)), (10_000, 10_000));
    }
    for (client, server) in ends {
        network.destroy(0, client).unwrap();
        network.destroy(1, server).unwrap();
    }
    network.destroy(1, listener).unwrap();
    network.assert_nothing_leaks();
}

/// Processor time of this thread, which a busy machine hardly lengthens.
fn processor_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

/// Returns how many times as long `work` takes for eight times as many objects, by the shortest of three runs
/// each.
fn growth(work: impl Fn(u64) -> Duration) -> f64 {
    let shortest = |count| (0..3).map(|_| work(count)).min().unwrap().as_secs_f64();
    shortest(32_000) / shortest(4_000)
}

/// Limit of the growth. It is about 8 if the work for each object does not depend on their number, and 64 if
/// it takes a step for each other object.
const SAME_STEPS: f64 = 25.0;

/// librdmacm opens a channel for each identifier that is created without one.
#[test]
fn closing_a_channel_takes_no_step_for_identifiers_of_others() {
    let growth = growth(|count| {
        let mut network = Network::new(vec![config(0)]);
        let manager = &mut network.nodes[0].manager;
        let channels: Vec<_> = (0..count).map(|_| manager.create_channel().unwrap()).collect();
        let create = |channel| manager.create_id(channel, 1, PortSpace::Tcp, QpType::Rc).unwrap();
        let ids: Vec<_> = channels.iter().copied().map(create).collect();
        let start = processor_time();
        channels.iter().for_each(|channel| manager.destroy_channel(*channel, Instant::ZERO).unwrap());
        let taken = processor_time() - start;
        assert_eq!(manager.usage().identifiers, 0);
        assert!(ids.iter().all(|id| manager.query(*id) == Err(CommandError::NotFound)));
        taken
    });
    assert!(growth < SAME_STEPS, "{growth}");
}

/// A server that ends may leave an event of each connection in the channel that they share.
#[test]
fn destroying_an_identifier_takes_no_step_for_events_of_others() {
    for at_once in [true, false] {
        let growth = growth(|count| {
            let mut network = Network::new(vec![config(0)]);
            let (channel, manager) = (network.nodes[0].channel, &mut network.nodes[0].manager);
            let create = |uid| {
                let id = manager.create_id(channel, uid, PortSpace::Tcp, QpType::Rc).unwrap();
                manager.write_event(id, EventKind::User, 0, 0).unwrap();
                id
            };
            let ids: Vec<IdName> = (1..=count).map(create).collect();
            let start = processor_time();
            if at_once {
                manager.destroy_channel(channel, Instant::ZERO).unwrap();
                return processor_time() - start;
            }
            ids[1..].iter().for_each(|id| _ = manager.destroy_id(*id, Instant::ZERO).unwrap());
            let taken = processor_time() - start;
            assert_eq!(network.events(0).iter().map(|event| event.uid).collect::<Vec<_>>(), [1]);
            taken
        });
        assert!(growth < SAME_STEPS, "{growth}");
    }
}

#[test]
fn a_channel_that_is_closed_keeps_what_has_moved_to_another() {
    let mut network = Network::pair();
    let listener = network.listen(1, 1, PortSpace::Tcp, 7, 0);
    let client = network.resolved(0, 1, PortSpace::Tcp, at(1, 7));
    network.connect(0, client, 0x100).unwrap();
    network.pass(2 * MILLISECOND);
    let node = &mut network.nodes[1];
    let other = node.manager.create_channel().unwrap();
    node.manager.migrate_id(listener, other).unwrap();
    node.manager.destroy_channel(node.channel, Instant::ZERO).unwrap();
    let event = node.manager.get_event(other).unwrap().unwrap();
    assert_eq!((event.kind, node.manager.usage().identifiers), (EventKind::ConnectRequest, 2));
    node.manager.destroy_channel(other, Instant::ZERO).unwrap();
    assert_eq!(node.manager.usage().identifiers, 0);
}

#[test]
fn limits_are_errors_of_commands() {
    let config = Config { max_identifiers: 2, max_channels: 2, max_memberships: 1, ..config(0) };
    let mut network = Network::new(vec![config]);
    let (channel, manager) = (network.nodes[0].channel, &mut network.nodes[0].manager);
    let other = manager.create_channel().unwrap();
    assert_eq!(manager.create_channel(), Err(CommandError::Exhausted));
    let mut create = |channel| manager.create_id(channel, 1, PortSpace::Udp, QpType::Ud);
    let ids = [create(channel).unwrap(), create(other).unwrap()];
    assert_eq!(create(channel), Err(CommandError::Exhausted));
    manager.bind(ids[0], at(0, 0)).unwrap();
    let group = "239.1.2.3".parse().unwrap();
    manager.join_multicast(ids[0], 1, group, nichrome_cm::Reception::Full).unwrap();
    let second = manager.join_multicast(ids[0], 1, group, nichrome_cm::Reception::Full);
    assert_eq!(second, Err(CommandError::Exhausted));
    manager.destroy_channel(other, Instant::ZERO).unwrap();
    assert_eq!(manager.destroy_id(ids[1], Instant::ZERO), Err(CommandError::NotFound));
}

#[test]
fn events_that_are_not_fetched_stop_the_commands_that_cause_them() {
    let config = Config { max_queued_events: 3, ..config(0) };
    let mut network = Network::new(vec![config]);
    let id = network.create(0, 1, PortSpace::Tcp);
    let manager = &mut network.nodes[0].manager;
    for _ in 0..3 {
        manager.resolve_address(id, None, at(0, 7), 1000, Instant::ZERO).unwrap();
        let query = std::iter::from_fn(|| manager.poll()).find_map(|output| match output {
            Output::ResolveAddress { query, .. } => Some(query),
            _ => None,
        });
        manager.receive(
            Input::AddressResolved(query.unwrap(), Err(nichrome_cm::Errno::EHOSTUNREACH)),
            Instant::ZERO,
        );
    }
    let again = manager.resolve_address(id, None, at(0, 7), 1000, Instant::ZERO);
    assert_eq!(again, Err(CommandError::Exhausted));
    assert_eq!(network.events(0).iter().filter(|event| event.kind == EventKind::AddressError).count(), 3);
}

#[test]
fn late_answers_to_old_questions_are_ignored() {
    let mut network = Network::pair();
    let id = network.create(0, 1, PortSpace::Tcp);
    let manager = &mut network.nodes[0].manager;
    let mut ask = |now| {
        manager.resolve_address(id, None, at(1, 7), 10, now).unwrap();
        std::iter::from_fn(|| manager.poll()).find_map(|output| match output {
            Output::ResolveAddress { query, .. } => Some(query),
            _ => None,
        })
    };
    let old = ask(Instant::ZERO).unwrap();
    network.pass(20 * MILLISECOND);
    let event = network.event(0);
    assert_eq!((event.kind, event.status), (EventKind::AddressError, -110));
    network.input(0, Input::AddressResolved(old, Ok(address(0))));
    assert_eq!(network.events(0), []);
    let now = network.now;
    network.nodes[0].manager.resolve_address(id, None, at(1, 7), 10, now).unwrap();
    network.input(0, Input::AddressResolved(old, Ok(address(0))));
    assert_eq!(network.events(0), []);
    network.pass(0);
    assert_eq!(network.event(0).kind, EventKind::AddressResolved);
}

#[test]
fn connections_without_program_are_limited() {
    let config = Config { max_lingering: 5, ..config(0) };
    let mut network = Network::new(vec![config, crate::common::config(1)]);
    network.listen(1, 1, PortSpace::Tcp, 7, 0);
    let clients: Vec<IdName> = (0..20).map(|n| network.connected(0x100 + 2 * n).0).collect();
    for client in clients {
        network.destroy(0, client).unwrap();
    }
    network.drain(&mut lost);
    let manager = &network.nodes[0].manager;
    assert_eq!((manager.usage().connections, manager.counters().lingering_evicted), (5, 15));
}

#[test]
fn refused_requests_displace_no_end_of_a_connection_that_the_peer_has_not_acknowledged() {
    let config = Config { max_lingering: 5, ..config(1) };
    let mut network = Network::new(vec![crate::common::config(0), config]);
    network.listen(1, 1, PortSpace::Tcp, 7, 0);
    let [acknowledged, lost_one] = [0x11, 0x22].map(|qp| network.connected(qp));
    network.destroy(1, acknowledged.1).unwrap();
    network.pass(2 * MILLISECOND);
    assert_eq!(network.event(0).id, acknowledged.0.0);
    network.destroy(1, lost_one.1).unwrap();
    network.drain(&mut lost);
    let mut events = Vec::new();
    for qp in 0x100..0x110 {
        let (_, request) = network.requested(qp);
        network.destroy(1, request).unwrap();
        network.pass(MILLISECOND);
        events.extend(network.events(0));
    }
    let manager = &network.nodes[1].manager;
    assert!(manager.usage().connections <= 5 && manager.counters().lingering_evicted > 10);
    network.pass(SECOND);
    events.extend(network.events(0));
    let of_kind = |kind| events.iter().filter(move |event| event.kind == kind).map(|event| event.id);
    assert_eq!(of_kind(EventKind::Rejected).count(), 16);
    assert_eq!(of_kind(EventKind::Disconnected).collect::<Vec<_>>(), [lost_one.0.0]);
}

#[test]
fn a_port_is_shared_by_identifiers_that_allow_it_before_or_after_binding() {
    let mut network = Network::pair();
    let ids: Vec<IdName> = (0..3).map(|_| network.create(0, 1, PortSpace::Tcp)).collect();
    let manager = &mut network.nodes[0].manager;
    manager.bind(ids[0], at(0, 7)).unwrap();
    manager.set_reuse_address(ids[1], true).unwrap();
    assert_eq!(manager.bind(ids[1], at(0, 7)), Err(CommandError::AddressInUse));
    manager.set_reuse_address(ids[0], true).unwrap();
    assert_eq!(manager.set_reuse_address(ids[0], false), Err(CommandError::State));
    manager.bind(ids[1], at(0, 7)).unwrap();
    assert_eq!(manager.listen(ids[0], 0), Err(CommandError::AddressInUse));
    manager.destroy_id(ids[1], Instant::ZERO).unwrap();
    manager.listen(ids[0], 0).unwrap();
    assert_eq!(manager.set_reuse_address(ids[0], true), Err(CommandError::State));
    manager.set_reuse_address(ids[2], true).unwrap();
    assert_eq!(manager.bind(ids[2], at(0, 7)), Err(CommandError::AddressInUse));
}
