//! `nichrome rdma lat`: the latency of messages.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use clap::Args;
use nichrome_rdma::{CompletedOperation, Operation, Payload, ReceiveRequest, SendFlags, SendRequest};
use nichrome_wan::DelayHistogram;
use serde::{Deserialize, Serialize};

use super::bandwidth::Transfer;
use super::options::Options;
use super::rendezvous::Role;
use super::report::{self, Row, Traffic};
use super::session::{Agreed, Depths, INLINE, Negotiation, Regions, Session};
use crate::number;

/// The allowed message sizes, in bytes.
const SIZES: RangeInclusive<u32> = 1..=1 << 24;

/// Measure the latency of messages: half a round trip of WRITEs or SENDs, or a whole READ.
#[derive(Args)]
pub(crate) struct Latency {
    #[command(flatten)]
    options: Options,
    /// The client's operation.
    #[arg(long, value_enum, value_name = "OPERATION", default_value = "write")]
    op: Transfer,
    /// Message size in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 8, value_parser = number::bytes(SIZES))]
    size: u32,
    /// Number of messages in each direction.
    #[arg(long, value_name = "MESSAGES", default_value_t = 10_000, value_parser = number::whole(1..=u32::MAX))]
    iters: u32,
}

/// The client's parameters, which both ends use.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Parameters {
    op: Transfer,
    size: u32,
    iters: u32,
}

impl Agreed for Parameters {
    fn is_in_range(&self) -> bool {
        SIZES.contains(&self.size) && self.iters > 0
    }
}

/// Maximum numbers of outstanding requests.
const DEPTHS: Depths = Depths { sends: 16, receives: 16 };

/// The result. The names of its fields are JSON keys.
#[derive(Serialize)]
struct Measured {
    op: Transfer,
    size: u32,
    iters: u32,
    /// `None` at the server of READs, whose program takes no part.
    #[serde(flatten)]
    times: Option<Times>,
    #[serde(flatten)]
    traffic: Traffic,
}

#[derive(Serialize)]
struct Times {
    min_us: f64,
    mean_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
    /// Upper bound of each bin in microseconds, and the number of messages in the bin.
    histogram: Vec<(f64, u64)>,
}

impl Latency {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let negotiation = Negotiation::begin(&self.options)?;
        let parameters = negotiation.agree(Parameters { op: self.op, size: self.size, iters: self.iters })?;
        let session = negotiation.connect(1, DEPTHS, 2 * parameters.size as usize, Regions::Shared)?;
        let ends = Ends { session: &session, size: parameters.size as usize };
        let mut times = DelayHistogram::new();
        match (parameters.op, session.role) {
            (Transfer::Write, role) => ends.write(role, parameters.iters, &mut times)?,
            (Transfer::Send, role) => ends.send(role, parameters.iters, &mut times)?,
            (Transfer::Read, Role::Client) => ends.read(parameters.iters, &mut times)?,
            (Transfer::Read, Role::Server) => {}
        }
        session.finish()?;
        let measured = measured(&session, parameters, &times);
        if session.role == Role::Server && !self.options.json {
            return Ok(());
        }
        report::print(&self.options, &measured, &rows(&measured))
    }
}

/// One end of the measurement. Its region has two halves: the first receives messages, the second holds the
/// message to send.
struct Ends<'a> {
    session: &'a Session,
    size: usize,
}

