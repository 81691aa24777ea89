//! Datagrams that carry their send time, so that a receiver on this machine can compute the delay.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use clap::Args;
use nichrome_port::{clock, uninterrupted};
use nichrome_wan::DelayHistogram;
use nichrome_wire::Instant;

/// Datagrams per second.
pub(super) const RATE: u64 = 20_000;

/// Duration of sending, without --quick.
pub(super) const TIME: Duration = Duration::from_secs(2);

/// Length of a datagram, in bytes.
const LEN: usize = 100;

/// Timeout for each datagram.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Internal: send datagrams from inside another emulator for 'nichrome bench wan'.
#[derive(Args)]
pub(crate) struct Probe {
    /// The destination.
    #[arg(value_name = "ADDRESS:PORT")]
    to: SocketAddr,
}

impl Probe {
    /// Sends all datagrams.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        Ok(send(self.to, TIME)?)
    }
}

/// Sends [`RATE`] datagrams per second for the duration, and a final one without a time. If the thread was
/// delayed, continues at that rate, without a burst.
pub(super) fn send(to: SocketAddr, duration: Duration) -> io::Result<()> {
    clock::sleep_precisely()?;
    let any: SocketAddr = if to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0; 16], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.connect(to)?;
    let gap = 1_000_000_000 / RATE;
    let mut at = clock::now();
    let mut datagram = [0; LEN];
    for _ in 0..RATE * duration.as_millis() as u64 / 1000 {
        if at > clock::now() {
            clock::wait([], Some(at))?;
        }
        at = at.plus_nanos(gap).max(clock::now());
        datagram[..8].copy_from_slice(&clock::now().as_nanos().to_le_bytes());
        match socket.send(&datagram) {
            // No listener yet, or a full queue: the receiver counts losses.
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error),
        }
    }
    socket.send(&[])?;
    Ok(())
}

/// Receives datagrams until the one without a time; returns the deviations from `delay`.
pub(super) fn receive(socket: &UdpSocket, delay: Duration) -> io::Result<DelayHistogram> {
    socket.set_read_timeout(Some(TIMEOUT))?;
    let mut errors = DelayHistogram::new();
    let mut datagram = [0; LEN];
    loop {
        match uninterrupted(|| socket.recv(&mut datagram)) {
            Ok(0) => return Ok(errors),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(errors),
            Err(error) => return Err(error),
        }
        if let Some(sent) = datagram.first_chunk() {
            let sent = Instant::from_nanos(u64::from_le_bytes(*sent));
            errors.record((clock::now() - sent).abs_diff(delay));
        }
    }
}
