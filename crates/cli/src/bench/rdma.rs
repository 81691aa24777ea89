//! `nichrome bench rdma`: measures RDMA and TCP between two processes on loopback.

pub(super) mod pair;
mod ping_pong;

use std::fmt;
use std::io::{self, Write};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::Value;

use self::pair::Pair;
use super::figures::{figure, median, rounded};
use super::iperf3;
use crate::number::Grouped;

pub(crate) use self::ping_pong::TcpPingPong;

/// Numbers of connections to measure throughput with.
const QPS: [u32; 4] = [1, 100, 10_000, 100_000];

/// Measure RDMA and TCP between two processes on loopback, each on its own processor: throughput, latency, message rate, and
/// memory and throughput of up to 100,000 connections. Takes about a minute.
#[derive(Args)]
pub(crate) struct Rdma {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Measure each value once, briefly, with at most 1000 connections, to check that it works. The results are rough.
    #[arg(long)]
    quick: bool,
}

/// Duration and repetitions of each measurement.
struct Plan {
    rounds: usize,
    duration: &'static str,
    seconds_of_tcp: &'static str,
    iters: u32,
    qps: &'static [u32],
    rounds_of_qps: usize,
}

const FULL: Plan =
    Plan { rounds: 5, duration: "1s", seconds_of_tcp: "1", iters: 10_000, qps: &QPS, rounds_of_qps: 3 };

const QUICK: Plan =
    Plan { rounds: 1, duration: "50ms", seconds_of_tcp: "1", iters: 200, qps: &[1, 1000], rounds_of_qps: 1 };

/// Medians of the rounds. The names of the fields are JSON keys.
#[derive(Serialize)]
struct Report {
    /// 64 KB WRITEs, 128 outstanding.
    write_bw_gbps: f64,
    /// One stream of iperf3; `None` without iperf3.
    tcp_gbps: Option<f64>,
    /// Version of iperf3.
    tcp_measured_with: Option<String>,
    /// Half a round trip of 8-byte WRITEs.
    write_lat_us: f64,
    /// Half a round trip of 8 bytes over TCP, with ends that block in the system call.
    tcp_lat_us: f64,
    /// The same with ends that poll.
    tcp_lat_polling_us: f64,
    /// 8-byte WRITEs, 128 outstanding.
    messages_per_s: f64,
    /// Growth of a process's resident memory per idle connection, at the largest number of connections.
    bytes_per_qp: u64,
    /// 64 KB WRITEs, 128 outstanding on all connections together, which are used in turn.
    qps: Vec<Throughput>,
    rounds: usize,
}

#[derive(Serialize)]
struct Throughput {
    qps: u32,
    gbps: f64,
}

impl Rdma {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let iperf3 = iperf3::version();
        if let Err(error) = &iperf3 {
            eprintln!(
                "nichrome: TCP throughput is not measured: cannot run iperf3 (install Debian's package iperf3): {error}"
            );
        }
        let report = measure(if self.quick { &QUICK } else { &FULL }, iperf3.ok())?;
        let mut output = io::stdout().lock();
        if self.json {
            writeln!(output, "{}", serde_json::to_string_pretty(&report)?)?;
        } else {
            writeln!(output, "{report}")?;
        }
        Ok(())
    }
}

/// The results of all rounds.
#[derive(Default)]
struct Samples {
    write_bw: Vec<f64>,
    tcp: Vec<f64>,
    write_lat: Vec<f64>,
    tcp_lat: Vec<f64>,
    tcp_lat_polling: Vec<f64>,
    messages: Vec<f64>,
}

