//! `nichrome rdma pingpong`: a ping-pong of SENDs, compatible with libibverbs' ibv_rc_pingpong.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use nichrome_hca::{Adapter, CompletionQueue, Connection, Endpoint, QueuePair, Region};
use nichrome_rdma::{
    Access, CompletedOperation, Operation, PathMtu, QpCapacity, ReceiveRequest, SendRequest,
};
use serde::Serialize;

use super::options::Options;
use super::rendezvous::{Role, here, meet, part_from_peer};
use super::report::{self, Row, Traffic};
use super::session::{check, check_family};
use crate::{failure, number};

/// Exchange messages, compatible with libibverbs' ibv_rc_pingpong. Both ends need the same --size, --iters
/// and --path-mtu (1024 by default).
#[derive(Args)]
pub(crate) struct PingPong {
    #[command(flatten)]
    options: Options,
    /// Message size in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = number::bytes(1..=1_u32 << 24))]
    size: u32,
    /// Number of messages in each direction.
    #[arg(long, value_name = "MESSAGES", default_value_t = 1000, value_parser = number::whole(1..=u32::MAX))]
    iters: u32,
}

/// Number of posted receives.
const DEPTH: usize = 500;

/// Time limit for the next completion.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The result. The names of its fields are JSON keys.
#[derive(Serialize)]
struct Measured {
    size: u32,
    iters: u32,
    seconds: f64,
    mbps: f64,
    us_per_iter: f64,
    #[serde(flatten)]
    traffic: Traffic,
}

/// One end of the ping-pong.
struct Player {
    role: Role,
    size: usize,
    cq: CompletionQueue,
    qp: QueuePair,
    region: Region,
}

impl PingPong {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let (role, stream) = meet(&self.options)?;
        let mtu = self.options.path_mtu.unwrap_or(PathMtu::B1024);
        let config = self.options.adapter(here(&stream)?)?;
        let adapter = Adapter::open(&config).context("cannot open an adapter")?;
        if mtu > adapter.mtu() {
            return Err(failure::usage(format!(
                "the interface supports a path MTU of at most {}",
                adapter.mtu().bytes()
            )));
        }
        let player = self.player(role, &adapter)?;
        let mine = player.qp.endpoint();
        let connect = |theirs: &Endpoint| {
            check_family(mine.address, theirs.address)?;
            player.qp.connect(theirs, &Connection::new(mtu)).context("cannot connect")
        };
        player.prepare()?;
        let mut handshake = Handshake(&stream);
        match role {
            Role::Client => {
                handshake.send(&mine)?;
                connect(&handshake.receive()?)?;
                handshake.send_done()?;
            }
            Role::Server => {
                connect(&handshake.receive()?)?;
                handshake.send(&mine)?;
                handshake.receive_done()?;
            }
        }
        let time = player.play(self.iters, &adapter)?;
        part_from_peer(role, &stream)?;
        report::warn_of_capture(&adapter);
        let measured = self.measured(mtu, time, &adapter);
        report::print(&self.options, &measured, &rows(&measured))
    }

    fn player(&self, role: Role, adapter: &Adapter) -> anyhow::Result<Player> {
        let size = self.size as usize;
        let region = adapter.region(2 * size, Access::NONE).context("cannot register memory")?;
        let cq = adapter.completion_queue(DEPTH + 1)?;
        let capacity =
            QpCapacity { send_wrs: 1, receive_wrs: DEPTH, send_sges: 1, receive_sges: 1, inline: 0 };
        let qp = adapter.queue_pair(capacity, &cq, &cq)?;
        Ok(Player { role, size, cq, qp, region })
    }

    fn measured(&self, mtu: PathMtu, time: Duration, adapter: &Adapter) -> Measured {
        let (seconds, iters) = (time.as_secs_f64(), f64::from(self.iters));
        Measured {
            size: self.size,
            iters: self.iters,
            seconds,
            mbps: 2.0 * iters * f64::from(self.size) * 8.0 / seconds / 1e6,
            us_per_iter: seconds / iters * 1e6,
            traffic: Traffic::of(adapter, mtu),
        }
    }
}

/// Returns the byte that fills an end's messages, as in ibv_rc_pingpong.
const fn content(role: Role) -> u8 {
    match role {
        Role::Client => 0x7B,
        Role::Server => 0x7C,
    }
}

