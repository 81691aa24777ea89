//! The measurements of a transport, and of TCP, between two processes.

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use super::super::figures::figure;
use super::super::transport::Transport;
use super::pair::Pair;

/// Duration and repetitions of each measurement.
pub(super) struct Plan {
    pub(super) rounds: usize,
    pub(super) duration: &'static str,
    pub(super) seconds_of_tcp: &'static str,
    pub(super) iters: u32,
    pub(super) rounds_of_qps: usize,
}

pub(super) const FULL: Plan =
    Plan { rounds: 5, duration: "1s", seconds_of_tcp: "1", iters: 200_000, rounds_of_qps: 3 };

/// One round of each measurement, for a rough check.
pub(super) const QUICK: Plan =
    Plan { rounds: 1, duration: "50ms", seconds_of_tcp: "1", iters: 200, rounds_of_qps: 1 };

/// The measurements of a transport.
pub(super) struct Measurement<'a> {
    pub(super) pair: &'a Pair,
    pub(super) plan: &'a Plan,
    pub(super) transport: Transport,
}

impl Measurement<'_> {
    /// Measures the throughput of 64 KB WRITEs in Gbit/s, with 128 outstanding over `qps` connections in
    /// turn; and from 1000 connections on, the growth of the client's resident memory per idle connection, in
    /// bytes.
    pub(super) fn throughput(&self, qps: u32) -> anyhow::Result<(f64, Option<u64>)> {
        let report = self.writes(65_536, qps)?;
        Ok((figure(&report, "gbps")?, report["bytes_per_qp"].as_u64()))
    }

    /// Measures 8-byte WRITEs per second, with 128 outstanding over `qps` connections in turn.
    pub(super) fn messages_per_s(&self, qps: u32) -> anyhow::Result<f64> {
        figure(&self.writes(8, qps)?, "messages_per_s")
    }

    /// Measures half a round trip of 8-byte WRITEs, in microseconds.
    pub(super) fn half_round_trip_us(&self) -> anyhow::Result<f64> {
        let Transport { server, client, .. } = self.transport;
        let iters = self.plan.iters;
        let client = format!("rdma lat --json --iters {iters} {client} 127.0.0.1");
        figure(&self.pair.run(&format!("rdma lat --json {server}"), &client)?, "p50_us")
    }

    /// Measures WRITEs; returns the client's JSON.
    fn writes(&self, size: u32, qps: u32) -> anyhow::Result<Value> {
        let Transport { server, client, .. } = self.transport;
        let duration = self.plan.duration;
        let client =
            format!("rdma bw --json --size {size} --qps {qps} --duration {duration} {client} 127.0.0.1");
        self.pair.run(&format!("rdma bw --json {server}"), &client)
    }
}

/// Measures half a round trip of 8 bytes over TCP in microseconds. `wait` is the ends' way of waiting:
/// `blocking` or `polling`.
pub(super) fn tcp_half_round_trip_us(pair: &Pair, plan: &Plan, wait: &str) -> anyhow::Result<f64> {
    let iters = plan.iters;
    let end = |end| format!("bench tcp-ping-pong {end} --iters {iters} --wait {wait}");
    figure(&pair.run(&end("server"), &end("client"))?, "half_round_trip_us")
}

/// Returns a progress bar of `steps` steps.
pub(super) fn progress(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos} of {len}, {msg}");
    ProgressBar::new(steps as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
