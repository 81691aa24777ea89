//! The reactor with a handshake of one byte.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::thread;

use super::*;
use crate::connect::{PreSharedKey, Route};

/// Enters the phase that a byte names, and sends a byte back: `o`pening, `p`arked, `r`unning, `c`losing,
/// `d`one. A digit is the number of its queue pair.
struct Toy {
    phase: Phase,
    qp: u32,
    deadline: Instant,
    output: Vec<u8>,
}

/// The queue pair of all requests, and of handshakes that name no other.
const REQUESTED: u32 = 7;

/// A queue pair without handshakes.
const UNUSED: u32 = 99;

/// Time of every phase, of a peer at 127.0.0.[`HURRIED`].
const PATIENCE: Duration = Duration::from_secs(2);

/// Time of every phase, of any other peer: longer than a test takes on a busy machine.
const LONG_PATIENCE: Duration = Duration::from_secs(300);

/// The host whose handshakes end after [`PATIENCE`].
const HURRIED: u8 = 77;

/// Time for which a parked connection keeps its place.
const PARKED_GRACE: Duration = Duration::from_millis(200);

/// The causes by which handshakes have ended, with their phases.
type Ends = Arc<Mutex<Vec<(Phase, &'static str)>>>;

impl Handshake for Toy {
    type Context = ToyContext;

    fn inbound(source: IpAddr, now: Instant) -> Self {
        let patience = if source == local(HURRIED).ip() { PATIENCE } else { LONG_PATIENCE };
        Self { phase: Phase::Opening, qp: REQUESTED, deadline: now + patience, output: vec![] }
    }

    fn outbound(request: Option<SocketAddr>, _: &mut ToyContext, now: Instant) -> Option<(Route, Self)> {
        let route = Route { from: local(1).ip(), to: request? };
        let (deadline, output) = (now + LONG_PATIENCE, b"hi".to_vec());
        Some((route, Self { phase: Phase::Running, qp: REQUESTED, deadline, output }))
    }

    fn receive(&mut self, _: &mut ToyContext, bytes: &[u8], _: Instant) {
        for byte in bytes {
            self.phase = match byte {
                b'o' => Phase::Opening,
                b'p' => Phase::Parked,
                b'r' => Phase::Running,
                b'c' => Phase::Closing,
                b'd' => Phase::Done,
                b'0'..=b'9' => {
                    self.qp = u32::from(byte - b'0');
                    self.phase
                }
                _ => continue,
            };
            self.output.push(byte.to_ascii_uppercase());
        }
    }

    fn resume(&mut self, context: &mut ToyContext, _: Instant) {
        if context.resumes {
            self.phase = Phase::Running;
            self.output.push(b'!');
        }
    }

    fn close(&mut self, context: &mut ToyContext, cause: Cause) {
        let name = match cause {
            Cause::Closed => "closed",
            Cause::Deadline => "deadline",
            Cause::Displaced => "displaced",
            Cause::Shutdown => "shutdown",
            Cause::Withdrawn => "withdrawn",
            Cause::Io(_) => "io",
            Cause::Untrusted => "untrusted",
            Cause::Seal(_) => "sealed",
        };
        context.ends.lock().unwrap().push((self.phase, name));
        self.phase = Phase::Done;
    }

    fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    fn phase(&self) -> Phase {
        self.phase
    }

    fn qp(&self) -> Option<QpNumber> {
        QpNumber::new(self.qp)
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }
}

struct ToyContext {
    requests: VecDeque<SocketAddr>,
    /// A request without an address has come.
    resumes: bool,
    ends: Ends,
    key: Option<PreSharedKey>,
    untrusted: Option<IpAddr>,
}

impl Context for ToyContext {
    type Request = Option<SocketAddr>;

    fn request(&mut self, request: Self::Request, _: Instant) -> QpNumber {
        self.resumes |= request.is_none();
        self.requests.extend(request);
        QpNumber::new(REQUESTED).unwrap()
    }

    fn next_outbound(&mut self, has_room: impl Fn(IpAddr) -> bool) -> Option<Self::Request> {
        let next = self.requests.iter().position(|address| has_room(address.ip()))?;
        self.requests.remove(next).map(Some)
    }

    fn key(&self) -> Option<&PreSharedKey> {
        self.key.as_ref()
    }

    fn trusts(&self, stream: &TcpStream) -> bool {
        self.untrusted != Some(stream.peer_addr().unwrap().ip())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Instant) {}
}

fn local(host: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, host], 0))
}

