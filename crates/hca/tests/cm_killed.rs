//! Connections whose peer is killed at each step, over RoCE and iWARP: the other end gives up, and keeps
//! nothing of them.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nichrome_hca::cm::{CmChannel, CmOptions, ConnectError, Connected, Listener, TimeExponent, Usage};
use nichrome_hca::{AdapterConfig, Place, Transport};
use nichrome_rdma::{Operation, SendRequest, Status};

use self::cm_commands::*;
use self::cm_end::{End, PATIENCE, connection};
use self::peer_process::{Peer, role};

#[path = "common/cm_commands.rs"]
mod cm_commands;
#[allow(dead_code)] // Other tests use the rest.
#[path = "common/cm_end.rs"]
mod cm_end;
#[path = "common/peer_process.rs"]
mod peer_process;

/// Port of servers, and addresses of this process and of its peers, which no other test uses.
const PORT: u16 = 7176;
const OWN: &str = "127.0.78.1";
const PEER: &str = "127.0.78.2";

/// Longer than an end of these tests takes to give up (four waits of 134 ms, and 537 ms by an MRA), and
/// shorter than an end with the default options takes (69 s).
const GIVES_UP_WITHIN: Duration = Duration::from_secs(30);

fn end(transport: &str, address: &str) -> End {
    // Messages are retransmitted every 134 ms, three times: a live peer may have to wait for a processor.
    let cm = CmOptions {
        response_timeout: TimeExponent::new(15),
        max_retries: 3,
        service_timeout: TimeExponent::new(17),
        guid: None,
    };
    let (transport, place) = (transport.parse().unwrap(), Place::Address(address.parse().unwrap()));
    End::open(&AdapterConfig { transport, place, cm, ..AdapterConfig::default() })
}

/// How far a connection has come when its peer is killed.
const STEPS: [&str; 4] = ["requested", "answered", "established", "disconnecting"];

/// The peer's program: an end of a connection that stops at a step.
#[test]
#[ignore = "the other process of these tests, which start it"]
fn a_peer_in_another_process() {
    let [transport, side, step] = role().try_into().unwrap();
    let end = end(&transport, PEER);
    let queue_pair = end.queue_pair();
    queue_pair.prepare().unwrap();
    let (channel, qp) = (end.adapter.open_cm_channel().unwrap(), queue_pair.endpoint().qp.value());
    match side.as_str() {
        "client" => connect(&channel, qp, &step),
        _ => accept(&channel, qp, &step),
    }
    println!("\nthere");
    loop {
        thread::park();
    }
}

fn connect(channel: &CmChannel, qp: u32, stops_at: &str) {
    let id = create(channel, 1, TCP);
    resolve(channel, id, SocketAddr::new(OWN.parse().unwrap(), PORT));
    assert_eq!(event(channel).0, ADDRESS_RESOLVED);
    write(channel, RESOLVE_ROUTE, &[&word(id), &word(1000)]).unwrap();
    assert_eq!(event(channel).0, ROUTE_RESOLVED);
    write(channel, CONNECT, &[&parameters(qp), &word(id), &word(0)]).unwrap();
    if stops_at == "requested" {
        return;
    }
    // Over iWARP the connection is established now.
    if event(channel).0 == CONNECT_RESPONSE {
        if stops_at == "answered" {
            return;
        }
        write(channel, ACCEPT, &[&[0; 8], &parameters(0), &word(id), &word(0)]).unwrap();
    }
    if stops_at == "disconnecting" {
        write(channel, DISCONNECT, &[&word(id)]).unwrap();
    }
}

fn accept(channel: &CmChannel, qp: u32, stops_at: &str) {
    let listener = create(channel, 1, TCP);
    bind(channel, listener, SocketAddr::new(PEER.parse().unwrap(), PORT)).unwrap();
    write(channel, LISTEN, &[&word(listener), &word(3)]).unwrap();
    println!("\nlistens");
    let (_, id, _) = event(channel);
    if stops_at == "requested" {
        return;
    }
    write(channel, ACCEPT, &[&2u64.to_ne_bytes(), &parameters(qp), &word(id), &word(0)]).unwrap();
    if stops_at == "answered" {
        return;
    }
    assert_eq!(event(channel).0, ESTABLISHED);
    if stops_at == "disconnecting" {
        write(channel, DISCONNECT, &[&word(id)]).unwrap();
    }
}

