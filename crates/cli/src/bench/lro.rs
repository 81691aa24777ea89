//! `nichrome bench lro`: what coalescing costs per packet.
//!
//! The method is that of the peers in `bench/peers`: see [`super::lane`].

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use nichrome_lro::{ChecksumStatus, Config, Frame, Gro, Hold, Netfpga, Npu, Output, Profile, ProfileConfig};
use nichrome_port::Buffer;
use nichrome_wire::Engine;
use serde::Serialize;

use super::figures::rounded;
use super::lane::{BURST, Lane, Measured, Traffic};
use super::traffic::{File, Flows};
use crate::engine_options::{default_profile_config, profile};
use crate::number::Grouped;

/// Runs that are measured, after one to warm up.
const RUNS: usize = 15;

/// Measure what coalescing costs per packet, without and with checksum verification.
#[derive(Args)]
pub(crate) struct Lro {
    /// The capture whose IP packets are taken in order, in bursts of 32, over and over.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The engine: gro (until the end of each burst), netfpga or npu (with their default hold times at 10 Gb/s).
    #[arg(long, value_name = "PROFILE", default_value_t, value_parser = profile)]
    profile: Profile,
    /// Take so many flows in random order instead, made of the file's first full-sized segment.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    flows: Option<u32>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    profile: &'static str,
    flows: usize,
    ns_per_packet: f64,
    ns_per_packet_with_checksum: f64,
    gbps: f64,
    gbps_with_checksum: f64,
    allocations_per_packet: f64,
    /// Of a pass over the traffic.
    packets_in: u64,
    packets_out: u64,
    runs: usize,
}

impl Lro {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let file = File::read(&self.file)?;
        let config = Config { medium: file.medium, ..Config::default() };
        // Only `npu` knows a flow that holds nothing, so only its table grows with the flows.
        let connections = config.max_connections.max(self.flows.unwrap_or(0) as usize);
        let endings = file.endings();
        let flows = self.flows.map_or(endings.len(), |flows| flows as usize);
        let traffic = || {
            Ok::<_, anyhow::Error>(match self.flows {
                Some(count) => Traffic::Flows(Flows::new(&file, count)?),
                None => Traffic::File(&file, &endings),
            })
        };
        let (verified, unknown) = match default_profile_config(self.profile) {
            ProfileConfig::Gro(_) => measure(traffic, || Gro::new(&config, Hold::Batch))?,
            ProfileConfig::Netfpga(timer) => measure(traffic, || Netfpga::new(&config, timer))?,
            ProfileConfig::Npu(npu) => {
                let config = Config { max_connections: connections, ..config };
                measure(traffic, || Npu::new(&config, &npu))?
            }
        };
        let bits = unknown.bytes_per_packet * 8.0;
        self.print(&Report {
            profile: self.profile.name(),
            flows,
            ns_per_packet: rounded(verified.ns_per_packet),
            ns_per_packet_with_checksum: rounded(unknown.ns_per_packet),
            gbps: rounded(bits / verified.ns_per_packet),
            gbps_with_checksum: rounded(bits / unknown.ns_per_packet),
            allocations_per_packet: verified.allocations_per_packet.max(unknown.allocations_per_packet),
            packets_in: unknown.packets_in,
            packets_out: unknown.packets_out,
            runs: RUNS,
        })
    }

    fn print(&self, report: &Report) -> anyhow::Result<()> {
        let mut output = io::stdout().lock();
        if self.json {
            writeln!(output, "{}", serde_json::to_string_pretty(report)?)?;
            return Ok(());
        }
        let path = self.file.display();
        writeln!(output, "{path} through {}, bursts of {BURST}, median of {RUNS} runs\n", report.profile)?;
        writeln!(output, "{:<24}{:>18}{:>18}", "", "without checksum", "with checksum")?;
        for (name, without, with) in [
            ("ns per packet", report.ns_per_packet, report.ns_per_packet_with_checksum),
            ("Gb/s", report.gbps, report.gbps_with_checksum),
        ] {
            writeln!(output, "{name:<24}{without:>18.1}{with:>18.1}")?;
        }
        writeln!(output, "{:<24}{:>18}", "allocations per packet", report.allocations_per_packet)?;
        for (name, count) in [
            ("flows", report.flows as u64),
            ("packets in per pass", report.packets_in),
            ("packets out per pass", report.packets_out),
        ] {
            writeln!(output, "{name:<24}{:>18}", Grouped(count))?;
        }
        Ok(())
    }
}

/// Measures an engine that is told that checksums are right, and one that is not. Their runs take turns, so that noise
/// hits both alike.
fn measure<'f, E, X>(
    traffic: impl Fn() -> anyhow::Result<Traffic<'f>>,
    engine: impl Fn() -> Result<E, X>,
) -> anyhow::Result<(Measured, Measured)>
where
    E: Engine<Input = Frame<Buffer>, Output = Output<Buffer>>,
    X: std::error::Error + Send + Sync + 'static,
{
    let mut verified = Lane::new(engine()?, traffic()?, ChecksumStatus::Verified);
    let mut unknown = Lane::new(engine()?, traffic()?, ChecksumStatus::Unknown);
    for _ in 0..=RUNS {
        verified.run();
        unknown.run();
    }
    Ok((verified.measured(), unknown.measured()))
}
