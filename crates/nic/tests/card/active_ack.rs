//! Active ACK `safe` with a receiver that stops reading, is killed, or comes back: no byte is acknowledged
//! that the receiver's kernel does not get.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nichrome_lro::{ActiveAck, NpuConfig, ProfileConfig};
use nichrome_nic::Card;
use nichrome_port::Netlink;
use rustix::net::{AddressFamily, SocketType, sockopt};
use rustix::process::{Pid, Signal, kill_process};
use sha2::{Digest, Sha256};

use crate::hosts::{
    Host, PORT, add_neighbours, impaired, interface, observed_pair, pattern, stop, transfer, v4,
};
use crate::ledger::{Account, Ledger};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Time without a change after which the connection is idle.
const STILL: Duration = Duration::from_millis(100);

/// Two hosts behind cards with active ACK, the first one as receiver, and the ledger of acknowledged bytes.
struct Pair {
    hosts: [Host; 2],
    cards: [Card; 2],
    ledger: Ledger,
}

/// A new connection.
struct Connection {
    stream: TcpStream,
    accepted: TcpStream,
    /// The sender's port.
    port: u16,
}

impl Pair {
    fn new() -> Self {
        let npu = NpuConfig { active_ack: ActiveAck::Safe, ..NpuConfig::default() };
        let ledger = Ledger::default();
        let (hosts, cards) = observed_pair(Some(ProfileConfig::Npu(npu)), &impaired(&[]), &ledger);
        Self { hosts, cards, ledger }
    }

    /// Connects to a receiver with a receive buffer of `memory` bytes; `None` for the kernel's default.
    fn connect(&self, memory: Option<usize>) -> Connection {
        let [receiver, sender] = &self.hosts;
        let listener = receiver.namespace.run(|| TcpListener::bind((v4(1), PORT)).unwrap()).unwrap();
        if let Some(bytes) = memory {
            sockopt::set_socket_recv_buffer_size(&listener, bytes).unwrap();
        }
        let stream = sender.namespace.run(|| TcpStream::connect((v4(1), PORT)).unwrap()).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        accepted.set_read_timeout(Some(TIMEOUT)).unwrap();
        let port = stream.local_addr().unwrap().port();
        Connection { stream, accepted, port }
    }

