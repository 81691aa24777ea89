//! `nichrome demo`: the effect of receive offload, measured between two real kernels on this machine.

mod page;
mod plot;
mod run;
mod summary;
mod traffic;
mod usage;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use nichrome_lro::{ActiveAck, Hold, NetfpgaConfig, NpuConfig, ProfileConfig};
use nichrome_port::gain_network_admin;
use nichrome_wan::Impairments;

use self::run::{Card, Plan};
use self::summary::{Summary, Traffic};
use crate::distinct::Distinct;
use crate::failure;
use crate::impairment_options::ImpairmentOptions;
use crate::number;
use crate::page::PageOption;
use crate::picture_file::{self, PictureFile};

const EXAMPLES: &str = "\
Examples:
  nichrome demo --quick
  nichrome demo --plot demo.svg --html demo.html
  nichrome demo --delay 5ms --loss 0.1%               the same over a worse path

Two hosts, each with the kernel's own TCP in a network namespace of its own and a Nichrome card, send over a wire \
between the cards. No root is needed, and nothing leaves this machine.";

/// Measure the effect of receive offload: TCP between two real kernels, each behind a card.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Demo {
    /// Fewer and shorter runs: twenty seconds instead of two minutes. Over a path with delay, each run warms
    /// up for ten round trips.
    #[arg(long)]
    quick: bool,
    /// Measure every run N times, in rounds over all runs, and report each run's median by throughput.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::whole(1..=99_u16))]
    rounds: u16,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Plot throughput over the number of connections to this file, as SVG.
    #[arg(long, value_name = "FILE.svg", value_parser = picture_file::svg())]
    plot: Option<PathBuf>,
    #[command(flatten)]
    page: PageOption,
    #[command(flatten)]
    impairments: ImpairmentOptions,
}

/// Returns the cards to compare.
fn cards() -> [Card; 6] {
    let npu =
        |active_ack| Card::Nichrome(ProfileConfig::Npu(NpuConfig { active_ack, ..NpuConfig::default() }));
    [
        Card::WithoutOffload,
        Card::Nichrome(ProfileConfig::Netfpga(NetfpgaConfig::with_timer(Duration::from_micros(50)))),
        npu(ActiveAck::Off),
        npu(ActiveAck::Safe),
        Card::Nichrome(ProfileConfig::Gro(Hold::Batch)),
        Card::KernelGro,
    ]
}

impl Demo {
    /// Runs the command.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let mut files = Distinct::default();
        let (settings, impairments) = self.impairments.impairments(&mut files)?;
        files.write([("--plot", self.plot.as_deref()), self.page.output()])?;
        settings.warn(&impairments);
        let plot = self.plot.as_deref().map(PictureFile::create).transpose()?;
        let page = self.page.create()?;
        // Requires a single-threaded process.
        gain_network_admin()?;
        picture_file::end_on_signals()?;
        let is_clean = settings.is_empty();
        let plans = self.plans(is_clean);
        let progress = progress(plans.len() * usize::from(self.rounds));
        let mut rounds = Vec::new();
        for _ in 0..self.rounds {
            rounds.push(self.round(&plans, &impairments, is_clean, &progress)?);
        }
        let summary = Summary::of_medians(rounds);
        progress.finish_and_clear();
        let text = if self.json { serde_json::to_string_pretty(&summary)? } else { summary.to_string() };
        // Returned last: results that cannot be printed are still in the files.
        let printed = writeln!(io::stdout(), "{text}").context("cannot print the results");
        let drawn = plot.map_or(Ok(()), |file| file.finish(&plot::draw(&summary)?));
        let paged = page.finish(|| page::page(&summary));
        failure::first_of([drawn, paged].into_iter().filter_map(Result::err))?;
        printed
    }

    /// Measures all runs once. Without impairments (`is_clean`) also measures the copy loop, which has no
    /// path that they could apply to.
    fn round(
        &self,
        plans: &[Plan],
        impairments: &[Impairments; 2],
        is_clean: bool,
        progress: &ProgressBar,
    ) -> anyhow::Result<Summary> {
        let mut summary = Summary::default();
        for plan in plans {
            progress.set_message(plan.to_string());
            let run = plan.measure(impairments).with_context(|| plan.to_string())?;
            summary.runs.push(run);
            progress.inc(1);
        }
        progress.set_message("64 KB frames passed through");
        for connections in self.ends().filter(|_| is_clean) {
            summary.unsegmented.push(run::unsegmented(connections, self.time())?);
        }
        Ok(summary)
    }

    fn time(&self) -> Duration {
        Duration::from_millis(if self.quick { 850 } else { 1700 })
    }

    fn connections(&self) -> &'static [usize] {
        if self.quick { &[1, 64] } else { &[1, 2, 4, 8, 16, 32, 64] }
    }

    /// Returns the lowest and the highest number of connections.
    fn ends(&self) -> impl Iterator<Item = usize> {
        let connections = self.connections();
        connections.first().into_iter().chain(connections.last()).copied()
    }

    /// Returns the runs. With impairments (not `is_clean`) leaves out kernel GRO, whose veth has no path that
    /// they could apply to.
    fn plans(&self, is_clean: bool) -> Vec<Plan> {
        let connections = self.connections();
        let time = self.time();
        let cards = || cards().into_iter().filter(move |card| is_clean || *card != Card::KernelGro);
        let bulk = connections.iter().flat_map(|&connections| {
            cards().map(move |card| Plan { card, traffic: Traffic::Bulk { connections }, time })
        });
        let unequal = cards().map(|card| Plan { card, traffic: Traffic::TwoRates, time });
        if self.quick { bulk.collect() } else { bulk.chain(unequal).collect() }
    }
}

/// Creates a progress bar, shown on a terminal.
fn progress(runs: usize) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{wide_bar} {pos} of {len}, {eta} left: {msg}");
    ProgressBar::new(runs as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
