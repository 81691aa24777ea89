//! Connections over TCP, which `nichrome bench rdma --connect` compares with those of the connection manager.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::ping_pong::{TcpEnd, reach};
use crate::connecting::{Connecting, Moments, Remaining, on_threads};

/// Time limit for the next connection or its message.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Measure connections over TCP, for 'nichrome bench rdma --connect'. The server sends a byte on each.
#[derive(Args)]
pub(crate) struct TcpConnect {
    #[arg(value_enum)]
    end: TcpEnd,
    /// The server's port on 127.0.0.1.
    #[arg(long)]
    port: u16,
    #[arg(long)]
    connections: u32,
    #[arg(long)]
    parallel: u32,
}

impl TcpConnect {
    /// Runs one end.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        match self.end {
            TcpEnd::Server => self.serve(&TcpListener::bind(address)?),
            TcpEnd::Client => {
                // The first connection shows that the server listens.
                let listening = reach(address).context("cannot reach the server")?;
                let connecting = self.connect(address)?;
                drop(listening);
                Ok(writeln!(io::stdout(), "{}", serde_json::to_string(&connecting)?)?)
            }
        }
    }

    fn serve(&self, listener: &TcpListener) -> anyhow::Result<()> {
        set_socket_timeout(listener, Timeout::Recv, Some(TIMEOUT))?;
        let _client = listener.accept().context("no client connected")?;
        let remaining = Remaining::new(self.connections);
        on_threads(self.parallel, || {
            while remaining.take() {
                let (mut stream, _) = listener.accept().context("no client connected")?;
                stream.write_all(&[1])?;
                // The client ends first.
                stream.set_read_timeout(Some(TIMEOUT))?;
                stream.read_to_end(&mut Vec::new())?;
            }
            Ok(Vec::<()>::new())
        })?;
        Ok(())
    }

    fn connect(&self, server: SocketAddr) -> anyhow::Result<Connecting> {
        let remaining = Remaining::new(self.connections);
        let start = Instant::now();
        let made = on_threads(self.parallel, || {
            let mut made = Vec::new();
            while remaining.take() {
                let connect = || TcpStream::connect(server).context("cannot connect");
                let greet = |stream: &mut TcpStream| Ok(stream.read_exact(&mut [0])?);
                made.push(Moments::measure(connect, greet)?.1);
            }
            Ok(made)
        })?;
        Ok(Connecting::of(&made, start.elapsed()))
    }
}
