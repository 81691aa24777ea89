//! `nichrome bench`: how fast the parts are on this machine.

mod checksum;
mod iperf3;
mod lane;
mod lro;
mod rdma;
mod sim;
mod star;
mod traffic;
mod wan;

use clap::Subcommand;

/// Measure how fast the parts are on this machine.
#[derive(Subcommand)]
pub(crate) enum Bench {
    Lro(lro::Lro),
    Checksum(checksum::Checksum),
    Wan(wan::Wan),
    Sim(sim::Sim),
    Rdma(rdma::Rdma),
    Star(star::Star),
    #[command(hide = true)]
    WanProbe(wan::Probe),
    #[command(hide = true)]
    TcpPingPong(rdma::TcpPingPong),
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
            Self::Sim(sim) => {
                pin();
                sim.run()
            }
            Self::Rdma(rdma) => rdma.run(),
            Self::Star(star) => star.run(),
            Self::WanProbe(probe) => probe.run(),
            Self::TcpPingPong(ping_pong) => ping_pong.run(),
        }
    }
}

/// Keeps this thread on the core that it is on. Where the system refuses, the figures are only less steady.
fn pin() {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
    if let Some(number) = core_of(&stat) {
        let mut core = CpuSet::new();
        core.set(number);
        let _ = sched_setaffinity(None, &core);
    }
}

/// The core that a thread is on, from its line in /proc (proc_pid_stat(5), field 39). The system call would go through
/// the vDSO, which valgrind takes away.
fn core_of(stat: &str) -> Option<usize> {
    const STATE: usize = 3;
    const PROCESSOR: usize = 39;
    // The name before the state may hold spaces and parentheses.
    let (_, from_state) = stat.rsplit_once(')')?;
    let number = from_state.split_whitespace().nth(PROCESSOR - STATE)?.parse().ok();
    number.filter(|number| *number < rustix::thread::CpuSet::MAX_CPU)
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
    fn the_core_is_read_behind_any_name() {
        let fields: String = (4..=52).map(|field| format!(" {field}")).collect();
        assert_eq!(core_of(&format!("7 (a) b) R{fields}\n")), Some(39));
        assert_eq!(core_of("7 (a) R 1 2"), None);
        assert_eq!(core_of(""), None);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![1.0]), 1.0);
        assert_eq!(median(vec![]), 0.0);
    }
}
