//! `nichrome rdma connect`: connections by address and port.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use nichrome_hca::cm::{Connected, Listener, Request};
use nichrome_hca::{Adapter, CompletionQueue, Connection, QueuePair, Region};
use nichrome_rdma::{Access, Operation, Payload, QpCapacity, ReceiveRequest, SendFlags, SendRequest};
use serde::{Deserialize, Serialize};

use super::growth::{Growth, Memory};
use super::options::Options;
use super::rendezvous::Role;
use super::report::{self, Row, Traffic};
use super::session::{Agreed, Negotiation, check, check_family};
use crate::connecting::{Connecting, Moments, Remaining, on_threads};
use crate::number;

/// The allowed numbers of connections.
const CONNECTIONS: RangeInclusive<u32> = 1..=100_000;

/// The allowed numbers of connections set up at a time.
const PARALLEL: RangeInclusive<u32> = 1..=64;

/// Measure the set-up of connections by address and port, as programs of rdma_cm do: duration, rate, and
/// memory per connection. The server sends each client one message.
#[derive(Args)]
pub(crate) struct Connect {
    #[command(flatten)]
    options: Options,
    /// Number of connections.
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = number::whole(CONNECTIONS))]
    connections: u32,
    /// Number of connections set up at a time.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = number::whole(PARALLEL))]
    parallel: u32,
    /// Keep all connections until the last is established, and measure their memory. Without it each ends
    /// after its message.
    #[arg(long)]
    keep: bool,
}

/// The client's parameters, which both ends use.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Parameters {
    connections: u32,
    parallel: u32,
    keep: bool,
}

impl Agreed for Parameters {
    fn is_in_range(&self) -> bool {
        CONNECTIONS.contains(&self.connections) && PARALLEL.contains(&self.parallel)
    }
}

/// The result of an end. The names of its fields are JSON keys.
#[derive(Serialize)]
struct Measured {
    #[serde(flatten)]
    parameters: Parameters,
    /// The client's times; `None` at the server.
    #[serde(flatten)]
    connecting: Option<Connecting>,
    #[serde(flatten)]
    growth: Growth,
    #[serde(flatten)]
    traffic: Traffic,
}

/// Time limit for the next step of a connection.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Interval at which the server checks whether the client has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Content of the server's message.
const GREETING: [u8; 1] = [1];

impl Connect {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let negotiation = Negotiation::begin(&self.options)?;
        let Self { connections, parallel, keep, .. } = *self;
        let parameters = negotiation.agree(Parameters { connections, parallel, keep })?;
        let before = Memory::now();
        let (kept, connecting) = match negotiation.role {
            Role::Server => (serve(&negotiation, parameters)?, None),
            Role::Client => client(&negotiation, parameters)?,
        };
        // Both ends keep their connections until both have measured.
        let growth =
            if parameters.keep { before.growth(parameters.connections as usize) } else { Growth::default() };
        negotiation.finish()?;
        drop(kept);
        let adapter = &negotiation.adapter;
        let traffic = Traffic::of(adapter, adapter.mtu());
        let measured = Measured { parameters, connecting, growth, traffic };
        if negotiation.role == Role::Server && !self.options.json {
            return Ok(());
        }
        report::print(&self.options, &measured, &rows(&measured))
    }
}

/// The objects that a thread needs for its connections, which it sets up one by one.
struct End<'a> {
    adapter: &'a Adapter,
    region: Region,
    completions: CompletionQueue,
    connection: Connection,
}

impl<'a> End<'a> {
    fn new(adapter: &'a Adapter) -> anyhow::Result<Self> {
        let region = adapter.region(GREETING.len(), Access::NONE).context("cannot register memory")?;
        let completions = adapter.completion_queue(4)?;
        Ok(Self { adapter, region, completions, connection: Connection::new(adapter.mtu()) })
    }

    fn queue_pair(&self) -> anyhow::Result<QueuePair> {
        let capacity =
            QpCapacity { send_wrs: 1, receive_wrs: 1, send_sges: 1, receive_sges: 1, inline: GREETING.len() };
        Ok(self.adapter.queue_pair(capacity, &self.completions, &self.completions)?)
    }

    fn await_completion(&self) -> anyhow::Result<()> {
        let completion = self.completions.wait(TIMEOUT);
        check(&completion.with_context(|| format!("no completion for {TIMEOUT:?}"))?, self.adapter)
    }

