//! `nichrome bench`: how fast the parts are on this machine.

mod checksum;
mod lane;
mod lro;
mod traffic;
mod wan;

use clap::Subcommand;

/// Measure how fast the parts are on this machine.
#[derive(Subcommand)]
pub(crate) enum Bench {
    Lro(lro::Lro),
    Checksum(checksum::Checksum),
    Wan(wan::Wan),
    #[command(hide = true)]
    WanProbe(wan::Probe),
}

impl Bench {
    /// Runs the command.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::Lro(lro) => {
                pin();
                lro.run()
            }
            Self::Checksum(checksum) => {
                pin();
                checksum.run()
            }
            Self::Wan(wan) => wan.run(),
            Self::WanProbe(probe) => probe.run(),
        }
    }
}

/// Keeps this thread on the core that it is on. Where the system refuses, the figures are only less steady.
fn pin() {
    use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
    let mut core = CpuSet::new();
    core.set(sched_getcpu());
    let _ = sched_setaffinity(None, &core);
}

/// The median, of the middle two the upper; 0 of nothing.
fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(0.0)
}

/// A number with two decimals, as JSON has it.
fn rounded(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![1.0]), 1.0);
        assert_eq!(median(vec![]), 0.0);
    }
}
