//! Against the soft-iWARP device (siw) of a Linux kernel: `scripts/siw-kernel-peer` boots one and runs these
//! tests.
//!
//! The kernel's side is rping of rdma-core, in both roles: a SEND names a region, which the server READs, and
//! a second one that it WRITEs to; and for messages that rping does not send, a program that takes commands
//! over TCP.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

use std::net::SocketAddr;
use std::time::Duration;

use nichrome_hca::cm::ConnectError;
use nichrome_hca::{
    Adapter, AdapterConfig, CompletionQueue, Connection, IwarpOptions, Listener, Place, QueuePair, Region,
    Transport,
};
use nichrome_rdma::{
    Access, CompletedOperation, Completion, Operation, PathMtu, QpCapacity, RKey, ReceiveRequest, Remote,
    SendRequest, Status,
};
use serde_json::{Value, json};

#[path = "common/kernel.rs"]
mod kernel;
use kernel::{FAULTS, PATIENCE, Peer, pattern};

/// The environment variable with the address and port of tests/rdma/siw_peer.py.
const PEER: &str = "NICHROME_SIW_PEER";
/// The longest buffer of rping.
const LEN: usize = 65_536;
/// Lengths of rping's buffers, including the terminating zero.
const SIZES: [usize; 4] = [64, 1023, 10_000, 65_535];
/// From a byte to 1 MB, around the segment lengths of both sides.
const ALL_SIZES: [usize; 8] = [1, 2, 3, 1023, 1425, 65_487, 65_536, REGION];
/// The port of rping's server.
const RPING_PORT: u16 = 7174;

const REGION: usize = 1 << 20;
/// How long siw may take to bring a queue pair to RTS after its Reply. siw forgets data that arrives
/// meanwhile, until more arrives: siw_qp_llp_data_ready gives up where the state is locked. The guest is
/// slow.
const SIW_RTS: Duration = Duration::from_millis(500);

/// Offsets in the region: rping's two buffers, the SEND and the receive.
const START: usize = 0;
const TARGET: usize = LEN;
const SEND: usize = 2 * LEN;
const RECEIVE: usize = 2 * LEN + 16;

/// An end on Nichrome.
struct End {
    region: Region,
    cq: CompletionQueue,
    qp: QueuePair,
    adapter: Adapter,
}

impl End {
    /// An end with a receive for the first SEND of rping.
    fn open(peer: &Peer, crc: bool) -> Self {
        let end = Self::without_receives(peer, crc);
        end.post_receive(RECEIVE, 16);
        end
    }

    fn without_receives(peer: &Peer, crc: bool) -> Self {
        let place = Place::Address(peer.addresses()[0].ip());
        let iwarp = IwarpOptions { crc, ..IwarpOptions::default() };
        let config = AdapterConfig { transport: Transport::Iwarp, place, iwarp, ..AdapterConfig::default() };
        let adapter = Adapter::open(&config).unwrap();
        let region = adapter.region(REGION, Access::REMOTE_WRITE | Access::REMOTE_READ).unwrap();
        let cq = adapter.completion_queue(64).unwrap();
        let capacity = QpCapacity { send_wrs: 16, receive_wrs: 16, send_sges: 1, receive_sges: 1, inline: 0 };
        let qp = adapter.queue_pair(capacity, &cq, &cq).unwrap();
        qp.prepare().unwrap();
        Self { region, cq, qp, adapter }
    }

    fn post_receive(&self, at: usize, len: usize) {
        let buffers = [self.region.slice(at, len)];
        self.qp.post_receive(&ReceiveRequest { wr_id: 1, buffers: &buffers }).unwrap();
    }

    fn post(&self, operation: Operation, at: usize, len: usize) {
        self.qp.post_send(&SendRequest::new(2, operation, &[self.region.slice(at, len)])).unwrap();
    }

    fn next(&self) -> Completion {
        self.cq.wait(PATIENCE).expect("a completion")
    }

    /// SENDs the content of rping's SENDs: address, key and length of a region.
    fn advertise(&self, remote: Remote, len: usize) {
        let words =
            [&remote.address.to_be_bytes()[..], &remote.rkey.0.to_be_bytes(), &(len as u32).to_be_bytes()];
        self.region.with(|bytes| bytes[SEND..SEND + 16].copy_from_slice(&words.concat()));
        self.post(Operation::Send, SEND, 16);
    }

    /// The region that the peer has advertised. A SEND of this end may complete before.
    fn advertised(&self) -> (Remote, usize) {
        while self.next_success().operation != CompletedOperation::Receive {}
        let words = self.region.with(|bytes| bytes[RECEIVE..RECEIVE + 16].to_vec());
        self.post_receive(RECEIVE, 16);
        let word = |at: usize| u32::from_be_bytes(words[at..at + 4].try_into().unwrap());
        let address = u64::from_be_bytes(words[..8].try_into().unwrap());
        (Remote { address, rkey: RKey(word(8)) }, word(12) as usize)
    }

