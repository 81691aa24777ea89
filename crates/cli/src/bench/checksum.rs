//! `nichrome bench checksum`: the Internet checksum and CRC-32C of cached bytes, compared with reading them.

use std::hint::black_box;
use std::io::{self, Write};
use std::time::Instant;

use clap::Args;
use nichrome_wire::checksum::checksum;
use nichrome_wire::iwarp::crc32c;
use serde::Serialize;

use super::figures::{median, rounded};
use super::plain_read::read;

const SIZES: [usize; 6] = [64, 576, 1448, 1500, 9000, 65_536];
const RUNS: usize = 15;
/// Bytes summed per run.
const BYTES: usize = 64 << 20;

/// Measure the Internet checksum and iWARP's CRC-32C of packets in the cache, beside a plain read of the same bytes, in
/// gigabytes per second.
#[derive(Args)]
pub(crate) struct Checksum {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
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
        let sizes = SIZES.map(|bytes| Size {
            bytes,
            gb_per_s: rounded(gigabytes_per_second(bytes, checksum)),
            read_gb_per_s: rounded(gigabytes_per_second(bytes, read)),
            crc32c_gb_per_s: rounded(gigabytes_per_second(bytes, crc32c)),
        });
        let report = Report { sizes: sizes.into(), runs: RUNS };
        let mut output = io::stdout().lock();
        if self.json {
            writeln!(output, "{}", serde_json::to_string_pretty(&report)?)?;
            return Ok(());
        }
        writeln!(output, "GB/s, medians of {RUNS} runs\n")?;
        writeln!(output, "{:>6} {:>18} {:>10} {:>8}", "bytes", "Internet checksum", "plain read", "CRC-32C")?;
        for Size { bytes, gb_per_s, read_gb_per_s, crc32c_gb_per_s } in &report.sizes {
            writeln!(output, "{bytes:>6} {gb_per_s:>18.1} {read_gb_per_s:>10.1} {crc32c_gb_per_s:>8.1}")?;
        }
        Ok(())
    }
}

fn gigabytes_per_second<T>(size: usize, sum: impl Fn(&[u8]) -> T) -> f64 {
    let bytes: Vec<u8> = (0..size).map(|at| at as u8).collect();
    let times = BYTES / size;
    let run = || {
        let start = Instant::now();
        for _ in 0..times {
            black_box(sum(black_box(&bytes)));
        }
        (times * size) as f64 / start.elapsed().as_nanos().max(1) as f64
    };
    run();
    median((0..RUNS).map(|_| run()).collect())
}