    /// Connects to the server and waits for its message.
    fn connect(&self, server: SocketAddr) -> anyhow::Result<(Connected, Moments)> {
        let queue_pair = self.queue_pair()?;
        // The receive is posted before the server can send.
        queue_pair.prepare()?;
        let buffers = [self.region.slice(0, GREETING.len())];
        queue_pair.post_receive(&ReceiveRequest { wr_id: 0, buffers: &buffers })?;
        let connect =
            || self.adapter.connect(server, queue_pair, b"", &self.connection).context("cannot connect");
        Moments::measure(connect, |_| self.await_completion())
    }

    /// Accepts a connection and sends it a message.
    fn accept(&self, listener: &Listener, negotiation: &Negotiation) -> anyhow::Result<Connected> {
        let request = next_request(listener, negotiation)?;
        let connected = request.accept(self.queue_pair()?, b"", &self.connection).context("cannot accept")?;
        connected.queue_pair().post_send(&SendRequest {
            wr_id: 0,
            operation: Operation::Send,
            payload: Payload::Inline(&GREETING),
            flags: SendFlags::SIGNALED,
            recipient: None,
            srq: None,
        })?;
        self.await_completion()?;
        Ok(connected)
    }
}

/// Waits for the client to connect.
fn next_request(listener: &Listener, negotiation: &Negotiation) -> anyhow::Result<Request> {
    let start = Instant::now();
    while start.elapsed() < TIMEOUT {
        if let Some(request) = listener.accept(POLL_INTERVAL)? {
            return Ok(request);
        }
        negotiation.check_peer().map_err(|lost| anyhow!("the client {lost}"))?;
    }
    bail!("no client connected for {TIMEOUT:?}")
}

/// Accepts all connections; returns the open ones.
fn serve(negotiation: &Negotiation, parameters: Parameters) -> anyhow::Result<Vec<Connected>> {
    let adapter = &negotiation.adapter;
    let listener = adapter.listen(0, 0)?;
    negotiation.exchange_server_value(Some(listener.address()))?;
    let remaining = Remaining::new(parameters.connections);
    on_threads(parameters.parallel, || {
        let (end, mut kept) = (End::new(adapter)?, Vec::new());
        while remaining.take() {
            let connected = end.accept(&listener, negotiation)?;
            if parameters.keep {
                kept.push(connected);
            } else if !connected.wait_disconnected(TIMEOUT)? {
                bail!("the client did not disconnect for {TIMEOUT:?}");
            }
        }
        Ok(kept)
    })
}

/// Makes all connections; returns the open ones, and their set-up times.
fn client(
    negotiation: &Negotiation,
    parameters: Parameters,
) -> anyhow::Result<(Vec<Connected>, Option<Connecting>)> {
    let server: SocketAddr = negotiation.exchange_server_value(None)?;
    check_family(negotiation.adapter.address(), server.ip())?;
    let remaining = Remaining::new(parameters.connections);
    let start = Instant::now();
    let made = on_threads(parameters.parallel, || {
        let (end, mut made) = (End::new(&negotiation.adapter)?, Vec::new());
        while remaining.take() {
            let (connected, moments) = end.connect(server)?;
            made.push((parameters.keep.then_some(connected), moments));
        }
        Ok(made)
    })?;
    let time = start.elapsed();
    let (kept, moments): (Vec<_>, Vec<_>) = made.into_iter().unzip();
    Ok((kept.into_iter().flatten().collect(), Some(Connecting::of(&moments, time))))
}

fn rows(measured: &Measured) -> Vec<Row> {
    let Measured { parameters, connecting, growth, traffic } = measured;
    let mut rows = Vec::new();
    if let Some(connecting) = connecting {
        let Connecting { seconds, connections_per_s, connect_p50_us, connect_p99_us, .. } = connecting;
        let Connecting { first_message_p50_us, first_message_p99_us, .. } = connecting;
        let Parameters { connections, parallel, .. } = parameters;
        let times = |p50, p99| format!("{p50:.1} us median, {p99:.1} us at 99 %");
        rows.extend([
            ("connections", format!("{connections} in {seconds:.2} s, {parallel} at a time")),
            ("rate", format!("{} per second", number::rate(*connections_per_s))),
            ("until established", times(connect_p50_us, connect_p99_us)),
            ("until first message", times(first_message_p50_us, first_message_p99_us)),
        ]);
    }
    if let Some(bytes) = growth.resident {
        rows.push(("memory", format!("{bytes} bytes for each connection")));
    }
    rows.extend(traffic.rows());
    rows
}