    fn next_success(&self) -> Completion {
        let done = self.next();
        assert_eq!(done.status, Status::Success, "{done:?}");
        done
    }

    /// Does one round of rping's server.
    fn serve(&self) {
        let (remote, len) = self.advertised();
        self.post(Operation::Read(remote), START, len);
        while self.next_success().operation != CompletedOperation::Read {}
        let ping = self.region.with(|bytes| bytes[START..START + len].to_vec());
        assert!(ping.starts_with(b"rdma-ping-") && ping.last() == Some(&0), "{ping:?}");
        self.post(Operation::Send, SEND, 16);
        let (remote, len) = self.advertised();
        self.post(Operation::Write(remote), START, len);
        self.post(Operation::Send, SEND, 16);
    }

    /// Does one round of rping's client: the server writes back what it has read.
    fn ping(&self, nth: usize, len: usize) {
        let text = (0..len - 1).map(|at| b'A' + ((at * 7 + nth) % 57) as u8).chain([0]).collect::<Vec<_>>();
        self.region.with(|bytes| bytes[START..START + len].copy_from_slice(&text));
        self.region.with(|bytes| bytes[TARGET..TARGET + len].fill(0));
        self.advertise(self.region.remote().at(START), len);
        self.advertised();
        self.advertise(self.region.remote().at(TARGET), len);
        self.advertised();
        assert!(self.region.with(|bytes| bytes[TARGET..TARGET + len] == text), "{len} bytes");
    }
}

/// rping asks for one READ at a time.
fn connection() -> Connection {
    Connection { rd_atomic: 1, ..Connection::new(PathMtu::B1024) }
}

/// Starts a program of the peer.
fn start(peer: &mut Peer, line: &str) {
    peer.ask("start", json!({"command": line.split(' ').collect::<Vec<_>>()}));
}

/// Listens, and accepts the peer's rping.
fn accepted(peer: &mut Peer, end: &End, arguments: &str) {
    let here = SocketAddr::new(end.adapter.address(), 0);
    let listener = Listener::bind(here).unwrap();
    let here = listener.address().unwrap();
    start(peer, &format!("rping -c -a {} -p {} {arguments}", here.ip(), here.port()));
    end.qp.accept(listener.accept().unwrap(), &[], &connection()).unwrap();
}

/// Connects to the peer's rping, which takes a moment to listen.
fn connected(peer: &mut Peer, end: &End, arguments: &str) {
    start(peer, &format!("rping -s -a 10.77.0.1 -p {RPING_PORT} {arguments}"));
    let address = SocketAddr::new(peer.addresses()[1].ip(), RPING_PORT);
    let attempts = (0..100).find_map(|_| match end.qp.connect_to(address, &[], &connection()) {
        Ok(data) => Some(data),
        Err(nichrome_hca::EstablishError::Tcp(_)) => {
            std::thread::sleep(Duration::from_millis(100));
            None
        }
        Err(error) => panic!("{error}"),
    });
    attempts.expect("rping listens");
    std::thread::sleep(SIW_RTS);
}

fn messages_of_every_size_arrive_both_ways(peer: &mut Peer, sizes: &[usize], crc: bool) {
    for size in sizes {
        let end = End::open(peer, crc);
        accepted(peer, &end, &format!("-V -S {size} -C 5"));
        (0..5).for_each(|_| end.serve());
        let answer = peer.ask("finish", json!({}));
        assert_eq!(answer["status"], 0, "{}", answer["output"]);
        let end = End::open(peer, crc);
        connected(peer, &end, "-S 65535 -C 5");
        (0..5).for_each(|nth| end.ping(nth, *size));
        drop(end);
        peer.ask("finish", json!({}));
    }
}

#[test]
#[ignore = "needs the kernel peer"]
fn messages_arrive_with_and_without_crc() {
    let mut peer = Peer::connect(PEER);
    for crc in [false, true] {
        messages_of_every_size_arrive_both_ways(&mut peer, &SIZES, crc);
    }
}

/// A connection with the peer's program that takes commands, and the peer's region.
struct Told {
    end: End,
    remote: Remote,
}

impl Told {
    fn accepted(peer: &mut Peer, crc: bool) -> Self {
        let end = End::without_receives(peer, crc);
        let listener = Listener::bind(SocketAddr::new(end.adapter.address(), 0)).unwrap();
        let here = listener.address().unwrap();
        peer.begin("connect", json!({"size": REGION, "address": here.ip(), "port": here.port()}));
        end.qp.accept(listener.accept().unwrap(), &[], &connection()).unwrap();
        Self { end, remote: remote(&peer.end("connect")) }
    }

