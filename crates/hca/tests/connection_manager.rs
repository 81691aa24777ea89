//! Connections by address and port between adapters on the loopback interface.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use nichrome_hca::cm::{CmOptions, ConnectError, Connected, ListenError, TimeExponent};
use nichrome_hca::{Adapter, AdapterConfig, Faults, Place};
use nichrome_rdma::{ReceiveRequest, Status};
use nichrome_wan::Impairments;

use self::cm_end::{
    End, PATIENCE, connected, connection, connects_from_a_thousand_threads_at_once,
    connects_from_several_threads, makes_and_ends, polls_the_last_message_before_the_end,
    rejects_what_waits_at_a_listener_that_goes, sends,
};

#[path = "common/cm_end.rs"]
mod cm_end;

/// Messages are retransmitted every 537 ms, fifteen times: for longer than a thread waits for a processor.
const REPEATING: CmOptions = CmOptions {
    response_timeout: TimeExponent::new(17),
    max_retries: 15,
    service_timeout: TimeExponent::new(16),
    guid: None,
};

/// Messages are retransmitted every 34 ms, three times.
const IMPATIENT: CmOptions = CmOptions {
    response_timeout: TimeExponent::new(13),
    max_retries: 3,
    service_timeout: TimeExponent::new(16),
    guid: None,
};

/// Longer than an impatient end takes to give up (four waits of 34 ms, and 268 ms by an MRA), and shorter
/// than an end with the default options takes (69 s).
const GIVES_UP_WITHIN: Duration = Duration::from_secs(30);

fn impatient() -> [End; 2] {
    End::pair(&AdapterConfig { cm: IMPATIENT, ..AdapterConfig::default() })
}

fn pair() -> [End; 2] {
    End::pair(&AdapterConfig::default())
}

#[test]
fn private_data_and_messages_pass_and_both_ends_see_the_end() {
    let ends = pair();
    let listener = ends[1].adapter.listen(7174, 0).unwrap();
    assert_eq!(listener.address(), SocketAddr::new(ends[1].adapter.address(), 7174));
    let [client, server] = connected(&ends, &listener);
    assert_eq!(server.peer().ip(), ends[0].adapter.address());
    assert!(server.private_data().starts_with(b"hello\0") && server.private_data().len() == 56);
    assert!(client.private_data().starts_with(b"welcome\0") && client.private_data().len() == 196);
    sends([(&ends[0], &client), (&ends[1], &server)]);
    sends([(&ends[1], &server), (&ends[0], &client)]);
    assert!(client.is_established() && server.is_established());
    assert!(!server.wait_disconnected(Duration::from_millis(10)).unwrap());
    let buffers = [ends[1].region.slice(0, 1)];
    server.queue_pair().post_receive(&ReceiveRequest { wr_id: 3, buffers: &buffers }).unwrap();
    client.disconnect();
    assert!(server.wait_disconnected(PATIENCE).unwrap() && client.wait_disconnected(PATIENCE).unwrap());
    // The queue pair is in ERROR.
    assert_eq!(ends[1].cq.wait(PATIENCE).unwrap().status, Status::Flushed);
}

#[test]
fn the_end_waits_until_the_last_message_is_polled() {
    polls_the_last_message_before_the_end(&pair());
}

/// A server remembers the end of a connection: the request of the next run must not look like a
/// retransmission.
#[test]
fn a_second_run_with_the_same_seed_connects() {
    let server = End::open(&AdapterConfig::default());
    let listener = server.adapter.listen(0, 0).unwrap();
    let place = Place::Address([127, 0, 7, 1].into());
    for _ in 0..2 {
        let client = End::open(&AdapterConfig { seed: Some(7), place, ..AdapterConfig::default() });
        thread::scope(|scope| {
            scope.spawn(|| drop(client.connect(listener.address(), b"").unwrap()));
            drop(server.accept(&listener, b"").unwrap());
        });
    }
}

#[test]
fn dropping_an_end_disconnects_the_other() {
    let ends = pair();
    let listener = ends[1].adapter.listen(0, 0).unwrap();
    let [client, server] = connected(&ends, &listener);
    drop(server);
    assert!(client.wait_disconnected(PATIENCE).unwrap());
}

#[test]
fn a_rejection_has_the_private_data_of_the_program() {
    let [client, server] = &pair();
    let listener = server.adapter.listen(0, 0).unwrap();
    let refused = thread::scope(|scope| {
        scope.spawn(|| listener.accept(PATIENCE).unwrap().unwrap().reject(b"not you").unwrap());
        client.connect(listener.address(), b"").err().unwrap()
    });
    let ConnectError::Rejected(data) = refused else { panic!("{refused}") };
    assert!(data.starts_with(b"not you\0") && data.len() == 148);
    // A request that is dropped is rejected, without data.
    let refused = thread::scope(|scope| {
        scope.spawn(|| drop(listener.accept(PATIENCE).unwrap().unwrap()));
        client.connect(listener.address(), b"").err().unwrap()
    });
    assert_eq!(refused, ConnectError::Rejected(vec![0; 148]));
}

