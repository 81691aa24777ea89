//! The TCP connection over which server and client exchange parameters.

use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv, sockopt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::options::Options;
use crate::failure;

/// Time limit for a client to connect to a server that is still starting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Read timeout of the TCP connection.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Time after which a machine that does not answer is lost.
const UNRESPONSIVE_TIMEOUT: Duration = Duration::from_secs(30);

/// Time between keepalive probes.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Server,
    Client,
}

/// Connects to the server or, as the server, accepts a client.
pub(super) fn meet(options: &Options) -> anyhow::Result<(Role, TcpStream)> {
    options.check()?;
    let (role, stream) = match &options.server {
        Some(server) => (Role::Client, connect(server, options.port)?),
        None => (Role::Server, accept(options)?),
    };
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    stream.set_nodelay(true)?;
    limit_silence(&stream)?;
    Ok((role, stream))
}

/// Makes the connection fail if the peer's machine does not answer for [`UNRESPONSIVE_TIMEOUT`], even while
/// nothing is sent.
fn limit_silence(stream: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE_INTERVAL)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_INTERVAL)?;
    // Replaces the number of probes, and limits retransmissions too (tcp(7)).
    sockopt::set_tcp_user_timeout(stream, UNRESPONSIVE_TIMEOUT.as_millis() as u32)
}

/// How a peer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum Lost {
    /// The peer has closed the connection.
    #[error("has ended")]
    Ended,
    /// The peer's machine does not answer.
    #[error("does not answer")]
    Silent,
}

/// Fails if the connection has failed, or if the peer has closed it and no unread bytes are left.
pub(super) fn check_peer(stream: &TcpStream) -> Result<(), Lost> {
    // recv() does not report a failure while unread bytes precede it.
    let failure = stream.take_error().unwrap_or_else(Some);
    match failure.map(|error| error.kind()) {
        Some(error) if is_silence(error) => return Err(Lost::Silent),
        Some(_) => return Err(Lost::Ended),
        None => {}
    }
    match recv(stream, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((0, _)) => Err(Lost::Ended),
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
        Err(_) => Err(Lost::Ended),
    }
}

/// Returns true for the errors of a connection whose peer's machine does not answer.
fn is_silence(error: ErrorKind) -> bool {
    matches!(error, ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable)
}

/// Describes why a server cannot listen at an address, if one was requested, and a port.
fn why_not_listening(error: &io::Error, requested: Option<IpAddr>, port: u16) -> anyhow::Error {
    let remedy = match (error.kind(), requested) {
        (ErrorKind::AddrInUse, _) => ": another program has it, choose one by --port".to_owned(),
        (ErrorKind::AddrNotAvailable, Some(address)) => {
            format!(": {address} is not an address of this machine ('nichrome rdma devices' lists them)")
        }
        _ => String::new(),
    };
    anyhow!("cannot listen on TCP port {port}: {error}{remedy}")
}

fn accept(options: &Options) -> anyhow::Result<TcpStream> {
    let everywhere = || IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let requested = options.address()?;
    let address = SocketAddr::new(requested.unwrap_or_else(everywhere), options.port);
    let listener = TcpListener::bind(address).or_else(|error| match requested {
        // The machine has no IPv6.
        None => TcpListener::bind((Ipv4Addr::UNSPECIFIED, options.port)),
        Some(_) => Err(error),
    });
    let listener = listener.map_err(|error| why_not_listening(&error, requested, options.port))?;
    if !options.json || options.port == 0 {
        let port = listener.local_addr()?.port();
        failure::notice(format_args!("nichrome: waiting for a client on TCP port {port}"));
    }
    let (stream, _) = listener.accept().context("cannot accept a client")?;
    Ok(stream)
}

