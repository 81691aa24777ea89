//! TCP traffic between programs on two hosts.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use nichrome_port::{NetworkNamespace, uninterrupted};
use nichrome_wan::Impairments;

use super::summary::Traffic;

const PORT: u16 = 5001;

/// Size of reads and writes, in bytes.
const CHUNK: usize = 256 * 1024;

/// Least time before the measurement, in which windows and buffers grow.
const WARM_UP: Duration = Duration::from_millis(200);

/// Least round trips before the measurement: windows begin with ten segments and mostly double with each.
const WARM_UP_ROUND_TRIPS: u32 = 10;

/// Time within which a stalled thread notices that the measurement is over.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Name of the receiving threads.
pub(super) const RECEIVER: &str = "receiver";

/// Size of the slow connection's writes, in bytes.
const SLOW_CHUNK: usize = 64 * 1024;

/// Pause of the slow connection's sender before it compares its bytes with the other connection's again.
const SLOW_PAUSE: Duration = Duration::from_micros(500);

/// The rate of a sender.
#[derive(Clone, Copy)]
enum Rate {
    /// As fast as it can.
    Full,
    /// A tenth of the bytes received on the connection with this number, and at most one write more.
    TenthOf(usize),
}

/// The extent of a transfer.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    /// Time before the measurement.
    warm_up: Duration,
    /// Time of the measurement.
    time: Duration,
}

impl Extent {
    /// Returns the extent of a measurement of `time` on a path with these impairments of its directions.
    pub(super) fn new(time: Duration, impairments: &[Impairments; 2]) -> Self {
        let round_trip: Duration = impairments.iter().map(|direction| direction.delay.get()).sum();
        Self { warm_up: WARM_UP.max(round_trip * WARM_UP_ROUND_TRIPS), time }
    }
}

/// The bytes that the receivers read between two marks.
pub(super) struct Received {
    /// Bytes of each connection.
    of_each: Vec<u64>,
    pub(super) time: Duration,
}

impl Received {
    /// Returns the bytes of all connections.
    pub(super) fn bytes(&self) -> u64 {
        self.of_each.iter().sum()
    }
}

/// State shared by the threads of all connections.
struct Shared {
    /// Bytes received on each connection.
    received: Vec<AtomicU64>,
    is_over: AtomicBool,
}

impl Shared {
    fn new(connections: usize) -> Self {
        Self {
            received: (0..connections).map(|_| AtomicU64::new(0)).collect(),
            is_over: AtomicBool::new(false),
        }
    }

