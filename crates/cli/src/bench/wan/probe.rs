//! Datagrams that carry the time when they were sent, so that whoever receives them on this machine knows how long they
//! took.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use clap::Args;
use nichrome_port::clock;
use nichrome_wan::DelayHistogram;
use nichrome_wire::Instant;

/// Datagrams a second.
pub(super) const RATE: u64 = 20_000;

/// How long they are sent.
pub(super) const TIME: Duration = Duration::from_secs(2);

/// Bytes of a datagram.
const LEN: usize = 100;

/// How long the receiver waits for the first or the next one.
const PATIENCE: Duration = Duration::from_secs(3);

/// Send datagrams that 'nichrome bench wan' measures: what it runs inside other emulators.
#[derive(Args)]
pub(crate) struct Probe {
    /// Where to.
    #[arg(value_name = "ADDRESS:PORT")]
    to: SocketAddr,
}

impl Probe {
    /// Sends them all.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        Ok(send(self.to)?)
    }
}

/// Sends [`RATE`] datagrams a second for [`TIME`], and one without a time at the end. Where it is kept from sending, it
/// goes on at that rate, without a burst of what it has missed.
pub(super) fn send(to: SocketAddr) -> io::Result<()> {
    clock::sleep_precisely()?;
    let any: SocketAddr = if to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0; 16], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.connect(to)?;
    let gap = 1_000_000_000 / RATE;
    let mut at = clock::now();
    let mut datagram = [0; LEN];
    for _ in 0..RATE * TIME.as_secs() {
        if at > clock::now() {
            clock::wait([], Some(at))?;
        }
        at = at.plus_nanos(gap).max(clock::now());
        datagram[..8].copy_from_slice(&clock::now().as_nanos().to_le_bytes());
        match socket.send(&datagram) {
            // Nobody listens yet, or the queue is full: the receiver counts what is missing.
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error),
        }
    }
    socket.send(&[])?;
    Ok(())
}

/// Receives datagrams until the one without a time: how far from `asked` each one's delay was.
pub(super) fn receive(socket: &UdpSocket, asked: Duration) -> io::Result<DelayHistogram> {
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut errors = DelayHistogram::new();
    let mut datagram = [0; LEN];
    loop {
        match socket.recv(&mut datagram) {
            Ok(0) => return Ok(errors),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(errors),
            Err(error) => return Err(error),
        }
        if let Some(sent) = datagram.first_chunk() {
            let sent = Instant::from_nanos(u64::from_le_bytes(*sent));
            errors.record((clock::now() - sent).abs_diff(asked));
        }
    }
}
