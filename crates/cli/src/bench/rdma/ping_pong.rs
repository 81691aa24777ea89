//! A TCP ping-pong, whose latency `nichrome bench rdma` compares with RDMA's.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, ValueEnum};
use nichrome_wan::DelayHistogram;
use serde::Serialize;

/// Message size in bytes.
const LEN: usize = 8;

/// Time limit for a client to connect to a server that is still starting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Measure the latency of 8 bytes over TCP, for 'nichrome bench rdma'.
#[derive(Args)]
pub(crate) struct TcpPingPong {
    #[arg(value_enum)]
    end: TcpEnd,
    /// The server's port on 127.0.0.1.
    #[arg(long)]
    port: u16,
    #[arg(long)]
    iters: u32,
    #[arg(long, value_enum)]
    wait: Wait,
}

/// Which end a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum TcpEnd {
    Server,
    Client,
}

/// How an end waits for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Wait {
    /// Blocks in read(2), as most programs do.
    Blocking,
    /// Repeats a non-blocking read(2).
    Polling,
}

/// The result. The names of its fields are JSON keys.
#[derive(Serialize)]
struct Measured {
    /// Median, in microseconds.
    half_round_trip_us: f64,
}

impl TcpPingPong {
    /// Runs one end.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let mut stream = match self.end {
            TcpEnd::Server => TcpListener::bind(address)?.accept()?.0,
            TcpEnd::Client => reach(address).context("cannot reach the server")?,
        };
        stream.set_nodelay(true)?;
        stream.set_nonblocking(self.wait == Wait::Polling)?;
        let mut times = DelayHistogram::new();
        let mut message = [0; LEN];
        for _ in 0..self.iters {
            let start = Instant::now();
            if self.end == TcpEnd::Client {
                stream.write_all(&message)?;
            }
            receive(&mut stream, &mut message)?;
            times.record(start.elapsed() / 2);
            if self.end == TcpEnd::Server {
                stream.write_all(&message)?;
            }
        }
        let half_round_trip_us = times.quantile(0.5).as_secs_f64() * 1e6;
        if self.end == TcpEnd::Client {
            writeln!(io::stdout(), "{}", serde_json::to_string(&Measured { half_round_trip_us })?)?;
        }
        Ok(())
    }
}

/// Connects to a server that may still be starting.
pub(super) fn reach(server: SocketAddr) -> io::Result<TcpStream> {
    let start = Instant::now();
    loop {
        match TcpStream::connect(server) {
            Err(error)
                if error.kind() == ErrorKind::ConnectionRefused && start.elapsed() < CONNECT_TIMEOUT =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            result => return result,
        }
    }
}

/// Receives one message. `WouldBlock` loses no bytes: eight bytes written at once do not arrive in parts.
fn receive(stream: &mut TcpStream, message: &mut [u8; LEN]) -> io::Result<()> {
    loop {
        match stream.read_exact(message) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            result => return result,
        }
    }
}
