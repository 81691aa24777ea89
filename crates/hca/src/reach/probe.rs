//! Probes over UDP.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use nichrome_port::clock;
use nichrome_wire::Instant;
use rustix::rand::{GetRandomFlags, getrandom};
use thiserror::Error;

use super::path::PathQuality;
use super::probing::{LEN, Probing, answer_to};

/// How a path is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeOptions {
    /// Probes, at least one. If none of 100 is lost, less than 3 % of round trips lose a datagram (with 95 %
    /// confidence).
    pub count: u32,
    /// Time between probes.
    pub interval: Duration,
    /// How long the peer may take to answer its first probe: it may be starting.
    pub patience: Duration,
}

impl Default for ProbeOptions {
    /// 100 probes in 0.2 s, after up to 5 s.
    fn default() -> Self {
        Self { count: 100, interval: Duration::from_millis(2), patience: Duration::from_secs(5) }
    }
}

/// Why a path was not measured.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// The address is not of this machine, or no descriptor or random number is left.
    #[error("cannot send probes from {from}: {error}")]
    Socket {
        /// The address.
        from: IpAddr,
        /// The kernel's error.
        error: io::Error,
    },
    /// No probe was answered.
    #[error("{peer} does not answer probes")]
    Silent {
        /// Where probes were sent.
        peer: SocketAddr,
    },
}

/// Time between probes until the first is answered.
const GREETING_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum number of datagrams that are read after the time for answers is over: as many as a socket's buffer
/// of the usual size holds.
const MAX_WAITING: usize = 1024;

/// How long answers may take after the last probe: this, or four round trips if that is longer.
const ANSWER_TIME: Duration = Duration::from_millis(250);

/// Measures the path from an address of this machine to a peer that answers probes at a UDP port.
///
/// # Errors
/// [`ProbeError`].
pub fn probe(from: IpAddr, peer: SocketAddr, options: &ProbeOptions) -> Result<PathQuality, ProbeError> {
    let failed = |error| ProbeError::Socket { from, error };
    let socket = connected(from, peer).map_err(failed)?;
    let until = clock::now() + options.patience;
    let mut greeting = Probing::new(token().map_err(failed)?);
    while greeting.quality().is_none() {
        if clock::now() >= until {
            return Err(ProbeError::Silent { peer });
        }
        send(&socket, &mut greeting);
        let next = (clock::now() + GREETING_INTERVAL).min(until);
        receive_until(&socket, &mut greeting, next, |greeting| greeting.quality().is_some())
            .map_err(failed)?;
    }
    let mut probing = Probing::new(token().map_err(failed)?);
    for _ in 0..options.count.max(1) {
        send(&socket, &mut probing);
        receive_until(&socket, &mut probing, clock::now() + options.interval, |_| false).map_err(failed)?;
    }
    let round_trip = probing.quality().or(greeting.quality()).map_or(ANSWER_TIME, |path| path.round_trip);
    let until = clock::now() + ANSWER_TIME.max(round_trip * 4);
    receive_until(&socket, &mut probing, until, Probing::is_complete).map_err(failed)?;
    probing.quality().ok_or(ProbeError::Silent { peer })
}

/// Waits for a datagram, and answers it if it is a probe.
///
/// # Errors
/// The socket's.
pub fn answer_probe(socket: &UdpSocket) -> io::Result<()> {
    let mut datagram = [0; LEN + 1];
    match socket.recv_from(&mut datagram) {
        Ok((len, prober)) => {
            if let Some(answer) = answer_to(&datagram[..len]) {
                // If the answer cannot be sent, the prober counts it as lost.
                let _ = socket.send_to(&answer, prober);
            }
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
        Err(error) => Err(error),
    }
}

fn connected(from: IpAddr, peer: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((from, 0))?;
    socket.set_nonblocking(true)?;
    socket.connect(peer)?;
    Ok(socket)
}

fn token() -> io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}

fn send(socket: &UdpSocket, probing: &mut Probing) {
    // A probe that cannot be sent counts as lost. Without a listener, the error is ECONNREFUSED of the
    // previous probe.
    let _ = socket.send(&probing.send(clock::now()));
}

