//! Connections over StaR by address and port between adapters on the loopback interface.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::thread;

use nichrome_hca::cm::ConnectError;
use nichrome_hca::{AdapterConfig, StarOptions, Stateless, Transport};
use nichrome_rdma::{Operation, QpState, RKey, ReceiveRequest, Remote, SendRequest, Status};

use self::cm_end::{
    End, PATIENCE, connected, connects_from_a_thousand_threads_at_once, connects_from_several_threads,
    makes_and_ends, polls_the_last_message_before_the_end, rejects_what_waits_at_a_listener_that_goes, sends,
};

#[path = "common/cm_end.rs"]
mod cm_end;

fn config(stateless: Stateless) -> AdapterConfig {
    let star = StarOptions { stateless, ..StarOptions::default() };
    AdapterConfig { transport: Transport::Star, star, ..AdapterConfig::default() }
}

/// A client that keeps the state of its connections, and a server that keeps none.
fn pair() -> [End; 2] {
    [Stateless::Automatic, Stateless::Own].map(|stateless| End::open(&config(stateless)))
}

#[test]
fn messages_pass_both_ways_without_state_at_the_server_and_both_ends_see_the_end() {
    let ends = pair();
    let listener = ends[1].adapter.listen(7174, 0).unwrap();
    let [client, server] = connected(&ends, &listener);
    assert!(server.private_data().starts_with(b"hello") && client.private_data().starts_with(b"welcome"));
    sends([(&ends[0], &client), (&ends[1], &server)]);
    sends([(&ends[1], &server), (&ends[0], &client)]);
    assert_eq!(ends.each_ref().map(|end| end.adapter.stateless_connections()), [0, 1]);
    let buffers = [ends[1].region.slice(0, 1)];
    server.queue_pair().post_receive(&ReceiveRequest { wr_id: 3, buffers: &buffers }).unwrap();
    client.disconnect();
    assert!(server.wait_disconnected(PATIENCE).unwrap() && client.wait_disconnected(PATIENCE).unwrap());
    assert_eq!(ends[1].cq.wait(PATIENCE).unwrap().status, Status::Flushed);
}

#[test]
fn the_end_waits_until_the_last_message_is_polled() {
    polls_the_last_message_before_the_end(&pair());
}

#[test]
fn a_client_writes_to_the_region_that_the_server_names_in_its_private_data() {
    let ends = pair();
    let listener = ends[1].adapter.listen(0, 0).unwrap();
    let Remote { address, rkey } = ends[1].region.remote().at(0);
    let named = [&address.to_be_bytes()[..], &rkey.0.to_be_bytes()].concat();
    let (client, _server) = thread::scope(|scope| {
        let accepted = scope.spawn(|| ends[1].accept(&listener, &named).unwrap());
        (ends[0].connect(listener.address(), b"").unwrap(), accepted.join().unwrap())
    });
    let (address, rest) = client.private_data().split_first_chunk().unwrap();
    let rkey = RKey(u32::from_be_bytes(*rest.first_chunk().unwrap()));
    let remote = Remote { address: u64::from_be_bytes(*address), rkey };
    ends[0].region.with(|bytes| bytes[..100].fill(9));
    let buffers = [ends[0].region.slice(0, 100)];
    client.queue_pair().post_send(&SendRequest::new(1, Operation::Write(remote), &buffers)).unwrap();
    assert_eq!(ends[0].cq.wait(PATIENCE).unwrap().status, Status::Success);
    assert_eq!(ends[1].region.with(|bytes| bytes[..100].to_vec()), [9; 100]);
}

#[test]
fn the_client_may_be_the_stateless_end() {
    let ends = [Stateless::Own, Stateless::Automatic].map(|stateless| End::open(&config(stateless)));
    let listener = ends[1].adapter.listen(0, 0).unwrap();
    let [client, server] = connected(&ends, &listener);
    sends([(&ends[0], &client), (&ends[1], &server)]);
    assert_eq!(ends.each_ref().map(|end| end.adapter.stateless_connections()), [1, 0]);
}

#[test]
fn a_rejected_connection_is_not_set_up() {
    let [client, server] = &pair();
    let listener = server.adapter.listen(0, 0).unwrap();
    let refused = thread::scope(|scope| {
        scope.spawn(|| listener.accept(PATIENCE).unwrap().unwrap().reject(b"not you").unwrap());
        client.connect(listener.address(), b"").err().unwrap()
    });
    assert!(matches!(refused, ConnectError::Rejected(data) if data.starts_with(b"not you")));
    assert_eq!([client, server].map(|end| end.adapter.held_connections()), [0, 0]);
}

#[test]
fn ends_that_cannot_agree_flush_what_is_posted() {
    let ends = End::pair(&config(Stateless::Own));
    let listener = ends[1].adapter.listen(0, 0).unwrap();
    let made = connected(&ends, &listener);
    for (end, connection) in ends.iter().zip(&made) {
        let buffers = [end.region.slice(0, 1)];
        connection.queue_pair().post_receive(&ReceiveRequest { wr_id: 3, buffers: &buffers }).unwrap();
        assert_eq!(end.cq.wait(PATIENCE).unwrap().status, Status::Flushed);
        assert_eq!(connection.queue_pair().state(), QpState::Err);
    }
}

#[test]
fn a_hundred_connections_are_made_and_ended() {
    makes_and_ends(100, &pair());
}

#[test]
fn many_clients_connect_at_once() {
    connects_from_several_threads(&pair());
}

#[test]
fn a_thousand_clients_connect_at_once() {
    connects_from_a_thousand_threads_at_once(&pair());
}

#[test]
fn waiting_requests_of_a_dropped_listener_are_rejected() {
    rejects_what_waits_at_a_listener_that_goes(&pair());
}