#[test]
fn a_port_without_a_listener_is_an_error_of_its_own() {
    let [client, server] = &pair();
    let address = SocketAddr::new(server.adapter.address(), 9);
    assert_eq!(client.connect(address, b"").err(), Some(ConnectError::NoListener));
    // A dropped listener leaves no listener, either.
    let listener = server.adapter.listen(9, 0).unwrap();
    assert!(matches!(server.adapter.listen(9, 0), Err(ListenError::Command(_))));
    drop(listener);
    assert_eq!(client.connect(address, b"").err(), Some(ConnectError::NoListener));
}

#[test]
fn private_data_that_does_not_fit_is_refused() {
    let [client, server] = &pair();
    let address = SocketAddr::new(server.adapter.address(), 9);
    assert!(matches!(client.connect(address, &[1; 57]), Err(ConnectError::Command(_))));
    let other_family = "[::1]:9".parse().unwrap();
    assert!(matches!(client.connect(other_family, b""), Err(ConnectError::Command(_))));
}

#[test]
fn an_adapter_can_connect_to_itself() {
    let end = End::open(&AdapterConfig::default());
    let listener = end.adapter.listen(0, 0).unwrap();
    thread::scope(|scope| {
        let accepted = scope.spawn(|| end.accept(&listener, b"").unwrap());
        let connected = end.connect(listener.address(), b"").unwrap();
        assert!(connected.is_established() && accepted.join().unwrap().is_established());
    });
}

#[test]
fn a_thousand_connections_are_made_and_ended() {
    makes_and_ends(1000, &pair());
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

#[test]
fn requests_beyond_the_backlog_wait_for_room() {
    let [client, server] = &End::pair(&AdapterConfig { cm: REPEATING, ..AdapterConfig::default() });
    let listener = &server.adapter.listen(0, 1).unwrap();
    thread::scope(|scope| {
        let connecting: Vec<_> =
            (0..6).map(|_| scope.spawn(|| client.connect(listener.address(), b"").unwrap())).collect();
        let accepted: Vec<Connected> = (0..6)
            .map(|_| {
                // A server that accepts slowly, so that requests exceed the backlog.
                thread::sleep(Duration::from_millis(10));
                server.accept(listener, b"").unwrap()
            })
            .collect();
        let connected: Vec<Connected> = connecting.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(accepted.iter().chain(&connected).all(Connected::is_established));
    });
}

#[test]
fn lost_messages_are_repeated() {
    let faults = |seed| {
        let impairments = Impairments { loss: Some("10%".parse().unwrap()), ..Impairments::default() };
        Some(Faults { impairments, seed })
    };
    let open =
        |seed| End::open(&AdapterConfig { cm: REPEATING, faults: faults(seed), ..AdapterConfig::default() });
    let ends = [open(1), open(2)];
    let listener = ends[1].adapter.listen(0, 0).unwrap();
    for _ in 0..5 {
        // No data: with 7 retries a reliable connection may give up where the connection manager, with 15,
        // does not.
        let [client, server] = connected(&ends, &listener);
        drop(client);
        assert!(server.wait_disconnected(PATIENCE).unwrap());
    }
}

/// The third packet of the client, after REQ and RTU, is its DREQ.
#[test]
fn an_adapter_that_closes_repeats_that_its_connections_ended() {
    let impairments = Impairments { loss: Some("packets:3,4".parse().unwrap()), ..Impairments::default() };
    let faults = Some(Faults { impairments, seed: 1 });
    let ends = [
        End::open(&AdapterConfig { faults, ..AdapterConfig::default() }),
        End::open(&AdapterConfig::default()),
    ];
    let listener = ends[1].adapter.listen(0, 0).unwrap();
    let [client, server] = connected(&ends, &listener);
    drop(client);
    let [first, _second] = ends;
    drop(first);
    assert!(server.wait_disconnected(PATIENCE).unwrap());
}

/// Runs `attempt`, which must give up within [`GIVES_UP_WITHIN`].
fn gives_up<T>(attempt: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = attempt();
    assert!(begun.elapsed() < GIVES_UP_WITHIN, "{:?}", begun.elapsed());
    result
}

#[test]
fn a_peer_that_is_gone_before_the_request_is_given_up() {
    let [client, _] = impatient();
    // Tests that take any free address of 127.0.0.0/8 take none here.
    let place = Place::Address("127.0.81.1".parse().unwrap());
    let server = Adapter::open(&AdapterConfig { place, ..AdapterConfig::default() }).unwrap();
    let address = SocketAddr::new(server.address(), 9);
    drop(server);
    assert_eq!(gives_up(|| client.connect(address, b"").err()), Some(ConnectError::TimedOut));
}

#[test]
fn a_program_that_does_not_answer_a_request_is_given_up() {
    let [client, server] = impatient();
    let listener = server.adapter.listen(0, 0).unwrap();
    assert_eq!(gives_up(|| client.connect(listener.address(), b"").err()), Some(ConnectError::TimedOut));
    // The peer has withdrawn its request; its REJ may still be in flight, and the listener does not show when
    // it has arrived.
    thread::sleep(Duration::from_millis(100));
    let request = listener.accept(PATIENCE).unwrap().unwrap();
    let late = request.accept(server.queue_pair(), b"", &connection());
    assert_eq!(late.err(), Some(ConnectError::Withdrawn));
}