struct Fixture {
    connector: Connector<Option<SocketAddr>>,
    address: SocketAddr,
    ends: Ends,
}

impl Fixture {
    fn new(inbound: usize, per_source: usize) -> Self {
        let ends = Ends::default();
        let listener = TcpListener::bind(local(1)).unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, untrusted) = (VecDeque::new(), Some(local(66).ip()));
        let context = ToyContext { requests, resumes: false, ends: Arc::clone(&ends), key: None, untrusted };
        let limits = Limits {
            outbound: 4,
            inbound,
            per_source,
            opening_grace: Duration::ZERO,
            parked_grace: PARKED_GRACE,
        };
        let connector = Connector::start::<Toy>(limits, "reactor-test", listener, context).unwrap();
        Self { connector, address, ends }
    }

    /// A connection from 127.0.0.`host`, after `bytes` have been sent and answered.
    fn connect(&self, host: u8, bytes: &[u8]) -> TcpStream {
        let mut stream = dial(Route { from: local(host).ip(), to: self.address }).unwrap();
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(bytes).unwrap();
        stream.read_exact(&mut vec![0; bytes.len()]).unwrap();
        stream
    }

    /// As [`connect`](Self::connect); returns after the round that answered has ended.
    fn connect_and_wait(&self, host: u8, bytes: &[u8]) -> TcpStream {
        let stream = self.connect(host, bytes);
        self.connector.withdraw(QpNumber::new(UNUSED).unwrap());
        stream
    }

    /// Rounds of the thread during 300 ms.
    fn rounds(&self) -> u64 {
        let before = self.connector.control.rounds.load(Ordering::Relaxed);
        thread::sleep(Duration::from_millis(300));
        self.connector.control.rounds.load(Ordering::Relaxed) - before
    }

    /// Makes the thread connect to a listener that answers `d`.
    fn connects_out(&self) -> bool {
        let listener = TcpListener::bind(local(1)).unwrap();
        self.connector.request(Some(listener.local_addr().unwrap()));
        let start = std::time::Instant::now();
        listener.set_nonblocking(true).unwrap();
        let mut stream = loop {
            match listener.accept() {
                Ok((stream, _)) => break stream,
                Err(_) if start.elapsed() < Duration::from_secs(10) => {
                    thread::sleep(Duration::from_millis(5));
                }
                Err(_) => return false,
            }
        };
        stream.set_nonblocking(false).unwrap();
        let mut heard = [0; 2];
        stream.read_exact(&mut heard).unwrap();
        stream.write_all(b"d").unwrap();
        heard == *b"hi"
    }

    fn ends(&self, phase: Phase, cause: &str) -> usize {
        self.ends.lock().unwrap().iter().filter(|end| **end == (phase, cause)).count()
    }

    /// Returns after `count` handshakes have ended like this, and their connections.
    fn await_ends(&self, phase: Phase, cause: &str, count: usize) {
        let start = std::time::Instant::now();
        while self.ends(phase, cause) < count {
            let so_far = self.ends.lock().unwrap().clone();
            assert!(start.elapsed() < Duration::from_secs(10), "{phase:?} {cause}: {so_far:?}");
            thread::sleep(Duration::from_millis(5));
        }
        // A handshake ends before its connection is closed, but in the same round.
        self.connector.withdraw(QpNumber::new(UNUSED).unwrap());
    }
}

