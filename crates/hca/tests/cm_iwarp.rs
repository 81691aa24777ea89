//! Connections over iWARP by address and port between adapters on the loopback interface.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use nichrome_hca::cm::{ConnectError, ListenError};
use nichrome_hca::{AdapterConfig, Connection, Place, Transport};
use nichrome_rdma::iwarp::setup::{Initiator, Options};
use nichrome_rdma::{Access, Operation, ReceiveRequest, SendRequest, Status};
use nichrome_wire::Instant as EngineInstant;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketType, bind, socket};

use self::cm_end::{
    End, PATIENCE, connected, connection, connects_from_a_thousand_threads_at_once,
    connects_from_several_threads, makes_and_ends, polls_the_last_message_before_the_end,
    rejects_what_waits_at_a_listener_that_goes, sends,
};

#[path = "common/cm_end.rs"]
mod cm_end;

fn iwarp() -> AdapterConfig {
    AdapterConfig { transport: Transport::Iwarp, ..AdapterConfig::default() }
}

fn pair() -> [End; 2] {
    End::pair(&iwarp())
}

/// A peer's MPA Request.
fn request() -> Vec<u8> {
    Initiator::new(Options::default(), b"from a stranger", EngineInstant::ZERO).take_output()
}

#[test]
fn private_data_and_messages_pass_and_both_ends_see_the_end() {
    let ends = pair();
    let listener = ends[1].adapter.listen(7174, 0).unwrap();
    assert_eq!(listener.address(), SocketAddr::new(ends[1].adapter.address(), 7174));
    let [client, server] = connected(&ends, &listener);
    assert_eq!(server.peer().ip(), ends[0].adapter.address());
    assert_eq!((server.private_data(), client.private_data()), (&b"hello"[..], &b"welcome"[..]));
    sends([(&ends[0], &client), (&ends[1], &server)]);
    sends([(&ends[1], &server), (&ends[0], &client)]);
    assert!(client.is_established() && server.is_established());
    assert!(!server.wait_disconnected(Duration::from_millis(10)).unwrap());
    let buffers = [ends[1].region.slice(0, 1)];
    server.queue_pair().post_receive(&ReceiveRequest { wr_id: 3, buffers: &buffers }).unwrap();
    client.disconnect();
    assert!(server.wait_disconnected(PATIENCE).unwrap() && client.wait_disconnected(PATIENCE).unwrap());
    assert_eq!(ends[1].cq.wait(PATIENCE).unwrap().status, Status::Flushed);
}

#[test]
fn the_accepting_end_may_send_first() {
    let ends = pair();
    let listener = ends[1].adapter.listen(0, 0).unwrap();
    let [client, server] = connected(&ends, &listener);
    sends([(&ends[1], &server), (&ends[0], &client)]);
}

#[test]
fn a_peer_has_the_rights_that_the_program_gives_to_its_connection() {
    let ends = pair();
    let listener = ends[1].adapter.listen(0, 0).unwrap();
    for (access, is_written) in [(Access::NONE, false), (connection().access, true)] {
        let given = Connection { access, ..connection() };
        let [client, server] = thread::scope(|scope| {
            let accepted = scope.spawn(|| {
                let request = listener.accept(PATIENCE).unwrap().unwrap();
                request.accept(ends[1].queue_pair(), b"", &given).unwrap()
            });
            [ends[0].connect(listener.address(), b"").unwrap(), accepted.join().unwrap()]
        });
        ends[0].region.with(|bytes| bytes[..4].fill(7));
        let buffers = [ends[0].region.slice(0, 4)];
        let write = Operation::Write(ends[1].region.remote().at(0));
        client.queue_pair().post_send(&SendRequest::new(1, write, &buffers)).unwrap();
        // The responder's TERMINATE ends the connection.
        let has_come = || ends[1].region.poll(|bytes| bytes[..4] == [7; 4]);
        let begun = Instant::now();
        while !has_come() && !server.wait_disconnected(Duration::from_millis(1)).unwrap() {
            assert!(begun.elapsed() < PATIENCE);
        }
        assert_eq!(has_come(), is_written);
    }
}