/// Lets one test at a time count the descriptors of this process.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `attempt`, which must give up within [`GIVES_UP_WITHIN`].
fn gives_up<T>(attempt: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = attempt();
    assert!(begun.elapsed() < GIVES_UP_WITHIN, "{:?}", begun.elapsed());
    result
}

/// The resources that an end keeps for connections: in its connection manager, bytes of state of the card,
/// descriptors of the process.
fn kept(end: &End) -> (Usage, usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    (end.adapter.cm_usage().unwrap(), end.adapter.card_state_bytes(), descriptors)
}

fn waits_until_it_keeps(end: &End, expected: (Usage, usize, usize), what: &str) {
    let begun = Instant::now();
    while kept(end) != expected {
        assert!(begun.elapsed() < PATIENCE, "{what}: {:?}, not {expected:?}", kept(end));
        thread::sleep(Duration::from_millis(5));
    }
}

/// A connection whose peer is killed once it has come to the step.
fn connection_to_a_client(
    end: &End,
    listener: &Listener,
    peer: &mut Peer,
    step: &str,
) -> Result<Connected, ConnectError> {
    let request = listener.accept(PATIENCE).unwrap().unwrap();
    if step == "requested" {
        peer.hear("there");
        peer.kill();
        return gives_up(|| request.accept(end.queue_pair(), b"", &connection()));
    }
    thread::scope(|scope| {
        let accepting = scope.spawn(|| request.accept(end.queue_pair(), b"", &connection()));
        peer.hear("there");
        peer.kill();
        gives_up(|| accepting.join().unwrap())
    })
}

fn connection_to_a_server(end: &End, peer: &mut Peer) -> Result<Connected, ConnectError> {
    peer.hear("listens");
    let server = SocketAddr::new(PEER.parse().unwrap(), PORT);
    thread::scope(|scope| {
        let connecting = scope.spawn(|| end.connect(server, b""));
        peer.hear("there");
        peer.kill();
        gives_up(|| connecting.join().unwrap())
    })
}

/// Checks that a connection ends if its peer was killed.
fn ends(end: &End, connected: &Connected) {
    if end.adapter.transport() == Transport::Roce {
        // Over RoCE only work requests detect the loss. Over iWARP they may complete, since TCP has accepted
        // them.
        let send = [end.region.slice(0, 100)];
        connected.queue_pair().post_send(&SendRequest::new(2, Operation::Send, &send)).unwrap();
        assert_ne!(end.cq.wait(PATIENCE).unwrap().status, Status::Success);
        connected.disconnect();
    }
    assert!(gives_up(|| connected.wait_disconnected(PATIENCE).unwrap()));
}

/// Kills the peer, which has the role `side`, at each step of a connection.
fn outlives(transport: &str, side: &str) {
    let _turn = turn();
    let end = end(transport, OWN);
    let listener = end.adapter.listen(PORT, 0).unwrap();
    let before = kept(&end);
    for step in STEPS {
        let what = format!("{transport}, the {side} is killed: {step}");
        let mut peer = Peer::start(&format!("{transport} {side} {step}"));
        let connected = match side {
            "client" => connection_to_a_client(&end, &listener, &mut peer, step),
            _ => connection_to_a_server(&end, &mut peer),
        };
        drop(peer);
        // The accepting side waits for the RTU, which iWARP does not have; the connecting side is ready with
        // the answer.
        let stands = match step {
            "requested" => Some(false),
            "answered" => (transport == "roce").then_some(side == "server"),
            _ => Some(true),
        };
        assert!(stands.is_none_or(|stands| stands == connected.is_ok()), "{what}: {connected:?}");
        if let Ok(connected) = connected {
            ends(&end, &connected);
        }
        waits_until_it_keeps(&end, before, &what);
    }
}

#[test]
fn a_server_outlives_clients_that_are_killed_at_each_step() {
    outlives("roce", "client");
}

#[test]
fn a_client_outlives_servers_that_are_killed_at_each_step() {
    outlives("roce", "server");
}

#[test]
fn a_server_outlives_clients_of_iwarp_that_are_killed_at_each_step() {
    outlives("iwarp", "client");
}

#[test]
fn a_client_outlives_servers_of_iwarp_that_are_killed_at_each_step() {
    outlives("iwarp", "server");
}
