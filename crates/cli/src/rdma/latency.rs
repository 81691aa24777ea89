//! `nichrome rdma lat`: how long a message takes.

use std::time::{Duration, Instant};

use clap::Args;
use nichrome_rdma::{CompletedOperation, Operation, Payload, ReceiveRequest, SendFlags, SendRequest};
use nichrome_wan::DelayHistogram;
use serde::{Deserialize, Serialize};

use super::bandwidth::Transfer;
use super::options::Options;
use super::rendezvous::Role;
use super::report::{self, Row, Traffic};
use super::session::{INLINE, Meeting, Session};

/// Measure how long a message takes: half a round trip of WRITEs or SENDs, or all of a READ.
#[derive(Args)]
pub(crate) struct Latency {
    #[command(flatten)]
    options: Options,
    /// What is done.
    #[arg(long, value_enum, value_name = "OPERATION", default_value = "write")]
    op: Transfer,
    /// Bytes of a message.
    #[arg(long, value_name = "BYTES", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    size: u32,
    /// Messages each way.
    #[arg(long, value_name = "MESSAGES", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    iters: u32,
}

/// What the client asks for.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Wish {
    op: Transfer,
    size: u32,
    iters: u32,
}

/// Requests that may be under way.
const DEPTH: usize = 16;

/// What was measured, in microseconds.
#[derive(Serialize)]
struct Measured {
    op: Transfer,
    size: u32,
    iters: u32,
    path_mtu: usize,
    min_us: f64,
    mean_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
    /// Upper bounds in microseconds, and how many messages took at most that and more than the one before.
    histogram: Vec<(f64, u64)>,
    #[serde(flatten)]
    traffic: Traffic,
}

impl Latency {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let meeting = Meeting::hold(&self.options)?;
        let wish = meeting.agree(Wish { op: self.op, size: self.size, iters: self.iters })?;
        let session = meeting.connect(1, DEPTH, 2 * wish.size as usize)?;
        let ends = Ends { session: &session, size: wish.size as usize };
        let mut times = DelayHistogram::new();
        match (wish.op, session.role) {
            (Transfer::Write, role) => ends.write(role, wish.iters, &mut times)?,
            (Transfer::Send, role) => ends.send(role, wish.iters, &mut times)?,
            (Transfer::Read, Role::Client) => ends.read(wish.iters, &mut times)?,
            (Transfer::Read, Role::Server) => {}
        }
        session.finish()?;
        let measured = measured(&session, wish, &times);
        if session.role == Role::Server && !self.options.json {
            return Ok(());
        }
        report::print(self.options.json, &measured, &rows(&measured))
    }
}

/// The halves of the region: messages come to the first and go from the second.
struct Ends<'a> {
    session: &'a Session,
    size: usize,
}

impl Ends<'_> {
    /// Posts a message whose bytes are all `mark`.
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
        Ok(session.qp().post_send(&SendRequest { wr_id: 0, operation, payload, flags, recipient: None })?)
    }

    /// Each end writes when it has seen the other's write in its memory; the client begins.
    fn write(&self, role: Role, iters: u32, times: &mut DelayHistogram) -> anyhow::Result<()> {
        let Self { session, size } = *self;
        let operation = Operation::Write(session.peer.at(0));
        let mut completions = Vec::new();
        for round in 0..iters {
            let mark = (round % 255) as u8 + 1;
            let start = Instant::now();
            if role == Role::Client {
                self.post(operation, mark)?;
            }
            session.until(|| session.region.poll(|bytes| bytes[size - 1] == mark))?;
            times.record(start.elapsed() / 2);
            if role == Role::Server {
                self.post(operation, mark)?;
            }
            session.drain(&mut completions)?;
        }
        Ok(())
    }

    /// Each end sends when it has received; the client begins.
    fn send(&self, role: Role, iters: u32, times: &mut DelayHistogram) -> anyhow::Result<()> {
        let Self { session, size } = *self;
        let buffers = [session.region.slice(0, size)];
        let post_receive = || session.qp().post_receive(&ReceiveRequest { wr_id: 0, buffers: &buffers });
        (0..DEPTH).try_for_each(|_| post_receive())?;
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
            times.record(start.elapsed() / 2);
            if role == Role::Server {
                self.post(Operation::Send, 1)?;
            }
        }
        Ok(())
    }

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

/// Upper bounds that double from a microsecond on, and how many messages took at most that and more than the one before.
fn bars(times: &DelayHistogram) -> Vec<(f64, u64)> {
    let mut before = 0;
    let doubled = std::iter::successors(Some(Duration::from_micros(1)), |bound| Some(*bound * 2));
    let counts = doubled.map(|bound| {
        let until = times.count_at_most(bound);
        (micros(bound), until - std::mem::replace(&mut before, until))
    });
    let beyond = times.max().as_nanos().next_power_of_two().ilog2() as usize + 1;
    counts.take(beyond).filter(|(_, count)| *count > 0).collect()
}

fn measured(session: &Session, Wish { op, size, iters }: Wish, times: &DelayHistogram) -> Measured {
    let at = |quantile| micros(times.quantile(quantile));
    Measured {
        op,
        size,
        iters,
        path_mtu: session.mtu.bytes(),
        min_us: at(0.0),
        mean_us: micros(times.mean()),
        p50_us: at(0.5),
        p90_us: at(0.9),
        p99_us: at(0.99),
        p999_us: at(0.999),
        max_us: micros(times.max()),
        histogram: bars(times),
        traffic: Traffic::of(&session.adapter),
    }
}

fn rows(measured: &Measured) -> Vec<Row> {
    let Measured {
        op, size, iters, path_mtu, min_us, mean_us, p50_us, p90_us, p99_us, p999_us, max_us, ..
    } = measured;
    let what = if *op == Transfer::Read { "round trip" } else { "half round trip" };
    let mut rows = vec![
        ("operation", format!("{op:?} of {size} bytes, {iters} times, path MTU {path_mtu}")),
        (what, format!("{p50_us:.2} us median, {mean_us:.2} us mean, {min_us:.2} to {max_us:.2} us")),
        ("tail", format!("{p90_us:.2} us at 90 %, {p99_us:.2} us at 99 %, {p999_us:.2} us at 99.9 %")),
    ];
    rows.extend(measured.histogram.iter().map(|(bound, count)| ("", bar(*bound, *count, *iters))));
    rows.extend(measured.traffic.rows());
    rows
}

/// A bar of the histogram.
fn bar(bound: f64, count: u64, all: u32) -> String {
    const WIDTH: u64 = 40;
    let length = (count * WIDTH).div_ceil(u64::from(all)) as usize;
    format!("up to {bound:>8.0} us {count:>8} {}", "#".repeat(length))
}