#[test]
fn the_end_waits_until_the_last_message_is_polled() {
    polls_the_last_message_before_the_end(&pair());
}

#[test]
fn dropping_either_end_disconnects_the_other() {
    let ends = pair();
    let listener = ends[1].adapter.listen(0, 0).unwrap();
    for first in [0, 1] {
        let [client, server] = connected(&ends, &listener);
        let (dropped, other) = if first == 0 { (client, server) } else { (server, client) };
        drop(dropped);
        assert!(other.wait_disconnected(PATIENCE).unwrap());
    }
}

#[test]
fn a_rejection_has_the_private_data_of_the_program() {
    let [client, server] = &pair();
    let listener = server.adapter.listen(0, 0).unwrap();
    for data in [&b"not you"[..], b""] {
        let refused = thread::scope(|scope| {
            scope.spawn(|| listener.accept(PATIENCE).unwrap().unwrap().reject(data).unwrap());
            client.connect(listener.address(), b"").err().unwrap()
        });
        assert_eq!(refused, ConnectError::Rejected(data.to_vec()));
    }
    let refused = thread::scope(|scope| {
        scope.spawn(|| drop(listener.accept(PATIENCE).unwrap().unwrap()));
        client.connect(listener.address(), b"").err().unwrap()
    });
    assert_eq!(refused, ConnectError::Rejected(Vec::new()), "a request that is dropped");
}

#[test]
fn a_port_without_a_listener_is_an_error_of_its_own() {
    let [client, server] = &pair();
    let address = SocketAddr::new(server.adapter.address(), 9);
    assert_eq!(client.connect(address, b"").err(), Some(ConnectError::NoListener));
    let listener = server.adapter.listen(9, 0).unwrap();
    assert!(matches!(server.adapter.listen(9, 0), Err(ListenError::Command(_))));
    drop(listener);
    assert_eq!(client.connect(address, b"").err(), Some(ConnectError::NoListener));
}

#[test]
fn a_port_of_another_program_of_the_machine_is_in_use() {
    let [_, server] = &pair();
    let other = std::net::TcpListener::bind((server.adapter.address(), 0)).unwrap();
    let port = other.local_addr().unwrap().port();
    assert!(matches!(server.adapter.listen(port, 0), Err(ListenError::Command(_))));
}

#[test]
fn private_data_that_does_not_fit_is_refused() {
    let ends = &pair();
    let listener = &ends[1].adapter.listen(0, 0).unwrap();
    assert!(matches!(ends[0].connect(listener.address(), &[1; 256]), Err(ConnectError::Command(_))));
    thread::scope(|scope| {
        scope.spawn(|| assert!(ends[1].accept(listener, &[2; 256]).is_err()));
        assert_eq!(
            ends[0].connect(listener.address(), &[1; 255]).err(),
            Some(ConnectError::Rejected(Vec::new()))
        );
    });
}

#[test]
fn hundreds_of_connections_are_made_and_ended() {
    makes_and_ends(300, &pair());
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
fn requests_beyond_the_backlog_are_refused() {
    let [client, server] = &pair();
    let listener = &server.adapter.listen(0, 2).unwrap();
    thread::scope(|scope| {
        let clients: Vec<_> =
            (0..5).map(|_| scope.spawn(|| client.connect(listener.address(), b""))).collect();
        let is_over = || clients.iter().filter(|client| client.is_finished()).count() == 3;
        let begun = Instant::now();
        while !is_over() {
            assert!(begun.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(1));
        }
        let _accepted = [server.accept(listener, b"").unwrap(), server.accept(listener, b"").unwrap()];
        let results: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 2, "{results:?}");
    });
}

