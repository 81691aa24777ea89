//! iperf3's throughput over a path without impairments, compared with a loop that copies frames between two
//! TAP devices.

use std::fmt;
use std::sync::Arc;

use anyhow::Context;
use nichrome_port::Offloads;
use nichrome_wan::Impairments;
use serde::Serialize;

use super::super::figures::{median, median_of, rounded};
use super::super::iperf3::{self, End};
use super::plan::Plan;
use crate::copy_loop::CopyLoop;
use crate::shared_device::SharedDevice;
use crate::side::Side;
use crate::wan::{Host, LivePath, Setup};

/// Port of iperf3's server.
const PORT: u16 = 5201;

const MISSING: &str =
    "cannot run iperf3, which throughput is measured with (install Debian's package iperf3)";

#[derive(Serialize)]
pub(super) struct Throughput {
    /// Version of iperf3.
    measured_with: String,
    path_gbps: f64,
    copy_loop_gbps: f64,
    ratio: f64,
    runs: usize,
}

/// Measures the path and the copy loop alternately.
pub(super) fn measure(plan: &Plan, measured_with: String) -> anyhow::Result<Throughput> {
    let (mut path, mut copy_loop) = (Vec::new(), Vec::new());
    for _ in 0..plan.iperf3_runs {
        path.push(over_path(plan)?);
        copy_loop.push(over_copy_loop(plan)?);
    }
    let (path, copy_loop) = (median(path), median(copy_loop));
    Ok(Throughput {
        measured_with,
        path_gbps: rounded(path),
        copy_loop_gbps: rounded(copy_loop),
        ratio: rounded(path / copy_loop),
        runs: plan.iperf3_runs,
    })
}

fn hosts() -> anyhow::Result<[Host; 2]> {
    let [left, right] = Side::BOTH;
    Ok([Host::new(left, 1500, Offloads::All)?, Host::new(right, 1500, Offloads::All)?])
}

fn devices(hosts: &[Host; 2]) -> [SharedDevice; 2] {
    hosts.each_ref().map(|host| Arc::clone(&host.tap) as SharedDevice)
}

fn over_path(plan: &Plan) -> anyhow::Result<f64> {
    let hosts = hosts()?;
    let setup = Setup {
        devices: devices(&hosts),
        impairments: &[Impairments::default(), Impairments::default()],
        seed: 1,
        recording: None,
    };
    let path = LivePath::start(&setup, || {})?;
    let gbps = transfer(&hosts, plan)?;
    path.stop()?;
    Ok(gbps)
}

fn over_copy_loop(plan: &Plan) -> anyhow::Result<f64> {
    let hosts = hosts()?;
    let copying = CopyLoop::start(&devices(&hosts))?;
    let gbps = transfer(&hosts, plan)?;
    copying.stop()?;
    Ok(gbps)
}

/// Returns iperf3's throughput from the right to the left host, in Gbit/s.
fn transfer(hosts: &[Host; 2], plan: &Plan) -> anyhow::Result<f64> {
    let [left, right] = hosts;
    let stream = iperf3::Stream { server: &Side::Left.ipv4().to_string(), port: PORT, seconds: plan.seconds };
    stream.measure(|end, command| {
        let host = if end == End::Server { left } else { right };
        host.run(|| command.spawn())?.context(MISSING)
    })
}

/// Returns the version of iperf3, if it is installed.
pub(super) fn check() -> anyhow::Result<String> {
    iperf3::version().context(MISSING)
}

impl fmt::Display for Throughput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { measured_with, path_gbps, copy_loop_gbps, ratio, runs } = self;
        let runs = median_of(*runs, "run", "runs in turn");
        writeln!(f, "{measured_with} from host to host, --delay 0, {runs}")?;
        writeln!(f, "{path_gbps:>8.2} Gbit/s  over the path")?;
        write!(f, "{copy_loop_gbps:>8.2} Gbit/s  over a bare copy loop from TAP to TAP: {ratio:.2} of that")
    }
}
