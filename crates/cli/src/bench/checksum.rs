//! `nichrome bench checksum`: the Internet checksum and CRC-32C of cached bytes, compared with reading them.

use std::fmt;
use std::hint::black_box;
use std::time::Instant;

use clap::Args;
use nichrome_wire::checksum::checksum;
use nichrome_wire::iwarp::crc32c;
use serde::Serialize;

use super::figures::{median, medians, rounded};
use super::output::OutputOptions;
use super::plain_read::read;
use crate::page::{Axis, Figure, Line, Scale, Style};
use crate::picture_file;

const SIZES: [usize; 6] = [64, 576, 1448, 1500, 9000, 65_536];

/// The extent of a measurement.
struct Plan {
    /// Measured runs, after one to warm up.
    runs: usize,
    /// Bytes summed per run.
    bytes: usize,
}

const PLAN: Plan = Plan { runs: 15, bytes: 64 << 20 };
/// With --quick.
const QUICK: Plan = Plan { runs: 1, bytes: 1 << 20 };

/// Measure the Internet checksum and iWARP's CRC-32C of packets in the cache, beside a plain read of the same
/// bytes, in gigabytes per second.
#[derive(Args)]
pub(crate) struct Checksum {
    /// Measure each value once, briefly, to check that it works. The results are rough.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: OutputOptions,
}

#[derive(Serialize)]
struct Report {
    sizes: Vec<Size>,
    runs: usize,
}

#[derive(Serialize)]
struct Size {
    bytes: usize,
    gb_per_s: f64,
    read_gb_per_s: f64,
    crc32c_gb_per_s: f64,
}

impl Checksum {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let output = self.output.open()?;
        picture_file::end_on_signals()?;
        let plan = if self.quick { QUICK } else { PLAN };
        let sizes = SIZES.map(|bytes| Size {
            bytes,
            gb_per_s: rounded(plan.gigabytes_per_second(bytes, checksum)),
            read_gb_per_s: rounded(plan.gigabytes_per_second(bytes, read)),
            crc32c_gb_per_s: rounded(plan.gigabytes_per_second(bytes, crc32c)),
        });
        let report = Report { sizes: sizes.into(), runs: plan.runs };
        output.finish("Checksums", &report, &report, |page| page.figure(&report.figure()))
    }
}

impl Report {
    fn figure(&self) -> Figure {
        let line = |name: &str, of: fn(&Size) -> f64| {
            Line::new(name, Style::Line, self.sizes.iter().map(|size| (size.bytes as f64, of(size))))
        };
        Figure {
            title: "Throughput".into(),
            x: Axis::new("bytes at a time", Scale::Log2),
            y: Axis::linear("GB/s"),
            lines: vec![
                line("Internet checksum", |size| size.gb_per_s),
                line("plain read", |size| size.read_gb_per_s),
                line("CRC-32C", |size| size.crc32c_gb_per_s),
            ],
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "GB/s, {}\n", medians(self.runs, "run", "runs"))?;
        write!(f, "{:>6} {:>18} {:>10} {:>8}", "bytes", "Internet checksum", "plain read", "CRC-32C")?;
        for Size { bytes, gb_per_s, read_gb_per_s, crc32c_gb_per_s } in &self.sizes {
            write!(f, "\n{bytes:>6} {gb_per_s:>18.1} {read_gb_per_s:>10.1} {crc32c_gb_per_s:>8.1}")?;
        }
        Ok(())
    }
}

impl Plan {
    fn gigabytes_per_second<T>(&self, size: usize, sum: impl Fn(&[u8]) -> T) -> f64 {
        let bytes: Vec<u8> = (0..size).map(|at| at as u8).collect();
        let times = self.bytes / size;
        let run = || {
            let start = Instant::now();
            for _ in 0..times {
                black_box(sum(black_box(&bytes)));
            }
            (times * size) as f64 / start.elapsed().as_nanos().max(1) as f64
        };
        run();
        median((0..self.runs).map(|_| run()).collect())
    }
}
