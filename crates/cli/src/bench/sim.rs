//! `nichrome bench sim`: the simulator's events per second.
//!
//! Times are processor time of this thread, so that other programs do not affect them.

mod hold;
mod network;

use std::fmt;

use clap::Args;
use serde::Serialize;

use super::figures::{median, median_of, rounded};
use super::output::OutputOptions;
use super::thread_time::thread_time;
use crate::number::Grouped;
use crate::page::{Axis, Figure, Line, Style};
use crate::picture_file;

/// Measured runs, after one to warm up.
const RUNS: usize = 9;

/// Measure the simulator on one core: its event queue with 65,000 pending events compared with a binary heap,
/// and a simulated network of links and a switch.
#[derive(Args)]
pub(crate) struct Sim {
    /// Measure each value once, to check that it works. The results are rough.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: OutputOptions,
}

#[derive(Serialize)]
struct Report {
    pending: usize,
    /// Rate of the event queue alone.
    events_per_s: f64,
    /// Rate of a binary heap with the same operations.
    heap_events_per_s: f64,
    /// Median of the runs' ratios.
    queue_by_heap: f64,
    /// Rate of a simulation with its event handlers.
    network_events_per_s: f64,
    network_hosts: usize,
    /// Mean number of pending events.
    network_pending: f64,
    runs: usize,
}

impl Sim {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let output = self.output.open()?;
        picture_file::end_on_signals()?;
        let report = measure(if self.quick { 1 } else { RUNS })?;
        output.finish("The simulator", &report, &report, |page| page.figure(&report.figure()))
    }
}

impl Report {
    /// Returns the rates in millions of events per second, each with its label.
    fn rates(&self) -> [(String, f64); 3] {
        let pending = Grouped(self.pending as u64);
        [
            (format!("event queue, {pending} pending"), self.events_per_s),
            (format!("binary heap, {pending} pending"), self.heap_events_per_s),
            (
                format!("links and a switch, {} hosts, with handlers", self.network_hosts),
                self.network_events_per_s,
            ),
        ]
        .map(|(name, rate)| (name, rate / 1e6))
    }

    fn figure(&self) -> Figure {
        let rates = self.rates();
        let bars = (0..).map(f64::from).zip(rates.iter().map(|(_, rate)| *rate));
        Figure {
            title: "Events a second of processor time".into(),
            x: Axis::named("", rates.iter().map(|(name, _)| name.clone())),
            y: Axis::linear("million events a second"),
            lines: vec![Line::new("median of all runs", Style::Bars, bars)],
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = median_of(self.runs, "run", "runs");
        writeln!(f, "one core, {runs}, million events a second of processor time")?;
        self.rates().iter().try_for_each(|(name, rate)| write!(f, "\n{name:<48}{rate:>8.2}"))
    }
}

/// Returns the events per CPU second of `work`, which returns its number of events.
fn events_per_second(work: impl FnOnce() -> u64) -> f64 {
    let start = thread_time();
    let events = work();
    events as f64 / (thread_time() - start).as_secs_f64()
}

/// Measures `runs` runs after one to warm up. Alternates queue, heap and network, so that noise affects all
/// alike.
fn measure(runs: usize) -> anyhow::Result<Report> {
    let (mut queue, mut heap) = (hold::Queue::new(), hold::Heap::new());
    let mut network = network::Network::new()?;
    let (mut queue_rates, mut heap_rates, mut network_rates) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..=runs {
        let queue_rate = events_per_second(|| hold::run(&mut queue));
        let heap_rate = events_per_second(|| hold::run(&mut heap));
        let network_rate = events_per_second(|| network.run());
        anyhow::ensure!(
            queue.order() == heap.order(),
            "the event queue and the binary heap disagree about the order"
        );
        if run > 0 {
            queue_rates.push(queue_rate);
            heap_rates.push(heap_rate);
            network_rates.push(network_rate);
        }
    }
    let ratios = queue_rates.iter().zip(&heap_rates).map(|(queue, heap)| queue / heap).collect();
    Ok(Report {
        pending: hold::PENDING,
        events_per_s: rounded(median(queue_rates)),
        heap_events_per_s: rounded(median(heap_rates)),
        queue_by_heap: rounded(median(ratios)),
        network_events_per_s: rounded(median(network_rates)),
        network_hosts: network::HOSTS,
        network_pending: rounded(network.mean_pending()),
        runs,
    })
}
