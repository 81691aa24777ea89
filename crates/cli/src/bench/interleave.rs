//! `nichrome bench lro --interleave`: the cost of coalescing interleaved flows.

use std::env;
use std::fmt;
use std::fs::{self, File as CaptureFile};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use nichrome_lro::{ChecksumStatus, Config, Medium, Profile};
use serde::Serialize;

use super::figures::rounded;
use super::lane::{BUFFERS, BURST, Plan, Subject, Traffic, Work};
use super::output::Output;
use super::traffic::{File, Flows, Interleaving};
use crate::number::Grouped;
use crate::page::{Axis, Figure, Line, Style};

/// Runs and packets for a row: few enough that a row takes less than a second.
pub(super) const PLAN: Plan = Plan { runs: 7, packets: 32_000 };
/// A single pass, for counting instructions.
const COUNTED: Plan = Plan { runs: 0, packets: 0 };

const fn row(flows: u32, in_a_row: u32, merges: bool) -> Interleaving {
    Interleaving { flows, in_a_row, merges }
}

/// The rows of the table. With 64 or more flows round robin, one segment at a time, nothing merges within a
/// burst of 32.
const ROWS: [Interleaving; 24] = [
    row(1, 1, true),
    row(4, 1, true),
    row(4, 4, true),
    row(16, 1, true),
    row(16, 2, true),
    row(16, 4, true),
    row(64, 1, true),
    row(64, 2, true),
    row(64, 4, true),
    row(256, 1, true),
    row(256, 2, true),
    row(256, 4, true),
    row(1000, 1, true),
    row(1000, 2, true),
    row(1000, 4, true),
    row(5000, 1, true),
    row(5000, 2, true),
    row(5000, 4, true),
    row(1, 1, false),
    row(4, 1, false),
    row(16, 1, false),
    row(16, 4, false),
    row(64, 2, false),
    row(1000, 2, false),
];

/// How the cost of a packet is measured.
#[derive(Clone, Copy)]
pub(super) enum Method<'f> {
    Time(Plan),
    /// Counts instructions by a child process that reads this file.
    Count(&'f Path),
}

#[derive(Serialize)]
struct Report {
    rows: Vec<Row>,
    burst: usize,
    /// Receive buffers used in turn.
    buffers: usize,
}

#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    interleaving: Interleaving,
    profiles: Vec<Figures>,
}

#[derive(Serialize)]
struct Figures {
    profile: &'static str,
    #[serde(flatten)]
    cost: Cost,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Cost {
    Time { ns_per_packet: f64, ns_per_packet_with_checksum: f64, packets_in: u64, packets_out: u64 },
    Instructions { instructions_per_packet: f64 },
}

/// Measures every row and prints the table.
pub(super) fn run(file: &File, method: Method<'_>, buffers: usize, output: Output) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for (nth, interleaving) in ROWS.into_iter().enumerate() {
        let cost = |profile| match method {
            Method::Count(path) => count(path, nth, profile),
            Method::Time(plan) => {
                measure(&subject(file, interleaving, profile, buffers), file, interleaving, plan)
            }
        };
        let profiles = Profile::ALL
            .iter()
            .map(|profile| Ok(Figures { profile: profile.name(), cost: cost(*profile)? }))
            .collect::<anyhow::Result<_>>()?;
        rows.push(Row { interleaving, profiles });
    }
    let report = Report { rows, burst: BURST, buffers };
    output.finish("Interleaved flows", &report, &report, |page| page.figure(&report.figure()))
}

impl Report {
    fn figure(&self) -> Figure {
        let name = |row: &Row| {
            let Interleaving { flows, in_a_row, merges } = row.interleaving;
            format!("{flows}/{in_a_row}{}", if merges { "" } else { " -" })
        };
        let line = |nth: usize, profile: &Profile| {
            let cost = |row: &Row| row.profiles.get(nth).map_or(f64::NAN, |of| of.cost.figure());
            Line::new(profile.name(), Style::Line, (0..).map(f64::from).zip(self.rows.iter().map(cost)))
        };
        let counts = self.rows.iter().flat_map(|row| &row.profiles).any(|of| of.cost.is_counted());
        Figure {
            title: "Cost of a packet".into(),
            x: Axis::named("flows / segments in a row, - where nothing merges", self.rows.iter().map(name)),
            y: Axis::linear(if counts { "instructions" } else { "nanoseconds" }),
            lines: Profile::ALL.iter().enumerate().map(|(nth, profile)| line(nth, profile)).collect(),
        }
    }
}

impl Cost {
    const fn is_counted(&self) -> bool {
        matches!(self, Self::Instructions { .. })
    }

