//! Files through cards of every profile: the SHA-256 of what arrives is that of what was sent, and nothing stands still
//! for longer than the sender's retransmission timeout explains. `NICHROME_FILE_MB` says how long files are.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::sync::{LazyLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rand::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use sha2::{Digest, Sha256};

use crate::hosts::{Host, PORT, impaired, pair, profiles, stop, v4, v6};
use crate::sockets::{Socket, watch};

/// Over so many connections at once, each with its part of the file.
const CONNECTIONS: [usize; 3] = [1, 8, 64];

/// How long a receiver waits for anything at all.
const PATIENCE: Duration = Duration::from_secs(60);

static FILE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let megabytes =
        std::env::var("NICHROME_FILE_MB").map_or(3, |text| text.parse().expect("NICHROME_FILE_MB"));
    let mut bytes = vec![0; megabytes * 1_000_000];
    Pcg64Mcg::seed_from_u64(1).fill_bytes(&mut bytes);
    bytes
});

/// What Linux has it at least (`TCP_RTO_MIN`).
const LEAST_TIMEOUT: Duration = Duration::from_millis(200);

/// How often in succession the same packet may have to be sent once more: that a wire which loses 1 % does it so often has
/// a probability of 10⁻¹⁰.
const LOST: u32 = 5;

/// What a receiver has got.
struct Part {
    /// The sender's port.
    port: u16,
    digest: [u8; 32],
    /// The longest time in which nothing came.
    stall: Duration,
}

/// What a sender's kernel says at most, and how long it was not asked.
struct Watched {
    sockets: HashMap<u16, Socket>,
    away: Duration,
}

impl Watched {
    /// The longest time in which the receiver behind `port` may get nothing. The timeout runs out and is doubled until
    /// something gets through, and a probe may have come before that (RFC 8985 section 7): less than twice the longest.
    /// Where threads are kept waiting, as the one was that asks, so are all.
    fn explained(&self, port: u16) -> Duration {
        let timeout = self.sockets.get(&port).map_or(LEAST_TIMEOUT, |socket| socket.timeout);
        2 * timeout + self.away
    }
}

/// Reads to the end.
fn receive(mut stream: TcpStream) -> Part {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut hash, mut stall, mut last) = (Sha256::new(), Duration::ZERO, Instant::now());
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let len = stream.read(&mut buffer).expect("nothing comes any more");
        stall = stall.max(last.elapsed());
        last = Instant::now();
        if len == 0 {
            let port = stream.peer_addr().unwrap().port();
            return Part { port, digest: hash.finalize().into(), stall };
        }
        hash.update(&buffer[..len]);
    }
}

/// One file from the second host to the first, a part over each connection.
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
        // Connections that are closed could not be asked about.
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

/// Files through cards of each profile.
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
