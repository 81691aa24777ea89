//! Where server and client meet: one TCP connection.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::options::Options;

/// How long a client waits for a server that has just been started.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long either waits for what the other has to say.
const SILENCE: Duration = Duration::from_secs(60);

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Server,
    Client,
}

/// Meets the other end.
pub(super) fn meet(options: &Options) -> anyhow::Result<(Role, TcpStream)> {
    // What is wrong with the options is said before anyone is waited for.
    options.impairments()?;
    let (role, stream) = match &options.server {
        Some(server) => (Role::Client, connect(server, options.port)?),
        None => (Role::Server, accept(options)?),
    };
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_nodelay(true)?;
    Ok((role, stream))
}

fn accept(options: &Options) -> anyhow::Result<TcpStream> {
    let everywhere = || IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let asked = options.address()?;
    let address = SocketAddr::new(asked.unwrap_or_else(everywhere), options.port);
    let listener = TcpListener::bind(address).or_else(|error| match asked {
        // A machine without IPv6.
        None => TcpListener::bind((Ipv4Addr::UNSPECIFIED, options.port)),
        Some(_) => Err(error),
    });
    let listener = listener.with_context(|| format!("cannot listen at TCP port {}", options.port))?;
    if !options.json {
        eprintln!("nichrome: waiting for a client at TCP port {}", options.port);
    }
    let (stream, _) = listener.accept().context("no client can come")?;
    Ok(stream)
}

fn connect(server: &str, port: u16) -> anyhow::Result<TcpStream> {
    let start = Instant::now();
    loop {
        match TcpStream::connect((server, port)) {
            Err(error) if is_not_there_yet(&error) && start.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_millis(20));
            }
            result => {
                return result.with_context(|| {
                    format!("cannot reach a server at {server}, TCP port {port}: start one there first")
                });
            }
        }
    }
}

fn is_not_there_yet(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

/// The address of this end; that of an IPv4 connection as such.
pub(super) fn here(stream: &TcpStream) -> anyhow::Result<IpAddr> {
    Ok(stream.local_addr()?.ip().to_canonical())
}