impl Ends<'_> {
    /// Posts a message filled with `mark`.
    fn post(&self, operation: Operation, mark: u8) -> anyhow::Result<()> {
        let Self { session, size } = *self;
        let buffers = [session.region.slice(size, size)];
        let inline = [mark; INLINE];
        let payload = match inline.get(..size) {
            Some(inline) => Payload::Inline(inline),
            None => {
                session.region.with(|bytes| bytes[size..].fill(mark));
                Payload::Buffers(&buffers)
            }
        };
        let flags = SendFlags::SIGNALED;
        Ok(session.qp().post_send(&SendRequest {
            wr_id: 0,
            operation,
            payload,
            flags,
            recipient: None,
            srq: None,
        })?)
    }

    /// Measures WRITEs: each end polls its memory for the other's WRITE, then posts its own. The client
    /// begins.
    fn write(&self, role: Role, iters: u32, times: &mut DelayHistogram) -> anyhow::Result<()> {
        let Self { session, size } = *self;
        let operation = Operation::Write(session.peer.at(0));
        let mut completions = Vec::new();
        let mut start = Instant::now();
        for round in 0..iters {
            let mark = (round % 255) as u8 + 1;
            if role == Role::Client {
                start = Instant::now();
                self.post(operation, mark)?;
            }
            session.until(|| session.region.poll(|bytes| bytes[size - 1] == mark))?;
            // The server's first wait is for the client to begin.
            if role == Role::Client || round > 0 {
                times.record(start.elapsed() / 2);
            }
            if role == Role::Server {
                start = Instant::now();
                self.post(operation, mark)?;
            }
            session.drain(&mut completions)?;
        }
        Ok(())
    }

    /// Measures SENDs: each end sends after it has received. The client begins.
    fn send(&self, role: Role, iters: u32, times: &mut DelayHistogram) -> anyhow::Result<()> {
        let Self { session, size } = *self;
        let buffers = [session.region.slice(0, size)];
        let post_receive = || session.qp().post_receive(&ReceiveRequest { wr_id: 0, buffers: &buffers });
        (0..DEPTHS.receives).try_for_each(|_| post_receive())?;
        let (mut received, mut sent) = (0, 0);
        let mut completions = Vec::new();
        for round in 0..iters {
            let start = Instant::now();
            if role == Role::Client {
                self.post(Operation::Send, 1)?;
            }
            while received <= round || sent < round {
                session.drain(&mut completions)?;
                for completion in &completions {
                    match completion.operation {
                        CompletedOperation::Receive => {
                            received += 1;
                            post_receive()?;
                        }
                        _ => sent += 1,
                    }
                }
            }
            // The server's first wait is for the client to begin.
            if role == Role::Client || round > 0 {
                times.record(start.elapsed() / 2);
            }
            if role == Role::Server {
                self.post(Operation::Send, 1)?;
            }
        }
        Ok(())
    }

    /// Measures READs by the client.
    fn read(&self, iters: u32, times: &mut DelayHistogram) -> anyhow::Result<()> {
        let Self { session, size } = *self;
        let buffers = [session.region.slice(size, size)];
        let mut completions = Vec::new();
        for _ in 0..iters {
            let start = Instant::now();
            session.qp().post_send(&SendRequest::new(0, Operation::Read(session.peer.at(0)), &buffers))?;
            session.drain(&mut completions)?;
            times.record(start.elapsed());
        }
        Ok(())
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Returns the non-empty bins of a histogram: upper bound in microseconds, number of messages. The bounds
/// double from 1 µs on.
fn bins(times: &DelayHistogram) -> Vec<(f64, u64)> {
    let mut before = 0;
    let doubled = std::iter::successors(Some(Duration::from_micros(1)), |bound| Some(*bound * 2));
    let counts = doubled.map(|bound| {
        let until = times.count_at_most(bound);
        (micros(bound), until - std::mem::replace(&mut before, until))
    });
    let beyond = times.max().as_nanos().next_power_of_two().ilog2() as usize + 1;
    counts.take(beyond).filter(|(_, count)| *count > 0).collect()
}

fn measured(
    session: &Session,
    Parameters { op, size, iters }: Parameters,
    times: &DelayHistogram,
) -> Measured {
    let times = (times.count() > 0).then(|| Times::of(times));
    Measured { op, size, iters, times, traffic: Traffic::of(&session.adapter, session.mtu) }
}

impl Times {
    fn of(times: &DelayHistogram) -> Self {
        let at = |quantile| micros(times.quantile(quantile));
        Self {
            min_us: at(0.0),
            mean_us: micros(times.mean()),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: micros(times.max()),
            histogram: bins(times),
        }
    }
}

fn rows(measured: &Measured) -> Vec<Row> {
    let Measured { op, size, iters, times, traffic } = measured;
    let what = if *op == Transfer::Read { "round trip" } else { "half round trip" };
    let mut rows = vec![("operation", format!("{op:?} of {size} bytes, {iters} times"))];
    if let Some(Times { min_us, mean_us, p50_us, p90_us, p99_us, p999_us, max_us, histogram }) = times {
        rows.extend([
            (what, format!("{p50_us:.2} us median, {mean_us:.2} us mean, {min_us:.2} to {max_us:.2} us")),
            ("tail", format!("{p90_us:.2} us at 90 %, {p99_us:.2} us at 99 %, {p999_us:.2} us at 99.9 %")),
        ]);
        rows.extend(histogram.iter().map(|(bound, count)| ("", bar(*bound, *count, *iters))));
    }
    rows.extend(traffic.rows());
    rows
}

/// Formats a bin of the histogram as a bar.
fn bar(bound: f64, count: u64, all: u32) -> String {
    const WIDTH: u64 = 40;
    let length = (count * WIDTH).div_ceil(u64::from(all)) as usize;
    format!("up to {bound:>8.0} us {count:>8} {}", "#".repeat(length))
}
