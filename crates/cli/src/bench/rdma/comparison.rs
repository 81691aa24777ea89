//! `nichrome bench rdma --transport iwarp`: iWARP with and without CRC beside RoCE, StaR and TCP.

use std::fmt;

use serde::Serialize;

use super::super::figures::{median, medians, rounded};
use super::super::transport::{IWARP, IWARP_CRC, ROCE, STAR, Transport};
use super::measurement::{Measurement, Plan, progress, tcp_half_round_trip_us};
use super::pair::Pair;
use crate::number::Grouped;
use crate::page::{Line, Style};

const TRANSPORTS: [Transport; 4] = [IWARP_CRC, IWARP, ROCE, STAR];

/// Medians of the rounds. The names of the fields are JSON keys.
#[derive(Serialize)]
pub(super) struct Comparison {
    transports: Vec<Figures>,
    /// One stream of iperf3; `None` without iperf3.
    tcp_gbps: Option<f64>,
    /// Version of iperf3.
    tcp_measured_with: Option<String>,
    /// Half a round trip of 8 bytes over TCP, with ends that poll.
    tcp_lat_polling_us: f64,
    rounds: usize,
}

/// The results of a transport. The names of the fields are JSON keys.
#[derive(Serialize)]
struct Figures {
    transport: &'static str,
    /// 64 KB WRITEs, 128 outstanding.
    write_bw_gbps: f64,
    /// Half a round trip of 8-byte WRITEs.
    write_lat_us: f64,
    /// 8-byte WRITEs, 128 outstanding.
    messages_per_s: f64,
    /// Growth of the client's resident memory per idle connection, at the largest number of connections.
    bytes_per_qp: u64,
    qps: Vec<Connections>,
}

/// WRITEs, 128 outstanding on all connections together, which are used in turn. The names of the fields are
/// JSON keys.
#[derive(Serialize)]
struct Connections {
    qps: u32,
    /// Throughput of WRITEs of 64 KB.
    gbps: f64,
    /// Rate of WRITEs of 8 bytes.
    messages_per_s: f64,
}

/// The results of all rounds of a transport.
#[derive(Default)]
struct Samples {
    write_bw: Vec<f64>,
    write_lat: Vec<f64>,
    messages: Vec<f64>,
}

impl Comparison {
    /// Returns the throughput of each transport by the number of connections.
    pub(super) fn lines(&self) -> Vec<Line> {
        let line = |of: &Figures| {
            let points = of.qps.iter().map(|of| (f64::from(of.qps), of.gbps));
            Line::new(of.transport, Style::Line, points)
        };
        self.transports.iter().map(line).collect()
    }

    /// Measures all values once in each round, so that noise affects them alike; then with `qps` connections.
    pub(super) fn measure(plan: &Plan, qps: &[u32], iperf3: Option<String>) -> anyhow::Result<Self> {
        let pair = Pair::new()?;
        pair.warn_if_crowded();
        let of = |transport| Measurement { pair: &pair, plan, transport };
        let progress = progress(plan.rounds + qps.len() * TRANSPORTS.len());
        let mut samples = TRANSPORTS.map(|_| Samples::default());
        let (mut tcp, mut tcp_lat) = (Vec::new(), Vec::new());
        for round in 1..=plan.rounds {
            progress.set_message(format!("round {round} of {}", plan.rounds));
            for (transport, samples) in TRANSPORTS.into_iter().zip(&mut samples) {
                samples.write_bw.push(of(transport).throughput(1)?.0);
            }
            if iperf3.is_some() {
                tcp.push(pair.iperf3(plan.seconds_of_tcp)?);
            }
            for (transport, samples) in TRANSPORTS.into_iter().zip(&mut samples) {
                samples.write_lat.push(of(transport).half_round_trip_us()?);
            }
            tcp_lat.push(tcp_half_round_trip_us(&pair, plan, "polling")?);
            for (transport, samples) in TRANSPORTS.into_iter().zip(&mut samples) {
                samples.messages.push(of(transport).messages_per_s(1)?);
            }
            progress.inc(1);
        }
        let mut transports: Vec<Figures> = TRANSPORTS
            .into_iter()
            .zip(samples)
            .map(|(transport, samples)| samples.medians(transport))
            .collect();
        for &count in qps {
            for (transport, figures) in TRANSPORTS.into_iter().zip(&mut transports) {
                let connections = Grouped(u64::from(count));
                progress.set_message(format!("{}, {connections} connections", transport.name));
                figures.add_connections(&of(transport), count)?;
                progress.inc(1);
            }
        }
        progress.finish_and_clear();
        Ok(Self {
            transports,
            tcp_gbps: iperf3.is_some().then(|| rounded(median(tcp))),
            tcp_measured_with: iperf3,
            tcp_lat_polling_us: rounded(median(tcp_lat)),
            rounds: plan.rounds,
        })
    }
}

