//! Against the soft-RoCE device of a Linux kernel: `scripts/rdma-kernel-peer` boots one and runs these tests.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod rping;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use nichrome_hca::{
    Adapter, AdapterConfig, CompletionQueue, Connection, Endpoint, Place, QueuePair, Region, RemoteRegion,
};
use nichrome_port::clock;
use nichrome_port::udp::{Envelope, ReceiveBatch, SendBatch, UdpSocket};
use nichrome_rdma::{
    Access, CompletedOperation, Completion, Notice, Operation, QpCapacity, ReceiveRequest, SendRequest,
    Status,
};
use nichrome_wire::rdma::{
    Aeth, Bth, BthFlags, DatagramWriter, Feth, ImmediateData, Message, NakCode, PKey, PathMtu, Placement,
    Psn, QpNumber, RKey, ROCE_PORT, RcMessage, ReadResponse, Repr, Reth, Selectivity, Syndrome, UdpFlow,
};
use nichrome_wire::{AddressPair, TrafficClass};
use serde_json::{Value, json};

#[path = "../common/kernel.rs"]
mod kernel;
use kernel::{FAULTS, PATIENCE, Peer, pattern};

/// The environment variable with the address and port of tests/rdma/kernel_peer.py.
const PEER: &str = "NICHROME_KERNEL_PEER";
const LEN: usize = 1 << 20;
/// From a byte to 1 MB, around and beyond the path MTU.
const SIZES: [usize; 8] = [1, 3, 1023, 1024, 1025, 10_000, 65_536, LEN];
/// The immediate data that `kernel_peer.py` always sends, in the byte order of the machine.
const IMMEDIATE: [u8; 4] = 0x0102_0304_u32.to_ne_bytes();

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
        let mut peer = Peer::connect(PEER);
        let place = Place::Address(peer.addresses()[0].ip());
        let adapter = Adapter::open(&AdapterConfig { place, ..AdapterConfig::default() }).unwrap();
        let all = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let region = adapter.region(LEN, all).unwrap();
        let cq = adapter.completion_queue(1024).unwrap();
        let capacity = QpCapacity { send_wrs: 64, receive_wrs: 64, send_sges: 1, receive_sges: 1, inline: 0 };
        let qp = adapter.queue_pair(capacity, &cq, &cq).unwrap();
        let told = peer.ask("open", json!({"size": LEN, "mtu": mtu.bytes()}));
        let number = |key: &str| u32::try_from(told[key].as_u64().unwrap()).unwrap();
        let kernel = Endpoint {
            address: peer.addresses()[1].ip(),
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

    /// Makes the kernel execute an operation on our region.
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

    fn both_write_words_at_once(&mut self) {
        self.region.with(|bytes| bytes[..8].copy_from_slice(&11_u64.to_ne_bytes()));
        self.we_do(Operation::AtomicWrite(self.remote.at(0)), 8, CompletedOperation::AtomicWrite);
        assert_eq!(self.peer.ask("word", json!({"offset": 0}))["value"].as_u64(), Some(11));
        let region = serde_json::to_value(self.region.remote()).unwrap();
        let with = json!({"value": 12, "addr": region["address"], "rkey": region["rkey"]});
        assert_eq!(self.peer.ask("atomic_write", with)["statuses"], json!([0]));
        assert_eq!(self.word(), 12);
    }

    fn both_do_everything(&mut self) {
        for (nth, len) in SIZES.into_iter().enumerate() {
            let seed = nth as u8 * 16;
            self.we_write_read_and_send(len, seed);
            self.the_kernel_writes_reads_and_sends(len, seed + 8);
        }
        self.both_count();
        self.both_write_words_at_once();
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

/// A requester without an adapter: sends the test's datagrams to a queue pair of the kernel.
struct BareRequester {
    socket: UdpSocket,
    flow: UdpFlow,
    dest_qp: QpNumber,
}

impl BareRequester {
    const QP: u32 = 0x1234;

    fn datagram(&self, psn: Psn, message: RcMessage) -> Vec<u8> {
        let bth = Bth { flags: BthFlags::ACK_REQUEST, pkey: PKey::default(), dest_qp: self.dest_qp, psn };
        let repr = Repr { bth, message: Message::Rc(message) };
        let mut bytes = vec![0; 256];
        let len = DatagramWriter::new(&repr, 0, &self.flow, 0, &mut bytes).unwrap().finish();
        bytes.truncate(len);
        bytes
    }

    /// Sends a request; returns the answer, if there is one within a second.
    fn ask(&self, request: &[u8]) -> Option<RcMessage> {
        let peer = SocketAddr::new(self.flow.addresses.dst(), self.flow.dst_port);
        let mut batch = SendBatch::default();
        batch.room().unwrap()[..request.len()].copy_from_slice(request);
        let envelope = Envelope { peer, traffic_class: TrafficClass::default(), hop_limit: None };
        batch.stage(envelope, request.len(), request.len());
        assert_eq!(batch.send(&self.socket).sent, 1);
        let mut answers = ReceiveBatch::default();
        let end = clock::now() + Duration::from_secs(1);
        while clock::now() < end {
            clock::wait([self.socket.as_fd()], Some(end)).unwrap();
            answers.receive(&self.socket).unwrap();
            if let Some(arrival) = answers.arrivals().next() {
                let (repr, _) = Repr::parse(arrival.datagrams().next().unwrap()).unwrap();
                let Message::Rc(message) = repr.message else { panic!("an answer: {repr:?}") };
                return Some(message);
            }
        }
        None
    }
}

/// The datagram with the ICRC that Linux 6.2 to at least 6.12 computes for FLUSH: its table of opcodes does
/// not say where the payload begins, so the CRC goes on over the headers once more.
fn with_linux_icrc(mut datagram: Vec<u8>) -> Vec<u8> {
    let (headers, icrc) = datagram.split_last_chunk_mut::<4>().unwrap();
    let mut hasher = crc32fast::Hasher::new_with_initial(u32::from_le_bytes(*icrc));
    hasher.update(headers);
    *icrc = hasher.finalize().to_le_bytes();
    datagram
}

#[test]
#[ignore = "needs a kernel with soft-RoCE: scripts/rdma-kernel-peer"]
fn the_kernel_answers_flush_as_we_do() {
    let mut peer = Peer::connect(PEER);
    let told = peer.ask("open", json!({"size": LEN}));
    let number = |key: &str| u32::try_from(told[key].as_u64().unwrap()).unwrap();
    let [here, there] = peer.addresses();
    let socket = UdpSocket::open(SocketAddr::new(here.ip(), ROCE_PORT)).unwrap();
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (socket.local().ip(), there.ip()) else {
        panic!("the peer has an IPv4 address")
    };
    let flow = UdpFlow::to_roce(AddressPair::V4 { src, dst }, ROCE_PORT);
    peer.ask("connect", json!({"qpn": BareRequester::QP, "psn": 0, "gid": format!("::ffff:{src}")}));
    let requester = BareRequester { socket, flow, dest_qp: QpNumber::new(number("qpn")).unwrap() };
    let (va, rkey) = (told["addr"].as_u64().unwrap(), RKey(number("rkey")));
    for (nth, selectivity) in [Selectivity::Region, Selectivity::Range].into_iter().enumerate() {
        let feth = Feth { placement: Placement::GLOBAL, selectivity };
        let flush = RcMessage::Flush(feth, Reth { va, rkey, len: LEN as u32 });
        let standard = requester.datagram(Psn::new(nth as u32), flush);
        let answer = requester.ask(&standard).or_else(|| requester.ask(&with_linux_icrc(standard.clone())));
        assert!(
            matches!(
                answer,
                Some(RcMessage::ReadResponse(ReadResponse::Only(Aeth { syndrome: Syndrome::Ack(_), .. })))
            ),
            "{answer:?}"
        );
    }
    let feth = Feth { placement: Placement::GLOBAL, selectivity: Selectivity::Range };
    let beyond = RcMessage::Flush(feth, Reth { va, rkey, len: LEN as u32 + 1 });
    let beyond = with_linux_icrc(requester.datagram(Psn::new(2), beyond));
    let refused = requester.ask(&beyond);
    assert!(
        matches!(
            refused,
            Some(RcMessage::Acknowledge(Aeth { syndrome: Syndrome::Nak(NakCode::RemoteAccess), .. }))
        ),
        "{refused:?}"
    );
}