    /// Nanoseconds or instructions of a packet, without checksum.
    const fn figure(&self) -> f64 {
        match self {
            Self::Time { ns_per_packet, .. } => *ns_per_packet,
            Self::Instructions { instructions_per_packet } => *instructions_per_packet,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "bursts of {BURST}, {} receive buffers in turn; per profile: cost of a packet (with checksum) and packets merged into one\n",
            Grouped(self.buffers as u64)
        )?;
        write!(f, "{:>6} {:>8} {:>7}", "flows", "in a row", "merges")?;
        for profile in Profile::ALL {
            write!(f, "{:>24}", profile.name())?;
        }
        writeln!(f)?;
        for Row { interleaving: Interleaving { flows, in_a_row, merges }, profiles } in &self.rows {
            let flows = Grouped(u64::from(*flows)).to_string();
            write!(f, "{flows:>6} {in_a_row:>8} {:>7}", if *merges { "yes" } else { "no" })?;
            for Figures { cost, .. } in profiles {
                match cost {
                    Cost::Time { ns_per_packet, ns_per_packet_with_checksum, packets_in, packets_out } => {
                        let merged = *packets_in as f64 / (*packets_out).max(1) as f64;
                        write!(
                            f,
                            "{ns_per_packet:>9.1} {:>8} {merged:>5.1}",
                            format!("({ns_per_packet_with_checksum:.1})")
                        )?;
                    }
                    Cost::Instructions { instructions_per_packet } => {
                        write!(f, "{instructions_per_packet:>24.0}")?;
                    }
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

fn measure(subject: &Subject, file: &File, interleaving: Interleaving, plan: Plan) -> anyhow::Result<Cost> {
    let works = [ChecksumStatus::Verified, ChecksumStatus::Unknown].map(Work::Coalesce);
    let [verified, unknown] =
        subject.measure(plan, works, || Ok(Traffic::Flows(Flows::interleaved(file, interleaving)?)))?;
    Ok(Cost::Time {
        ns_per_packet: rounded(verified.ns_per_packet),
        ns_per_packet_with_checksum: rounded(unknown.ns_per_packet),
        packets_in: verified.packets_in,
        packets_out: verified.packets_out,
    })
}

fn subject(file: &File, interleaving: Interleaving, profile: Profile, buffers: usize) -> Subject {
    let config = Config { medium: file.medium, ..Config::default() };
    let connections = config.max_connections.max(interleaving.flows as usize);
    Subject { profile, config, connections, buffers }
}

/// Returns the row with this number.
fn row_number(nth: usize) -> anyhow::Result<Interleaving> {
    ROWS.get(nth).copied().with_context(|| format!("there is no row {nth}: the last is {}", ROWS.len() - 1))
}

/// Runs one pass of a row through a profile and prints its number of packets.
pub(super) fn run_row(file: &File, nth: usize, profile: Profile) -> anyhow::Result<()> {
    let interleaving = row_number(nth)?;
    let [measured] = subject(file, interleaving, profile, BUFFERS).measure(
        COUNTED,
        [Work::Coalesce(ChecksumStatus::Verified)],
        || Ok(Traffic::Flows(Flows::interleaved(file, interleaving)?)),
    )?;
    writeln!(io::stdout(), "{}", measured.packets_in)?;
    Ok(())
}

/// Counts instructions in a child process under valgrind.
fn count(path: &Path, nth: usize, profile: Profile) -> anyhow::Result<Cost> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*timed_burst*", "--callgrind-out-file=/dev/null"])
        .arg(env::current_exe()?)
        .args(["bench", "lro", "--row", &nth.to_string(), "--profile", profile.name()])
        .arg(path)
        .output()
        .context("valgrind: is it installed?")?;
    let (printed, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let collected =
        log.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse::<u64>().ok());
    match (collected, printed.trim().parse::<u64>()) {
        (Some(instructions), Ok(packets)) if instructions > 0 && packets > 0 => {
            Ok(Cost::Instructions { instructions_per_packet: rounded(instructions as f64 / packets as f64) })
        }
        _ => bail!("valgrind: {}", log.lines().last().unwrap_or("it printed no count")),
    }
}

/// Writes the packets of one pass of each row as a pcap file to a directory, which is created if it is
/// missing, in a format that every benchmark reads. The file name has the row's flows, segments in a row, and
/// whether they merge.
pub(super) fn write_captures(file: &File, directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    for interleaving in ROWS {
        let Interleaving { flows, in_a_row, merges } = interleaving;
        let name = format!("{flows}-{in_a_row}-{}.pcap", if merges { "yes" } else { "no" });
        let path = directory.join(name);
        write_capture(file, interleaving, &path).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn write_capture(file: &File, interleaving: Interleaving, path: &Path) -> anyhow::Result<()> {
    const MICROSECONDS: u32 = 0xA1B2_C3D4;
    let link_type: u32 = match file.medium {
        Medium::Ethernet => 1,
        Medium::Ip => 101,
    };
    let mut output = BufWriter::new(CaptureFile::create(path)?);
    for word in [MICROSECONDS, 2 | 4 << 16, 0, 0, 65_535, link_type] {
        output.write_all(&word.to_le_bytes())?;
    }
    let mut flows = Flows::interleaved(file, interleaving)?;
    let mut frame = Vec::new();
    for packet in 0..flows.len() {
        flows.write(packet, &mut frame);
        for word in [0, packet as u32, frame.len() as u32, frame.len() as u32] {
            output.write_all(&word.to_le_bytes())?;
        }
        output.write_all(&frame)?;
    }
    output.flush()?;
    Ok(())
}
