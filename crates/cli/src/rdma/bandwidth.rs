//! `nichrome rdma bw`: the throughput of reliable connections.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::{Args, ValueEnum};
use nichrome_hca::Transport;
use nichrome_rdma::{Operation, PostError, ReceiveRequest, SendRequest};
use serde::{Deserialize, Serialize};

use super::growth::Growth;
use super::options::Options;
use super::rendezvous::Role;
use super::report::{self, Row, Traffic};
use super::session::{Agreed, Depths, Negotiation, Regions, Session};
use crate::{duration, number};

/// The allowed message sizes, in bytes.
const SIZES: RangeInclusive<u32> = 1..=1 << 30;

/// The allowed numbers of connections.
const QPS: RangeInclusive<u32> = 1..=1 << 17;

/// The allowed numbers of outstanding messages.
const DEPTHS: RangeInclusive<u16> = 1..=16_384;

/// Minimum number of receives that the server of SENDs posts on all connections together.
const RECEIVES: usize = 512;

/// The shortest measurement.
const SHORTEST: Duration = Duration::from_millis(10);

/// Measure the throughput of reliable connections.
#[derive(Args)]
pub(crate) struct Bandwidth {
    #[command(flatten)]
    options: Options,
    /// The client's operation.
    #[arg(long, value_enum, value_name = "OPERATION", default_value = "write")]
    op: Transfer,
    /// Message size in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 65_536, value_parser = number::bytes(SIZES))]
    size: u32,
    /// Number of connections, used in turn.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = number::whole(QPS))]
    qps: u32,
    /// Give each connection a region of its own, in a protection domain of its own, over the same bytes.
    #[arg(long)]
    regions: bool,
    /// Outstanding messages, on all connections together.
    #[arg(long, value_name = "MESSAGES", default_value_t = 128, value_parser = number::whole(DEPTHS))]
    depth: u16,
    /// Duration of the measurement, from 10ms to 60s.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = duration::at_least(SHORTEST))]
    duration: Duration,
}

/// The operation of each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Transfer {
    Write,
    Read,
    Send,
}

/// The client's parameters, which both ends use.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Parameters {
    op: Transfer,
    size: u32,
    qps: u32,
    depth: u16,
    regions: Regions,
}

impl Agreed for Parameters {
    fn is_in_range(&self) -> bool {
        SIZES.contains(&self.size) && QPS.contains(&self.qps) && DEPTHS.contains(&self.depth)
    }
}

impl Parameters {
    /// Returns the outstanding messages on one connection, rounded up.
    fn depth_per_qp(self) -> usize {
        usize::from(self.depth).div_ceil(self.qps as usize)
    }

    /// Returns the maximum numbers of requests on one connection. When a SEND completes at the client, the
    /// server may not have polled it yet: without a further receive, the next SEND would cause an RNR NAK.
    fn depths(self) -> Depths {
        let sends = self.depth_per_qp();
        let receives = match self.op {
            Transfer::Send => (2 * sends).max(RECEIVES.div_ceil(self.qps as usize)),
            Transfer::Write | Transfer::Read => sends,
        };
        Depths { sends, receives }
    }
}

/// The result. The names of its fields are JSON keys.
#[derive(Serialize)]
struct Measured {
    op: Transfer,
    size: u32,
    qps: u32,
    depth: u16,
    seconds: f64,
    /// `None` at the server of WRITEs and READs, whose program takes no part.
    #[serde(flatten)]
    throughput: Option<Throughput>,
    #[serde(flatten)]
    growth: Growth,
    /// Connection state that a card would hold for all connections of this end.
    card_state_bytes: usize,
    #[serde(flatten)]
    traffic: Traffic,
}

#[derive(Serialize)]
struct Throughput {
    messages: u64,
    gbps: f64,
    messages_per_s: f64,
}

impl Bandwidth {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let negotiation = Negotiation::begin(&self.options)?;
        let regions = if self.regions { Regions::OfConnections } else { Regions::Shared };
        let Self { op, size, qps, depth, .. } = *self;
        let parameters = negotiation.agree(Parameters { op, size, qps, depth, regions })?;
        let Parameters { size, qps, regions, .. } = parameters;
        let session = negotiation.connect(qps as usize, parameters.depths(), size as usize, regions)?;
        let (messages, time) = match session.role {
            Role::Client => {
                let (done, time) = client(&session, parameters, self.duration)?;
                (Some(done), time)
            }
            Role::Server => server(&session, parameters)?,
        };
        let measured = measured(&session, parameters, messages, time);
        if measured.throughput.is_none() && !self.options.json {
            return Ok(());
        }
        report::print(&self.options, &measured, &rows(&measured))
    }
}

/// Keeps the send queues full for `duration`. Returns the number of completed messages and the time that they
/// took.
fn client(session: &Session, parameters: Parameters, duration: Duration) -> anyhow::Result<(u64, Duration)> {
    let operation = |nth| match parameters.op {
        Transfer::Write => Operation::Write(session.peer_of(nth).at(0)),
        Transfer::Read => Operation::Read(session.peer_of(nth).at(0)),
        Transfer::Send => Operation::Send,
    };
    // Contains each connection once for each further message that it may have outstanding.
    let mut turns = VecDeque::new();
    for _ in 0..parameters.depth_per_qp() {
        turns.extend(0..session.qps.len());
    }
    let post = |turns: &mut VecDeque<usize>, count: usize| {
        let next: Vec<usize> = turns.drain(..count.min(turns.len())).collect();
        next.chunk_by(|one, other| one == other).try_for_each(|run| {
            let nth = run[0];
            let buffers = [session.region_of(nth).slice(0, parameters.size as usize)];
            let request = SendRequest::new(nth as u64, operation(nth), &buffers);
            session.qps[nth].post_sends(run.iter().map(|_| request))
        })
    };
    let start = Instant::now();
    post(&mut turns, usize::from(parameters.depth))?;
    let (mut outstanding, mut done) = (usize::from(parameters.depth), 0);
    let mut completions = Vec::new();
    while outstanding > 0 {
        session.drain(&mut completions)?;
        done += completions.len() as u64;
        outstanding -= completions.len();
        turns.extend(completions.iter().map(|completion| completion.wr_id as usize));
        if start.elapsed() < duration {
            post(&mut turns, completions.len())?;
            outstanding += completions.len();
        }
    }
    if session.adapter.transport() == Transport::Iwarp && parameters.op != Transfer::Read {
        confirm(session)?;
    }
    let time = start.elapsed();
    session.finish()?;
    Ok((done, time))
}