    /// Waits until `bytes` more bytes than in `before` are acknowledged to the sender.
    fn wait_for_more(&self, port: u16, before: Account, bytes: u32) {
        let until = Instant::now() + TIMEOUT;
        while self.ledger.account(port).promised_since(before) < bytes {
            assert!(Instant::now() < until, "{:?}", self.ledger.account(port));
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until no more ACKs arrive for [`STILL`]; returns the account.
    fn wait_until_still(&self, port: u16) -> Account {
        let mut account = self.ledger.account(port);
        let mut since = Instant::now();
        while since.elapsed() < STILL {
            thread::sleep(Duration::from_millis(5));
            let now = self.ledger.account(port);
            if now != account {
                (account, since) = (now, Instant::now());
            }
        }
        account
    }

    /// Waits until the connection is idle, and checks that the receiving kernel has all bytes that were
    /// acknowledged to the sender. Repeats this until [`TIMEOUT`]: a card that waits for a processor seems
    /// idle, too.
    fn check_once_still(&self, port: u16) {
        let until = Instant::now() + TIMEOUT;
        let mut account = self.wait_until_still(port);
        while account.unconfirmed() > 0 && Instant::now() < until {
            account = self.wait_until_still(port);
        }
        assert_eq!((account.too_early, account.unconfirmed()), (0, 0), "{account:?}");
    }

    /// Stops the cards; checks that the receiver's card has sent ACKs.
    fn stop(self) {
        let [receiver, _] = stop(self.cards);
        assert!(receiver[0].engine.acks_sent > 0, "{:?}", receiver[0]);
    }
}

fn send(mut stream: TcpStream, data: Vec<u8>) -> JoinHandle<()> {
    thread::spawn(move || stream.write_all(&data).unwrap())
}

/// Sends until an error; returns the error's kind.
fn send_on(mut stream: TcpStream) -> JoinHandle<ErrorKind> {
    thread::spawn(move || {
        let bytes = vec![1; 100_000];
        loop {
            if let Err(error) = stream.write_all(&bytes) {
                return error.kind();
            }
        }
    })
}

/// A program that receives; killed on drop.
struct Program(Child);

impl Program {
    fn start(name: &str, arguments: &[&str], accepted: TcpStream) -> Self {
        let mut command = Command::new(name);
        command.args(arguments).stdin(OwnedFd::from(accepted)).stdout(Stdio::piped()).stderr(Stdio::null());
        Self(command.spawn().expect(name))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_receiver_that_stops_reading_gets_every_byte_in_the_end() {
    // With a small buffer, the kernel drops segments that are within its window.
    for (memory, len) in [(None, 20_000_000), (Some(64 * 1024), 5_000_000)] {
        let pair = Pair::new();
        let Connection { stream, mut accepted, port } = pair.connect(memory);
        let sender = send(stream, pattern(0, len));
        let mut received = Vec::new();
        for _ in 0..5 {
            pair.check_once_still(port);
            let mut piece = vec![0; len / 20];
            accepted.read_exact(&mut piece).unwrap();
            received.append(&mut piece);
        }
        accepted.read_to_end(&mut received).unwrap();
        sender.join().unwrap();
        assert!(received == pattern(0, len), "{} of {len} bytes, or other ones", received.len());
        pair.check_once_still(port);
        pair.stop();
    }
}

#[test]
fn a_program_that_is_stopped_and_goes_on_gets_every_byte() {
    let pair = Pair::new();
    let Connection { stream, accepted, port } = pair.connect(None);
    let data = pattern(0, 60_000_000);
    let digest = Sha256::digest(&data);
    let expected = format!("{digest:x}  -\n");
    let mut program = Program::start("sha256sum", &[], accepted);
    let sender = send(stream, data);
    for _ in 0..4 {
        pair.wait_for_more(port, pair.ledger.account(port), 5_000_000);
        program.signal(Signal::STOP);
        pair.check_once_still(port);
        program.signal(Signal::CONT);
    }
    sender.join().unwrap();
    let mut printed = String::new();
    program.0.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert!(program.0.wait().unwrap().success());
    assert_eq!(printed, expected);
    pair.check_once_still(port);
    pair.stop();
}

/// A receiver that reads, and one that never did. The kernel drops bytes that it gets after the program's
/// end; they may have been acknowledged before the sender gets the reset.
#[test]
fn a_sender_learns_that_its_receiver_was_killed_and_another_comes_back() {
    for (program, arguments) in [("cat", &[][..]), ("sleep", &["1000"])] {
        let pair = Pair::new();
        let Connection { stream, accepted, port } = pair.connect(None);
        let begun = pair.ledger.account(port);
        let mut program = Program::start(program, arguments, accepted);
        let mut read = program.0.stdout.take().unwrap();
        let reading = thread::spawn(move || std::io::copy(&mut read, &mut std::io::sink()));
        let sender = send_on(stream);
        pair.wait_for_more(port, begun, 30_000);
        drop(program);
        reading.join().unwrap().unwrap();
        let error = sender.join().unwrap();
        assert!(matches!(error, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
        assert_eq!(pair.ledger.account(port).too_early, 0);
        arrives_from(&pair, port);
        transfer(&pair.hosts[0], &pair.hosts[1], v4(1), 2, 1_000_000);
        pair.stop();
    }
}

/// Transfers data over a new connection between the same ports: the card's state of the old one must not
/// affect it.
fn arrives_from(pair: &Pair, port: u16) {
    let [receiver, sender] = &pair.hosts;
    let listener = receiver.namespace.run(|| TcpListener::bind((v4(1), PORT)).unwrap()).unwrap();
    let connect = || {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        sockopt::set_socket_reuseaddr(&socket, true).unwrap();
        rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)).unwrap();
        rustix::net::connect(&socket, &SocketAddrV4::new(Ipv4Addr::new(10, 7, 0, 1), PORT)).unwrap();
        TcpStream::from(socket)
    };
    let stream = sender.namespace.run(connect).unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    accepted.set_read_timeout(Some(TIMEOUT)).unwrap();
    let sender = send(stream, pattern(3, 3_000_000));
    let mut received = Vec::new();
    accepted.read_to_end(&mut received).unwrap();
    sender.join().unwrap();
    assert!(received == pattern(3, 3_000_000), "{} bytes, or other ones", received.len());
    pair.check_once_still(port);
}

#[test]
fn a_host_whose_interface_was_down_gets_every_byte() {
    let pair = Pair::new();
    let Connection { stream, mut accepted, port } = pair.connect(None);
    let sender = send(stream, pattern(0, 40_000_000));
    let receiver = thread::spawn(move || {
        let mut received = Vec::new();
        accepted.read_to_end(&mut received).unwrap();
        received
    });
    let host = &pair.hosts[0].namespace;
    for _ in 0..3 {
        pair.wait_for_more(port, pair.ledger.account(port), 2_000_000);
        host.run(|| {
            let netlink = Netlink::open().unwrap();
            netlink.set_down(&netlink.interface(interface()).unwrap()).unwrap();
        })
        .unwrap();
        // The kernel may have received bytes without acknowledging them: only the end of the transfer shows
        // whether all arrived.
        pair.wait_until_still(port);
        host.run(|| {
            let netlink = Netlink::open().unwrap();
            netlink.set_up(&netlink.interface(interface()).unwrap()).unwrap();
            add_neighbours(&netlink, 1);
        })
        .unwrap();
    }
    sender.join().unwrap();
    let received = receiver.join().unwrap();
    assert!(received == pattern(0, 40_000_000), "{} bytes, or other ones", received.len());
    pair.check_once_still(port);
    pair.stop();
}
