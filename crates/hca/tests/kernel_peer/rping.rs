//! Connections by address and port with rping of rdma-core, over rdma_ucm and soft-RoCE of the kernel. In
//! each ping, the client names a region by a SEND, which the server READs; then another region, to which the
//! server WRITEs the same bytes.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use nichrome_hca::cm::{CmOptions, ConnectError, Connected, TimeExponent};
use nichrome_hca::{Adapter, AdapterConfig, CompletionQueue, Connection, Place, QueuePair, Region};
use nichrome_rdma::{
    Access, CompletedOperation, Operation, QpCapacity, ReceiveRequest, Remote, SendRequest, Status,
};
use nichrome_wire::rdma::RKey;
use serde_json::json;

use super::{FAULTS, PATIENCE, PEER, Peer};

/// The port of the services.
const PORT: u16 = 7174;

const PINGS: usize = 10;

/// Bytes of a ping.
const LEN: usize = 64;

/// Bytes of a message that names a region: address, key, length.
const NAME_LEN: usize = 16;

/// Where the parts of an end's region begin: the ping, its copy, the message sent, the message received.
const PING: usize = 0;
const COPY: usize = LEN;
const SENT: usize = 2 * LEN;
const RECEIVED: usize = SENT + NAME_LEN;

/// Our end.
struct End {
    adapter: Adapter,
    region: Region,
    sends: CompletionQueue,
    /// Separate from `sends`: a message may be received before the last one sent is acknowledged.
    receives: CompletionQueue,
}

impl End {
    fn open(peer: &Peer) -> Self {
        let place = Place::Address(peer.addresses()[0].ip());
        // The kernel retransmits after 4.3 s.
        let cm = CmOptions { response_timeout: TimeExponent::new(16), ..CmOptions::default() };
        let adapter = Adapter::open(&AdapterConfig { place, cm, ..AdapterConfig::default() }).unwrap();
        let all = Access::REMOTE_WRITE | Access::REMOTE_READ;
        let region = adapter.region(RECEIVED + NAME_LEN, all).unwrap();
        let [sends, receives] = [(); 2].map(|()| adapter.completion_queue(64).unwrap());
        Self { adapter, region, sends, receives }
    }

    /// A queue pair with a posted receive.
    fn queue_pair(&self) -> QueuePair {
        let capacity = QpCapacity { send_wrs: 8, receive_wrs: 8, send_sges: 1, receive_sges: 1, inline: 0 };
        let qp = self.adapter.queue_pair(capacity, &self.sends, &self.receives).unwrap();
        qp.prepare().unwrap();
        self.post_receive(&qp);
        qp
    }

    fn connection(&self) -> Connection {
        Connection::new(self.adapter.mtu())
    }

    fn post_receive(&self, qp: &QueuePair) {
        let buffers = [self.region.slice(RECEIVED, NAME_LEN)];
        qp.post_receive(&ReceiveRequest { wr_id: 1, buffers: &buffers }).unwrap();
    }

    /// Takes a message and posts the next receive.
    fn message(&self, qp: &QueuePair) -> (Remote, usize) {
        completed(&self.receives, CompletedOperation::Receive);
        let bytes = self.region.with(|bytes| bytes[RECEIVED..RECEIVED + NAME_LEN].to_vec());
        self.post_receive(qp);
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        let address = u64::from_be_bytes(bytes[..8].try_into().unwrap());
        (Remote { address, rkey: RKey(word(8)) }, word(12) as usize)
    }

    fn send(&self, qp: &QueuePair, name: Option<Remote>) {
        let Remote { address, rkey } = name.unwrap_or(Remote { address: 0, rkey: RKey(0) });
        let message =
            [&address.to_be_bytes()[..], &rkey.0.to_be_bytes(), &(LEN as u32).to_be_bytes()].concat();
        self.region.with(|bytes| bytes[SENT..SENT + NAME_LEN].copy_from_slice(&message));
        self.post(qp, Operation::Send, SENT, NAME_LEN, CompletedOperation::Send);
    }

    fn post(&self, qp: &QueuePair, operation: Operation, at: usize, len: usize, ends: CompletedOperation) {
        let buffers = [self.region.slice(at, len)];
        qp.post_send(&SendRequest::new(2, operation, &buffers)).unwrap();
        completed(&self.sends, ends);
    }

    /// The client of rping.
    fn ping(&self, connected: &Connected) {
        let qp = connected.queue_pair();
        for nth in 0..PINGS {
            let text = format!("ping {nth:<58}\0");
            self.region.with(|bytes| bytes[PING..LEN].copy_from_slice(text.as_bytes()));
            for part in [PING, COPY] {
                self.send(qp, Some(self.region.remote().at(part)));
                self.message(qp);
            }
            self.region.with(|bytes| assert_eq!(bytes[PING..LEN], bytes[COPY..COPY + LEN]));
        }
    }

