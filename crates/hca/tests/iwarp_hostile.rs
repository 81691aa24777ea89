//! iWARP's set-up and streams with hostile TCP peers.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nichrome_hca::{AdapterConfig, Connection, IwarpCounters, IwarpOptions, Listener, Transport, port_of};
use nichrome_rdma::iwarp::setup::{Identity, Initiator, Options};
use nichrome_rdma::{Counters, Operation, PathMtu, QpNumber, ReceiveRequest, SendRequest, Status};
use nichrome_wire::Instant as Time;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use rustix::process::{Resource, getrlimit};

#[path = "common/end.rs"]
mod end;
use end::{End, PATIENCE, connect_with};

fn open(crc: bool) -> End {
    let iwarp = IwarpOptions { crc, report: |why| println!("{why}"), ..IwarpOptions::default() };
    End::open(&AdapterConfig { transport: Transport::Iwarp, iwarp, ..AdapterConfig::default() })
}

/// The port for set-up.
fn port(end: &End) -> SocketAddr {
    SocketAddr::new(end.adapter.address(), port_of(end.qp.endpoint().qp))
}

/// Waits until a refused connection is counted.
fn counts(end: &End, counter: impl Fn(&IwarpCounters) -> u64, expected: u64) {
    let until = Instant::now() + PATIENCE;
    while counter(&end.adapter.iwarp_counters()) < expected {
        assert!(Instant::now() < until, "{:?}", end.adapter.iwarp_counters());
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(counter(&end.adapter.iwarp_counters()), expected);
}

/// Sets up a connection between two ends and SENDs over it.
fn honest_ends_connect(ends: &[End; 2]) {
    connect_with(ends, &Connection::new(PathMtu::B4096));
    say_something(ends);
}

/// SENDs over a connection.
fn say_something(ends: &[End; 2]) {
    assert_eq!(statuses_of_a_send(ends), [Some(Status::Success); 2]);
}

fn statuses_of_a_send([a, b]: &[End; 2]) -> [Option<Status>; 2] {
    b.qp.post_receive(&ReceiveRequest { wr_id: 1, buffers: &[b.region.slice(0, 8)] }).unwrap();
    a.qp.post_send(&SendRequest::new(1, Operation::Send, &[a.region.slice(0, 8)])).unwrap();
    [a, b].map(|end| end.cq.wait(PATIENCE).map(|done| done.status))
}

fn request(from: u32, to: u32) -> Vec<u8> {
    let number = |value| QpNumber::new(value).unwrap();
    let identity = Identity { from: number(from), to: number(to) }.to_bytes();
    Initiator::new(Options::default(), &identity, Time::ZERO).take_output()
}

#[test]
fn each_refusal_has_its_counter_and_others_connect() {
    let ends = [open(false), open(false)];
    let target = &ends[1];
    let say = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(port(target)).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    let _garbage = [say(b"GET / HTTP/1.1\r\n\r\n"), say(b"MPA ID Req Frame\x10\x02\xFF\xFF")];
    counts(target, |counters| counters.garbage, 2);
    let _early = say(&[request(1, 2), vec![0; 100]].concat());
    counts(target, |counters| counters.early_data, 1);
    let _foreign = say(&Initiator::new(Options::default(), b"who", Time::ZERO).take_output());
    counts(target, |counters| counters.foreign, 1);
    drop(say(b"MPA ID"));
    counts(target, |counters| counters.closed, 1);
    // A Request for a queue pair that no program connects waits, and so does half a frame.
    let _waiting = [say(&request(0x4711, 0x815)), say(b"MPA ID Req Fr")];
    honest_ends_connect(&ends);
    counts(target, |counters| counters.timed_out, 1);
}

/// Begins a connection from `source` to `address`, which may never accept it.
fn begin_connection(source: [u8; 4], address: SocketAddr) -> OwnedFd {
    let stream = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
    bind(&stream, &SocketAddr::from((source, 0))).unwrap();
    match connect(&stream, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => stream,
        Err(error) => panic!("{error}"),
    }
}

/// Resident memory of the process in KiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn ten_thousand_silent_connections_are_bounded_and_delay_no_other() {
    const SILENT: usize = 10_000;
    // In a process of its own: memory and descriptors are counted.
    if std::env::var_os("NICHROME_ALONE").is_none() {
        let this = std::env::current_exe().unwrap();
        let test = ["--exact", "ten_thousand_silent_connections_are_bounded_and_delay_no_other"];
        assert!(Command::new(this).args(test).env("NICHROME_ALONE", "1").status().unwrap().success());
        return;
    }
    // Opening an adapter raises the limit of descriptors.
    let mut ends = [open(false), open(false)];
    let limit = getrlimit(Resource::Nofile).current;
    assert!(
        limit.is_none_or(|limit| limit > SILENT as u64 + 1000),
        "{limit:?} descriptors: see ulimit -H -n"
    );
    // The end with the higher address accepts.
    ends.sort_by_key(|end| end.adapter.address());
    let other = [open(false), open(false)];
    honest_ends_connect(&other);
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = [resident(), descriptors()];
    let address = port(&ends[1]);
    let silent: Vec<OwnedFd> =
        (0..SILENT).map(|nth| begin_connection([127, 0, 78, 1 + (nth / 100) as u8], address)).collect();
    honest_ends_connect(&ends);
    let [memory, held] = [resident() - before[0], descriptors() - before[1]];
    assert!(memory < 16 * 1024, "{memory} KiB");
    assert!(held < SILENT + 1100, "{held} descriptors, of which {SILENT} are the silent peers'");
    let displaced = ends[1].adapter.iwarp_counters().displaced;
    assert!(displaced > 0, "{:?}", ends[1].adapter.iwarp_counters());
    // Established connections go on.
    say_something(&other);
    drop(silent);
}