fn is_open(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    matches!(stream.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn idle_connections_cost_no_rounds_and_give_way_to_new_ones() {
    let fixture = Fixture::new(256, 200);
    // Waits until each connection is accepted: the kernel drops some of those beyond the backlog, which the
    // clients do not notice.
    let idle: Vec<_> = (0..300).map(|nth| fixture.connect(2 + (nth % 3) as u8, b"o")).collect();
    fixture.await_ends(Phase::Opening, "displaced", 300 - 256);
    assert!(fixture.rounds() <= 2);
    fixture.connect(9, b"d");
    assert!(fixture.connects_out());
    let open: Vec<bool> = idle.iter().map(is_open).collect();
    assert_eq!(open.iter().filter(|open| **open).count(), 255, "the new one displaced one more");
    assert!(open[..45].iter().all(|open| !open), "the oldest");
}

#[test]
fn a_full_table_takes_the_listener_out_of_the_epoll_and_leaves_outbound_alone() {
    let fixture = Fixture::new(8, 8);
    let mut busy: Vec<_> = (0..8).map(|_| fixture.connect(2, b"r")).collect();
    let mut waiting = fixture.connect(3, b"");
    waiting.write_all(b"d").unwrap();
    assert!(fixture.rounds() <= 3);
    assert!(fixture.connects_out() && is_open(&waiting));
    waiting.set_nonblocking(false).unwrap();
    busy.truncate(7);
    waiting.read_exact(&mut [0]).unwrap();
}

#[test]
fn peers_that_do_not_answer_leave_a_place_for_others() {
    let fixture = Fixture::new(8, 8);
    let silent = [2, 3].map(|host| TcpListener::bind(local(host)).unwrap());
    for address in silent.iter().map(|listener| listener.local_addr().unwrap()) {
        (0..8).for_each(|_| fixture.connector.request(Some(address)));
    }
    assert!(fixture.connects_out());
}

#[test]
fn a_source_has_its_share() {
    let fixture = Fixture::new(64, 4);
    // Connections that a request of this side matches do not count.
    let busy: Vec<_> = (0..8).map(|_| fixture.connect(2, b"r")).collect();
    let parked: Vec<_> = (0..3).map(|_| fixture.connect(2, b"p")).collect();
    let idle = fixture.connect(2, b"");
    let newer = fixture.connect(2, b"p");
    assert_eq!((fixture.ends(Phase::Opening, "displaced"), is_open(&idle)), (1, false));
    let mut refused = fixture.connect(2, b"");
    assert!(!matches!(refused.read(&mut [0]), Ok(1..)), "closed at once");
    fixture.connect(3, b"d");
    assert!(busy.iter().chain(&parked).chain([&newer]).all(is_open));
}

#[test]
fn a_deadline_ends_idle_and_slow_peers() {
    let fixture = Fixture::new(64, 64);
    let start = std::time::Instant::now();
    let (idle, mut slow) = (fixture.connect(HURRIED, b""), fixture.connect(HURRIED, b""));
    while slow.write_all(b"x").is_ok() {
        assert!(start.elapsed() < LONG_PATIENCE / 2);
        thread::sleep(Duration::from_millis(20));
    }
    assert!(start.elapsed() >= PATIENCE);
    fixture.await_ends(Phase::Opening, "deadline", 2);
    assert!(!is_open(&idle));
}

#[test]
fn a_peer_may_close_in_each_phase() {
    let fixture = Fixture::new(64, 64);
    for (bytes, phase) in
        [(&b""[..], Phase::Opening), (b"p", Phase::Parked), (b"r", Phase::Running), (b"c", Phase::Closing)]
    {
        let stream = fixture.connect(2, bytes);
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        fixture.await_ends(phase, "closed", 1);
        drop(fixture.connect(2, bytes));
        let start = std::time::Instant::now();
        while fixture.ends.lock().unwrap().len() < 2 {
            assert!(start.elapsed() < LONG_PATIENCE / 10, "{phase:?} reset");
        }
        fixture.ends.lock().unwrap().clear();
    }
    assert!(fixture.rounds() <= 1);
}

#[test]
fn parked_handshakes_resume_after_a_request() {
    let fixture = Fixture::new(64, 64);
    let [other, mut parked] = [&b"5p"[..], b"p"].map(|bytes| fixture.connect(2, bytes));
    fixture.connector.request(None);
    let mut heard = [0];
    parked.read_exact(&mut heard).unwrap();
    assert_eq!(heard, *b"!");
    assert!(is_open(&other), "it waits for another queue pair");
}

#[test]
fn a_withdrawal_ends_the_handshake_of_its_queue_pair_before_it_returns() {
    let fixture = Fixture::new(64, 64);
    let [running, other, parked] = [&b"5r"[..], b"6r", b"5p"].map(|bytes| fixture.connect(2, bytes));
    fixture.connector.withdraw(QpNumber::new(5).unwrap());
    assert_eq!(*fixture.ends.lock().unwrap(), [(Phase::Running, "withdrawn")]);
    assert_eq!([&running, &other, &parked].map(is_open), [false, true, true]);
}

#[test]
fn a_parked_connection_keeps_its_place_for_a_while() {
    let fixture = Fixture::new(2, 2);
    let start = std::time::Instant::now();
    let parked = [2, 3].map(|host| fixture.connect(host, b"p"));
    // Each new connection is closed at once, until the oldest parked one gives way.
    while !is_open(&fixture.connect_and_wait(4, b"p")) {
        thread::sleep(PARKED_GRACE / 4);
    }
    assert!(start.elapsed() >= PARKED_GRACE);
    assert_eq!(parked.each_ref().map(is_open), [false, true]);
}

#[test]
fn silent_connections_displace_silent_ones_only() {
    let fixture = Fixture::new(4, 200);
    let parked = [2, 3].map(|host| fixture.connect(host, b"p"));
    // The parked connections are older than the time for which they keep their places.
    thread::sleep(2 * PARKED_GRACE);
    let alone = fixture.connect(4, b"");
    let silent: Vec<_> = (0..100).map(|nth| fixture.connect(5 + nth % 2, b"")).collect();
    fixture.await_ends(Phase::Opening, "displaced", 101 - 4);
    assert!(parked.iter().all(is_open) && is_open(&alone), "the sources with most give way");
    let open: Vec<bool> = silent.iter().map(is_open).collect();
    assert_eq!((open.iter().filter(|open| **open).count(), open[99]), (3, true));
    assert_eq!(fixture.ends(Phase::Parked, "displaced"), 0);
}

#[test]
fn a_source_with_many_whole_requests_displaces_its_own() {
    let fixture = Fixture::new(4, 200);
    let other = fixture.connect(2, b"p");
    let flood: Vec<_> = (0..50).map(|_| fixture.connect(3, b"p")).collect();
    let late = fixture.connect(4, b"p");
    fixture.await_ends(Phase::Parked, "displaced", 52 - 4);
    assert!(is_open(&other) && is_open(&late));
    assert_eq!(flood.iter().filter(|stream| is_open(stream)).count(), 2);
}

#[test]
fn a_peer_that_is_not_trusted_is_closed_at_its_first_byte() {
    let fixture = Fixture::new(64, 64);
    let mut stream = dial(Route { from: local(66).ip(), to: fixture.address }).unwrap();
    stream.set_nonblocking(false).unwrap();
    // A connection without a byte is kept for a while.
    thread::sleep(Duration::from_millis(20));
    assert!(fixture.ends.lock().unwrap().is_empty());
    stream.write_all(b"r").unwrap();
    assert!(!matches!(stream.read(&mut [0]), Ok(1..)));
    fixture.await_ends(Phase::Opening, "untrusted", 1);
}

#[test]
fn the_last_message_is_read_however_late() {
    let fixture = Fixture::new(64, 64);
    let mut stream = dial(Route { from: local(2).ip(), to: fixture.address }).unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.write_all(b"c").unwrap();
    fixture.await_ends(Phase::Closing, "deadline", 1);
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).unwrap();
    assert_eq!(heard, b"C");
}

#[test]
fn handshakes_end_with_the_adapter() {
    let fixture = Fixture::new(64, 64);
    let _running = fixture.connect(2, b"r");
    drop(fixture.connector);
    assert_eq!(*fixture.ends.lock().unwrap(), [(Phase::Running, "shutdown")]);
}
