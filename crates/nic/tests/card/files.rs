//! Files through cards of every profile: they arrive with the same SHA-256, and no pause is longer than the
//! sender's retransmission timeouts explain. `NICHROME_FILE_MB` sets the size of the files.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::sync::{LazyLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use nichrome_port::uninterrupted;
use rand::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use sha2::{Digest, Sha256};

use crate::hosts::{Host, PORT, impaired, pair, profiles, stop, v4, v6};
use crate::sockets::{Socket, watch};

/// Numbers of connections, each of which carries a part of the file.
const CONNECTIONS: [usize; 3] = [1, 8, 64];

/// Time limit for the next bytes at a receiver.
const TIMEOUT: Duration = Duration::from_secs(60);

static FILE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let megabytes =
        std::env::var("NICHROME_FILE_MB").map_or(3, |text| text.parse().expect("NICHROME_FILE_MB"));
    let mut bytes = vec![0; megabytes * 1_000_000];
    Pcg64Mcg::seed_from_u64(1).fill_bytes(&mut bytes);
    bytes
});

/// Linux's minimum retransmission timeout (`TCP_RTO_MIN`).
const LEAST_TIMEOUT: Duration = Duration::from_millis(200);

/// Maximum number of successive retransmissions of the same packet: on a wire with 1 % loss, this many have a
/// probability of 10⁻¹⁰.
const LOST: u32 = 5;

/// The part of the file that one receiver got.
struct Part {
    /// The sender's port.
    port: u16,
    digest: [u8; 32],
    /// The longest time without data.
    stall: Duration,
}

/// The maxima that the sender's kernel reports, and the longest time between two reports.
struct Watched {
    sockets: HashMap<u16, Socket>,
    away: Duration,
}

impl Watched {
    /// Returns the longest explained pause of the receiver that is connected to `port`. The timeout doubles
    /// until a packet gets through, and a probe may precede it (RFC 8985 section 7), so that the pause is
    /// less than twice the longest timeout. If the machine delays the thread that reads the reports, it
    /// delays the others too.
    fn explained(&self, port: u16) -> Duration {
        let timeout = self.sockets.get(&port).map_or(LEAST_TIMEOUT, |socket| socket.timeout);
        2 * timeout + self.away
    }
}

/// Reads to the end of the stream.
fn receive(mut stream: TcpStream) -> Part {
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let (mut hash, mut stall, mut last) = (Sha256::new(), Duration::ZERO, Instant::now());
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let len = uninterrupted(|| stream.read(&mut buffer)).expect("nothing comes any more");
        stall = stall.max(last.elapsed());
        last = Instant::now();
        if len == 0 {
            let port = stream.peer_addr().unwrap().port();
            return Part { port, digest: hash.finalize().into(), stall };
        }
        hash.update(&buffer[..len]);
    }
}

/// Sends one file from the second host to the first, a part over each connection.
fn send_file(hosts: &[Host; 2], connections: Vec<(TcpStream, TcpStream)>) -> (Vec<Part>, Watched) {
    let parts = FILE.chunks(FILE.len().div_ceil(connections.len()));
    let (stop, stopped) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let watching = scope.spawn(move || {
            let (sockets, away) = watch(&hosts[1], &stopped);
            Watched { sockets, away }
        });
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for ((mut stream, accepted), part) in connections.into_iter().zip(parts) {
            senders.push(scope.spawn(move || {
                stream.write_all(part).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                stream
            }));
            receivers.push(scope.spawn(move || receive(accepted)));
        }
        // The connections stay open: ss does not list closed ones.
        let _open: Vec<_> = senders.into_iter().map(|sender| sender.join().unwrap()).collect();
        let received = receivers.into_iter().map(|receiver| receiver.join().unwrap()).collect();
        drop(stop);
        (received, watching.join().unwrap())
    })
}

fn connect(
    [receiver, sender]: &[Host; 2],
    address: IpAddr,
    connections: usize,
) -> Vec<(TcpStream, TcpStream)> {
    let listener = receiver.namespace.run(|| TcpListener::bind((address, PORT)).unwrap()).unwrap();
    let connect = |_| {
        let stream = sender.namespace.run(|| TcpStream::connect((address, PORT)).unwrap()).unwrap();
        (stream, listener.accept().unwrap().0)
    };
    (0..connections).map(connect).collect()
}

/// Transfers the file through cards of each profile, over each number of connections.
fn files_arrive(impairments: &[(&str, &str)], address: IpAddr) {
    for (name, profile) in profiles() {
        for connections in CONNECTIONS {
            let digests = FILE.chunks(FILE.len().div_ceil(connections)).map(Sha256::digest);
            let (hosts, cards) = pair(profile, &impaired(impairments));
            let connected = connect(&hosts, address, connections);
            let begun = Instant::now();
            let (parts, watched) = send_file(&hosts, connected);
            let gbps = FILE.len() as f64 * 8.0 / begun.elapsed().as_secs_f64() / 1e9;
            stop(cards);
            let sockets = || watched.sockets.values();
            let retransmitted: u64 = sockets().map(|socket| socket.retransmitted).sum();
            let stall = parts.iter().map(|part| part.stall).max().unwrap_or_default();
            let timeout = sockets().map(|socket| socket.timeout).max().unwrap_or_default();
            let backoff = sockets().map(|socket| socket.backoff).max().unwrap_or_default();
            println!(
                "{name:16}{connections:3} connections{gbps:7.3} Gb/s, {retransmitted:6} retransmitted, longest stall \
                 {stall:.0?}, timeout {timeout:.0?}, doubled {backoff} times, not asked for {:.0?}",
                watched.away
            );
            for (nth, (part, digest)) in parts.iter().zip(digests).enumerate() {
                let of = format!("{name}: connection {nth} of {connections}");
                assert!(part.digest == *digest, "{of}: other bytes");
                let explained = watched.explained(part.port);
                assert!(
                    part.stall <= explained,
                    "{of}: nothing came for {:?}, not {explained:?}",
                    part.stall
                );
            }
            assert!(backoff <= LOST, "{name}: {backoff} timeouts in succession");
        }
    }
}

const BAD: [(&str, &str); 4] =
    [("delay", "100us"), ("loss", "1%"), ("duplicate", "1%"), ("reorder", "1%:300us")];

#[test]
fn over_a_clean_wire_with_ipv4() {
    files_arrive(&[], v4(1));
}

#[test]
fn over_a_clean_wire_with_ipv6() {
    files_arrive(&[], v6(1));
}

#[test]
fn over_a_bad_wire_with_ipv4() {
    files_arrive(&BAD, v4(1));
}

#[test]
fn over_a_bad_wire_with_ipv6() {
    files_arrive(&BAD, v6(1));
}