    fn connected(peer: &mut Peer, crc: bool) -> Self {
        let end = End::without_receives(peer, crc);
        let told = peer.ask("listen", json!({"size": REGION, "address": peer.addresses()[1].ip()}));
        let port = u16::try_from(told["port"].as_u64().unwrap()).unwrap();
        peer.begin("accept", json!({}));
        end.qp.connect_to(SocketAddr::new(peer.addresses()[1].ip(), port), &[], &connection()).unwrap();
        let remote = remote(&peer.end("accept"));
        std::thread::sleep(SIW_RTS);
        Self { end, remote }
    }

    fn fill(&self, seed: u8, len: usize) {
        self.end.region.with(|bytes| bytes[..len].copy_from_slice(&pattern(seed, len)));
    }

    fn holds(&self, seed: u8, len: usize) {
        assert!(self.end.region.with(|bytes| bytes[..len] == pattern(seed, len)), "{len} bytes");
    }

    fn does(&self, operation: Operation, len: usize, expected: CompletedOperation) {
        self.end.post(operation, 0, len);
        assert_eq!(self.end.next_success().operation, expected);
    }

    fn kernel_does(&self, peer: &mut Peer, operation: &str, len: usize) {
        let region = self.end.region.remote().at(0);
        let with =
            json!({"operation": operation, "length": len, "addr": region.address, "rkey": region.rkey.0});
        assert_eq!(peer.ask("post", with)["statuses"], json!([0]), "the kernel's {operation} of {len} bytes");
    }

    /// A WRITE completes before the peer has placed its bytes: a READ behind it, on the same stream, finds
    /// them.
    fn writes_reads_and_sends(&self, peer: &mut Peer, len: usize) {
        self.fill(1, len);
        self.does(Operation::Write(self.remote), len, CompletedOperation::Write);
        self.fill(2, len);
        self.does(Operation::Read(self.remote), len, CompletedOperation::Read);
        self.holds(1, len);
        peer.holds(1, len);
        peer.ask("receive", json!({"length": len}));
        self.fill(3, len);
        self.does(Operation::Send, len, CompletedOperation::Send);
        assert_eq!(peer.ask("wait", json!({}))["received"][0]["length"], len);
        peer.holds(3, len);
    }

    fn kernel_writes_reads_and_sends(&self, peer: &mut Peer, len: usize) {
        peer.ask("fill", json!({"seed": 4, "length": len}));
        self.kernel_does(peer, "write", len);
        peer.ask("fill", json!({"seed": 5, "length": len}));
        self.kernel_does(peer, "read", len);
        self.holds(4, len);
        peer.holds(4, len);
        self.end.post_receive(0, len);
        peer.ask("fill", json!({"seed": 6, "length": len}));
        self.kernel_does(peer, "send", len);
        let done = self.end.next_success();
        assert_eq!((done.operation, done.len as usize), (CompletedOperation::Receive, len));
        self.holds(6, len);
    }
}

fn remote(told: &Value) -> Remote {
    let rkey = RKey(u32::try_from(told["rkey"].as_u64().unwrap()).unwrap());
    Remote { address: told["addr"].as_u64().unwrap(), rkey }
}

fn bytes_of_every_size_arrive_both_ways(peer: &mut Peer, sizes: &[usize], crc: bool) {
    for open in [Told::accepted, Told::connected] {
        let connection = open(peer, crc);
        for len in sizes {
            // A responder sends only after the initiator's first FPDU (RFC 5044 section 7.1). The kernel has
            // both roles.
            connection.kernel_writes_reads_and_sends(peer, *len);
            connection.writes_reads_and_sends(peer, *len);
        }
        peer.ask("close", json!({}));
    }
}

#[test]
#[ignore = "needs the kernel peer"]
fn every_message_arrives_from_a_byte_to_a_megabyte() {
    let mut peer = Peer::connect(PEER);
    for crc in [false, true] {
        bytes_of_every_size_arrive_both_ways(&mut peer, &ALL_SIZES, crc);
    }
}

#[test]
#[ignore = "needs the kernel peer"]
fn messages_arrive_over_a_path_that_loses_and_reorders() {
    let mut peer = Peer::connect(PEER);
    peer.ask("netem", json!({"faults": FAULTS}));
    messages_of_every_size_arrive_both_ways(&mut peer, &[64, 65_535], true);
    bytes_of_every_size_arrive_both_ways(&mut peer, &[1, REGION], true);
    peer.ask("netem", json!({}));
}

/// Waits for the first SEND of the peer.
fn receives(cq: &CompletionQueue) {
    loop {
        let done = cq.wait(PATIENCE).expect("a completion");
        assert_eq!(done.status, Status::Success, "{done:?}");
        if done.operation == CompletedOperation::Receive {
            return;
        }
    }
}