/// Receives answers until the time is `until`, or `is_enough` returns true.
fn receive_until(
    socket: &UdpSocket,
    probing: &mut Probing,
    until: Instant,
    is_enough: impl Fn(&Probing) -> bool,
) -> io::Result<()> {
    let mut datagram = [0; LEN + 1];
    while !is_enough(probing) && clock::now() < until {
        let [is_readable] = clock::wait([socket.as_fd()], Some(until))?;
        if !is_readable {
            continue;
        }
        // An error (ECONNREFUSED) is of an earlier probe: the peer does not listen yet.
        if let Ok(len) = socket.recv(&mut datagram) {
            probing.receive(&datagram[..len], clock::now());
        }
    }
    // Reads the answers that wait, since this thread may not have run since before `until`. Bounded, since a
    // peer may go on sending.
    for _ in 0..MAX_WAITING {
        match socket.recv(&mut datagram) {
            Ok(len) => probing.receive(&datagram[..len], clock::now()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::thread;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn bound() -> (UdpSocket, SocketAddr) {
        let socket = UdpSocket::bind((HERE, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        (socket, address)
    }

    #[test]
    fn a_peer_that_answers_is_measured() {
        let (socket, peer) = bound();
        thread::spawn(move || while answer_probe(&socket).is_ok() {});
        let options = ProbeOptions { count: 20, ..ProbeOptions::default() };
        let path = probe(HERE, peer, &options).unwrap();
        assert_eq!((path.sent, path.lost), (20, 0));
        assert!(Duration::ZERO < path.round_trip && path.round_trip < ANSWER_TIME, "{path:?}");
    }

    #[test]
    fn probes_that_are_not_answered_count_as_lost() {
        let (socket, peer) = bound();
        thread::spawn(move || {
            let mut nth = 0;
            let mut datagram = [0; LEN];
            // Answers the greeting, and then every second probe.
            while let Ok((len, prober)) = socket.recv_from(&mut datagram) {
                if nth == 0 || nth % 2 == 1 {
                    socket.send_to(&answer_to(&datagram[..len]).unwrap(), prober).unwrap();
                }
                nth += 1;
            }
        });
        let options =
            ProbeOptions { count: 10, interval: Duration::from_millis(1), ..ProbeOptions::default() };
        let path = probe(HERE, peer, &options).unwrap();
        assert_eq!(path.sent, 10);
        assert!((4..=6).contains(&path.lost), "a second greeting moves them by one: {path:?}");
    }

    #[test]
    fn a_peer_that_starts_late_loses_nothing_by_it() {
        // An address that no other test uses, so that the port stays free.
        let peer = UdpSocket::bind(("127.0.82.1", 0)).unwrap().local_addr().unwrap();
        let options = ProbeOptions { count: 5, patience: Duration::from_secs(30), ..ProbeOptions::default() };
        let measured = thread::spawn(move || probe(HERE, peer, &options));
        let socket = UdpSocket::bind(peer).unwrap();
        thread::spawn(move || while answer_probe(&socket).is_ok() {});
        assert_eq!(measured.join().unwrap().unwrap().lost, 0);
    }

    #[test]
    fn answers_that_wait_when_the_time_is_over_are_not_lost() {
        let (answering, peer) = bound();
        let (socket, mut probing) = (connected(HERE, peer).unwrap(), Probing::new(1));
        for _ in 0..10 {
            send(&socket, &mut probing);
            answer_probe(&answering).unwrap();
        }
        receive_until(&socket, &mut probing, Instant::ZERO, |_| false).unwrap();
        assert!(probing.is_complete());
    }

    #[test]
    fn silence_and_wrong_addresses_are_errors() {
        let (_socket, peer) = bound();
        let options = ProbeOptions { patience: Duration::from_millis(50), ..ProbeOptions::default() };
        assert_eq!(
            probe(HERE, peer, &options).unwrap_err().to_string(),
            format!("{peer} does not answer probes")
        );
        let elsewhere = "192.0.2.1".parse().unwrap();
        let error = probe(elsewhere, peer, &options).unwrap_err().to_string();
        assert!(error.starts_with("cannot send probes from 192.0.2.1: "), "{error}");
    }
}
