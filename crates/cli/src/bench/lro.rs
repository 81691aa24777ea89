//! `nichrome bench lro`: the cost of coalescing per packet.
//!
//! The benchmarks of the peers in `bench/peers` use the same method: see [`super::lane`].

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use nichrome_lro::{Config, Profile};
use serde::Serialize;

use super::figures::{median_of, rounded};
use super::interleave::{self, Method};
use super::lane::{BUFFERS, BURST, Plan, Subject, Traffic, Work};
use super::output::OutputOptions;
use super::traffic::{File, Flows};
use crate::distinct::Distinct;
use crate::engine_options::profile;
use crate::number::{self, Grouped};
use crate::page::{Axis, Figure, Line, Style};
use crate::picture_file;

const PLAN: Plan = Plan { runs: 15, packets: 144_000 };
/// With --quick.
const QUICK: Plan = Plan { runs: 1, packets: 1600 };

/// Measure the cost of coalescing per packet, without and with checksum verification.
#[derive(Args)]
pub(crate) struct Lro {
    /// The capture to take IP packets from, in order, in bursts of 32, repeatedly.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The engine: gro (holds until the end of each burst), netfpga or npu (with their default hold times at
    /// 10 Gb/s).
    #[arg(long, value_name = "PROFILE", default_value_t, value_parser = profile(), hide_possible_values = true)]
    profile: Profile,
    /// Use this many flows in random order instead, made from the file's first full-sized segment.
    #[arg(long, value_name = "N", value_parser = number::whole(1..=10_000_000_u32))]
    flows: Option<u32>,
    /// Print a table for all profiles with interleaved flows: varying numbers of flows and of segments in a
    /// row, made from the file's first full-sized segment.
    #[arg(long, conflicts_with_all = ["profile", "flows"])]
    interleave: bool,
    /// Use this many receive buffers in turn (more if the engine holds more). Few buffers stay in the nearest
    /// caches; as many as a card has (4096) evict the state of many flows.
    #[arg(
        long,
        value_name = "N",
        default_value_t = BUFFERS,
        value_parser = number::whole(1..=1_000_000_usize),
        conflicts_with_all = ["instructions", "captures"]
    )]
    buffers: usize,
    /// With --interleave: count instructions per packet, without checksum, by valgrind. Independent of other
    /// load on the machine.
    #[arg(long, requires = "interleave")]
    instructions: bool,
    /// With --interleave: write the packets of each row to a pcap file in this directory instead.
    #[arg(long, value_name = "DIR", requires = "interleave", conflicts_with = "instructions")]
    captures: Option<PathBuf>,
    /// Measure each value once, briefly, to check that it works. The results are rough.
    #[arg(long, conflicts_with_all = ["instructions", "captures"])]
    quick: bool,
    /// Internal: the row and profile to run under valgrind.
    #[arg(long, hide = true, requires = "profile", conflicts_with = "interleave")]
    row: Option<usize>,
    #[command(flatten)]
    output: OutputOptions,
}

#[derive(Serialize)]
struct Report {
    profile: &'static str,
    flows: usize,
    ns_per_packet: f64,
    ns_per_packet_with_checksum: f64,
    /// Nanoseconds per packet to read the same bytes without other work.
    ns_per_packet_read: f64,
    gbps: f64,
    gbps_with_checksum: f64,
    allocations_per_packet: f64,
    /// Packets of one pass over the traffic.
    packets_in: u64,
    packets_out: u64,
    /// Receive buffers used in turn.
    buffers: usize,
    runs: usize,
}

impl Lro {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let mut files = Distinct::default();
        files.read("FILE", &self.file)?;
        files.write([self.output.page()])?;
        let file = File::read(&self.file)?;
        if let Some(row) = self.row {
            return interleave::run_row(&file, row, self.profile);
        }
        if let Some(directory) = &self.captures {
            return interleave::write_captures(&file, directory);
        }
        if self.interleave {
            let method = match (self.instructions, self.quick) {
                (true, _) => Method::Count(&self.file),
                (false, true) => Method::Time(QUICK),
                (false, false) => Method::Time(interleave::PLAN),
            };
            picture_file::end_on_signals()?;
            return interleave::run(&file, method, self.buffers, self.output.open()?);
        }
        let output = self.output.open()?;
        picture_file::end_on_signals()?;
        let plan = if self.quick { QUICK } else { PLAN };
        let config = Config { medium: file.medium, ..Config::default() };
        // Only `npu` keeps flows without held segments, so only its table must grow with the flows.
        let connections = config.max_connections.max(self.flows.unwrap_or(0) as usize);
        let endings = file.endings();
        let flows = self.flows.map_or(endings.len(), |flows| flows as usize);
        let traffic = || {
            Ok::<_, anyhow::Error>(match self.flows {
                Some(count) => Traffic::Flows(Flows::new(&file, count)?),
                None => Traffic::File(&file, &endings),
            })
        };
        let subject = Subject { profile: self.profile, config, connections, buffers: self.buffers };
        let [verified, unknown, read] = subject.measure(plan, Work::BESIDE_READ, traffic)?;
        let bits = unknown.bytes_per_packet * 8.0;
        let report = Report {
            profile: self.profile.name(),
            flows,
            ns_per_packet: rounded(verified.ns_per_packet),
            ns_per_packet_with_checksum: rounded(unknown.ns_per_packet),
            ns_per_packet_read: rounded(read.ns_per_packet),
            gbps: rounded(bits / verified.ns_per_packet),
            gbps_with_checksum: rounded(bits / unknown.ns_per_packet),
            allocations_per_packet: verified.allocations_per_packet.max(unknown.allocations_per_packet),
            packets_in: unknown.packets_in,
            packets_out: unknown.packets_out,
            buffers: self.buffers,
            runs: plan.runs,
        };
        let title = format!("{} through {}", self.file.display(), report.profile);
        output.finish(&title, &report, Text { title: &title, report: &report }, |page| {
            page.figure(&report.figure())
        })
    }
}

impl Report {
    fn figure(&self) -> Figure {
        let bars = [(0.0, self.ns_per_packet), (1.0, self.ns_per_packet_with_checksum)];
        Figure {
            title: "Cost of a packet".into(),
            x: Axis::named("", ["without checksum".to_owned(), "with checksum".to_owned()]),
            y: Axis::linear("nanoseconds"),
            lines: vec![Line::new(self.profile, Style::Bars, bars)],
        }
    }
}

/// The report for people.
struct Text<'a> {
    title: &'a str,
    report: &'a Report,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { title, report } = self;
        writeln!(f, "{title}, bursts of {BURST}, {}\n", median_of(report.runs, "run", "runs"))?;
        writeln!(f, "{:<24}{:>18}{:>18}", "", "without checksum", "with checksum")?;
        for (name, without, with) in [
            ("ns per packet", report.ns_per_packet, report.ns_per_packet_with_checksum),
            ("Gb/s", report.gbps, report.gbps_with_checksum),
        ] {
            writeln!(f, "{name:<24}{without:>18.1}{with:>18.1}")?;
        }
        writeln!(f, "{:<24}{:>18}{:>18.1}", "plain read, ns", "", report.ns_per_packet_read)?;
        writeln!(f, "{:<24}{:>18}", "allocations per packet", report.allocations_per_packet)?;
        for (name, count) in [
            ("flows", report.flows as u64),
            ("packets in per pass", report.packets_in),
            ("packets out per pass", report.packets_out),
        ] {
            writeln!(f, "{name:<24}{:>18}", Grouped(count))?;
        }
        Ok(())
    }
}