#[test]
fn silent_and_senseless_peers_do_not_keep_others_out() {
    let ends = pair();
    let listener = ends[1].adapter.listen(0, 0).unwrap();
    let strangers: Vec<TcpStream> = (0..600)
        .map(|nth| {
            let mut stranger = TcpStream::connect(listener.address()).unwrap();
            match nth % 3 {
                0 => {}
                1 => stranger.write_all(&request()[..10]).unwrap(),
                _ => stranger.write_all(&[0x55; 600]).unwrap(),
            }
            stranger
        })
        .collect();
    let [client, server] = connected(&ends, &listener);
    sends([(&ends[0], &client), (&ends[1], &server)]);
    let counted = ends[1].adapter.iwarp_counters();
    assert_eq!((counted.garbage, counted.displaced > 0), (200, false), "{counted:?}");
    drop(strangers);
}

/// Connections of others from these ports of an address to a peer.
fn occupy(from: IpAddr, ports: Range<u16>, to: SocketAddr) -> Vec<OwnedFd> {
    let connect = |port| {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        // As servers do: their ports may be reused while ended connections keep them (TIME_WAIT).
        set_socket_reuseaddr(&socket, true).unwrap();
        bind(&socket, &SocketAddr::new(from, port)).unwrap();
        match rustix::net::connect(&socket, &to) {
            // The connection of the test keeps its port.
            Ok(()) | Err(Errno::ADDRNOTAVAIL) => socket,
            Err(error) => panic!("{error}"),
        }
    };
    ports.map(connect).collect()
}

#[test]
fn a_port_with_another_connection_to_the_peer_is_not_chosen() {
    // An address of its own, so that no other test takes its ports in between.
    let address = IpAddr::from([127, 0, 84, 1]);
    let config = AdapterConfig { seed: Some(1), place: Place::Address(address), ..iwarp() };
    let [server, client] = [&iwarp(), &config].map(End::open);
    let listener = server.adapter.listen(0, 0).unwrap();
    let chosen_port = |client: &End| {
        thread::scope(|scope| {
            let accepted = scope.spawn(|| server.accept(&listener, b"").unwrap().peer().port());
            let _connected = client.connect(listener.address(), b"").unwrap();
            accepted.join().unwrap()
        })
    };
    let first = chosen_port(&client);
    drop(client);
    let taken = first..first + 20;
    let _others = occupy(address, taken.clone(), listener.address());
    // With the same seed, the adapter tries the same port first.
    let again = End::open(&config);
    assert!(!taken.contains(&chosen_port(&again)));
}

#[test]
fn a_peer_that_does_not_wait_for_the_reply_is_closed() {
    let [_, server] = &pair();
    let listener = server.adapter.listen(0, 0).unwrap();
    let mut early = TcpStream::connect(listener.address()).unwrap();
    early.write_all(&request()).unwrap();
    let incoming = listener.accept(PATIENCE).unwrap().unwrap();
    assert_eq!(incoming.private_data(), b"from a stranger");
    early.write_all(b"data").unwrap();
    early.set_read_timeout(Some(PATIENCE)).unwrap();
    // A FIN or a reset.
    assert!(!matches!(early.read(&mut [0; 8]), Ok(1..)));
    assert!(incoming.accept(server.queue_pair(), b"", &connection()).is_err());
}

#[test]
fn a_peer_that_is_gone_when_its_request_is_accepted_fails_it() {
    let [_, server] = &pair();
    let listener = server.adapter.listen(0, 0).unwrap();
    let mut gone = TcpStream::connect(listener.address()).unwrap();
    gone.write_all(&request()).unwrap();
    let incoming = listener.accept(PATIENCE).unwrap().unwrap();
    drop(gone);
    // The case under test: the end of the stream arrives before the accept.
    thread::sleep(Duration::from_millis(50));
    assert!(incoming.accept(server.queue_pair(), b"", &connection()).is_err());
}