#[test]
#[ignore = "needs the kernel peer"]
fn the_connection_manager_connects_with_rping_in_both_directions() {
    let mut peer = Peer::connect(PEER);
    let End { region: _region, cq, qp, adapter } = End::open(&peer, false);
    let listener = adapter.listen(0, 0).unwrap();
    let here = listener.address();
    start(&mut peer, &format!("rping -c -a {} -p {} -S 64 -C 1", here.ip(), here.port()));
    let request = listener.accept(PATIENCE).unwrap().expect("a request");
    let server = request.accept(qp, &[], &connection()).unwrap();
    receives(&cq);
    drop(server);
    peer.ask("finish", json!({}));

    let End { region, cq, qp, adapter } = End::open(&peer, true);
    start(&mut peer, &format!("rping -s -a 10.77.0.1 -p {RPING_PORT} -S 64 -C 1"));
    let address = SocketAddr::new(peer.addresses()[1].ip(), RPING_PORT);
    let mut qp = Some(qp);
    let client = (0..100).find_map(|_| {
        let next = qp.take().unwrap_or_else(|| {
            let capacity =
                QpCapacity { send_wrs: 16, receive_wrs: 16, send_sges: 1, receive_sges: 1, inline: 0 };
            adapter.queue_pair(capacity, &cq, &cq).unwrap()
        });
        match adapter.connect(address, next, &[], &connection()) {
            Ok(connected) => Some(connected),
            Err(ConnectError::NoListener) => {
                std::thread::sleep(Duration::from_millis(100));
                None
            }
            Err(error) => panic!("{error}"),
        }
    });
    let client = client.expect("rping listens");
    std::thread::sleep(SIW_RTS);
    let buffers = [region.slice(RECEIVE, 16)];
    client.queue_pair().post_receive(&ReceiveRequest { wr_id: 3, buffers: &buffers }).unwrap();
    let remote = region.remote().at(START);
    let words = [&remote.address.to_be_bytes()[..], &remote.rkey.0.to_be_bytes(), &64_u32.to_be_bytes()];
    region.with(|bytes| bytes[SEND..SEND + 16].copy_from_slice(&words.concat()));
    let buffers = [region.slice(SEND, 16)];
    client.queue_pair().post_send(&SendRequest::new(2, Operation::Send, &buffers)).unwrap();
    receives(&cq);
    drop(client);
    peer.ask("finish", json!({}));
}

#[test]
#[ignore = "needs the kernel peer"]
fn a_write_without_a_right_is_terminated_by_the_kernel() {
    let mut peer = Peer::connect(PEER);
    let end = End::open(&peer, false);
    accepted(&mut peer, &end, "-S 64 -C 1");
    let (remote, _) = end.advertised();
    // rping grants no WRITE to what it has READ; a key that was never given is refused in any case.
    let wrong = Remote { rkey: RKey(remote.rkey.0 ^ 0x00FF_FF00), ..remote };
    end.post(Operation::Write(wrong), START, 64);
    end.post(Operation::Send, SEND, 16);
    loop {
        let done = end.next();
        if done.operation == CompletedOperation::Receive {
            assert_ne!(done.status, Status::Success);
            break;
        }
    }
    assert_eq!(end.adapter.counters().terminates_received, 1);
    peer.ask("kill", json!({}));
}

#[test]
#[ignore = "needs the kernel peer"]
fn a_read_without_a_right_is_terminated_and_the_kernel_understands() {
    let mut peer = Peer::connect(PEER);
    let end = End::open(&peer, false);
    connected(&mut peer, &end, "-S 65535 -C 1");
    let region = end.region.remote().at(START);
    end.advertise(Remote { rkey: RKey(region.rkey.0 ^ 0x00FF_FF00), ..region }, 64);
    assert_eq!(end.adapter.counters().terminates_received, 0);
    loop {
        let done = end.next();
        if done.operation == CompletedOperation::Receive {
            assert_eq!(done.status, Status::Flushed);
            break;
        }
    }
    assert_eq!(end.adapter.counters().terminates_sent, 1);
    let answer = peer.ask("finish", json!({}));
    assert!(answer["output"].as_str().unwrap().contains("DISCONNECT"), "{answer}");
}

#[test]
#[ignore = "needs the kernel peer"]
fn a_killed_program_of_the_kernel_flushes_our_work() {
    let mut peer = Peer::connect(PEER);
    let end = End::open(&peer, false);
    accepted(&mut peer, &end, "-S 64 -C 1000");
    end.serve();
    end.post_receive(RECEIVE, 16);
    peer.ask("kill", json!({}));
    // The next round may have begun, but its second SEND has not: a receive is left.
    while end.next().status == Status::Success {}
}