#[test]
fn a_flood_of_whole_requests_displaces_none_of_another_source() {
    let mut ends = [open(false), open(false)];
    // The end with the higher address accepts.
    ends.sort_by_key(|end| end.adapter.address());
    let [endpoint, other] = ends.each_ref().map(|end| end.qp.endpoint());
    let connection = Connection::new(PathMtu::B4096);
    ends[0].qp.connect(&other, &connection).unwrap();
    // Waits until the request is parked at the other end, which no counter shows.
    thread::sleep(Duration::from_millis(100));
    let address = port(&ends[1]);
    let flood: Vec<TcpStream> = (0..1200)
        .map(|nth| {
            let mut stream = TcpStream::from(begin_connection([127, 0, 79, 1 + (nth / 120) as u8], address));
            stream.set_nonblocking(false).unwrap();
            stream.write_all(&request(0x4711, 0x815)).unwrap();
            stream
        })
        .collect();
    counts(&ends[1], |counters| counters.displaced, 1200 + 1 - 1024);
    ends[1].qp.connect(&endpoint, &connection).unwrap();
    say_something(&ends);
    drop(flood);
}

/// Returns the time until a listener accepts a connection while silent connections are open.
fn time_to_accept_beside_silent_connections() -> Duration {
    let ends = [open(false), open(false)];
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.address().unwrap();
    let begun = Instant::now();
    let silent: Vec<OwnedFd> = (0..600).map(|_| begin_connection([127, 0, 80, 1], address)).collect();
    let mut garbage = TcpStream::connect(address).unwrap();
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let connection = Connection::new(PathMtu::B4096);
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| ends[0].qp.connect_to(address, b"hi", &connection).unwrap());
        let incoming = listener.accept().unwrap();
        assert_eq!(incoming.private_data(), b"hi");
        ends[1].qp.accept(incoming, b"", &connection).unwrap();
    });
    let time = start.elapsed();
    let mut other = TcpStream::connect(address).unwrap();
    other.write_all(&Initiator::new(Options::default(), b"again", Time::ZERO).take_output()).unwrap();
    assert_eq!(listener.accept().unwrap().private_data(), b"again");
    let refused = listener.counters();
    // They time out after 5 s.
    assert!(refused.timed_out == 0 || begun.elapsed() >= Duration::from_secs(5), "{refused:?}");
    assert_eq!(refused.garbage, 1);
    assert!(refused.displaced > 600 - 512, "{refused:?}");
    say_something(&ends);
    drop(silent);
    time
}

#[test]
fn silent_connections_do_not_hold_up_a_listener() {
    // On a busy machine, one attempt may take longer.
    assert!((0..5).any(|_| time_to_accept_beside_silent_connections() < Duration::from_secs(3)));
}

/// An end whose connection is set up, and its TCP peer, which has sent `bytes`.
fn beside(crc: bool, bytes: &[u8]) -> (End, TcpStream) {
    let end = open(crc);
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

/// The counter of an error.
type Reason = fn(&Counters) -> u64;

#[test]
fn garbage_lying_lengths_and_wrong_crcs_end_their_connection_by_a_terminate() {
    let send = [&[0, 20, 0x41, 0x43][..], &[0; 4], &[0; 4], &[0, 0, 0, 1], &[0; 4], b"hi", &[0; 2]].concat();
    let cases: [(_, _, Reason); 3] = [
        (false, vec![0xFF; 70_000], |counters| counters.dropped_malformed),
        (true, [&send[..], b"\x01\x02\x03\x04"].concat(), |counters| counters.dropped_icrc),
        // An FPDU that is shorter than its header.
        (false, vec![0, 1, 0x41, 0, 0, 0, 0, 0], |counters| counters.dropped_malformed),
    ];
    for (crc, bytes, reason) in cases {
        let (end, mut peer) = beside(crc, &bytes);
        let done = end.cq.wait(PATIENCE).unwrap();
        assert_eq!((done.wr_id, done.status), (7, Status::Flushed));
        let counters = end.adapter.counters();
        assert_eq!((counters.terminates_sent, reason(&counters)), (1, 1));
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