    /// The server of rping, for as many pings as its client sends.
    fn serve(&self, connected: &Connected) {
        let qp = connected.queue_pair();
        for _ in 0..PINGS {
            let (source, len) = self.message(qp);
            self.post(qp, Operation::Read(source), PING, len, CompletedOperation::Read);
            self.send(qp, None);
            let (target, len) = self.message(qp);
            self.post(qp, Operation::Write(target), PING, len, CompletedOperation::Write);
            self.send(qp, None);
        }
    }
}

fn completed(cq: &CompletionQueue, expected: CompletedOperation) {
    let done = cq.wait(PATIENCE).unwrap_or_else(|| panic!("{expected:?} does not complete"));
    assert_eq!((done.status, done.operation), (Status::Success, expected));
}

/// Connects to rping in the guest, whose wire has these faults.
fn rping_serves_us(faults: &str) {
    let mut peer = Peer::connect(PEER);
    let end = End::open(&peer);
    let address = SocketAddr::new(peer.addresses()[1].ip(), PORT);
    peer.ask("netem", json!({"faults": faults}));
    peer.ask("start", json!({"command": format!("rping -s -a {} -p {PORT} -v -V", address.ip())}));
    let begun = Instant::now();
    // Retries until rping listens.
    let connected = loop {
        match end.adapter.connect(address, end.queue_pair(), b"", &end.connection()) {
            Err(ConnectError::NoListener) if begun.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_millis(100));
            }
            connected => break connected.unwrap(),
        }
    };
    end.ping(&connected);
    connected.disconnect();
    let ended = peer.ask("finish", json!({}));
    assert_eq!(ended["status"], json!(0), "{ended}");
    assert!(ended["output"].as_str().unwrap().contains(&format!("ping {}", PINGS - 1)), "{ended}");
    assert!(connected.wait_disconnected(PATIENCE).unwrap());
}

/// Lets rping in the guest, whose wire has these faults, connect.
fn we_serve_rping(faults: &str) {
    let mut peer = Peer::connect(PEER);
    let end = End::open(&peer);
    let listener = end.adapter.listen(PORT, 0).unwrap();
    peer.ask("netem", json!({"faults": faults}));
    let command = format!("rping -c -a {} -p {PORT} -C {PINGS} -v -V", end.adapter.address());
    peer.ask("start", json!({"command": command}));
    let request = listener.accept(PATIENCE).unwrap().expect("rping connects");
    let connected = request.accept(end.queue_pair(), b"", &end.connection()).unwrap();
    end.serve(&connected);
    let ended = peer.ask("finish", json!({}));
    assert_eq!(ended["status"], json!(0), "{ended}");
    assert!(connected.wait_disconnected(PATIENCE).unwrap());
}

#[test]
#[ignore = "needs a kernel with soft-RoCE: scripts/rdma-kernel-peer"]
fn rping_of_the_kernel_serves_us_on_a_clean_wire() {
    rping_serves_us("");
}

#[test]
#[ignore = "needs a kernel with soft-RoCE: scripts/rdma-kernel-peer"]
fn rping_of_the_kernel_serves_us_with_loss_and_reordering() {
    rping_serves_us(FAULTS);
}

#[test]
#[ignore = "needs a kernel with soft-RoCE: scripts/rdma-kernel-peer"]
fn we_serve_rping_of_the_kernel_on_a_clean_wire() {
    we_serve_rping("");
}

#[test]
#[ignore = "needs a kernel with soft-RoCE: scripts/rdma-kernel-peer"]
fn the_kernel_refuses_without_a_listener() {
    let peer = Peer::connect(PEER);
    let end = End::open(&peer);
    let address = SocketAddr::new(peer.addresses()[1].ip(), 9);
    let refused = end.adapter.connect(address, end.queue_pair(), b"", &end.connection());
    assert_eq!(refused.err(), Some(ConnectError::NoListener));
}

#[test]
#[ignore = "needs a kernel with soft-RoCE: scripts/rdma-kernel-peer"]
fn rping_of_the_kernel_is_refused_without_a_listener() {
    let mut peer = Peer::connect(PEER);
    let end = End::open(&peer);
    // The connection manager runs, at another port.
    let _listener = end.adapter.listen(PORT + 1, 0).unwrap();
    peer.ask("start", json!({"command": format!("rping -c -a {} -p {PORT} -C 1", end.adapter.address())}));
    let ended = peer.ask("finish", json!({}));
    // RDMA_CM_EVENT_REJECTED with reason 8.
    assert!(ended["output"].as_str().unwrap().contains("RDMA_CM_EVENT_REJECTED, error 8"), "{ended}");
}
