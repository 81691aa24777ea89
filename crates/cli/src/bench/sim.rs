//! `nichrome bench sim`: the simulator's events per second.
//!
//! Times are CPU seconds of this thread, so that other programs do not count.

mod hold;
mod network;

use std::io::{self, Write};

use clap::Args;
use rustix::time::{ClockId, Timespec, clock_gettime};
use serde::Serialize;

use super::figures::{median, rounded};
use crate::number::Grouped;

/// Measured runs, after one to warm up.
const RUNS: usize = 9;

/// Measure the simulator on one core: its event queue with 65,000 pending events compared with a binary heap, and a
/// simulated network of links and a switch.
#[derive(Args)]
pub(crate) struct Sim {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    pending: usize,
    /// Of the event queue alone.
    events_per_s: f64,
    /// Of a binary heap with the same operations.
    heap_events_per_s: f64,
    /// Median of the runs' ratios.
    queue_by_heap: f64,
    /// Of a simulation with its event handlers.
    network_events_per_s: f64,
    network_hosts: usize,
    /// Mean number of pending events.
    network_pending: f64,
    runs: usize,
}

impl Sim {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let report = measure()?;
        let mut output = io::stdout().lock();
        if self.json {
            writeln!(output, "{}", serde_json::to_string_pretty(&report)?)?;
            return Ok(());
        }
        writeln!(output, "one core, median of {RUNS} runs, million events a second of processor time\n")?;
        let pending = Grouped(report.pending as u64);
        for (name, rate) in [
            (format!("event queue, {pending} pending"), report.events_per_s),
            (format!("binary heap, {pending} pending"), report.heap_events_per_s),
            (
                format!("links and a switch, {} hosts, with handlers", report.network_hosts),
                report.network_events_per_s,
            ),
        ] {
            writeln!(output, "{name:<48}{:>8.2}", rate / 1e6)?;
        }
        Ok(())
    }
}

/// Returns the events per CPU second of `work`, which returns its number of events.
fn events_per_second(work: impl FnOnce() -> u64) -> f64 {
    let seconds = || {
        let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ThreadCPUTime);
        tv_sec as f64 + tv_nsec as f64 / 1e9
    };
    let start = seconds();
    let events = work();
    events as f64 / (seconds() - start)
}

/// Alternates queue, heap and network, so that noise affects all alike.
fn measure() -> anyhow::Result<Report> {
    let (mut queue, mut heap) = (hold::Queue::new(), hold::Heap::new());
    let mut network = network::Network::new()?;
    let (mut queue_rates, mut heap_rates, mut network_rates) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..=RUNS {
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
        runs: RUNS,
    })
}