fn connect(server: &str, port: u16) -> anyhow::Result<TcpStream> {
    let start = Instant::now();
    loop {
        match TcpStream::connect((server, port)) {
            Err(error) if may_be_starting(&error) && start.elapsed() < CONNECT_TIMEOUT => {
                thread::sleep(Duration::from_millis(20));
            }
            result => {
                let remedy = match &result {
                    Err(error) if may_be_starting(error) => ": start one there first",
                    _ => "",
                };
                return result.with_context(|| {
                    format!("cannot connect to a server at {server}, TCP port {port}{remedy}")
                });
            }
        }
    }
}

fn may_be_starting(error: &io::Error) -> bool {
    error.kind() == ErrorKind::ConnectionRefused
}

/// Returns the local address of the connection, as IPv4 if it is an IPv4-mapped one.
pub(super) fn here(stream: &TcpStream) -> anyhow::Result<IpAddr> {
    Ok(stream.local_addr()?.ip().to_canonical())
}

/// Waits until the peer no longer needs this process: it could still need an acknowledgment, or be the
/// program that `nichrome wan` stops when the other one ends. The server waits until the client has finished,
/// the client until the server has reported its results and closed the connection (ibv_rc_pingpong closes it
/// much earlier).
pub(super) fn part_from_peer(role: Role, mut stream: &TcpStream) -> anyhow::Result<()> {
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    // A peer that failed or is silent needs nothing more.
    if role == Role::Client {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let _ = stream.read(&mut [0]);
    Ok(())
}

/// Sends `mine` to the peer and returns the peer's value.
///
/// # Errors
/// The peer has closed the connection, is silent, or sends something else, as another command does.
pub(super) fn exchange<T: Serialize + DeserializeOwned>(stream: &TcpStream, mine: &T) -> anyhow::Result<T> {
    nichrome_hca::exchange(stream, mine).map_err(|error| {
        let what = match error.kind() {
            ErrorKind::InvalidData => "the peer runs another command",
            ErrorKind::WouldBlock => "the peer does not answer",
            kind if is_silence(kind) => "the peer does not answer",
            _ => "the peer closed the TCP connection",
        };
        anyhow::Error::new(error).context(what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn the_client_parts_after_the_server_has_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let reported = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                part_from_peer(Role::Server, &server).unwrap();
                thread::sleep(Duration::from_millis(50));
                reported.store(true, Ordering::Relaxed);
                drop(server);
            });
            part_from_peer(Role::Client, &client).unwrap();
            assert!(reported.load(Ordering::Relaxed));
        });
    }

    #[test]
    fn a_machine_that_does_not_answer_is_lost_after_its_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        limit_silence(&stream).unwrap();
        assert_eq!(sockopt::socket_keepalive(&stream), Ok(true));
        assert_eq!(sockopt::tcp_keepidle(&stream), Ok(PROBE_INTERVAL));
        assert_eq!(sockopt::tcp_user_timeout(&stream), Ok(30_000));
        assert_eq!(check_peer(&stream), Ok(()));
        drop(listener);
        assert_eq!(check_peer(&stream), Err(Lost::Ended));
        assert!([Errno::TIMEDOUT, Errno::HOSTUNREACH].iter().all(|error| is_silence(error.kind())));
    }

    #[test]
    fn a_connection_that_has_failed_is_found_behind_bytes_that_are_not_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(b"bytes").unwrap();
        assert_eq!(check_peer(&stream), Ok(()));
        sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).unwrap();
        drop(peer);
        assert_eq!(check_peer(&stream), Err(Lost::Ended));
    }

    #[test]
    fn a_peer_that_ends_is_distinguished_from_another_command_and_from_a_silent_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            client.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
            (client, listener.accept().unwrap().0)
        };
        let failure = |client: &TcpStream| exchange(client, &1_u32).unwrap_err().to_string();
        let (client, mut other_command) = connect();
        other_command.write_all(b"{\"qps\": 1}\n").unwrap();
        assert_eq!(failure(&client), "the peer runs another command");
        let (client, silent) = connect();
        assert_eq!(failure(&client), "the peer does not answer");
        drop(silent);
        let (client, ended) = connect();
        drop(ended);
        assert_eq!(failure(&client), "the peer closed the TCP connection");
    }
}