impl Samples {
    fn medians(self, transport: Transport) -> Figures {
        Figures {
            transport: transport.name,
            write_bw_gbps: rounded(median(self.write_bw)),
            write_lat_us: rounded(median(self.write_lat)),
            messages_per_s: median(self.messages).round(),
            bytes_per_qp: 0,
            qps: Vec::new(),
        }
    }
}

impl Figures {
    /// Measures with `count` connections.
    fn add_connections(&mut self, measurement: &Measurement<'_>, count: u32) -> anyhow::Result<()> {
        let (mut gbps, mut messages) = (Vec::new(), Vec::new());
        for _ in 0..measurement.plan.rounds_of_qps {
            let (throughput, bytes_per_qp) = measurement.throughput(count)?;
            gbps.push(throughput);
            self.bytes_per_qp = bytes_per_qp.unwrap_or(self.bytes_per_qp);
            messages.push(measurement.messages_per_s(count)?);
        }
        let (gbps, messages_per_s) = (rounded(median(gbps)), median(messages).round());
        self.qps.push(Connections { qps: count, gbps, messages_per_s });
        Ok(())
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "two processes on loopback, {}\n", medians(self.rounds, "round", "rounds in turn"))?;
        write!(
            f,
            "{:<10} {:>13} {:>7} {:>10} {:>13} {:>14}",
            "", "64 KB (Gb/s)", "of TCP", "8 B (us)", "8 B WRITEs/s", "bytes per QP"
        )?;
        for Figures { transport, write_bw_gbps, write_lat_us, messages_per_s, bytes_per_qp, .. } in
            &self.transports
        {
            let of_tcp =
                self.tcp_gbps.map_or_else(|| "-".to_owned(), |tcp| format!("{:.2}", write_bw_gbps / tcp));
            let (messages, bytes) = (Grouped(*messages_per_s as u64), Grouped(*bytes_per_qp));
            let (messages, bytes) = (messages.to_string(), bytes.to_string());
            write!(
                f,
                "\n{transport:<10} {write_bw_gbps:>13.2} {of_tcp:>7} {write_lat_us:>10.2} {messages:>13} {bytes:>14}"
            )?;
        }
        let tcp = self.tcp_gbps.map_or_else(|| "-".to_owned(), |tcp| format!("{tcp:.2}"));
        let of_tcp = if self.tcp_gbps.is_some() { "1.00" } else { "-" };
        write!(f, "\n{:<10} {tcp:>13} {of_tcp:>7} {:>10.2}", "TCP", self.tcp_lat_polling_us)?;
        if let Some(with) = &self.tcp_measured_with {
            write!(f, "  ({with}; 8 B: polling)")?;
        }
        self.write_by_connections(f, "64 KB WRITEs (Gb/s)", |point| format!("{:.2}", point.gbps))?;
        self.write_by_connections(f, "8 B WRITEs per second", |point| {
            Grouped(point.messages_per_s as u64).to_string()
        })
    }
}

impl Comparison {
    /// Writes a value of each transport by number of connections.
    fn write_by_connections(
        &self,
        f: &mut fmt::Formatter<'_>,
        caption: &str,
        value: impl Fn(&Connections) -> String,
    ) -> fmt::Result {
        let Some(first) = self.transports.first() else { return Ok(()) };
        write!(f, "\n\n{caption}, by number of connections\n\n{:<10}", "")?;
        for Connections { qps, .. } in &first.qps {
            write!(f, " {:>11}", Grouped(u64::from(*qps)).to_string())?;
        }
        for Figures { transport, qps, .. } in &self.transports {
            write!(f, "\n{transport:<10}")?;
            for point in qps {
                write!(f, " {:>11}", value(point))?;
            }
        }
        Ok(())
    }
}
