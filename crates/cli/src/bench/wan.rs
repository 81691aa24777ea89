//! `nichrome bench wan`: the path engine's speed, the accuracy of live delays, and the throughput.

mod delays;
mod engine;
mod probe;
mod throughput;

use std::io::{self, Write};

use clap::Args;
use nichrome_port::gain_network_admin;
use serde::Serialize;

use self::delays::Delays;
use self::engine::Engines;
use self::throughput::Throughput;

pub(crate) use self::probe::Probe;

/// Measure the wide-area path: packets per second in virtual time, accuracy of delays on live hosts, and iperf3's
/// throughput compared with a bare copy loop.
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
        // Requires a single-threaded process.
        gain_network_admin()?;
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
