//! The key-value store of `examples/near_and_far`: a client's reports of servers that lie, die or are slow,
//! and a server's reports of clients.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::iter;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use nichrome_hca::cm::{ConnectError, Connected, Listener};
use nichrome_hca::reach::answer_probe;
use nichrome_hca::{Adapter, AdapterConfig, Connection, Place, RemoteRegion, Transport};
use nichrome_rdma::{Access, Operation, QpCapacity, ReceiveRequest, SendRequest, Status};
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use self::slots::{Found, SLOT, decode, insert};

#[path = "../examples/common/slots.rs"]
#[allow(dead_code)]
mod slots;

const PATIENCE: Duration = Duration::from_secs(20);
const PORT: u16 = 7300;

/// Slots of the tables of the servers that these tests play.
const SLOTS: usize = 64;

const BOTH: [Transport; 2] = [Transport::Roce, Transport::Iwarp];

/// The example, which was built beside this test.
fn example() -> PathBuf {
    let this = std::env::current_exe().unwrap();
    this.parent().and_then(|deps| deps.parent()).unwrap().join("examples/near_and_far")
}

/// A client's command, at an address of its own, that reaches all peers by `transport`.
fn ask(
    from: &str,
    transport: Transport,
    book: &[(&str, SocketAddr)],
    arguments: &[&str],
) -> (TempDir, Command) {
    let room = tempdir().unwrap();
    let file = room.path().join("book");
    let lines: String = book.iter().map(|(name, address)| format!("{name} {address}\n")).collect();
    fs::write(&file, lines).unwrap();
    let near_us = if transport == Transport::Roce { "1000000" } else { "0" };
    let mut command = Command::new(example());
    command.args(["ask", "--json", "--from", from, "--near-us", near_us, "--book"]).arg(file).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    (room, command)
}

