//! `nichrome rdma pingpong`: what ibv_rc_pingpong does, and with it.

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
use super::rendezvous::{Role, here, meet};
use super::report::{self, Row, Traffic};
use super::session::check;
use crate::failure;

/// Send messages to and fro, as libibverbs' ibv_rc_pingpong does, which may be the other end. Both ends are told the same
/// size, count and path MTU, 1024 unless something else is said.
#[derive(Args)]
pub(crate) struct PingPong {
    #[command(flatten)]
    options: Options,
    /// Bytes of a message.
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    size: u32,
    /// Messages each way.
    #[arg(long, value_name = "MESSAGES", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    iters: u32,
}

/// Receives posted.
const DEPTH: usize = 500;

/// How long nothing may happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// What was done.
#[derive(Serialize)]
struct Measured {
    size: u32,
    iters: u32,
    path_mtu: usize,
    seconds: f64,
    mbps: f64,
    us_per_iter: f64,
    #[serde(flatten)]
    traffic: Traffic,
}

/// This end, ready to play.
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
                "the interface takes a path MTU of {} at most",
                adapter.mtu().bytes()
            )));
        }
        let player = self.player(role, &adapter)?;
        let mine = player.qp.endpoint();
        let connect = |theirs: &Endpoint| player.qp.connect(theirs, &Connection::new(mtu));
        player.prepare()?;
        let mut talk = Talk(&stream);
        match role {
            Role::Client => {
                talk.tell(&mine)?;
                connect(&talk.hear()?)?;
                talk.done()?;
            }
            Role::Server => {
                connect(&talk.hear()?)?;
                talk.tell(&mine)?;
                talk.await_done()?;
            }
        }
        let time = player.play(self.iters)?;
        let measured = self.measured(mtu, time, &adapter);
        report::print(self.options.json, &measured, &rows(&measured))
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
            path_mtu: mtu.bytes(),
            seconds,
            mbps: 2.0 * iters * f64::from(self.size) * 8.0 / seconds / 1e6,
            us_per_iter: seconds / iters * 1e6,
            traffic: Traffic::of(adapter),
        }
    }
}

/// What the messages of an end consist of: what ibv_rc_pingpong's do.
const fn content(role: Role) -> u8 {
    match role {
        Role::Client => 0x7B,
        Role::Server => 0x7C,
    }
}

impl Player {
    /// Posts receives, before anything can come.
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

    /// Sends `iters` messages and receives as many: each when the one before has gone and the other end's has come.
    fn play(&self, iters: u32) -> anyhow::Result<Duration> {
        let start = Instant::now();
        let (mut posted, mut sent, mut received) = (0, 0, 0);
        if self.role == Role::Client {
            self.post_send()?;
            posted = 1;
        }
        while sent < iters || received < iters {
            let Some(completion) = self.cq.wait(PATIENCE) else {
                bail!("the other end has said nothing for {PATIENCE:?}, after {received} messages");
            };
            check(&completion)?;
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

    /// The other end sends its own content, or, if it is told to check, something else.
    fn check_content(&self, received: u32) -> anyhow::Result<()> {
        let theirs = content(if self.role == Role::Client { Role::Server } else { Role::Client });
        let wrong = self.region.with(|bytes| {
            bytes[..self.size].iter().position(|byte| *byte != theirs).map(|at| (at, bytes[at]))
        });
        match wrong {
            None => Ok(()),
            Some((at, byte)) => {
                bail!("byte {at} of message {received} is {byte:#04x} where {theirs:#04x} was sent")
            }
        }
    }
}

/// What ibv_rc_pingpong says over TCP: an endpoint and a zero byte, and in the end `done`.
struct Talk<'a>(&'a TcpStream);

/// Bytes of an endpoint.
const ENDPOINT_LEN: usize = 52;
const DONE: &[u8; 5] = b"done\0";

impl Talk<'_> {
    fn tell(&mut self, endpoint: &Endpoint) -> anyhow::Result<()> {
        let text = format!("{endpoint}\0");
        self.0.write_all(text.as_bytes()).context("the other end has gone")
    }

    fn hear(&mut self) -> anyhow::Result<Endpoint> {
        let mut bytes = [0; ENDPOINT_LEN];
        self.0.read_exact(&mut bytes).context("the other end says nothing about its queue pair")?;
        let text = String::from_utf8_lossy(&bytes);
        Ok(text.trim_end_matches('\0').parse()?)
    }

    fn done(&mut self) -> io::Result<()> {
        self.0.write_all(DONE)
    }

    fn await_done(&mut self) -> anyhow::Result<()> {
        self.0.read_exact(&mut [0; DONE.len()]).context("the other end could not connect")
    }
}

fn rows(measured: &Measured) -> Vec<Row> {
    let Measured { size, iters, path_mtu, seconds, mbps, us_per_iter, traffic } = measured;
    let mut rows = vec![
        ("messages", format!("{iters} of {size} bytes each way in {seconds:.3} s, path MTU {path_mtu}")),
        ("throughput", format!("{mbps:.2} Mb/s")),
        ("round trip", format!("{us_per_iter:.2} us")),
    ];
    rows.extend(traffic.rows());
    rows
}
