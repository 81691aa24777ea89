//! `nichrome bench rdma`: measures RDMA and TCP between two processes on loopback.

mod comparison;
mod connections;
mod measurement;
pub(super) mod pair;
mod ping_pong;
mod tcp_connect;

use std::fmt;

use clap::{Args, ValueEnum};
use serde::Serialize;

use self::comparison::Comparison;
use self::connections::{ConnectionPlan, Connections};
use self::measurement::{FULL, Measurement, Plan, QUICK, progress, tcp_half_round_trip_us};
use self::pair::Pair;
use super::figures::{median, medians, rounded};
use super::iperf3;
use super::output::{Output, OutputOptions};
use super::transport::ROCE;
use crate::failure;
use crate::number::Grouped;
use crate::page::{Axis, Figure, Line, Page, Scale, Style};
use crate::picture_file;

pub(crate) use self::ping_pong::TcpPingPong;
pub(crate) use self::tcp_connect::TcpConnect;

/// Measure RDMA and TCP between two processes on loopback, each on its own processor: throughput, latency,
/// message rate, and memory and throughput of many connections. Takes about a minute, with --transport iwarp
/// five; with --connect one.
#[derive(Args)]
pub(crate) struct Rdma {
    /// The transport: roce, with up to 100,000 connections; or iwarp with up to 10,000, beside roce and star.
    #[arg(long, value_enum, value_name = "NAME", default_value = "roce")]
    transport: Subject,
    /// Measure instead the set-up of connections by address and port (rdma_cm), over roce, star and iwarp,
    /// compared with TCP: latency, connections per second, and memory of 10,000 in one process.
    #[arg(long, conflicts_with = "transport")]
    connect: bool,
    #[command(flatten)]
    output: OutputOptions,
    /// Measure each value once, briefly, with at most 1000 connections, to check that it works. The results
    /// are rough.
    #[arg(long)]
    quick: bool,
}

/// The transport that is measured.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Subject {
    Roce,
    Iwarp,
}

impl Subject {
    /// Numbers of connections to measure throughput with.
    fn qps(self) -> &'static [u32] {
        match self {
            Self::Roce => &[1, 100, 10_000, 100_000],
            Self::Iwarp => &[1, 10, 100, 1000, 10_000],
        }
    }
}

/// Numbers of connections with --quick.
const QPS_OF_QUICK: &[u32] = &[1, 1000];

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
    /// Half a round trip of 8 bytes over TCP, with ends that poll.
    tcp_lat_polling_us: f64,
    /// 8-byte WRITEs, 128 outstanding.
    messages_per_s: f64,
    /// Growth of a process's resident memory per idle connection, at the largest number of connections.
    bytes_per_qp: u64,
    /// Throughput of 64 KB WRITEs, 128 outstanding on all connections together, by the number of connections,
    /// which are used in turn.
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
        let output = self.output.open()?;
        picture_file::end_on_signals()?;
        if self.connect {
            let plan = if self.quick { &ConnectionPlan::QUICK } else { &ConnectionPlan::FULL };
            let measured = Connections::measure(plan)?;
            return output.finish("Connections by address and port", &measured, &measured, |page| {
                measured.figures(page)
            });
        }
        let iperf3 = iperf3::version();
        if let Err(error) = &iperf3 {
            failure::notice(format_args!(
                "nichrome: TCP throughput is not measured: cannot run iperf3 (install Debian's package iperf3): {error}"
            ));
        }
        let (plan, qps) = if self.quick { (&QUICK, QPS_OF_QUICK) } else { (&FULL, self.transport.qps()) };
        match self.transport {
            Subject::Roce => finish(output, &measure(plan, qps, iperf3.ok())?, Report::lines),
            Subject::Iwarp => {
                finish(output, &Comparison::measure(plan, qps, iperf3.ok())?, Comparison::lines)
            }
        }
    }
}

fn finish<R: Serialize + fmt::Display>(
    output: Output,
    report: &R,
    lines: fn(&R) -> Vec<Line>,
) -> anyhow::Result<()> {
    let figures = |page: &mut Page| {
        page.figure(&Figure {
            title: "64 KB WRITEs, on all connections in turn".into(),
            x: Axis::new("connections", Scale::Log10),
            y: Axis::linear("Gbit/s"),
            lines: lines(report),
        })
    };
    output.finish("RDMA and TCP between two processes", report, report, figures)
}

impl Report {
    /// Returns the throughput by the number of connections.
    fn lines(&self) -> Vec<Line> {
        let points = self.qps.iter().map(|of| (f64::from(of.qps), of.gbps));
        vec![Line::new("roce", Style::Line, points)]
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
fn measure(plan: &Plan, qps: &[u32], iperf3: Option<String>) -> anyhow::Result<Report> {
    let pair = Pair::new()?;
    pair.warn_if_crowded();
    let roce = Measurement { pair: &pair, plan, transport: ROCE };
    let progress = progress(plan.rounds + qps.len());
    let mut samples = Samples::default();
    for round in 1..=plan.rounds {
        progress.set_message(format!("round {round} of {}", plan.rounds));
        samples.add_round(&roce, iperf3.is_some())?;
        progress.inc(1);
    }
    let mut bytes_per_qp = 0;
    let mut throughputs = Vec::new();
    for &count in qps {
        progress.set_message(format!("{} connections", Grouped(u64::from(count))));
        let mut samples = Vec::new();
        for _ in 0..plan.rounds_of_qps {
            let (gbps, bytes) = roce.throughput(count)?;
            samples.push(gbps);
            bytes_per_qp = bytes.unwrap_or(bytes_per_qp);
        }
        throughputs.push(Throughput { qps: count, gbps: rounded(median(samples)) });
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
        qps: throughputs,
        rounds: plan.rounds,
    })
}

impl Samples {
    fn add_round(&mut self, roce: &Measurement<'_>, has_iperf3: bool) -> anyhow::Result<()> {
        let Measurement { pair, plan, .. } = roce;
        self.write_bw.push(roce.throughput(1)?.0);
        if has_iperf3 {
            self.tcp.push(pair.iperf3(plan.seconds_of_tcp)?);
        }
        self.write_lat.push(roce.half_round_trip_us()?);
        self.tcp_lat.push(tcp_half_round_trip_us(pair, plan, "blocking")?);
        self.tcp_lat_polling.push(tcp_half_round_trip_us(pair, plan, "polling")?);
        self.messages.push(roce.messages_per_s(1)?);
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "two processes on loopback, {}\n", medians(self.rounds, "round", "rounds in turn"))?;
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