/// A client's report of the only server in its address book.
fn said(from: &str, transport: Transport, server: SocketAddr) -> String {
    let (_room, mut command) = ask(from, transport, &[("peer", server)], &["--keys", "3", "--gets", "10"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    only_error(&output)
}

/// The only line of a client that is an error.
fn only_error(output: &Output) -> String {
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    let errors: Vec<_> = stderr.lines().filter_map(|line| line.strip_prefix("near_and_far: ")).collect();
    let [error] = errors[..] else { panic!("{stderr}") };
    error.to_owned()
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Builds a server's description of its table.
type Introduce = fn(RemoteRegion) -> Vec<u8>;

/// How a server that a test plays differs from the example's.
#[derive(Clone, Copy)]
struct Part {
    transport: Transport,
    introduce: Introduce,
    /// The answer to a PUT of a key; `None` for none.
    answer: fn(u64) -> Option<Vec<u8>>,
}

fn truthful(table: RemoteRegion) -> Vec<u8> {
    let table = serde_json::to_value(table).unwrap();
    serde_json::to_vec(&serde_json::json!({ "protocol": "near_and_far 1", "slots": SLOTS, "table": table }))
        .unwrap()
}

fn stored(key: u64) -> Option<Vec<u8>> {
    Some([&key.to_be_bytes()[..], &[0]].concat())
}

impl Part {
    const fn honest(transport: Transport) -> Self {
        Self { transport, introduce: truthful, answer: stored }
    }

    /// Plays a server for one client, at an address that nothing else uses.
    fn play(self) -> SocketAddr {
        static PLAYED: AtomicU8 = AtomicU8::new(1);
        let host = PLAYED.fetch_add(1, Ordering::Relaxed);
        let adapter = adapter_at(self.transport, Ipv4Addr::new(127, 0, 84, host).into());
        let listener = adapter.listen(PORT, 0).unwrap();
        let address = listener.address();
        let probes = UdpSocket::bind(address).unwrap();
        thread::spawn(move || while answer_probe(&probes).is_ok() {});
        thread::spawn(move || self.serve(&adapter, &listener));
        address
    }

    fn serve(self, adapter: &Adapter, listener: &Listener) {
        let table = adapter.region(SLOTS * SLOT, Access::REMOTE_READ).unwrap();
        let messages = adapter.region(2 * SLOT, Access::NONE).unwrap();
        let completions = adapter.completion_queue(4).unwrap();
        let queue_pair = adapter.queue_pair(capacity(), &completions, &completions).unwrap();
        queue_pair.prepare().unwrap();
        let receive = ReceiveRequest { wr_id: 0, buffers: &[messages.slice(0, SLOT)] };
        queue_pair.post_receive(&receive).unwrap();
        let request = listener.accept(PATIENCE).unwrap().unwrap();
        let connection = Connection::new(adapter.mtu());
        let connected = request.accept(queue_pair, &(self.introduce)(table.remote()), &connection).unwrap();
        while let Some(done) = completions.wait(PATIENCE) {
            match (done.status, done.operation) {
                (Status::Success, nichrome_rdma::CompletedOperation::Receive) => {}
                (Status::Success, _) => continue,
                _ => return,
            }
            let message = messages.with(|bytes| bytes[..SLOT].to_vec());
            let Found::Entry(key, value) = decode(&message) else { panic!("no PUT: {message:?}") };
            assert!(table.with(|table| insert(table, key, &value)));
            connected.queue_pair().post_receive(&receive).unwrap();
            let Some(answer) = (self.answer)(key) else { continue };
            messages.with(|bytes| bytes[SLOT..][..answer.len()].copy_from_slice(&answer));
            let buffers = [messages.slice(SLOT, answer.len())];
            connected.queue_pair().post_send(&SendRequest::new(1, Operation::Send, &buffers)).unwrap();
        }
    }
}

fn adapter_at(transport: Transport, address: IpAddr) -> Adapter {
    let place = Place::Address(address);
    Adapter::open(&AdapterConfig { transport, place, ..AdapterConfig::default() }).unwrap()
}

fn capacity() -> QpCapacity {
    QpCapacity { send_wrs: 4, receive_wrs: 4, send_sges: 1, receive_sges: 1, inline: 0 }
}

/// A server of the example. It is killed when this is dropped.
struct Server {
    child: Child,
    address: SocketAddr,
    lines: Lines<BufReader<ChildStderr>>,
}

impl Server {
    fn start(address: &str) -> Self {
        let address = SocketAddr::new(address.parse().unwrap(), PORT);
        let mut child = Command::new(example())
            .args(["serve", &address.to_string()])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut server = Self { child, address, lines };
        assert_eq!(server.line(), format!("serving at {address}"));
        server
    }

    /// The next line that it prints.
    fn line(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// A client of the example's server that does not keep to its protocol.
struct Stranger {
    _adapter: Adapter,
    completions: nichrome_hca::CompletionQueue,
    region: nichrome_hca::Region,
    connected: Connected,
}

impl Stranger {
    fn connect(adapter: &Adapter, server: SocketAddr) -> Result<Self, ConnectError> {
        let region = adapter.region(SLOT, Access::NONE).unwrap();
        let completions = adapter.completion_queue(4).unwrap();
        let queue_pair = adapter.queue_pair(capacity(), &completions, &completions).unwrap();
        let connected = adapter.connect(server, queue_pair, b"", &Connection::new(adapter.mtu()))?;
        Ok(Self { _adapter: adapter.clone(), completions, region, connected })
    }

    /// The address of the table that the server has sent.
    fn table(&self) -> RemoteRegion {
        let introduction: Vec<u8> =
            self.connected.private_data().iter().copied().take_while(|byte| *byte != 0).collect();
        let introduction: Value = serde_json::from_slice(&introduction).unwrap();
        serde_json::from_value(introduction["table"].clone()).unwrap()
    }

    fn post(&self, operation: Operation, len: usize) -> Status {
        let buffers = [self.region.slice(0, len)];
        self.connected.queue_pair().post_send(&SendRequest::new(1, operation, &buffers)).unwrap();
        self.completions.wait(PATIENCE).unwrap().status
    }
}

/// Asserts that a server serves: puts all keys, and gets them by READs.
fn serves(from: &str, transport: Transport, server: SocketAddr) {
    let (_room, mut command) = ask(from, transport, &[("peer", server)], &["--keys", "50", "--gets", "100"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let peer = &report(&output)["peers"][0];
    assert_eq!((&peer["get"]["count"], &peer["put"]["count"]), (&Value::from(100), &Value::from(50)));
    assert_eq!((&peer["transport"], &peer["error"]), (&Value::from(transport.name()), &Value::Null));
}

#[test]
fn a_server_has_the_same_store_over_both_transports() {
    let server = Server::start("127.0.83.1");
    for transport in BOTH {
        serves("127.0.83.2", transport, server.address);
    }
}

#[test]
fn a_server_that_is_played_truthfully_is_believed() {
    for transport in BOTH {
        serves("127.0.83.3", transport, Part::honest(transport).play());
    }
}

#[test]
fn a_missing_table_is_an_error_of_the_first_get() {
    fn wrong_key(table: RemoteRegion) -> Vec<u8> {
        let mut introduction: Value = serde_json::from_slice(&truthful(table)).unwrap();
        let key = &mut introduction["table"]["rkey"];
        *key = (key.as_u64().unwrap() ^ 0x100).into();
        serde_json::to_vec(&introduction).unwrap()
    }
    fn too_long(table: RemoteRegion) -> Vec<u8> {
        let mut introduction: Value = serde_json::from_slice(&truthful(table)).unwrap();
        introduction["slots"] = (1 << 20).into();
        introduction["table"]["len"] = (SLOT << 20).into();
        serde_json::to_vec(&introduction).unwrap()
    }
    // Over iWARP a refusal ends the connection, and requests are flushed.
    for (transport, told) in [
        (Transport::Roce, "remote access error: wrong address or key of the peer's table"),
        (Transport::Iwarp, "the connection has ended"),
    ] {
        for introduce in [wrong_key, too_long] {
            let server = Part { introduce, ..Part::honest(transport) }.play();
            let said = said("127.0.83.4", transport, server);
            assert_eq!(said, format!("peer: GET: {told}"), "{transport:?}");
        }
    }
}

#[test]
fn an_introduction_that_cannot_be_true_is_refused() {
    fn of(slots: u64, len: u64) -> Vec<u8> {
        let table = serde_json::json!({ "address": 65_536, "rkey": 7, "len": len });
        serde_json::to_vec(
            &serde_json::json!({ "protocol": "near_and_far 1", "slots": slots, "table": table }),
        )
        .unwrap()
    }
    let parts: [(Introduce, &str); 5] = [
        (|_| b"hello".to_vec(), "the peer is not a server of this store"),
        (|_| Vec::new(), "the peer is not a server of this store"),
        (|_| of(0, 0), "the peer says that its table has 0 slots in 0 bytes"),
        (|_| of(4, 255), "the peer says that its table has 4 slots in 255 bytes"),
        (|_| of(1 << 62, 0), "the peer says that its table has 4611686018427387904 slots in 0 bytes"),
    ];
    for transport in BOTH {
        for (introduce, told) in parts {
            let server = Part { introduce, ..Part::honest(transport) }.play();
            assert_eq!(said("127.0.83.5", transport, server), format!("peer: {told}"));
        }
    }
}

#[test]
fn wrong_answers_to_a_put_are_named() {
    type Answer = fn(u64) -> Option<Vec<u8>>;
    let parts: [(Answer, &str); 5] = [
        (|_| Some(vec![7; 3]), "PUT: 3 bytes that are no answer to it"),
        (|key| stored(key + 1), "PUT: 9 bytes that are no answer to it"),
        (|_| Some(vec![7; 30]), "PUT: the peer's answer is too long"),
        (|key| Some([&key.to_be_bytes()[..], &[1]].concat()), "PUT: the peer's table is full"),
        (|_| None, "PUT: no answer for 5s"),
    ];
    for transport in BOTH {
        for (answer, told) in parts {
            let server = Part { answer, ..Part::honest(transport) }.play();
            assert_eq!(said("127.0.83.6", transport, server), format!("peer: {told}"), "{transport:?}");
        }
    }
}

#[test]
fn a_slow_program_delays_puts_and_no_get() {
    const SLOW: Duration = Duration::from_millis(50);
    for transport in BOTH {
        let answer = |key| {
            thread::sleep(SLOW);
            stored(key)
        };
        let server = Part { answer, ..Part::honest(transport) }.play();
        let (_room, mut command) =
            ask("127.0.83.7", transport, &[("slow", server)], &["--keys", "5", "--gets", "200"]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let peer = &report(&output)["peers"][0];
        let [get, put] = ["get", "put"].map(|of| peer[of]["p50_us"].as_f64().unwrap());
        assert!(put > SLOW.as_secs_f64() * 1e6 && get < put / 2.0, "{peer}");
    }
}

#[test]
fn a_server_that_dies_fails_its_keys_and_no_others() {
    for (transport, told) in
        [(Transport::Roce, "the peer has stopped answering"), (Transport::Iwarp, "the connection has ended")]
    {
        let (stays, dies) = (Server::start("127.0.83.8"), Server::start("127.0.83.9"));
        let book = [("stays", stays.address), ("dies", dies.address)];
        let (_room, mut command) =
            ask("127.0.83.10", transport, &book, &["--keys", "50", "--gets", "100000"]);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        assert_eq!(lines.next().unwrap(), "50 keys are put");
        drop(dies);
        assert_eq!(lines.next().unwrap(), format!("near_and_far: dies: GET: {told}"));
        assert_eq!(lines.next(), None);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let peers = &report(&output)["peers"];
        let gets = [0, 1].map(|nth: usize| peers[nth]["get"]["count"].as_u64().unwrap());
        assert!(gets[0] > gets[1] && gets[0] > 30_000, "{peers}");
        assert_eq!(
            [&peers[0]["error"], &peers[1]["error"]],
            [&Value::Null, &Value::from(format!("GET: {told}"))]
        );
    }
}

#[test]
fn a_server_missing_at_its_address_is_named() {
    let nobody = SocketAddr::new("127.0.83.11".parse().unwrap(), PORT);
    let said = said("127.0.83.12", Transport::Roce, nobody);
    assert_eq!(said, format!("peer: {nobody} does not answer probes"));
}

#[test]
fn strangers_do_not_disturb_a_server() {
    let mut server = Server::start("127.0.83.13");
    for transport in BOTH {
        let adapter = adapter_at(transport, "127.0.83.14".parse().unwrap());
        let babbles = Stranger::connect(&adapter, server.address).unwrap();
        babbles.post(Operation::Send, 10);
        assert!(babbles.connected.wait_disconnected(PATIENCE).unwrap(), "it is not served any more");
        let line = server.line();
        assert!(line.ends_with(": a message of 10 bytes is no PUT"), "{line}");
        let reaches = Stranger::connect(&adapter, server.address).unwrap();
        let table = reaches.table();
        let refused = reaches.post(Operation::Read(table.at(table.len - 1)), 2);
        assert_eq!(
            refused,
            if transport == Transport::Roce { Status::RemoteAccess } else { Status::Flushed }
        );
        serves("127.0.83.15", transport, server.address);
    }
}

#[test]
fn a_table_is_not_for_writing() {
    let server = Server::start("127.0.83.16");
    for transport in BOTH {
        let adapter = adapter_at(transport, "127.0.83.17".parse().unwrap());
        let writes = Stranger::connect(&adapter, server.address).unwrap();
        // Over iWARP a WRITE completes when TCP has taken it.
        writes.post(Operation::Write(writes.table().at(0)), SLOT);
        assert!(writes.connected.wait_disconnected(PATIENCE).unwrap());
        serves("127.0.83.18", transport, server.address);
    }
}

#[test]
fn clients_beyond_the_limit_are_rejected_and_places_become_free() {
    let server = Server::start("127.0.83.19");
    for transport in BOTH {
        let adapter = adapter_at(transport, "127.0.83.20".parse().unwrap());
        // Retries: after clients have left, the server notices the end of each on its own.
        let connect =
            || iter::repeat_with(|| Stranger::connect(&adapter, server.address).ok()).flatten().next();
        let clients: Vec<Option<Stranger>> = (0..64).map(|_| connect()).collect();
        let refused = Stranger::connect(&adapter, server.address).err().unwrap();
        let ConnectError::Rejected(data) = refused else { panic!("{refused}") };
        assert!(data.starts_with(b"the server has its maximum of 64 clients"));
        drop(clients);
        assert!(connect().is_some());
    }
}

#[test]
fn a_client_that_is_killed_is_noticed() {
    let mut server = Server::start("127.0.83.21");
    let (_room, mut command) = ask(
        "127.0.83.22",
        Transport::Roce,
        &[("peer", server.address)],
        &["--keys", "1", "--gets", "1000000000"],
    );
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "1 keys are put");
    child.kill().unwrap();
    child.wait().unwrap();
    let line = server.line();
    assert!(line.ends_with(": the connection has failed: RetryExceeded"), "{line}");
}

#[test]
fn wrong_address_books_are_refused_in_one_line() {
    let room = tempdir().unwrap();
    let book = room.path().join("book");
    let shown = book.display();
    for (text, told) in [
        ("", format!("{shown} has no server")),
        ("near 127.0.0.1:7300\nfar\n", format!("{shown}, line 2: 'far' is not NAME ADDRESS:PORT")),
        ("far 10.0.0.1\n", format!("{shown}, line 1: 'far 10.0.0.1' is not NAME ADDRESS:PORT")),
    ] {
        fs::write(&book, text).unwrap();
        let output = Command::new(example())
            .args(["ask", "--from", "127.0.0.1", "--book"])
            .arg(&book)
            .output()
            .unwrap();
        assert_eq!((output.status.code(), only_error(&output)), (Some(1), told));
    }
}