/// Waits until all messages have arrived, by a READ after them on each connection: over iWARP a message
/// completes when TCP has accepted its bytes. Has no time limit as long as the peer's machine answers.
fn confirm(session: &Session) -> anyhow::Result<()> {
    for (nth, qp) in session.qps.iter().enumerate() {
        let buffers = [session.region_of(nth).slice(0, 1)];
        qp.post_send(&SendRequest::new(nth as u64, Operation::Read(session.peer_of(nth).at(0)), &buffers))?;
    }
    let (mut outstanding, mut completions) = (session.qps.len(), Vec::new());
    while outstanding > 0 {
        session.drain_within(Duration::MAX, &mut completions)?;
        outstanding -= completions.len();
    }
    Ok(())
}

/// Receives SENDs on all connections until the client is done. For other operations only waits for the
/// client. Returns the number of received messages, `None` for other operations, and the time.
fn server(session: &Session, parameters: Parameters) -> anyhow::Result<(Option<u64>, Duration)> {
    let start = Instant::now();
    if parameters.op != Transfer::Send {
        session.finish()?;
        return Ok((None, start.elapsed()));
    }
    let post = |nth: usize| {
        let buffers = [session.region_of(nth).slice(0, parameters.size as usize)];
        session.qps[nth].post_receive(&ReceiveRequest { wr_id: nth as u64, buffers: &buffers })
    };
    for _ in 0..parameters.depths().receives {
        (0..session.qps.len()).try_for_each(post)?;
    }
    let done = thread::scope(|scope| {
        let end = scope.spawn(|| session.await_end());
        let received = receive(session, || end.is_finished(), post).inspect_err(|_| session.shut_down())?;
        let ended = end.join();
        session.or_failure(
            ended.unwrap_or_else(|_| bail!("the thread that waits for the client has panicked")),
        )?;
        anyhow::Ok(received)
    })?;
    Ok((Some(done), start.elapsed()))
}

/// Counts received messages, and posts each receive again, until the client is done. Fails if a receive
/// fails.
fn receive(
    session: &Session,
    is_done: impl Fn() -> bool,
    post: impl Fn(usize) -> Result<(), PostError>,
) -> anyhow::Result<u64> {
    let (mut received, mut completions) = (0, Vec::new());
    loop {
        // Once the client has reported its end, all its messages have arrived: polls a last time.
        let is_last = is_done();
        session.poll(&mut completions)?;
        received += completions.len() as u64;
        if is_last {
            return Ok(received);
        }
        completions.iter().try_for_each(|completion| post(completion.wr_id as usize))?;
    }
}

fn measured(
    session: &Session,
    Parameters { op, size, qps, depth, .. }: Parameters,
    messages: Option<u64>,
    time: Duration,
) -> Measured {
    let seconds = time.as_secs_f64();
    let throughput = messages.map(|messages| {
        let messages_per_s = messages as f64 / seconds;
        Throughput { messages, gbps: messages_per_s * f64::from(size) * 8.0 / 1e9, messages_per_s }
    });
    Measured {
        op,
        size,
        qps,
        depth,
        seconds,
        throughput,
        growth: session.growth,
        card_state_bytes: session.adapter.card_state_bytes(),
        traffic: Traffic::of(&session.adapter, session.mtu),
    }
}

fn rows(measured: &Measured) -> Vec<Row> {
    let Measured { op, size, qps, depth, seconds, throughput, traffic, .. } = measured;
    let mut rows = vec![("operation", format!("{op:?} of {size} bytes, {depth} outstanding"))];
    if let Some(Throughput { messages, gbps, messages_per_s }) = throughput {
        rows.push(("throughput", format!("{} Gb/s", number::measured(*gbps))));
        let rate = number::rate(*messages_per_s);
        rows.push(("messages", format!("{messages} in {seconds:.2} s, {rate} per second")));
    }
    if *qps > 1 {
        rows.push(("connections", qps.to_string()));
    }
    if let Some(bytes) = measured.growth.resident {
        rows.push(("memory", format!("{bytes} bytes for each connection")));
    }
    rows.extend(traffic.rows());
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_of_sends_has_a_receive_for_each_message_that_it_may_not_have_polled() {
        let depths = |op, qps, depth| {
            let Depths { sends, receives } =
                Parameters { op, size: 1, qps, depth, regions: Regions::Shared }.depths();
            (sends, receives)
        };
        assert_eq!(depths(Transfer::Send, 1, 1), (1, 512));
        assert_eq!(depths(Transfer::Send, 1, 1000), (1000, 2000));
        assert_eq!(depths(Transfer::Send, 1000, 128), (1, 2));
        assert_eq!(depths(Transfer::Write, 1, 128), (128, 128));
    }
}
