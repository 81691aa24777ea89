//! Against the soft-RoCE device of a Linux kernel: `scripts/rdma-kernel-peer` boots one and runs these tests.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use nichrome_hca::{
    Adapter, AdapterConfig, CompletionQueue, Connection, Endpoint, Place, QueuePair, Region, RemoteRegion,
};
use nichrome_rdma::{
    Access, CompletedOperation, Completion, ImmediateData, Notice, Operation, PathMtu, Psn, QpCapacity,
    QpNumber, ReceiveRequest, SendRequest, Status,
};
use serde_json::{Value, json};

/// Where tests/rdma/kernel_peer.py listens.
const PEER: &str = "NICHROME_KERNEL_PEER";
const PATIENCE: Duration = Duration::from_secs(60);
const LEN: usize = 1 << 20;
/// From a byte to 1 MB, around and beyond the path MTU.
const SIZES: [usize; 8] = [1, 3, 1023, 1024, 1025, 10_000, 65_536, LEN];
/// What netem does to the packets of the kernel. Ours are as they are: the kernel's ACKs are among what is lost.
const FAULTS: &str = "delay 1ms 1ms loss 2% duplicate 1% reorder 10%";
/// `kernel_peer.py` sends it with every immediate, in the byte order of the machine.
const IMMEDIATE: [u8; 4] = 0x0102_0304_u32.to_ne_bytes();

/// The pattern of kernel_peer.py: pieces that are swapped or missing show, whatever the MTU.
fn pattern(seed: u8, len: usize) -> Vec<u8> {
    const PERIOD: u64 = 65_521;
    (0..len as u64)
        .map(|at| (((at % PERIOD) * 2_654_435_761) >> 13) as u8)
        .map(|byte| byte.wrapping_add(seed))
        .collect()
}

/// The kernel's end, which does what it is told.
struct Peer(BufReader<TcpStream>);

impl Peer {
    fn connect() -> Self {
        let address: SocketAddr = std::env::var(PEER)
            .unwrap_or_else(|_| panic!("{PEER} says where no peer is: run scripts/rdma-kernel-peer"))
            .parse()
            .expect("an address and port");
        let stream = TcpStream::connect(address).expect("the kernel peer listens");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(BufReader::new(stream))
    }

    fn ask(&mut self, what: &str, mut with: Value) -> Value {
        with["do"] = json!(what);
        writeln!(self.0.get_mut(), "{with}").unwrap();
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap_or_else(|error| panic!("{what}: {error}"));
        let answer: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{what}: {error}: {line}"));
        assert!(answer["error"].is_null(), "{answer}");
        answer
    }

    fn holds(&mut self, seed: u8, len: usize) {
        let answer = self.ask("check", json!({"seed": seed, "length": len}));
        assert!(answer["differs"].is_null(), "{len} bytes differ from {} on", answer["differs"]);
    }
}

/// A reliable connection between an adapter and the kernel.
struct Pair {
    peer: Peer,
    /// The kernel's region, as requests of ours and of its own name it.
    remote: RemoteRegion,
    region: Region,
    cq: CompletionQueue,
    qp: QueuePair,
    _adapter: Adapter,
}

impl Pair {
    fn open(mtu: PathMtu) -> Self {
        let mut peer = Peer::connect();
        let place = Place::Address(peer.0.get_ref().local_addr().unwrap().ip());
        let adapter = Adapter::open(&AdapterConfig { place, ..AdapterConfig::default() }).unwrap();
        let all = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let region = adapter.region(LEN, all).unwrap();
        let cq = adapter.completion_queue(1024).unwrap();
        let capacity = QpCapacity { send_wrs: 64, receive_wrs: 64, send_sges: 1, receive_sges: 1, inline: 0 };
        let qp = adapter.queue_pair(capacity, &cq, &cq).unwrap();
        let told = peer.ask("open", json!({"size": LEN, "mtu": mtu.bytes()}));
        let number = |key: &str| u32::try_from(told[key].as_u64().unwrap()).unwrap();
        let kernel = Endpoint {
            address: peer.0.get_ref().peer_addr().unwrap().ip(),
            qp: QpNumber::new(number("qpn")).unwrap(),
            psn: Psn::new(number("psn")),
        };
        let remote = json!({"address": told["addr"], "rkey": told["rkey"], "len": LEN});
        qp.connect(&kernel, &Connection::new(mtu)).unwrap();
        let Endpoint { address, qp: number, psn } = qp.endpoint();
        let gid = format!("::ffff:{address}");
        peer.ask("connect", json!({"qpn": number.value(), "psn": psn.value(), "gid": gid}));
        Self { peer, remote: serde_json::from_value(remote).unwrap(), region, cq, qp, _adapter: adapter }
    }

    /// Has the kernel do something to our region.
    fn kernel_does(&mut self, operation: &str, len: usize, more: &Value) {
        let region = serde_json::to_value(self.region.remote()).unwrap();
        let mut with =
            json!({"operation": operation, "length": len, "addr": region["address"], "rkey": region["rkey"]});
        with.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = self.peer.ask("post", with);
        assert_eq!(answer["statuses"], json!([0]), "the kernel's {operation} of {len} bytes");
    }

    fn we_do(&self, operation: Operation, len: usize, expected: CompletedOperation) {
        let buffers = [self.region.slice(0, len)];
        self.qp.post_send(&SendRequest::new(7, operation, &buffers)).unwrap();
        self.completed(expected);
    }

