//! TCP traffic between programs on two hosts.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::ops::Range;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use nichrome_port::{NetworkNamespace, uninterrupted};

use super::summary::Traffic;

const PORT: u16 = 5001;

/// Size of reads and writes, in bytes.
const CHUNK: usize = 256 * 1024;

/// Time before the measurement, in which windows and buffers grow.
const WARM_UP: Duration = Duration::from_millis(200);

/// Name of the receiving threads.
pub(super) const RECEIVER: &str = "receiver";

/// Pause of the slow connection's sender between writes.
const SLOW: Duration = Duration::from_millis(2);

/// The receivers' results.
pub(super) struct Received {
    pub(super) bytes: u64,
    pub(super) time: Duration,
}

/// The threads of a connection.
struct Connection {
    sender: JoinHandle<io::Result<()>>,
    receiver: JoinHandle<io::Result<u64>>,
}

/// Sends from `sender` to `receiver` at `address`. Counts the bytes received within `time`, after windows have opened.
/// Calls `begun` and `ended` at the start and end of the measurement; connections are closed afterwards.
pub(super) fn transfer<T, U>(
    [receiver, sender]: [&NetworkNamespace; 2],
    address: Ipv4Addr,
    traffic: Traffic,
    time: Duration,
    begun: impl FnOnce() -> T,
    ended: impl FnOnce() -> U,
) -> anyhow::Result<(Received, T, U)> {
    let listener = receiver.run(|| TcpListener::bind((address, PORT)))??;
    let mut streams = Vec::new();
    for _ in 0..traffic.connections() {
        let stream = sender.run(|| TcpStream::connect((address, PORT)))?.context("cannot connect")?;
        streams.push((stream, listener.accept()?.0));
    }
    let from = Instant::now() + WARM_UP;
    let until = from + time;
    let mut connections = Vec::new();
    for (nth, (stream, accepted)) in streams.into_iter().enumerate() {
        let pause = (traffic == Traffic::TwoRates && nth == 1).then_some(SLOW);
        let named = |what: &str| thread::Builder::new().name(format!("{what}-{nth}"));
        connections.push(Connection {
            sender: named("sender").spawn(move || send(stream, until, pause))?,
            receiver: named(RECEIVER).spawn(move || receive(accepted, from..until))?,
        });
    }
    thread::sleep(WARM_UP);
    let begun = begun();
    thread::sleep(until.saturating_duration_since(Instant::now()));
    let ended = ended();
    let mut bytes = 0;
    for Connection { sender, receiver } in connections {
        sender.join().map_err(|_| anyhow!("a sender has panicked"))?.context("a sender")?;
        bytes += receiver.join().map_err(|_| anyhow!("a receiver has panicked"))?.context("a receiver")?;
    }
    Ok((Received { bytes, time }, begun, ended))
}

fn send(mut stream: TcpStream, until: Instant, pause: Option<Duration>) -> io::Result<()> {
    let bytes = vec![7; if pause.is_some() { CHUNK / 4 } else { CHUNK }];
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    while Instant::now() < until {
        match uninterrupted(|| stream.write(&bytes)) {
            Ok(_) => {}
            // A long stall: the received bytes show it.
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
        if let Some(pause) = pause {
            thread::sleep(pause);
        }
    }
    Ok(())
}

/// Returns the bytes received in this interval; reads but ignores later ones.
fn receive(mut stream: TcpStream, counted: Range<Instant>) -> io::Result<u64> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let (mut bytes, mut buffer) = (0, vec![0; CHUNK]);
    loop {
        let read = match uninterrupted(|| stream.read(&mut buffer)) {
            Ok(0) => return Ok(bytes),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(bytes),
            Err(error) => return Err(error),
        };
        if counted.contains(&Instant::now()) {
            bytes += read as u64;
        }
    }
}