impl Player {
    /// Posts all receives, before the peer can send.
    fn prepare(&self) -> anyhow::Result<()> {
        self.region.with(|bytes| bytes[self.size..].fill(content(self.role)));
        self.qp.prepare()?;
        (0..DEPTH).try_for_each(|_| self.post_receive())
    }

    fn post_receive(&self) -> anyhow::Result<()> {
        let buffers = [self.region.slice(0, self.size)];
        Ok(self.qp.post_receive(&ReceiveRequest { wr_id: 1, buffers: &buffers })?)
    }

    fn post_send(&self) -> anyhow::Result<()> {
        let buffers = [self.region.slice(self.size, self.size)];
        Ok(self.qp.post_send(&SendRequest::new(2, Operation::Send, &buffers))?)
    }

    /// Sends and receives `iters` messages each: sends the next message once the previous one has completed
    /// and the peer's has arrived.
    fn play(&self, iters: u32, adapter: &Adapter) -> anyhow::Result<Duration> {
        let start = Instant::now();
        let (mut posted, mut sent, mut received) = (0, 0, 0);
        if self.role == Role::Client {
            self.post_send()?;
            posted = 1;
        }
        while sent < iters || received < iters {
            let Some(completion) = self.cq.wait(TIMEOUT) else {
                bail!("no completion for {TIMEOUT:?}, after {received} messages from the peer");
            };
            check(&completion, adapter)?;
            if completion.operation == CompletedOperation::Receive {
                received += 1;
                self.check_content(received)?;
                self.post_receive()?;
            } else {
                sent += 1;
            }
            let is_our_turn = match self.role {
                Role::Client => sent == posted && received == posted,
                Role::Server => sent == posted && received > posted,
            };
            if is_our_turn && posted < iters {
                self.post_send()?;
                posted += 1;
            }
        }
        Ok(start.elapsed())
    }

    /// Checks the content of a received message. ibv_rc_pingpong with -c sends other content and fails this
    /// check.
    fn check_content(&self, received: u32) -> anyhow::Result<()> {
        let theirs = content(if self.role == Role::Client { Role::Server } else { Role::Client });
        let wrong = self.region.with(|bytes| {
            bytes[..self.size].iter().position(|byte| *byte != theirs).map(|at| (at, bytes[at]))
        });
        match wrong {
            None => Ok(()),
            Some((at, byte)) => {
                bail!("byte {at} of message {received} is {byte:#04x}, expected {theirs:#04x}")
            }
        }
    }
}

/// ibv_rc_pingpong's handshake over TCP: each end sends its endpoint and a zero byte, then the client sends
/// `done`.
struct Handshake<'a>(&'a TcpStream);

/// Bytes of an endpoint as text, with the zero byte.
const ENDPOINT_LEN: usize = 52;
const DONE: &[u8; 5] = b"done\0";

impl Handshake<'_> {
    fn send(&mut self, endpoint: &Endpoint) -> anyhow::Result<()> {
        let text = format!("{endpoint}\0");
        self.0.write_all(text.as_bytes()).context("the peer closed the TCP connection")
    }

    fn receive(&mut self) -> anyhow::Result<Endpoint> {
        let mut bytes = [0; ENDPOINT_LEN];
        self.0.read_exact(&mut bytes).context("the peer did not send its queue pair's endpoint")?;
        let text = String::from_utf8_lossy(&bytes);
        Ok(text.trim_end_matches('\0').parse()?)
    }

    fn send_done(&mut self) -> io::Result<()> {
        self.0.write_all(DONE)
    }

    fn receive_done(&mut self) -> anyhow::Result<()> {
        self.0.read_exact(&mut [0; DONE.len()]).context("the peer could not connect")
    }
}

fn rows(measured: &Measured) -> Vec<Row> {
    let Measured { size, iters, seconds, mbps, us_per_iter, traffic } = measured;
    let mut rows = vec![
        ("messages", format!("{iters} of {size} bytes each way in {seconds:.3} s")),
        ("throughput", format!("{} Mb/s", number::measured(*mbps))),
        ("round trip", format!("{us_per_iter:.2} us")),
    ];
    rows.extend(traffic.rows());
    rows
}
