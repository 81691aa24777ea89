//! Servers whose client is another program.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use nichrome_hca::{
    Adapter, AdapterConfig, CompletionQueue, Connection, Endpoint, Place, QueuePair, Region, RemoteRegion,
    Transport, exchange, port_of,
};
use nichrome_rdma::{Access, Operation, PathMtu, Psn, QpCapacity, QpNumber, SendRequest, Status};
use serde_json::{Value, json};

use crate::start;

/// Connects to the server that a test has started.
fn meet(port: u16) -> TcpStream {
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Exchanges a value of the client's protocol.
fn tell(stream: &TcpStream, mine: &Value) -> Value {
    exchange(stream, mine).unwrap()
}

/// A client of `bw` with one connection.
struct Client {
    stream: TcpStream,
    region: Region,
    peer: RemoteRegion,
    cq: CompletionQueue,
    /// `None` after the client has destroyed it.
    qp: Option<QueuePair>,
}

impl Client {
    /// Connects to a server of `bw` on `port`, for messages of `size` bytes.
    fn connect(port: u16, transport: Transport, op: &str, size: usize) -> Self {
        let stream = meet(port);
        let place = Place::Address([127, 0, 0, 1].into());
        let adapter = Adapter::open(&AdapterConfig { transport, place, ..AdapterConfig::default() }).unwrap();
        let region = adapter.region(2 * size, Access::NONE).unwrap();
        let cq = adapter.completion_queue(8).unwrap();
        let capacity = QpCapacity { send_wrs: 2, receive_wrs: 1, send_sges: 1, receive_sges: 1, inline: 0 };
        let qp = adapter.queue_pair(capacity, &cq, &cq).unwrap();
        let name = transport.name();
        tell(
            &stream,
            &json!({"transport": name, "op": op, "size": size, "qps": 1, "depth": 1, "regions": "Shared"}),
        );
        let introduction = tell(&stream, &json!({"region": region.remote(), "mtu": 1024}));
        let entries = tell(&stream, &json!([{"endpoint": qp.endpoint(), "region": null}]));
        let endpoint: Endpoint = serde_json::from_value(entries[0]["endpoint"].clone()).unwrap();
        qp.connect(&endpoint, &Connection::new(PathMtu::B1024)).unwrap();
        tell(&stream, &json!({}));
        let peer = serde_json::from_value(introduction["region"].clone()).unwrap();
        Self { stream, region, peer, cq, qp: Some(qp) }
    }

    /// Executes a request with `len` bytes; returns the status of its completion.
    fn execute(&self, operation: Operation, len: usize) -> Status {
        let buffers = [self.region.slice(0, len)];
        self.qp.as_ref().unwrap().post_send(&SendRequest::new(0, operation, &buffers)).unwrap();
        self.cq.wait(Duration::from_secs(10)).unwrap().status
    }

    /// Waits until the server closes the connection.
    fn await_end(&mut self) {
        self.stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        self.stream.read_to_end(&mut Vec::new()).unwrap();
    }
}

/// Returns the error of a server of `bw` whose client executes a request of `len` bytes. After a SEND, the
/// client stays until the server ends; after a WRITE, it ends at once.
fn error_of_server(port: u16, transport: Transport, op: &str, len: usize) -> String {
    let server = start(&format!("bw --transport {} --port {port} --json", transport.name()));
    let mut client = Client::connect(port, transport, op, 64);
    match op {
        "send" => {
            client.execute(Operation::Send, len);
            client.await_end();
        }
        _ => {
            client.execute(Operation::Write(client.peer.at(0)), len);
            drop(client);
        }
    }
    let output = server.wait_with_output().unwrap();
    assert!(output.stdout.is_empty() && output.status.code() == Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_server_of_sends_ends_when_a_receive_fails() {
    for (port, transport) in (22_000..).zip([Transport::Roce, Transport::Star, Transport::Iwarp]) {
        let error = error_of_server(port, transport, "send", 128);
        assert_eq!(error, "nichrome: Receive completed in error: LocalLength\n");
    }
}

#[test]
fn a_server_whose_client_leaves_its_iwarp_stream_says_so() {
    let server = start("bw --transport iwarp --port 22004 --json");
    let mut client = Client::connect(22_004, Transport::Iwarp, "send", 64);
    client.execute(Operation::Send, 64);
    drop(client.qp.take());
    client.await_end();
    let error = String::from_utf8(server.wait_with_output().unwrap().stderr).unwrap();
    assert_eq!(error, "nichrome: Receive completed in error: Flushed: the stream was closed or lost\n");
}

#[test]
fn a_server_of_writes_names_the_refusal_that_ended_the_connection() {
    for (port, transport, why) in [
        (22_010, Transport::Roce, "a request of the peer was refused"),
        (22_011, Transport::Star, "a request of the peer was refused"),
        (22_012, Transport::Iwarp, "the peer accessed memory without the access right"),
    ] {
        let error = error_of_server(port, transport, "write", 128);
        assert_eq!(error, format!("nichrome: a connection has failed: {why}\n"));
    }
}

/// Sends a server of `bw` over iWARP the `endpoints` of a client, one per connection, then calls `act`;
/// returns the server's error.
fn error_of_set_up(port: u16, endpoints: &[Endpoint], act: impl FnOnce(&TcpStream, &Endpoint)) -> String {
    let server = start(&format!("bw --transport iwarp --port {port} --json"));
    let stream = meet(port);
    let offer = json!({"transport": "iwarp", "op": "send", "size": 64, "depth": 1, "regions": "Shared"});
    let mut offer: serde_json::Map<_, _> = serde_json::from_value(offer).unwrap();
    offer.insert("qps".into(), endpoints.len().into());
    exchange(&stream, &offer).unwrap();
    tell(&stream, &json!({"region": {"address": 0, "rkey": 0, "len": 64}, "mtu": 1024}));
    let entries = endpoints.iter().map(|endpoint| json!({"endpoint": endpoint, "region": null}));
    let theirs = tell(&stream, &entries.collect());
    act(&stream, &serde_json::from_value(theirs[0]["endpoint"].clone()).unwrap());
    let output = server.wait_with_output().unwrap();
    assert!(output.stdout.is_empty() && output.status.code() == Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// The set-up of some connections fails while the server still moves their queue pairs to RTS.
#[test]
fn a_server_whose_client_is_not_reached_names_the_reason() {
    let endpoint = |qp| Endpoint {
        address: [127, 255, 255, 254].into(),
        qp: QpNumber::new(qp).unwrap(),
        psn: Psn::new(1),
    };
    let endpoints: Vec<_> = (100..600).map(endpoint).collect();
    let error = error_of_set_up(22_021, &endpoints, |_, _| {});
    let (reasons, last) = error.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(last, "nichrome: 500 of 500 connections could not be set up");
    assert!(reasons.lines().next().unwrap().ends_with("(Connection refused (os error 111))"), "{reasons}");
}

#[test]
fn a_server_whose_client_sends_no_mpa_request_says_so() {
    let endpoint =
        Endpoint { address: [127, 0, 0, 1].into(), qp: QpNumber::new(100).unwrap(), psn: Psn::new(1) };
    let error = error_of_set_up(22_022, &[endpoint], |stream, server| {
        let mut connection = TcpStream::connect((server.address, port_of(server.qp))).unwrap();
        connection.write_all(&[b'x'; 64]).unwrap();
        // The server refuses it.
        let _ = connection.read_to_end(&mut Vec::new());
        stream.shutdown(Shutdown::Both).unwrap();
    });
    let expected = "nichrome: the peer has ended during the set-up of 1 connection: \
                    a connection began with no MPA Request\n";
    assert_eq!(error, expected);
}
