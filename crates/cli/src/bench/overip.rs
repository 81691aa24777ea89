//! `nichrome bench overip`: latency, overlap, progress and processor use of RDMA over IP and of sockets
//! between two hosts, as in the figures of rdma-over-ip (sections 4 and 5).

mod bearer;
mod claims;
mod connect;
mod cpu;
mod end;
mod hosts;
mod kind;
mod latency;
mod outputs;
mod overlap;
mod page;
mod plan;
mod plot;
mod processors;
mod progress;
mod rendezvous;
mod report;
mod rounds;
mod series;
mod sockets;
mod table;
mod testbed;
mod verbs;
mod work;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use clap::builder::PossibleValuesParser;
use indicatif::{ProgressBar, ProgressStyle};
use nichrome_port::gain_network_admin;
use nichrome_wan::{Delay, Impairments};

use self::connect::Key;
use self::kind::Kind;
use self::outputs::Outputs;
use self::plan::Plan;
use self::processors::Processors;
use self::report::{Machine, Report};
use self::rounds::FIGURES;
use self::testbed::Testbed;
use crate::distinct::Distinct;
use crate::impairment_options::ImpairmentOptions;
use crate::page::PageOption;
use crate::{duration, failure, number, picture_file};

const EXAMPLES: &str = "\
Examples:
  nichrome bench overip --quick
  nichrome bench overip --html overip.html
  nichrome bench overip --figure iwarp-progress --figure iwarp-progress-delay --loss 0.1%

No root is needed, and nothing leaves this machine.";

/// Compare RDMA over IP with sockets: latency, overlap, progress and processor use over sockets, iWARP, RoCE
/// and StaR, between two hosts with a delaying path between them. Takes about ten minutes.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Overip {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Measure fewer points in shorter rounds: about a minute.
    #[arg(long)]
    quick: bool,
    /// Measure this figure only; may be given several times.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(FIGURES.map(|kind| kind.name)))]
    figure: Vec<String>,
    /// Delays of the path, one way: 0,1ms,64ms.
    #[arg(long, value_name = "TIMES", value_delimiter = ',', value_parser = duration::parse)]
    delays: Vec<Duration>,
    /// Draw each figure as an SVG picture in this folder.
    #[arg(long, value_name = "FOLDER")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    page: PageOption,
    /// The seed of the path's random choices.
    #[arg(long, value_name = "NUMBER", value_parser = number::seed, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    impairments: ImpairmentOptions,
}

/// Maximum of `--delays`: the time limits of all waits exceed it.
const LONGEST: Duration = Duration::from_secs(1);

impl Overip {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let impairments = self.impairments()?;
        let kinds: Vec<Kind> = FIGURES
            .into_iter()
            .filter(|kind| self.figure.is_empty() || self.figure.iter().any(|of| of == kind.name))
            .collect();
        let names: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
        let outputs = Outputs::create(self.svg.as_deref(), &self.page, &names)?;
        let processors = Processors::new()?;
        // Requires a single-threaded process.
        gain_network_admin()?;
        picture_file::end_on_signals()?;
        let plan = self.plan()?;
        let progress = progress_bar(kinds.iter().map(|kind| kind.steps(&plan)).sum());
        let testbed = Testbed { plan, processors, impairments, seed: self.seed, key: Key::new()?, progress };
        let measured = rounds::measure(&testbed, &kinds)?;
        testbed.progress.finish_and_clear();
        let count = testbed.processors.count();
        let report = Report {
            machine: Machine { processors: count, optimized: !cfg!(debug_assertions) },
            quick: self.quick,
            claims: claims::evaluate(&measured, count),
            figures: measured,
        };
        let text = if self.json { serde_json::to_string_pretty(&report)? } else { report.to_string() };
        // Returned last: results that cannot be printed are still in the files.
        let printed = writeln!(io::stdout(), "{text}").context("cannot print the results");
        outputs.finish(&report, self.seed)?;
        printed
    }

    fn plan(&self) -> anyhow::Result<Plan> {
        let plan = if self.quick { Plan::quick() } else { Plan::full() };
        if self.delays.is_empty() {
            return Ok(plan);
        }
        let mut delays = self.delays.clone();
        delays.sort();
        delays.dedup();
        Ok(Plan { delays, ..plan })
    }

    /// Returns the path's impairments from the options, which must not set a delay: the figures vary it.
    fn impairments(&self) -> anyhow::Result<[Impairments; 2]> {
        let mut files = Distinct::default();
        let (settings, impairments) = self.impairments.impairments(&mut files)?;
        files.write([self.page.output()])?;
        settings.warn(&impairments);
        if impairments.iter().any(|of| of.delay != Delay::ZERO) {
            return Err(failure::usage(
                "the figures vary the delay of the path: set it with --delays, such as --delays 0,5ms",
            ));
        }
        if self.delays.iter().any(|delay| *delay > LONGEST) {
            return Err(failure::usage("--delays takes delays of at most 1s"));
        }
        Ok(impairments)
    }
}

/// Shows a progress bar if standard error is a terminal.
fn progress_bar(steps: usize) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos} of {len}, {eta} left: {msg}");
    ProgressBar::new(steps as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