    /// Returns the bytes received so far on each connection.
    fn received(&self) -> Vec<u64> {
        self.received.iter().map(|bytes| bytes.load(Ordering::Relaxed)).collect()
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// The threads of a connection.
struct Connection {
    sender: JoinHandle<io::Result<()>>,
    receiver: JoinHandle<io::Result<()>>,
}

/// Sends from `sender` to `receiver` at `address`. Counts the bytes received between two marks, the first
/// after windows have opened; on a busy machine both can be late. Resets the connections afterwards. Also
/// returns the results of `mark`, which is called at both marks.
pub(super) fn transfer<T>(
    [receiver, sender]: [&NetworkNamespace; 2],
    address: Ipv4Addr,
    traffic: Traffic,
    Extent { warm_up, time }: Extent,
    mark: impl Fn() -> anyhow::Result<T>,
) -> anyhow::Result<(Received, [T; 2])> {
    let listener = receiver.run(|| TcpListener::bind((address, PORT)))??;
    let streams = sender.run(|| connect(address, traffic.connections()))??;
    // The listener may accept the connections in any order.
    let mut accepted = HashMap::new();
    for _ in &streams {
        let (stream, peer) = listener.accept()?;
        accepted.insert(peer, stream);
    }
    let shared = Arc::new(Shared::new(traffic.connections()));
    let mut connections = Vec::new();
    for (nth, stream) in streams.into_iter().enumerate() {
        let accepted = accepted.remove(&stream.local_addr()?).context("a connection from elsewhere")?;
        let rate = if traffic == Traffic::TwoRates && nth == 1 { Rate::TenthOf(0) } else { Rate::Full };
        let named = |what: &str| thread::Builder::new().name(format!("{what}-{nth}"));
        let [sending, receiving] = [Arc::clone(&shared), Arc::clone(&shared)];
        connections.push(Connection {
            sender: named("sender").spawn(move || send(stream, &sending, rate))?,
            receiver: named(RECEIVER).spawn(move || receive(accepted, &receiving, nth))?,
        });
    }
    let mark = |after| {
        thread::sleep(after);
        let marked = mark();
        (shared.received(), Instant::now(), marked)
    };
    let (bytes_before, begun, before) = mark(warm_up);
    let (bytes_after, ended, after) = mark(time);
    shared.is_over.store(true, Ordering::Relaxed);
    for Connection { sender, receiver } in connections {
        sender.join().map_err(|_| anyhow!("a sender has panicked"))?.context("a sender")?;
        receiver.join().map_err(|_| anyhow!("a receiver has panicked"))?.context("a receiver")?;
    }
    let of_each = bytes_after.iter().zip(&bytes_before).map(|(after, before)| after - before).collect();
    Ok((Received { of_each, time: ended - begun }, [before?, after?]))
}

/// Makes `connections` connections to `address` at once: one after the other would take minutes over a path
/// with delay. The threads inherit the caller's network namespace.
fn connect(address: Ipv4Addr, connections: usize) -> anyhow::Result<Vec<TcpStream>> {
    thread::scope(|scope| {
        let connecting: Vec<_> =
            (0..connections).map(|_| scope.spawn(|| TcpStream::connect((address, PORT)))).collect();
        let connected = connecting.into_iter().map(|thread| {
            let stream = thread.join().map_err(|_| anyhow!("a thread that connects has panicked"))?;
            stream.context("cannot connect")
        });
        connected.collect()
    })
}

fn send(mut stream: TcpStream, shared: &Shared, rate: Rate) -> io::Result<()> {
    let bytes = vec![7; if matches!(rate, Rate::Full) { CHUNK } else { SLOW_CHUNK }];
    stream.set_write_timeout(Some(POLL_INTERVAL))?;
    let mut sent = 0;
    while !shared.is_over() {
        if let Rate::TenthOf(other) = rate
            && sent * 10 > shared.received[other].load(Ordering::Relaxed)
        {
            thread::sleep(SLOW_PAUSE);
            continue;
        }
        match uninterrupted(|| stream.write(&bytes)) {
            Ok(written) => sent += written as u64,
            // A stall, which lowers the received bytes.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // The receiver has closed the connection.
            Err(_) if shared.is_over() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Counts the bytes received on the connection `nth` until the measurement is over. Closing then resets the
/// connection: bytes in flight may be lost and would arrive seconds later.
fn receive(mut stream: TcpStream, shared: &Shared, nth: usize) -> io::Result<()> {
    stream.set_read_timeout(Some(POLL_INTERVAL))?;
    let mut buffer = vec![0; CHUNK];
    while !shared.is_over() {
        match uninterrupted(|| stream.read(&mut buffer)) {
            Ok(0) => break,
            Ok(read) => {
                shared.received[nth].fetch_add(read as u64, Ordering::Relaxed);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) if shared.is_over() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use nichrome_lab::{Lab, Side, in_namespaces};

    use super::*;
    use crate::demo::usage::ip_received;

    #[test]
    fn windows_have_time_to_open_on_a_long_path() {
        let warm_up = |delays: [&str; 2]| {
            let impairments =
                delays.map(|delay| Impairments { delay: delay.parse().unwrap(), ..Impairments::default() });
            Extent::new(Duration::ZERO, &impairments).warm_up.as_millis()
        };
        assert_eq!([["0", "0"], ["5ms", "10ms"], ["200ms", "200ms"]].map(warm_up), [200, 200, 4000]);
    }

    #[test]
    fn all_that_is_measured_is_of_the_same_time_however_late_a_mark_is() {
        in_namespaces(
            "demo::traffic::tests::all_that_is_measured_is_of_the_same_time_however_late_a_mark_is",
            || {
                let slow = Impairments { rate: Some("20mbit".parse().unwrap()), ..Impairments::default() };
                let impairments = [slow.clone(), slow];
                let lab = Lab::new(&impairments, 1).unwrap();
                let hosts = Side::BOTH.map(|side| lab.host(side).namespace());
                let late = Cell::new(Duration::ZERO);
                let mark = || {
                    thread::sleep(late.replace(Duration::from_millis(1300)));
                    Ok(hosts[0].run(ip_received)?)
                };
                let bulk = Traffic::Bulk { connections: 2 };
                let extent = Extent::new(Duration::from_millis(200), &impairments);
                let (received, [before, after]) =
                    transfer(hosts, Side::Left.ipv4(), bulk, extent, mark).unwrap();
                let share = received.bytes() as f64 / (after.bytes - before.bytes) as f64;
                assert!((0.7..=1.1).contains(&share), "{share} of the bytes that the kernel received");
                let gbps = received.bytes() as f64 * 8.0 / received.time.as_secs_f64() / 1e9;
                assert!(gbps < 0.03, "{gbps} Gbit/s through 20 Mbit/s");
            },
        );
    }

    #[test]
    fn the_slow_connection_has_a_tenth_of_the_other_ones_rate_whatever_that_is() {
        in_namespaces(
            "demo::traffic::tests::the_slow_connection_has_a_tenth_of_the_other_ones_rate_whatever_that_is",
            || {
                for rate in [Some("100mbit"), None] {
                    let path = Impairments {
                        rate: rate.map(|rate| rate.parse().unwrap()),
                        ..Impairments::default()
                    };
                    let impairments = [path.clone(), path];
                    let lab = Lab::new(&impairments, 1).unwrap();
                    let hosts = Side::BOTH.map(|side| lab.host(side).namespace());
                    let extent = Extent::new(Duration::from_secs(2), &impairments);
                    let (received, _) =
                        transfer(hosts, Side::Left.ipv4(), Traffic::TwoRates, extent, || Ok(())).unwrap();
                    let [fast, slow] = received.of_each[..] else { panic!("two connections") };
                    let ratio = fast as f64 / slow as f64;
                    assert!((9.0..=11.0).contains(&ratio), "{rate:?}: {ratio} to 1");
                }
            },
        );
    }
}
