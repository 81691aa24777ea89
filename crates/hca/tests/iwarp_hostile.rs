//! iWARP's set-up and streams beside TCP peers that mean harm.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use nichrome_hca::{
    Adapter, AdapterConfig, CompletionQueue, Connection, IwarpCounters, IwarpOptions, Listener, QueuePair,
    Region, Transport, port_of,
};
use nichrome_rdma::iwarp::setup::{Identity, Initiator, Options};
use nichrome_rdma::{Access, Operation, PathMtu, QpCapacity, QpNumber, ReceiveRequest, SendRequest, Status};
use nichrome_wire::Instant as Time;

const PATIENCE: Duration = Duration::from_secs(20);

struct End {
    adapter: Adapter,
    region: Region,
    cq: CompletionQueue,
    qp: QueuePair,
}

impl End {
    fn open(crc: bool) -> Self {
        let iwarp = IwarpOptions { crc, ..IwarpOptions::default() };
        let config = AdapterConfig { transport: Transport::Iwarp, iwarp, ..AdapterConfig::default() };
        let adapter = Adapter::open(&config).unwrap();
        let region = adapter.region(4096, Access::REMOTE_WRITE).unwrap();
        let cq = adapter.completion_queue(64).unwrap();
        let capacity = QpCapacity { send_wrs: 16, receive_wrs: 16, send_sges: 1, receive_sges: 1, inline: 0 };
        let qp = adapter.queue_pair(capacity, &cq, &cq).unwrap();
        Self { adapter, region, cq, qp }
    }

    /// Connects to the port for set-up.
    fn dial(&self) -> TcpStream {
        let address = SocketAddr::new(self.adapter.address(), port_of(self.qp.endpoint().qp));
        TcpStream::connect(address).unwrap()
    }

    /// Waits until a refused connection is counted.
    fn counts(&self, counter: impl Fn(&IwarpCounters) -> u64, expected: u64) {
        let until = Instant::now() + PATIENCE;
        while counter(&self.adapter.iwarp_counters()) < expected {
            assert!(Instant::now() < until, "{:?}", self.adapter.iwarp_counters());
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(counter(&self.adapter.iwarp_counters()), expected);
    }
}

/// Sets up a connection between two ends and SENDs over it.
fn honest_ends_connect([a, b]: &[End; 2]) {
    let connection = Connection::new(PathMtu::B4096);
    a.qp.connect(&b.qp.endpoint(), &connection).unwrap();
    b.qp.connect(&a.qp.endpoint(), &connection).unwrap();
    b.qp.post_receive(&ReceiveRequest { wr_id: 1, buffers: &[b.region.slice(0, 8)] }).unwrap();
    a.qp.post_send(&SendRequest::new(1, Operation::Send, &[a.region.slice(0, 8)])).unwrap();
    assert_eq!(b.cq.wait(PATIENCE).map(|done| done.status), Some(Status::Success));
}

fn request(from: u32, to: u32) -> Vec<u8> {
    let number = |value| QpNumber::new(value).unwrap();
    let identity = Identity { from: number(from), to: number(to) }.to_bytes();
    Initiator::new(Options::default(), &identity, Time::ZERO).take_output()
}

#[test]
fn each_refusal_has_its_counter_and_others_connect() {
    let ends = [End::open(false), End::open(false)];
    let target = &ends[1];
    let say = |bytes: &[u8]| {
        let mut stream = target.dial();
        stream.write_all(bytes).unwrap();
        stream
    };
    let _garbage = [say(b"GET / HTTP/1.1\r\n\r\n"), say(b"MPA ID Req Frame\x10\x02\xFF\xFF")];
    target.counts(|counters| counters.garbage, 2);
    let _early = say(&[request(1, 2), vec![0; 100]].concat());
    target.counts(|counters| counters.early_data, 1);
    let _foreign = say(&Initiator::new(Options::default(), b"who", Time::ZERO).take_output());
    target.counts(|counters| counters.foreign, 1);
    drop(say(b"MPA ID"));
    target.counts(|counters| counters.closed, 1);
    // A Request for a queue pair that no program connects waits, and so does half a frame.
    let _waiting = [say(&request(0x4711, 0x815)), say(b"MPA ID Req Fr")];
    honest_ends_connect(&ends);
    target.counts(|counters| counters.timed_out, 1);
}

#[test]
fn connections_that_say_nothing_are_bounded_and_hold_up_nobody() {
    let ends = [End::open(false), End::open(false)];
    let silent: Vec<TcpStream> = (0..400).map(|_| ends[1].dial()).collect();
    honest_ends_connect(&ends);
    drop(silent);
}

/// A peer of a queue pair that is set up, and speaks no RDMAP.
fn beside(crc: bool, bytes: &[u8]) -> (End, TcpStream) {
    let end = End::open(crc);
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.address().unwrap();
    let mut peer = thread::scope(|scope| {
        let dialing = scope.spawn(|| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(&Initiator::new(Options::default(), b"", Time::ZERO).take_output()).unwrap();
            stream.read_exact(&mut [0; 24]).unwrap();
            stream
        });
        end.qp.accept(listener.accept().unwrap(), b"", &Connection::new(PathMtu::B4096)).unwrap();
        dialing.join().unwrap()
    });
    let buffers = [end.region.slice(0, 4096)];
    end.qp.post_receive(&ReceiveRequest { wr_id: 7, buffers: &buffers }).unwrap();
    peer.write_all(bytes).unwrap();
    (end, peer)
}

#[test]
fn garbage_lying_lengths_and_wrong_crcs_end_their_connection_by_a_terminate() {
    let send = [&[0, 20, 0x41, 0x43][..], &[0; 4], &[0; 4], &[0, 0, 0, 1], &[0; 4], b"hi", &[0; 2]].concat();
    for (crc, bytes) in [
        (false, vec![0xFF; 70_000]),
        (true, [&send[..], b"\x01\x02\x03\x04"].concat()),
        // An FPDU that is shorter than its header.
        (false, vec![0, 1, 0x41, 0, 0, 0, 0, 0]),
    ] {
        let (end, mut peer) = beside(crc, &bytes);
        let done = end.cq.wait(PATIENCE).unwrap();
        assert_eq!((done.wr_id, done.status), (7, Status::Flushed));
        assert_eq!(end.adapter.counters().terminates_sent, 1);
        let mut answer = Vec::new();
        // A reset may follow the TERMINATE: the garbage behind the error is not read.
        let _ = peer.read_to_end(&mut answer);
        assert!(answer.len() >= 28, "{answer:?}");
    }
}

#[test]
fn half_a_frame_and_silence_end_nothing() {
    let (end, mut peer) = beside(false, &[0xFF, 0xFF, 0x41, 0x43]);
    assert_eq!(end.cq.wait(Duration::from_millis(200)), None);
    assert_eq!(end.adapter.counters().terminates_sent, 0);
    peer.flush().unwrap();
    drop(peer);
    assert_eq!(end.cq.wait(PATIENCE).unwrap().status, Status::Flushed);
}
