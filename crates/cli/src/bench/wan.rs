//! `nichrome bench wan`: the path engine's speed, the accuracy of live delays, and the throughput.

mod delays;
mod engine;
mod plan;
mod probe;
mod throughput;

use clap::Args;
use nichrome_port::gain_network_admin;
use serde::Serialize;

use super::output::OutputOptions;

use self::delays::Delays;
use self::engine::Engines;
use self::plan::{FULL, QUICK};
use self::throughput::Throughput;
use crate::picture_file;

pub(crate) use self::probe::Probe;

/// Measure the wide-area path: packets per second in virtual time, accuracy of delays on live hosts, and
/// iperf3's throughput compared with a bare copy loop.
#[derive(Args)]
pub(crate) struct Wan {
    /// Measure each value once, briefly, with delays of up to 20 ms and without Mahimahi, to check that it
    /// works. The results are rough.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: OutputOptions,
}

#[derive(Serialize)]
struct Report {
    engine: Engines,
    delays: Delays,
    throughput: Throughput,
}

impl Wan {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let output = self.output.open()?;
        let iperf3 = throughput::check()?;
        let plan = if self.quick { &QUICK } else { &FULL };
        let mut delays = Delays::new(plan);
        if plan.mahimahi {
            delays.measure_mahimahi(plan);
        }
        // Requires a single-threaded process.
        gain_network_admin()?;
        picture_file::end_on_signals()?;
        delays.measure_ours(plan)?;
        let report =
            Report { engine: engine::measure(plan)?, delays, throughput: throughput::measure(plan, iperf3)? };
        let text = format!("{}\n\n{}\n\n{}", report.engine, report.delays, report.throughput);
        output.finish("The wide-area path", &report, text, |page| page.figure(&report.delays.figure()))
    }
}
