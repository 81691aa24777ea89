//! `nichrome bench wan`: how fast the path is as an engine, how true its delays are, and how much gets through.

mod delays;
mod engine;
mod probe;
mod throughput;

use std::io::{self, Write};

use clap::Args;
use nichrome_port::become_able;
use serde::Serialize;

use self::delays::Delays;
use self::engine::Engines;
use self::throughput::Throughput;

pub(crate) use self::probe::Probe;

/// Measure the wide-area path: packets a second in virtual time, how true delays are on live hosts, and the throughput
/// of iperf3 beside that over a bare copy loop.
#[derive(Args)]
pub(crate) struct Wan {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    engine: Engines,
    delays: Delays,
    throughput: Throughput,
}

impl Wan {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let iperf3 = throughput::check()?;
        let mut delays = delays::measure_mahimahi();
        // Before there is any other thread.
        become_able()?;
        delays.measure_ours()?;
        let report = Report { engine: engine::measure()?, delays, throughput: throughput::measure(iperf3)? };
        let mut output = io::stdout().lock();
        if self.json {
            writeln!(output, "{}", serde_json::to_string_pretty(&report)?)?;
        } else {
            writeln!(output, "{}\n\n{}\n\n{}", report.engine, report.delays, report.throughput)?;
        }
        Ok(())
    }
}