    fn completed(&self, expected: CompletedOperation) -> Completion {
        let completion = self.cq.wait(PATIENCE).unwrap_or_else(|| panic!("{expected:?} does not complete"));
        assert_eq!((completion.status, completion.operation), (Status::Success, expected));
        completion
    }

    fn fill(&self, seed: u8, len: usize) {
        self.region.with(|bytes| bytes[..len].copy_from_slice(&pattern(seed, len)));
    }

    fn holds(&self, seed: u8, len: usize) {
        let expected = pattern(seed, len);
        let differs =
            self.region.with(|bytes| bytes.iter().zip(&expected).position(|(got, want)| got != want));
        assert_eq!(differs, None, "of {len} bytes");
    }

    fn word(&self) -> u64 {
        self.region.with(|bytes| u64::from_ne_bytes(*bytes.first_chunk().unwrap()))
    }

    fn we_write_read_and_send(&mut self, len: usize, seed: u8) {
        let remote = self.remote.at(0);
        self.fill(seed, len);
        self.we_do(Operation::Write(remote), len, CompletedOperation::Write);
        self.peer.holds(seed, len);
        self.peer.ask("fill", json!({"seed": seed.wrapping_add(1), "length": len}));
        self.we_do(Operation::Read(remote), len, CompletedOperation::Read);
        self.holds(seed.wrapping_add(1), len);
        self.fill(seed.wrapping_add(2), len);
        self.peer.ask("receive", json!({"length": len}));
        self.we_do(Operation::Send, len, CompletedOperation::Send);
        let received = self.peer.ask("wait", json!({}));
        assert_eq!(received["received"], json!([{"status": 0, "length": len, "immediate": null}]));
        self.peer.holds(seed.wrapping_add(2), len);
    }

    fn the_kernel_writes_reads_and_sends(&mut self, len: usize, seed: u8) {
        self.peer.ask("fill", json!({"seed": seed, "length": len}));
        self.kernel_does("write", len, &json!({}));
        self.holds(seed, len);
        self.fill(seed.wrapping_add(1), len);
        self.kernel_does("read", len, &json!({}));
        self.peer.holds(seed.wrapping_add(1), len);
        self.peer.ask("fill", json!({"seed": seed.wrapping_add(2), "length": len}));
        let buffers = [self.region.slice(0, len)];
        self.qp.post_receive(&ReceiveRequest { wr_id: 1, buffers: &buffers }).unwrap();
        self.kernel_does("send-imm", len, &json!({}));
        let completion = self.completed(CompletedOperation::Receive);
        assert_eq!(completion.len as usize, len);
        assert_eq!(completion.notice, Some(Notice::Immediate(ImmediateData(IMMEDIATE))));
        self.holds(seed.wrapping_add(2), len);
    }

    fn both_count(&mut self) {
        let remote = self.remote.at(0);
        self.peer.ask("set_word", json!({"offset": 0, "value": 40}));
        self.we_do(Operation::FetchAdd { remote, add: 2 }, 8, CompletedOperation::FetchAdd);
        assert_eq!(self.word(), 40, "the value before");
        self.we_do(
            Operation::CompareSwap { remote, compare: 42, swap: 7 },
            8,
            CompletedOperation::CompareSwap,
        );
        assert_eq!(self.word(), 42);
        self.we_do(
            Operation::CompareSwap { remote, compare: 42, swap: 8 },
            8,
            CompletedOperation::CompareSwap,
        );
        assert_eq!(
            (self.word(), self.peer.ask("word", json!({"offset": 0}))["value"].as_u64()),
            (7, Some(7))
        );
        self.region.with(|bytes| bytes[..8].copy_from_slice(&100_u64.to_ne_bytes()));
        self.kernel_does("fetch-add", 8, &json!({"compare": 11}));
        self.kernel_does("compare-swap", 8, &json!({"compare": 111, "swap": 5}));
        assert_eq!(
            (self.word(), self.peer.ask("word", json!({"offset": 0}))["value"].as_u64()),
            (5, Some(111))
        );
    }

    fn both_do_everything(&mut self) {
        for (nth, len) in SIZES.into_iter().enumerate() {
            let seed = nth as u8 * 16;
            self.we_write_read_and_send(len, seed);
            self.the_kernel_writes_reads_and_sends(len, seed + 8);
        }
        self.both_count();
    }
}

#[test]
#[ignore = "needs a kernel with soft-RoCE: scripts/rdma-kernel-peer"]
fn the_kernel_and_we_do_everything_to_each_other_on_a_clean_wire() {
    Pair::open(PathMtu::B1024).both_do_everything();
}

#[test]
#[ignore = "needs a kernel with soft-RoCE: scripts/rdma-kernel-peer"]
fn the_kernel_and_we_do_everything_to_each_other_with_loss_and_reordering() {
    let mut pair = Pair::open(PathMtu::B1024);
    pair.peer.ask("netem", json!({"faults": FAULTS}));
    pair.both_do_everything();
}

#[test]
#[ignore = "needs a kernel with soft-RoCE: scripts/rdma-kernel-peer"]
fn small_packets_agree_with_the_kernel_too() {
    Pair::open(PathMtu::B256).both_do_everything();
}

#[test]
#[ignore = "needs a kernel with soft-RoCE: scripts/rdma-kernel-peer"]
fn jumbo_frames_agree_with_the_kernel_too() {
    Pair::open(PathMtu::B4096).both_do_everything();
}
