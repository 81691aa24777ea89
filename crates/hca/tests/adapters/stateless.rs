//! StaR: one side of each connection keeps no state.

use std::net::Ipv4Addr;
use std::sync::Mutex;

use nichrome_hca::{AdapterConfig, Connection, Faults, Place, QueuePair, StarOptions, Stateless, Transport};
use nichrome_rdma::{CompletedOperation, Operation, PathMtu, QpCapacity, SendRequest, Status};

use super::end::{End, LEN, PATIENCE};
use super::{connect, connected, does_everything, moves_messages, rough};

fn star(stateless: Stateless) -> AdapterConfig {
    let star = StarOptions { stateless, ..StarOptions::default() };
    AdapterConfig { transport: Transport::Star, star, ..AdapterConfig::default() }
}

/// The ends of a StaR connection, the stateless one first. `other` is the choice of the second.
fn star_ends(faults: Option<&Faults>, authenticates: bool, other: Stateless) -> [End; 2] {
    let configs = [Stateless::Own, other].map(|stateless| {
        let mut config = AdapterConfig { faults: faults.cloned(), ..star(stateless) };
        config.star.authenticates = authenticates;
        config
    });
    let ends = configs.each_ref().map(End::open);
    connect(&ends);
    ends
}

/// Connects queue pairs whose set-up fails, which may end them before they are in RTS.
fn connect_in_vain(ends: &[End; 2]) {
    for (end, peer) in [(&ends[0], &ends[1]), (&ends[1], &ends[0])] {
        let _ = end.qp.connect(&peer.qp.endpoint(), &Connection::new(PathMtu::B4096));
    }
}

#[test]
fn everything_is_done_where_one_side_keeps_no_state() {
    for (authenticates, other) in [(false, Stateless::Peer), (true, Stateless::Automatic)] {
        let ends = star_ends(None, authenticates, other);
        does_everything(&ends, &[1, 4096, 4097, 65_536, LEN]);
        assert_eq!(ends.each_ref().map(|end| end.adapter.stateless_connections()), [1, 0]);
        let [server, client] = ends;
        moves_messages(&[client, server], &[1, 4096, 4097, 65_536, LEN]);
    }
}

#[test]
fn nothing_is_lost_where_one_side_keeps_no_state() {
    let ends = star_ends(Some(&rough()), true, Stateless::Automatic);
    does_everything(&ends, &[1, 65_536, LEN]);
    let [server, client] = ends;
    moves_messages(&[client, server], &[1, 65_536, LEN]);
}

#[test]
fn where_both_have_room_and_no_wish_the_connection_is_roce() {
    let ends = connected(&star(Stateless::Automatic));
    does_everything(&ends, &[1, 65_536]);
    assert_eq!(ends.each_ref().map(|end| end.adapter.stateless_connections()), [0, 0]);
}

/// The first connection uses up the budget of the first end.
#[test]
fn beyond_its_budget_an_adapter_is_stateless() {
    let mut scarce = star(Stateless::Automatic);
    scarce.star.connection_budget = Some(1);
    let [a, b] = [End::open(&scarce), End::open(&star(Stateless::Automatic))];
    let capacity = QpCapacity { send_wrs: 16, receive_wrs: 16, send_sges: 1, receive_sges: 1, inline: 0 };
    let more = [&a, &b].map(|end| end.adapter.queue_pair(capacity, &end.cq, &end.cq).unwrap());
    let connection = Connection::new(PathMtu::B4096);
    let endpoints = more.each_ref().map(QueuePair::endpoint);
    more[0].connect(&endpoints[1], &connection).unwrap();
    more[1].connect(&endpoints[0], &connection).unwrap();
    let there = b.region.remote().at(0);
    a.region.with(|bytes| bytes[..5].copy_from_slice(b"hello"));
    let buffers = [a.region.slice(0, 5)];
    more[0].post_send(&SendRequest::new(9, Operation::Write(there), &buffers)).unwrap();
    a.waits_for(9, CompletedOperation::Write);
    assert_eq!(b.bytes(0, 5), b"hello");
    assert_eq!([&a, &b].map(|end| end.adapter.stateless_connections()), [1, 0]);
}

/// Reported failures; the report is a plain function, so they are static.
static FAILURES: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[test]
fn a_failed_set_up_is_reported_in_one_line_and_flushes_the_work_requests() {
    let report = |why: &str| FAILURES.lock().unwrap().push(why.to_owned());
    let mut config = star(Stateless::Own);
    config.star.report = report;
    let ends = [End::open(&config), End::open(&config)];
    connect_in_vain(&ends);
    ends[0].send(1, Operation::Write(ends[1].region.remote().at(0)), 0, 8);
    assert_eq!(ends[0].cq.wait(PATIENCE).unwrap().status, Status::Flushed);
    // The peer speaks RoCE only, and does not listen for set-up. The end with the lower address connects.
    config.star.stateless = Stateless::Automatic;
    let at = |last| Place::Address(Ipv4Addr::new(127, 0, 6, last).into());
    config.place = at(1);
    let ends = [End::open(&config), End::open(&AdapterConfig { place: at(2), ..AdapterConfig::default() })];
    connect_in_vain(&ends);
    ends[0].send(1, Operation::Write(ends[1].region.remote().at(0)), 0, 8);
    assert_eq!(ends[0].cq.wait(PATIENCE).unwrap().status, Status::Flushed);
    let failures = FAILURES.lock().unwrap();
    assert!(
        failures[0].ends_with("both sides want to be stateless: one of them must keep the state"),
        "{failures:?}"
    );
    assert!(failures.iter().all(|line| line.lines().count() == 1));
}