/// Measures all values once in each round, so that noise affects them alike.
fn measure(plan: &Plan, iperf3: Option<String>) -> anyhow::Result<Report> {
    let pair = Pair::new()?;
    if pair.is_crowded() {
        eprintln!("nichrome: warning: both ends share the only processor");
    }
    let progress = progress(plan);
    let mut samples = Samples::default();
    for round in 1..=plan.rounds {
        progress.set_message(format!("round {round} of {}", plan.rounds));
        samples.add_round(&pair, plan, iperf3.is_some())?;
        progress.inc(1);
    }
    let mut bytes_per_qp = 0;
    let mut qps = Vec::new();
    for &count in plan.qps {
        progress.set_message(format!("{} connections", Grouped(u64::from(count))));
        let mut gbps = Vec::new();
        for _ in 0..plan.rounds_of_qps {
            let report = bandwidth(&pair, plan, 65_536, count)?;
            gbps.push(figure(&report, "gbps")?);
            bytes_per_qp = report["bytes_per_qp"].as_u64().unwrap_or(bytes_per_qp);
        }
        qps.push(Throughput { qps: count, gbps: rounded(median(gbps)) });
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(Report {
        write_bw_gbps: rounded(median(samples.write_bw)),
        tcp_gbps: iperf3.is_some().then(|| rounded(median(samples.tcp))),
        tcp_measured_with: iperf3,
        write_lat_us: rounded(median(samples.write_lat)),
        tcp_lat_us: rounded(median(samples.tcp_lat)),
        tcp_lat_polling_us: rounded(median(samples.tcp_lat_polling)),
        messages_per_s: median(samples.messages).round(),
        bytes_per_qp,
        qps,
        rounds: plan.rounds,
    })
}

impl Samples {
    fn add_round(&mut self, pair: &Pair, plan: &Plan, has_iperf3: bool) -> anyhow::Result<()> {
        self.write_bw.push(figure(&bandwidth(pair, plan, 65_536, 1)?, "gbps")?);
        if has_iperf3 {
            self.tcp.push(pair.iperf3(plan.seconds_of_tcp)?);
        }
        let iters = plan.iters;
        let latency = pair.run("rdma lat --json", &format!("rdma lat --json --iters {iters} 127.0.0.1"))?;
        self.write_lat.push(figure(&latency, "p50_us")?);
        self.tcp_lat.push(tcp_latency(pair, iters, "blocking")?);
        self.tcp_lat_polling.push(tcp_latency(pair, iters, "polling")?);
        self.messages.push(figure(&bandwidth(pair, plan, 8, 1)?, "messages_per_s")?);
        Ok(())
    }
}

/// Measures WRITEs of `size` bytes over `qps` connections; returns the client's JSON.
fn bandwidth(pair: &Pair, plan: &Plan, size: u32, qps: u32) -> anyhow::Result<Value> {
    let duration = plan.duration;
    let client = format!("rdma bw --json --size {size} --qps {qps} --duration {duration} 127.0.0.1");
    pair.run("rdma bw --json", &client)
}

fn tcp_latency(pair: &Pair, iters: u32, wait: &str) -> anyhow::Result<f64> {
    let end = |end| format!("bench tcp-ping-pong {end} --iters {iters} --wait {wait}");
    figure(&pair.run(&end("server"), &end("client"))?, "half_round_trip_us")
}

fn progress(plan: &Plan) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos} of {len}, {msg}");
    ProgressBar::new((plan.rounds + plan.qps.len()) as u64)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "two processes on loopback, medians of {} rounds in turn\n", self.rounds)?;
        writeln!(f, "{:>10.2} Gbit/s  64 KB WRITEs, 128 outstanding", self.write_bw_gbps)?;
        if let (Some(gbps), Some(with)) = (self.tcp_gbps, &self.tcp_measured_with) {
            writeln!(f, "{gbps:>10.2} Gbit/s  one TCP stream ({with})")?;
        }
        writeln!(f, "{:>10.2} us      8 B WRITE, half a round trip", self.write_lat_us)?;
        writeln!(f, "{:>10.2} us      8 B over TCP, half a round trip, blocking", self.tcp_lat_us)?;
        writeln!(f, "{:>10.2} us      8 B over TCP, half a round trip, polling", self.tcp_lat_polling_us)?;
        writeln!(f, "{:>10}  8 B WRITEs per second, 128 outstanding", Grouped(self.messages_per_s as u64))?;
        write!(f, "{:>10} bytes   per idle connection", Grouped(self.bytes_per_qp))?;
        for Throughput { qps, gbps } in &self.qps {
            write!(
                f,
                "\n{gbps:>10.2} Gbit/s  64 KB WRITEs in turn on {:>7} connections",
                Grouped(u64::from(*qps))
            )?;
        }
        Ok(())
    }
}
